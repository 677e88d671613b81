package storage

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"edged/record"
)

// TestIdleDoesNothing: in a day of virtual time nothing is written, read or synced, and no
// timer of anybody fires: the day passes at once.
func TestIdleDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := newHookFS(vfs.NewMem())
		s := mustOpen(t, fs, Options{MemTableSize: 256 << 10})
		f := newFiller(t, s, 100, 50, 1000)
		for range 50 {
			if err := f.commit(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		var ops atomic.Int64
		fs.set(func(fsOp) error { ops.Add(1); return nil })
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		time.Sleep(24 * time.Hour)
		runtime.ReadMemStats(&after)
		if n := ops.Load(); n > 0 {
			t.Errorf("%d operations", n)
		}
		if n := after.Mallocs - before.Mallocs; n > 2000 {
			t.Errorf("%d allocations: something wakes", n)
		}
		fs.set(nil)
		mustClose(t, s)
	})
}

// TestMemoryOfIdleGroups: a thousand groups that have written in many buckets and sleep now.
func TestMemoryOfIdleGroups(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, fs, Options{MemTableSize: 256 << 10})
	const groups = 1000
	f := newFiller(t, s, groups, 100, 100)
	for range 300 {
		if err := f.commit(); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, s)
	s = mustOpen(t, fs, Options{MemTableSize: 256 << 10})
	entries := s.Metrics().DirectoryEntries
	runtime.GC()
	var with, without runtime.MemStats
	runtime.ReadMemStats(&with)
	s.mu.Lock()
	kept := s.mu.groups
	s.mu.groups = map[record.GroupID]*group{}
	s.mu.Unlock()
	n := len(kept)
	kept = nil
	runtime.GC()
	runtime.ReadMemStats(&without)
	bytes := int64(with.HeapAlloc) - int64(without.HeapAlloc)
	t.Logf("%d groups, %d directory entries: %d bytes, %d a group", n, entries, bytes, bytes/int64(n))
	if limit := int64(n)*600 + entries*70; bytes > limit {
		t.Errorf("%d bytes, at most %d were expected", bytes, limit)
	}
	mustClose(t, s)
}
