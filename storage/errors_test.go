package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"edged/record"
)

// injection is an error that the disk gives at operations that match.
type injection struct {
	name  string
	tear  bool
	err   error
	match func(op fsOp) bool
}

// finalErrors must freeze the store: the engine itself would end the process at most of them.
var finalErrors = []injection{
	{"log write", false, syscall.EIO, func(op fsOp) bool { return op.is(opWrite, "*.log") }},
	{"log write, half done", true, syscall.EIO, func(op fsOp) bool { return op.is(opTorn, "*.log") }},
	{"log sync", false, syscall.EIO, func(op fsOp) bool { return op.is(opSync, "*.log") }},
	{"log create", false, syscall.EIO, func(op fsOp) bool { return op.is(opCreate, "*.log") }},
	{"log reuse", false, syscall.EIO, func(op fsOp) bool { return op.is(opReuse, "*.log") }},
	{"log create or reuse", false, syscall.EIO, func(op fsOp) bool { return op.is(opReuse, "*.log") || op.is(opCreate, "*.log") }},
	{"log directory sync", false, syscall.EIO, func(op fsOp) bool { return op.is(opSync, logDirName) }},
	{"store directory sync", false, syscall.EIO, func(op fsOp) bool { return op.is(opSync, storeDirName) }},
	{"manifest write", false, syscall.EIO, func(op fsOp) bool { return op.is(opWrite, "MANIFEST-*") }},
	{"manifest write, half done", true, syscall.EIO, func(op fsOp) bool { return op.is(opTorn, "MANIFEST-*") }},
	{"log sync, disk full", false, syscall.ENOSPC, func(op fsOp) bool { return op.is(opSync, "*.log") }},
	{"manifest sync", false, syscall.EIO, func(op fsOp) bool { return op.is(opSync, "MANIFEST-*") }},
}

// TestErrorsFreeze: the error is returned and stays, nothing that was acked is lost, nothing
// panics, reads go on, Close ends, and the store opens again.
func TestErrorsFreeze(t *testing.T) {
	for _, in := range finalErrors {
		t.Run(in.name, func(t *testing.T) {
			t.Parallel()
			for seed := range seeds(3) {
				freeze(t, in, seed)
			}
		})
	}
}

func freeze(t *testing.T, in injection, seed uint64) {
	w := newWorld(t, seed)
	var events atomic.Int32
	mustClose(t, w.s)
	w.opts.OnEvent = func(e Event) {
		if e.Kind == EventFatal {
			events.Add(1)
		}
	}
	w.s = mustOpen(t, w.hooks, w.opts)
	for range seed * 20 {
		if in.name == "log create" {
			break // only the first logs of a process are made new
		}
		w.randomCommit(true)
	}
	var hits atomic.Int32
	w.hooks.tear.Store(in.tear)
	w.hooks.set(func(op fsOp) error {
		if !op.after && in.match(op) {
			hits.Add(1)
			return in.err
		}
		return nil
	})
	err := commitUntilError(w)
	if !errors.Is(err, in.err) || !errors.Is(err, record.ErrStorage) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("commit: %v", err)
	}
	if events.Load() != 1 {
		t.Fatalf("%d fatal events", events.Load())
	}
	w.hooks.set(nil) // the disk is well again, the store must not believe it
	if again := w.s.Commit([]Update{create(99)}, true); again == nil || again.Error() != err.Error() {
		t.Fatalf("the next commit: %v", again)
	}
	if _, err := w.s.Reclaim(); !errors.Is(err, record.ErrStorage) {
		t.Fatalf("reclaim: %v", err)
	}
	if _, err := storeDigests(w.s); err != nil {
		t.Fatalf("reads: %v", err)
	}
	possible := w.possible()
	powerOff := w.fs.CrashClone(vfs.CrashCloneCfg{})
	if err := w.s.Close(); !errors.Is(err, in.err) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("close: %v", err)
	}
	for _, fs := range []*vfs.MemFS{powerOff, w.fs} {
		s := mustOpen(t, fs, Options{MemTableSize: minMemTableSize})
		matchHistory(t, s, possible)
		mustClose(t, s)
		w.verify(fs)
	}
}

// commitUntilError commits, synced or not, until the disk fails.
func commitUntilError(w *world) error {
	for range 1000 {
		var us []Update
		for range 1 + w.rng.IntN(3) {
			u := w.update(w.m)
			w.m.apply([]Update{u})
			us = append(us, u)
		}
		sync := w.rng.IntN(2) == 0
		if err := w.s.Commit(us, sync); err != nil {
			return err
		}
		if sync {
			w.durable()
		}
	}
	return errNeverMet
}

var errNeverMet = errors.New("the injection was never met")

