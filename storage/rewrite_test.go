package storage

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestNothingIsMissingWhileABucketIsRewritten: the engine takes a bucket's old table away a
// moment before the new one can be seen; a read of that moment must not be taken for damage.
func TestNothingIsMissingWhileABucketIsRewritten(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), Options{MemTableSize: minMemTableSize})
	mustCommit(t, s, create(1))
	const entries = 40
	mustCommit(t, s, Update{Group: 1, Entries: batches(1, 1, 0, entries, 100)})
	s.commitMu.Lock()
	if err := s.w.rotate(); err != nil {
		t.Fatal(err)
	}
	<-s.w.flushed
	s.commitMu.Unlock()
	s.waiters.Wait()

	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for !stop.Load() {
				if es, err := s.Entries(1, 1, entries+1, 1<<20); err != nil || len(es) != entries {
					t.Errorf("%d entries: %v", len(es), err)
					return
				}
			}
		})
	}
	for range 1000 {
		live := s.liveSlots()
		if len(live) != 1 {
			t.Fatalf("%d buckets live", len(live))
		}
		for sl, l := range live {
			if _, err := s.rewrite(sl, l); err != nil {
				t.Fatal(err)
			}
		}
		if t.Failed() {
			break
		}
	}
	stop.Store(true)
	wg.Wait()
	mustClose(t, s)
}
