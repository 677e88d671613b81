package storage

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"edged/record"
)

// A reader that goes on where it was gets what the log holds now, also where the log's end was
// replaced meanwhile and the entry it would go on with is another, or none of it is a batch.
func TestReadFrom_goesOnInALogThatChanged(t *testing.T) {
	noop := func(index uint64) Entry { return Entry{Index: index, Term: 2, Kind: KindEmpty} }
	for name, suffix := range map[string][]Entry{
		"later":   append([]Entry{noop(11), noop(12), noop(13)}, batches(14, 2, 18, 3, 100)...),
		"earlier": append(batches(10, 2, 18, 4, 100), noop(14), noop(15)),
		"shorter": batches(6, 2, 10, 6, 100),
		"gone":    batches(10, 2, 18, 2, 100),
		"empty":   append(batches(10, 2, 18, 2, 100), noop(12), noop(13)),
	} {
		t.Run(name, func(t *testing.T) {
			s := mustOpen(t, vfs.NewMem(), Options{MemTableSize: minMemTableSize})
			defer mustClose(t, s)
			// Nine batches, an entry without offsets, five batches: offset 18 is in entry 11.
			es := append(batches(1, 1, 0, 9, 100), Entry{Index: 10, Term: 1, Kind: KindEmpty})
			mustCommit(t, s, create(7), Update{Group: 7, Entries: append(es, batches(11, 1, 18, 5, 100)...)})
			_, next, err := s.ReadFrom(7, 0, 20, 1<<30, nil)
			if err != nil || next != 20 {
				t.Fatal(next, err)
			}
			if _, ok := s.cursors.find(7, next); !ok {
				t.Fatal("the place is not remembered: this test proves nothing")
			}
			mustCommit(t, s, Update{Group: 7, Entries: suffix})
			st, _ := s.State(7)
			var want []byte
			if all, err := s.Entries(7, 1, st.LastIndex+1, 1<<30); err != nil {
				t.Fatal(err)
			} else {
				for _, e := range all {
					if e.Kind == KindBatch && e.BaseOffset >= next {
						want = append(want, e.Data...)
					}
				}
			}
			got, end, err := s.ReadFrom(7, next, st.NextOffset, 1<<30, nil)
			if err != nil || end != st.NextOffset || !bytes.Equal(got, want) {
				t.Fatalf("from %d to %d, %d bytes, want to %d, %d bytes: %v", next, end, len(got), st.NextOffset, len(want), err)
			}
		})
	}
}

// Batches that have a block of a table for themselves are read from the card once, not
// again to see that they do not fit or to find them in the index.
func TestReadFrom_readsALargeBatchOnce(t *testing.T) {
	const n, size = 64, 256 << 10
	s := mustOpen(t, vfs.NewMem(), Options{MemTableSize: 1 << 20, CacheSize: 64 << 10})
	defer mustClose(t, s)
	mustCommit(t, s, create(7))
	for i := range n {
		mustCommit(t, s, Update{Group: 7, Entries: batches(uint64(i+1), 1, 2*record.Offset(i), 1, size)})
	}
	misses := func(forget bool) int64 {
		before := s.db.Metrics().BlockCache.Misses
		for next := record.Offset(0); next < 2*n; {
			if forget {
				s.cursors = cursors{}
			}
			out, end, err := s.ReadFrom(7, next, 2*n, size, nil)
			if err != nil || end != next+2 || len(out) != size {
				t.Fatal(end, len(out), err)
			}
			next = end
		}
		return s.db.Metrics().BlockCache.Misses - before
	}
	// A miss a batch, and some of the tables' own index; without cursors the blocks of the index as well.
	if with, without := misses(false), misses(true); with > 3*n || without < with+n/2 {
		t.Fatalf("%d misses of the cache for %d batches, %d without cursors", with, n, without)
	} else {
		t.Logf("%d misses of the cache for %d batches, %d without cursors", with, n, without)
	}
}