// TestTableErrorsHeal: a table that cannot be written is written later; commits wait, none is lost.
func TestTableErrorsHeal(t *testing.T) {
	for _, in := range []injection{
		{"table create", false, syscall.ENOSPC, func(op fsOp) bool { return op.is(opCreate, "*.sst") }},
		{"table write", false, syscall.EIO, func(op fsOp) bool { return op.is(opWrite, "*.sst") }},
		{"table write, half done", true, syscall.ENOSPC, func(op fsOp) bool { return op.is(opTorn, "*.sst") }},
		{"table sync", false, syscall.EIO, func(op fsOp) bool { return op.is(opSync, "*.sst") }},
	} {
		t.Run(in.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			w.hooks.tear.Store(in.tear)
			var hits atomic.Int32
			w.hooks.set(func(op fsOp) error {
				if !op.after && in.match(op) && hits.Add(1) <= 4 {
					return in.err
				}
				return nil
			})
			for hits.Load() <= 4 {
				w.randomCommit(true)
			}
			w.reopen()
			w.compare()
			mustClose(t, w.s)
			w.verify(w.fs)
		})
	}
}

// TestTableErrorsArePaced: the engine tries a failed flush again at once and for ever; on a full
// card that would be thousands of half-written tables.
func TestTableErrorsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		var tries atomic.Int32
		w.hooks.set(func(op fsOp) error {
			if !op.after && op.is(opCreate, "*.sst") {
				tries.Add(1)
				return syscall.ENOSPC
			}
			return nil
		})
		for first := w.s.w.bucket; w.s.w.bucket == first; {
			w.randomCommit(true)
		}
		time.Sleep(time.Minute)
		if n := tries.Load(); n < 5 || n > 50 {
			t.Errorf("%d tries in a minute", n)
		}
		mustClose(t, w.s) // ends although no flush ever did
		s := mustOpen(t, w.fs, w.opts)
		matchHistory(t, s, w.possible())
		mustClose(t, s)
	})
}

// TestCloseEndsAWaitingCommit: a commit that waits for flushes which never come must not keep Close.
func TestCloseEndsAWaitingCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.hooks.set(func(op fsOp) error {
			if !op.after && op.is(opCreate, "*.sst") {
				return syscall.ENOSPC
			}
			return nil
		})
		ended := make(chan error, 1)
		go func() { ended <- commitUntilError(w) }()
		time.Sleep(time.Minute)
		mustClose(t, w.s)
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		s := mustOpen(t, w.fs, w.opts)
		matchHistory(t, s, w.possible())
		mustClose(t, s)
	})
}

// TestSlowSyncIsTold while it lasts, and when it ends.
func TestSlowSyncIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		mustClose(t, w.s)
		var slow atomic.Int32
		w.opts.OnEvent = func(e Event) {
			if e.Kind == EventSlowDisk {
				slow.Add(1)
			}
		}
		w.s = mustOpen(t, w.hooks, w.opts)
		hang := make(chan struct{})
		w.hooks.set(func(op fsOp) error {
			if op.is(opSync, "*.log") && !op.after {
				<-hang
			}
			return nil
		})
		done := make(chan error, 1)
		go func() { done <- w.s.Commit([]Update{create(99)}, true) }()
		time.Sleep(slowSync / 2)
		if n := slow.Load(); n != 0 {
			t.Errorf("%d events after half the time", n)
		}
		time.Sleep(slowSync)
		if n := slow.Load(); n != 1 {
			t.Errorf("%d events while it hangs", n)
		}
		if _, ok := w.s.State(1); ok {
			t.Error("group 1")
		}
		close(hang)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := slow.Load(); n != 2 {
			t.Errorf("%d events at the end", n)
		}
		w.hooks.set(nil)
		mustClose(t, w.s)
	})
}

// A process that stood still during a sync does not blame its disk for that.
func TestSyncTime_aStandstillIsNotTheDisk(t *testing.T) {
	for name, tt := range map[string]struct {
		gaps []time.Duration
		slow bool
	}{
		"a slow disk":                   {[]time.Duration{slowLook, slowLook, slowLook, slowLook}, true},
		"a slow disk, a busy machine":   {[]time.Duration{2 * slowLook, 2 * slowLook}, true},
		"stopped for 28 s":              {[]time.Duration{slowLook, 28 * time.Second}, false},
		"stopped, and then a slow disk": {[]time.Duration{28 * time.Second, slowLook, slowLook}, true},
	} {
		at := time.Unix(0, 0)
		s := syncTime{last: at}
		for _, g := range tt.gaps {
			at = at.Add(g)
			s.look(at)
		}
		if (s.took >= slowSync) != tt.slow {
			t.Errorf("%s: it took %v", name, s.took)
		}
	}
}

// TestErrorsAtOpen: whatever fails while the store opens, Open returns it, in one line, and the
// next Open finds everything.
func TestErrorsAtOpen(t *testing.T) {
	for _, e := range []error{syscall.EIO, syscall.ENOSPC} {
		for n := range 400 {
			w := newWorld(t, uint64(n))
			for range 10 {
				w.randomCommit(true)
			}
			disk := w.fs.CrashClone(vfs.CrashCloneCfg{}) // so that there is a log to replay
			mustClose(t, w.s)
			hooks := newHookFS(disk)
			var ops atomic.Int32
			hooks.set(func(op fsOp) error {
				if !op.after && op.kind != opRead && ops.Add(1) == int32(n+1) {
					return e
				}
				return nil
			})
			s, err := Open("data", hooks, w.opts)
			hooks.set(nil)
			if err == nil {
				if int(ops.Load()) <= n { // all operations of Open were tried
					mustClose(t, s)
					return
				}
				_ = s.Close() // it was an operation that Open can do without, or one after it
			} else if !errors.Is(err, e) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("operation %d: %v", n, err)
			}
			s = mustOpen(t, disk, w.opts)
			matchHistory(t, s, w.possible())
			mustClose(t, s)
		}
	}
	t.Fatal("Open never went through")
}

