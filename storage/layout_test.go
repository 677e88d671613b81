package storage

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"edged/record"
)

// fill appends random bytes to groups in turn, perCommit appends of size bytes each commit.
type filler struct {
	s                 *Store
	groups, perCommit int
	size              int
	index             []uint64
	rng               *rand.Rand
	turn              int
	data              []byte
	written           int64
	class             func(g record.GroupID) uint8
	sync              bool
}

func newFiller(t testing.TB, s *Store, groups, perCommit, size int) *filler {
	f := &filler{s: s, groups: groups, perCommit: perCommit, size: size, index: make([]uint64, groups), rng: rand.New(rand.NewPCG(1, 1)),
		class: func(record.GroupID) uint8 { return 0 }, sync: true}
	for g := range groups {
		u := create(record.GroupID(g))
		u.Class = f.class(record.GroupID(g))
		mustCommit(t, s, u)
	}
	f.data = make([]byte, perCommit*size)
	return f
}

func (f *filler) commit() error {
	for i := 0; i+8 <= len(f.data); i += 8 {
		n := f.rng.Uint64()
		for j := range 8 {
			f.data[i+j] = byte(n >> (8 * j))
		}
	}
	us := make([]Update, 0, f.perCommit)
	for i := range f.perCommit {
		g := f.turn
		f.turn = (f.turn + 1) % f.groups
		f.index[g]++
		n := f.index[g]
		us = append(us, Update{Group: record.GroupID(g), Class: f.class(record.GroupID(g)), Entries: []Entry{{Index: n, Term: 1, Kind: KindBatch,
			BaseOffset: record.Offset(n - 1), Count: 1, MaxTimestamp: int64(n), Data: f.data[i*f.size : (i+1)*f.size]}}})
		f.written += int64(f.size)
	}
	return f.s.Commit(us, f.sync)
}

// TestWriteAmplification: about two bytes are written for each byte that is appended, for any
// number of groups; the tables of different buckets do not overlap, so nothing is rewritten.
func TestWriteAmplification(t *testing.T) {
	for _, groups := range []int{1, 16, 128} {
		fs := newHookFS(vfs.NewMem())
		var bytes atomic.Int64
		fs.set(func(op fsOp) error {
			if op.kind == opWrite && op.after {
				bytes.Add(int64(op.bytes))
			}
			return nil
		})
		s := mustOpen(t, fs, Options{MemTableSize: 512 << 10})
		f := newFiller(t, s, groups, 16, 1024)
		start := bytes.Load()
		f.written = 0
		for f.written < 24<<20 {
			if err := f.commit(); err != nil {
				t.Fatal(err)
			}
		}
		mustClose(t, s)
		wa := float64(bytes.Load()-start) / float64(f.written)
		t.Logf("%d groups: %.3f", groups, wa)
		if wa < 1.9 || wa > 2.35 {
			t.Errorf("%d groups: write amplification %.3f", groups, wa)
		}
	}
}

// TestOneTablePerBucketAndClass: the writer's count of the memtable is right, so that the
// engine never ends one by itself, and tables are cut where the classes meet.
func TestOneTablePerBucketAndClass(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), Options{MemTableSize: 1 << 20})
	defer mustClose(t, s)
	f := newFiller(t, s, 30, 16, 900)
	f.class = func(g record.GroupID) uint8 { return uint8(g % 3) }
	for range 800 {
		if err := f.commit(); err != nil {
			t.Fatal(err)
		}
	}
	<-s.w.flushed
	tables, err := s.db.SSTables()
	if err != nil {
		t.Fatal(err)
	}
	perSlot := map[slot]int{}
	for _, level := range tables {
		for _, table := range level {
			first, last := table.Smallest.UserKey, table.Largest.UserKey
			a, _, _, isLog := parseLogKey(first)
			b, _, _, _ := parseLogKey(last)
			if (first[0] == prefixLog) != (last[0] == prefixLog) || isLog && a.class() != b.class() {
				t.Errorf("a table from %x to %x", first, last)
			}
			if isLog {
				for bucket := a.bucket(); bucket <= b.bucket(); bucket++ {
					perSlot[makeSlot(a.class(), bucket)]++
				}
			}
		}
	}
	if buckets := int(s.w.bucket) - 1; len(perSlot) < 3*(buckets-3) || buckets < 8 {
		t.Errorf("%d slots for %d buckets", len(perSlot), buckets)
	}
	for sl, n := range perSlot {
		if n > 1 && sl.bucket() > 1 {
			t.Errorf("bucket %d of class %d is in %d tables", sl.bucket(), sl.class(), n)
		}
	}
}

