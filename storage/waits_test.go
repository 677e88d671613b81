package storage

import (
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"edged/record"
)

// endBucket closes the open bucket.
func endBucket(s *Store) error {
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	return s.w.rotate()
}

// TestMetaMerge_leavesTheOpenBucketAlone: the engine begins a log for each bucket and none in the middle of one,
// whatever is tidied up meanwhile.
func TestMetaMerge_leavesTheOpenBucketAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hooks := newHookFS(vfs.NewMem())
		var logs, full atomic.Int32
		hooks.set(func(op fsOp) error {
			switch {
			case op.after && (op.is(opCreate, "*.log") || op.is(opReuse, "*.log")):
				logs.Add(1)
			case op.is(opSync, markName) && !op.after:
				time.Sleep(time.Second) // so that something is in the next bucket when it is tidied up
			}
			return nil
		})
		s := mustOpen(t, hooks, Options{MemTableSize: minMemTableSize, OnEvent: func(e Event) {
			if e.Kind == EventWriteStall {
				full.Add(1)
			}
		}})
		logs.Store(0)
		mustCommit(t, s, create(1), create(2))
		began := s.buckets.Load()
		for i := range uint64(600) {
			mustCommit(t, s, Update{Group: 1, HardState: &HardState{Term: i + 1, Vote: 1}, Entries: batches(1+10*i, i+1, record.Offset(20*i), 10, 400)})
			if s.buckets.Load() > began {
				began = s.buckets.Load()
				mustCommit(t, s, Update{Group: 2, HardState: &HardState{Term: i + 1, Vote: 1}})
				time.Sleep(2 * time.Second)
			}
		}
		m := s.db.Metrics()
		if got := m.Levels[0].Sublevels; got > metaDepth+1 || s.buckets.Load() < 2*metaDepth || m.Levels[6].TablesCount == 0 {
			t.Errorf("%d meta tables overlap after %d buckets, %d were merged", got, s.buckets.Load(), m.Levels[6].TablesCount)
		}
		if logs, buckets := int64(logs.Load()), s.buckets.Load(); logs != buckets || full.Load() > 0 {
			t.Errorf("%d logs were begun for the ends of %d buckets, writes waited for %d", logs, buckets, full.Load())
		}
		mustClose(t, s)
	})
}

// TestFullDisk_reclaimMakesRoomForTheEndOfABucket: the log of a bucket that ends waits for room where Reclaim is not
// locked out.
func TestFullDisk_reclaimMakesRoomForTheEndOfABucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hooks := newHookFS(vfs.NewMem())
		s := mustOpen(t, hooks, Options{MemTableSize: minMemTableSize, Reserve: 1 << 20})
		mustCommit(t, s, create(1), create(2), Update{Group: 1, Entries: batches(1, 1, 0, 40, 100)})
		if err := endBucket(s); err != nil {
			t.Fatal(err)
		}
		<-s.w.flushed
		mustCommit(t, s, Update{Group: 1, Remove: true})
		var full atomic.Bool
		full.Store(true)
		hooks.set(func(op fsOp) error {
			switch {
			case op.is(opRemove, "*.sst") && op.after:
				full.Store(false)
			case full.Load() && op.is(opWrite, "*.log") && !op.after:
				return syscall.ENOSPC
			}
			return nil
		})
		if err := s.Commit([]Update{{Group: 2, Entries: batches(1, 1, 0, 40, 100)}}, false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // the log's first block
		rotated, reclaimed := make(chan error, 1), make(chan error, 1)
		go func() { rotated <- endBucket(s) }()
		time.Sleep(time.Minute)
		if n := s.disk.waiting.Load(); n != 1 {
			t.Fatalf("%d writes wait for room", n)
		}
		go func() {
			_, err := s.Reclaim()
			reclaimed <- err
		}()
		time.Sleep(time.Minute)
		if full.Load() {
			t.Error("the room was not given back: the write that waits for it is in the way")
		}
		full.Store(false)
		if err := join(<-rotated, <-reclaimed); err != nil {
			t.Error(err)
		}
		mustClose(t, s)
	})
}