// TestRefusals: what Open cannot work with is named in one line with what to do.
func TestRefusals(t *testing.T) {
	setup := func(t *testing.T) *vfs.MemFS {
		fs := vfs.NewMem()
		s := mustOpen(t, fs, Options{})
		mustCommit(t, s, create(1))
		mustClose(t, s)
		return fs
	}
	check := func(t *testing.T, fs vfs.FS, want error, says string) {
		t.Helper()
		s, err := Open("data", fs, Options{})
		if err == nil {
			mustClose(t, s)
		}
		if !errors.Is(err, want) || !strings.Contains(fmt.Sprint(err), says) || strings.Contains(fmt.Sprint(err), "\n") {
			t.Fatal(err)
		}
	}
	t.Run("locked", func(t *testing.T) {
		fs := setup(t)
		s := mustOpen(t, fs, Options{})
		check(t, fs, ErrLocked, "stop the other")
		mustClose(t, s)
		mustClose(t, mustOpen(t, fs, Options{}))
	})
	t.Run("read-only", func(t *testing.T) {
		hooks := newHookFS(setup(t))
		hooks.set(func(op fsOp) error {
			if op.kind != opOpen && op.kind != opRead {
				return syscall.EROFS
			}
			return nil
		})
		check(t, hooks, ErrReadOnly, "check the mount")
	})
	t.Run("newer format", func(t *testing.T) {
		fs := setup(t)
		s := mustOpen(t, fs, Options{})
		v := seal(formatKey(), append([]byte(string(formatMagic)), storeFormat+1))
		if err := s.db.Set(formatKey(), v, nil); err != nil {
			t.Fatal(err)
		}
		mustClose(t, s)
		check(t, fs, ErrNewerFormat, "install the newer version")
	})
	t.Run("newer engine", func(t *testing.T) {
		fs := setup(t)
		for _, path := range listFiles(fs, "data/store", "marker.format-version") {
			next := strings.TrimSuffix(path, fmt.Sprintf("%03d", engineFormat)) + fmt.Sprintf("%03d", engineFormat+1)
			if err := fs.Rename(path, next); err != nil {
				t.Fatal(err)
			}
		}
		check(t, fs, ErrNewerFormat, "newer")
	})
	t.Run("not ours", func(t *testing.T) {
		fs := setup(t)
		s := mustOpen(t, fs, Options{})
		if err := s.db.Delete(formatKey(), nil); err != nil {
			t.Fatal(err)
		}
		mustClose(t, s)
		check(t, fs, ErrNotOurs, "format key")
	})
	t.Run("manifest gone", func(t *testing.T) {
		fs := setup(t)
		mustClose(t, mustOpen(t, fs, Options{})) // so that there is a table
		for _, path := range append(listFiles(fs, "data/store", "MANIFEST"), listFiles(fs, "data/store", "marker.")...) {
			if err := fs.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		check(t, fs, ErrNotOurs, "no manifest")
	})
	t.Run("sizes", func(t *testing.T) {
		if _, err := Open("data", vfs.NewMem(), Options{MemTableSize: 1}); err == nil {
			t.Fatal("taken")
		}
		if _, err := Open("data", vfs.NewMem(), Options{CacheSize: -1}); err == nil {
			t.Fatal("taken")
		}
	})
}

// After a life that did not end well the manifest is written anew before the engine goes by it: what a failed sync left in
// the system's memory alone is on the disk then, also where nothing else is to be written.
func TestOpen_uncleanPutsTheManifestOnTheDisk(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := mustOpen(t, fs, Options{})
	mustClose(t, s)
	desc, err := pebble.Peek("data/store", fs)
	if err != nil {
		t.Fatal(err)
	}
	// As the system's memory has it after a sync that failed: the end is there to read and not on the disk.
	whole := readAll(t, fs, desc.ManifestFilename)
	f, err := fs.Create(desc.ManifestFilename, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(bytes.Clone(whole[:len(whole)/2])); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(bytes.Clone(whole[len(whole)/2:])); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := renewManifest("data/store", fs); err != nil {
		t.Fatal(err)
	}
	after := fs.CrashClone(vfs.CrashCloneCfg{})
	if got := readAll(t, after, desc.ManifestFilename); !bytes.Equal(got, whole) {
		t.Errorf("after a power cut the manifest has %d bytes of %d", len(got), len(whole))
	}
	mustClose(t, mustOpen(t, after, Options{Unclean: true}))
}

func readAll(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return b
}