// TestCommitsAreSplit: no batch takes more than a quarter of the memtable, unless one entry does.
func TestCommitsAreSplit(t *testing.T) {
	fs := newHookFS(vfs.NewMem())
	s := mustOpen(t, fs, Options{MemTableSize: 1 << 20})
	defer mustClose(t, s)
	mustCommit(t, s, create(1))
	var largest atomic.Int64
	fs.set(func(op fsOp) error {
		if op.is(opWrite, "*.log") && !op.after {
			largest.Store(max(largest.Load(), int64(op.bytes)))
		}
		return nil
	})
	mustCommit(t, s, Update{Group: 1, Entries: batches(1, 1, 0, 3000, 1000)})
	syncs := s.syncs.Load()
	if syncs != 2 {
		t.Errorf("%d syncs for two commits", syncs)
	}
	if st, _ := s.State(1); st.LastIndex != 3000 {
		t.Error(st.LastIndex)
	}
	if s.stalls.Load() > 0 {
		t.Errorf("%d stalls", s.stalls.Load())
	}
}

// TestReclaimGivesSpaceBack, nearly all of it, at once, without writing; and only in whole
// buckets that are dead for every group of the class.
func TestReclaimGivesSpaceBack(t *testing.T) {
	fs := newHookFS(vfs.NewMem())
	var written atomic.Int64
	fs.set(func(op fsOp) error {
		if op.is(opWrite, "*.sst") && op.after {
			written.Add(int64(op.bytes))
		}
		return nil
	})
	s := mustOpen(t, fs, Options{MemTableSize: 256 << 10})
	f := newFiller(t, s, 8, 8, 1024)
	f.class = func(g record.GroupID) uint8 { return uint8(g % 2) }
	for f.written < 8<<20 {
		if err := f.commit(); err != nil {
			t.Fatal(err)
		}
	}
	<-s.w.flushed
	s.waiters.Wait()
	if n, err := s.Reclaim(); err != nil || n > 0 {
		t.Fatal("gave back what lives", n, err)
	}
	halfOf := func(g record.GroupID) {
		half := f.index[g] / 2
		mustCommit(t, s, Update{Group: g, Class: f.class(g), Base: &Base{Index: half, Term: 1, NextOffset: record.Offset(half), LogStart: record.Offset(half)},
			Checkpoint: &Checkpoint{Applied: half}})
	}
	before, wrote := s.Metrics().DiskBytes, written.Load()
	for g := record.GroupID(0); g < 8; g += 2 { // class 0
		halfOf(g)
	}
	n, err := s.Reclaim()
	s.db.TestOnlyWaitForCleaning()
	after := s.Metrics().DiskBytes
	if err != nil || n < 3<<19 || before-after < 3<<19 || n > 5<<19 {
		t.Errorf("freed %d, disk %d to %d, %v", n, before, after, err)
	}
	if w := written.Load() - wrote; w > 50<<10 {
		t.Errorf("%d bytes of tables were written for it", w)
	}
	// All of class 1 but one group: what that one has is written anew, the rest comes back.
	for g := record.GroupID(1); g < 7; g += 2 {
		halfOf(g)
	}
	all, err := s.Entries(7, 1, f.index[7]+1, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	wrote = written.Load()
	n = reclaimAll(t, s)
	if w := written.Load() - wrote; n < 5<<18 || w > n/2 {
		t.Errorf("%d bytes were written to free %d", w, n)
	}
	again, err := s.Entries(7, 1, f.index[7]+1, 1<<40)
	if err != nil || len(again) != len(all) {
		t.Fatal(len(again), len(all), err)
	}
	for i := range all {
		if !sameEntry(all[i], again[i]) {
			t.Fatal("entry", all[i].Index)
		}
	}
	halfOf(7)
	if n := reclaimAll(t, s); n < 1<<18 {
		t.Error("what was rewritten is not given back", n)
	}
	mustCommit(t, s, Update{Group: 0, Remove: true}, Update{Group: 2, Remove: true}, Update{Group: 4, Remove: true}, Update{Group: 6, Remove: true})
	if n := reclaimAll(t, s); n < 3<<19 {
		t.Error("removed groups keep their space", n)
	}
	mustClose(t, s)
	s = mustOpen(t, fs, Options{MemTableSize: 256 << 10}) // what was in the open bucket is nobody's now
	if _, err := s.Reclaim(); err != nil {
		t.Error(err)
	}
	mustClose(t, s)
	if r, err := Verify(fs, "data"); err != nil || len(r.Problems) > 0 {
		t.Error(err, r.Problems)
	}
}

// reclaimAll calls Reclaim until it has nothing left to do.
func reclaimAll(t *testing.T, s *Store) (total int64) {
	for {
		n, err := s.Reclaim()
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return total
		}
		total += n
	}
}

