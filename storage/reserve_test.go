package storage

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// fullDisk refuses to write more than room bytes while it is full; the reserve gives it its size.
type fullDisk struct {
	mu      sync.Mutex
	full    bool
	room    int
	reserve int // bytes that go to room when the reserve is removed
}

func (d *fullDisk) hook(op fsOp) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if op.is(opRemove, reserveName) && op.after {
		d.room += d.reserve
		d.reserve = 0
	}
	if !d.full || op.after && op.kind != opTorn {
		return nil
	}
	switch op.kind {
	case opWrite, opCreate, opReuse, opTorn:
		cost := max(op.bytes, 1)
		if op.kind == opTorn {
			cost = 0 // what is written of it was counted; the rest finds no room any more now and then
			if d.room%3 == 0 {
				return syscall.ENOSPC
			}
		}
		if d.room < cost {
			return syscall.ENOSPC
		}
		d.room -= cost
	}
	return nil
}

func (d *fullDisk) set(full bool, room int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full, d.room = full, room
}

// TestFullDisk_writingWaitsAndResumes: whatever finds the disk full, whole or in the middle of a write, waits;
// reads go on; nothing is lost or written twice; with room again all goes on without a restart.
func TestFullDisk_writingWaitsAndResumes(t *testing.T) {
	for seed := range seeds(6) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, seed)
			var told, fatal atomic.Int32
			mustClose(t, w.s)
			w.opts.OnEvent = func(e Event) {
				switch e.Kind {
				case EventDiskFull:
					told.Add(1)
				case EventFatal:
					fatal.Add(1)
				}
			}
			w.s = mustOpen(t, w.hooks, w.opts)
			for range w.rng.IntN(200) {
				w.randomCommit(true)
			}
			d := &fullDisk{}
			w.hooks.tear.Store(seed%2 == 1)
			w.hooks.set(d.hook)
			d.set(true, w.rng.IntN(20_000))
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range 300 {
					w.randomCommit(true) // fails the test if a commit fails
				}
			}()
			time.Sleep(time.Minute)
			select {
			case <-done:
				t.Error("the disk was never full")
			default:
			}
			if _, err := storeDigests(w.s); err != nil {
				t.Errorf("reads: %v", err)
			}
			if told.Load() == 0 || fatal.Load() != 0 {
				t.Errorf("%d events of a full disk, %d of the end", told.Load(), fatal.Load())
			}
			d.set(false, 0)
			<-done
			w.compare()
			mustClose(t, w.s)
			w.verify(w.fs)
		})
	}
}

// TestFullDisk_theReserveLetsWritesEnd: with the reserve nothing waits, and room is refused until the reserve is
// whole again.
func TestFullDisk_theReserveLetsWritesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		mustClose(t, w.s)
		w.opts.Reserve = 1 << 20
		w.s = mustOpen(t, w.hooks, w.opts)
		w.hooks.usage = func() (vfs.DiskUsage, error) { return vfs.DiskUsage{AvailBytes: 1 << 30}, nil }
		if !w.s.Room(1000) || !w.s.disk.reserve.whole() {
			t.Fatal("a disk with room has no reserve")
		}
		d := &fullDisk{reserve: 1 << 20}
		w.hooks.set(d.hook)
		d.set(true, 100)
		began := time.Now()
		for range 20 {
			w.randomCommit(true)
		}
		if took := time.Since(began); took > time.Second || w.s.disk.reserve.whole() {
			t.Errorf("took %v, the reserve is whole: %v", took, w.s.disk.reserve.whole())
		}
		d.set(false, 0)
		for _, tt := range []struct {
			free uint64
			room bool
		}{{100, false}, {1 << 20, false}, {2 << 20, true}, {1 << 20, true}, {100, false}} {
			w.hooks.usage = func() (vfs.DiskUsage, error) { return vfs.DiskUsage{AvailBytes: tt.free}, nil }
			if got := w.s.Room(1000); got != tt.room || got && !w.s.disk.reserve.whole() {
				t.Errorf("with %d bytes free: room %v, the reserve is whole: %v", tt.free, got, w.s.disk.reserve.whole())
			}
		}
		w.compare()
		mustClose(t, w.s)
		w.verify(w.fs)
	})
}

// TestFullDisk_closeEndsTheWait: a stop does not wait for somebody to make room; nothing acked is lost.
func TestFullDisk_closeEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		for range 20 {
			w.randomCommit(true)
		}
		d := &fullDisk{}
		w.hooks.set(d.hook)
		d.set(true, 0)
		ended := make(chan error, 1)
		go func() { ended <- commitUntilError(w) }()
		time.Sleep(time.Minute)
		_ = w.s.Close() // says that the disk was full
		if err := <-ended; !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		s := mustOpen(t, w.fs, w.opts)
		matchHistory(t, s, w.possible())
		mustClose(t, s)
	})
}

// TestFullDisk_reclaimIsNotCaughtByAWriteThatWaits: what gives room back does not wait where Close cannot reach it,
// and time does not stand still for the write that waits for room.
func TestFullDisk_reclaimIsNotCaughtByAWriteThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hooks := newHookFS(vfs.NewMem())
		s := mustOpen(t, hooks, Options{MemTableSize: minMemTableSize})
		mustCommit(t, s, create(1), create(2), Update{Group: 1, Entries: batches(1, 1, 0, 40, 100)})
		if err := endBucket(s); err != nil {
			t.Fatal(err)
		}
		<-s.w.flushed
		mustCommit(t, s, Update{Group: 1, Remove: true}, Update{Group: 2, Entries: batches(1, 1, 0, 40, 100)})
		var full atomic.Bool
		full.Store(true)
		hooks.set(func(op fsOp) error {
			if full.Load() && op.kind == opWrite && !op.after {
				return syscall.ENOSPC
			}
			return nil
		})
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
		time.Sleep(time.Minute) // for ever, if it waits for the engine's mutex
		full.Store(false)
		if err := <-rotated; err != nil {
			t.Errorf("the end of the bucket: %v", err)
		}
		if err := <-reclaimed; err != nil {
			t.Errorf("reclaim: %v", err)
		}
		if n := s.reclaimed.Load(); n == 0 {
			t.Error("nothing was given back")
		}
		mustClose(t, s)
	})
}
