package storage

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"edged/record"
)

// TestOldest_whatCameFirstGoesFirst: of a quiet group and a busy one the records of the same time go, as many
// as were asked for, and none of a group that may not go.
func TestOldest_whatCameFirstGoesFirst(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), Options{MemTableSize: 256 << 10})
	defer mustClose(t, s)
	f := newFiller(t, s, 3, 8, 1000)
	for range 400 {
		if err := f.commit(); err != nil {
			t.Fatal(err)
		}
	}
	all := s.LiveBytes()
	if all != s.Size(0)+s.Size(1)+s.Size(2) || all < f.written {
		t.Fatalf("%d live bytes, written %d", all, f.written)
	}
	mayGo := func(g record.GroupID) bool { return g != 2 }
	for _, free := range []int64{1, all / 4, all / 2} {
		keep := s.Oldest(free, mayGo)
		goes := int64(0)
		for g, o := range keep {
			if g == 2 {
				t.Errorf("records of group 2 would go")
			}
			base, _, _, _ := s.Bounds(g)
			goes += int64(o-base.LogStart) * 1000 // a record of the filler is one offset of 1000 bytes
		}
		if goes < free || goes > free+256<<10 {
			t.Errorf("to free %d bytes %d would go: %v", free, goes, keep)
		}
		if d := keep[0] - keep[1]; d < -10 || d > 10 {
			t.Errorf("groups that grow alike lose what is not of the same time: %v", keep)
		}
	}
	if keep := s.Oldest(0, mayGo); len(keep) != 0 {
		t.Errorf("for nothing %v would go", keep)
	}
}