// TestFullDisk_reclaimMakesRoomForTables: while a table waits for room, and tables of meta keys are to be merged,
// Reclaim and Close get through.
func TestFullDisk_reclaimMakesRoomForTables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hooks := newHookFS(vfs.NewMem())
		s := mustOpen(t, hooks, Options{MemTableSize: minMemTableSize})
		mustCommit(t, s, create(1), create(2), Update{Group: 1, Entries: batches(1, 1, 0, 40, 100)})
		if err := endBucket(s); err != nil {
			t.Fatal(err)
		}
		next := uint64(1)
		fill := func() {
			mustCommit(t, s, Update{Group: 2, HardState: &HardState{Term: next, Vote: 1}, Entries: batches(next, next, record.Offset(2*(next-1)), 1, 100)})
			next++
			if err := endBucket(s); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		for s.db.Metrics().Levels[0].Sublevels < metaDepth {
			fill()
		}
		mustCommit(t, s, Update{Group: 1, Remove: true})
		var full atomic.Bool
		marked := make(chan struct{})
		hooks.set(func(op fsOp) error {
			switch {
			case op.is(opRemove, "*.sst") && op.after:
				full.Store(false)
			case full.Load() && op.is(opCreate, "*.sst") && !op.after:
				return syscall.ENOSPC
			case op.is(opSync, markName) && !op.after:
				<-marked
			}
			return nil
		})
		fill() // the last one before they are merged; the mark waits
		full.Store(true)
		mustCommit(t, s, Update{Group: 2, Entries: batches(next, next, record.Offset(2*(next-1)), 1, 100)})
		if err := endBucket(s); err != nil { // it cannot be flushed
			t.Fatal(err)
		}
		mustCommit(t, s, Update{Group: 2, HardState: &HardState{Term: next + 1}, Entries: batches(next+1, next, record.Offset(2*next), 1, 100)})
		close(marked)
		time.Sleep(time.Minute)
		reclaimed := make(chan error, 1)
		go func() {
			_, err := s.Reclaim()
			reclaimed <- err
		}()
		time.Sleep(time.Minute)
		if full.Load() {
			t.Error("the room was not given back")
		}
		full.Store(false)
		if err := <-reclaimed; err != nil {
			t.Error(err)
		}
		mustClose(t, s)
	})
}

// TestFullDisk_readersDoNotWaitBehindADeletion: a commit that replaces a suffix may wait for room inside the engine.
// Until it is through readers see the log as it was, then as it is; never entries without their log.
func TestFullDisk_readersDoNotWaitBehindADeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hooks := newHookFS(vfs.NewMem())
		s := mustOpen(t, hooks, Options{MemTableSize: minMemTableSize})
		mustCommit(t, s, create(1), Update{Group: 1, Entries: batches(1, 1, 0, 20, 100)})
		if err := endBucket(s); err != nil { // else the commit ends it, before it deletes anything
			t.Fatal(err)
		}
		var full atomic.Bool
		full.Store(true)
		hooks.set(func(op fsOp) error {
			if full.Load() && op.is(opWrite, "*.log") && !op.after {
				return syscall.ENOSPC
			}
			return nil
		})
		replacing := batches(11, 2, 20, 1, minMemTableSize) // too large for a memtable: the engine ends the one there is
		committed := make(chan error, 1)
		go func() { committed <- s.Commit([]Update{{Group: 1, Entries: replacing}}, true) }()
		time.Sleep(time.Minute)
		if n := s.disk.waiting.Load(); n != 1 {
			t.Fatalf("%d writes wait for room", n)
		}
		read := func() string {
			st, ok := s.State(1)
			if !ok || st.Err != nil {
				t.Fatalf("state: %v", st.Err)
			}
			es, err := s.Entries(1, 1, st.LastIndex+1, 1<<30)
			if err != nil {
				t.Fatal(err)
			}
			var terms strings.Builder
			for _, e := range es {
				terms.WriteByte('0' + byte(e.Term))
			}
			return terms.String()
		}
		if got := read(); got != "11111111111111111111" {
			t.Errorf("while it waits the log's terms are %s", got)
		}
		full.Store(false)
		if err := <-committed; err != nil {
			t.Fatal(err)
		}
		if got := read(); got != "11111111112" {
			t.Errorf("the log's terms are %s", got)
		}
		mustClose(t, s)
	})
}
