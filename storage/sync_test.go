package storage

import (
	"errors"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"edged/record"
)

// TestSync_makesDurableWhatWasCommittedBefore, and lets commits pass that come while it waits for the disk.
func TestSync_makesDurableWhatWasCommittedBefore(t *testing.T) {
	mem := vfs.NewCrashableMem()
	fs := newHookFS(mem)
	s := mustOpen(t, fs, Options{})
	mustCommit(t, s, create(1))
	if err := s.Commit([]Update{{Group: 1, Entries: batches(1, 1, 0, 5, 100)}}, false); err != nil {
		t.Fatal(err)
	}
	hang, hangs := make(chan struct{}), make(chan struct{})
	var once sync.Once
	fs.set(func(op fsOp) error {
		if op.is(opSync, "*.log") && !op.after {
			once.Do(func() { close(hangs) })
			<-hang
		}
		return nil
	})
	synced := make(chan error, 1)
	go func() { synced <- s.Sync() }()
	<-hangs
	if err := s.Commit([]Update{{Group: 1, Entries: batches(6, 1, 10, 5, 100)}}, false); err != nil {
		t.Error(err)
	}
	if es, err := s.Entries(1, 1, 11, 1<<20); err != nil || len(es) != 10 {
		t.Errorf("%d entries: %v", len(es), err)
	}
	select {
	case err := <-synced:
		t.Error("it did not wait for the disk", err)
	default:
	}
	close(hang)
	if err := <-synced; err != nil {
		t.Fatal(err)
	}
	fs.set(nil)
	clone := mem.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, s)
	again := mustOpen(t, clone, Options{})
	if st, _ := again.State(1); st.LastIndex < 5 {
		t.Errorf("after a power cut the log ends with entry %d", st.LastIndex)
	}
	mustClose(t, again)
}

// TestSync_givesSpaceBack: what a commit without sync has made dead is dead after a Sync.
func TestSync_givesSpaceBack(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), Options{MemTableSize: minMemTableSize})
	mustCommit(t, s, create(1), create(2))
	for i := range uint64(60) {
		mustCommit(t, s, Update{Group: 1, Entries: batches(1+10*i, 1, record.Offset(20*i), 10, 1000)})
	}
	if err := s.Commit([]Update{{Group: 1, Remove: true}}, false); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Reclaim(); n != 0 || err != nil {
		t.Errorf("%d bytes were given back before they were durably dead, %v", n, err)
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Reclaim(); n == 0 || err != nil {
		t.Errorf("%d bytes given back: %v", n, err)
	}
	mustClose(t, s)
}

// TestSync_failureIsFinal: after it nothing more is written, as after a Commit that failed.
func TestSync_failureIsFinal(t *testing.T) {
	fs := newHookFS(vfs.NewMem())
	s := mustOpen(t, fs, Options{})
	mustCommit(t, s, create(1))
	broken := errors.New("broken card")
	fs.set(func(op fsOp) error {
		if op.is(opSync, "*.log") && !op.after {
			return broken
		}
		return nil
	})
	if err := s.Commit([]Update{{Group: 1, Entries: batches(1, 1, 0, 5, 100)}}, false); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(); !errors.Is(err, record.ErrStorage) {
		t.Errorf("Sync: %v", err)
	}
	fs.set(nil)
	if err := s.Commit([]Update{{Group: 1, Entries: batches(6, 1, 10, 5, 100)}}, true); !errors.Is(err, record.ErrStorage) {
		t.Errorf("the next commit: %v", err)
	}
	_ = s.Close()
	if err := s.Sync(); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