// TestRetentionPointIsNear: what is kept too much is less than a step of the index.
func TestRetentionPointIsNear(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), Options{MemTableSize: 1 << 20})
	defer mustClose(t, s)
	f := newFiller(t, s, 2, 8, 1000)
	for range 1000 {
		if err := f.commit(); err != nil {
			t.Fatal(err)
		}
	}
	size := s.Size(0)
	for _, keepBytes := range []int64{0, 1, 50_000, size / 2, size - 100_000} {
		keep, ok := s.RetentionPoint(0, 0, keepBytes, 1<<60)
		left := (int64(f.index[0]) - int64(keep)) * 1000
		if !ok || left < keepBytes || left > keepBytes+indexBytes+2000 {
			t.Errorf("keep %d: %v, %d bytes from %d", keepBytes, ok, left, keep)
		}
	}
	for _, ms := range []int64{500, 2000, 3999} {
		keep, ok := s.RetentionPoint(0, ms, -1, 1<<60)
		if !ok || int64(keep) > ms || ms-int64(keep) > 35 {
			t.Errorf("before %d: %v, from %d", ms, ok, keep)
		}
	}
	if _, ok := s.RetentionPoint(0, 0, size, 1<<60); ok {
		t.Error("something goes although all may stay")
	}
	if keep, ok := s.RetentionPoint(0, 0, 0, 1234); !ok || keep != 1234 {
		t.Error("the limit was passed", keep, ok)
	}
	if _, ok := s.RetentionPoint(99, 0, 0, 1); ok {
		t.Error("a group that is not there")
	}
}

// TestSlowPartitionKeepsTime: with little traffic all of a week is in one bucket; the index still
// knows ten minutes from each other.
func TestSlowPartitionKeepsTime(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), Options{})
	defer mustClose(t, s)
	mustCommit(t, s, create(1))
	const minute = 60_000
	for i := range uint64(2000) {
		e := batches(i+1, 1, record.Offset(2*i), 1, 150)
		e[0].MaxTimestamp = 1_700_000_000_000 + int64(i)*minute
		mustCommit(t, s, Update{Group: 1, Entries: e})
	}
	for _, i := range []int64{100, 1000, 1999} {
		keep, ok := s.RetentionPoint(1, 1_700_000_000_000+i*minute, -1, 1<<60)
		if n := int64(keep) / 2; !ok || n > i || i-n > 12 {
			t.Errorf("minute %d: keeps from %d", i, n)
		}
	}
}

// TestMetricsCount what was done.
func TestMetricsCount(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, fs, Options{MemTableSize: 256 << 10})
	f := newFiller(t, s, 4, 8, 1000)
	for range 200 {
		if err := f.commit(); err != nil {
			t.Fatal(err)
		}
	}
	m := s.Metrics()
	if m.Groups != 4 || m.DamagedGroups != 0 || m.Commits != 204 || m.Syncs != 204 || m.PayloadBytes != f.written || m.Buckets < 4 ||
		m.DirectoryEntries < 4*m.Buckets || m.DiskBytes < f.written || m.WALBytesWritten < f.written || m.MemTableBytes < 256<<10 || m.Tables == 0 || m.FlushBytesWritten == 0 {
		t.Errorf("%+v", m)
	}
	mustClose(t, s)
}
