package storage

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// opKind names what is done to a file.
type opKind string

const (
	opCreate opKind = "create"
	opReuse  opKind = "reuse"
	opRename opKind = "rename"
	opRemove opKind = "remove"
	opWrite  opKind = "write"
	opTorn   opKind = "torn" // a write of which a part is done
	opSync   opKind = "sync"
	opOpen   opKind = "open"
	opRead   opKind = "read"
)

type fsOp struct {
	kind  opKind
	name  string // of the file, without directory; of a directory itself for its sync
	after bool   // the operation was done
	bytes int
}

func (o fsOp) is(kind opKind, name string) bool {
	ok, _ := filepath.Match(name, o.name)
	return o.kind == kind && ok
}

// hookFS calls hook before and after each change of a file; an error before stops the change.
// Unlike errorfs it keeps its hands on recycled logs too.
type hookFS struct {
	vfs.FS
	tear atomic.Bool // also call in the middle of a write

	usage func() (vfs.DiskUsage, error) // what GetDiskUsage gives, if it is set

	mu   sync.Mutex
	hook func(fsOp) error
	rng  *rand.Rand // where a write is torn
}

func newHookFS(inner vfs.FS) *hookFS {
	return &hookFS{FS: inner, rng: rand.New(rand.NewPCG(1, 1))}
}

// tearAt is a place in a write of n bytes, more often near its ends.
func (h *hookFS) tearAt(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch at := h.rng.IntN(n + 1); h.rng.IntN(4) {
	case 0:
		return min(at, 400)
	case 1:
		return max(at, n-50)
	default:
		return at
	}
}

func (h *hookFS) set(hook func(fsOp) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hook = hook
}

func (h *hookFS) call(op fsOp) error {
	h.mu.Lock()
	hook := h.hook
	h.mu.Unlock()
	if hook == nil {
		return nil
	}
	return hook(op)
}

// do runs f between its two calls of the hook.
func (h *hookFS) do(kind opKind, name string, bytes int, f func() error) error {
	op := fsOp{kind: kind, name: filepath.Base(name), bytes: bytes}
	if err := h.call(op); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	op.after = true
	return h.call(op)
}

func (h *hookFS) open(kind opKind, name string, f func() (vfs.File, error)) (file vfs.File, err error) {
	err = h.do(kind, name, 0, func() error {
		file, err = f()
		return err
	})
	if err != nil {
		return nil, err
	}
	return &hookFile{File: file, fs: h, name: filepath.Base(name)}, nil
}

func (h *hookFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return h.open(opCreate, name, func() (vfs.File, error) { return h.FS.Create(name, c) })
}

func (h *hookFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	// In two steps: MemFS locks for reading twice in one, and hangs if a CrashClone comes between.
	return h.open(opReuse, newname, func() (vfs.File, error) {
		if err := h.FS.Rename(oldname, newname); err != nil {
			return nil, err
		}
		return h.FS.OpenReadWrite(newname, c)
	})
}

func (h *hookFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	return h.open(opOpen, name, func() (vfs.File, error) { return h.FS.OpenReadWrite(name, c, o...) })
}

func (h *hookFS) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	return h.open(opOpen, name, func() (vfs.File, error) { return h.FS.Open(name, o...) })
}

func (h *hookFS) OpenDir(name string) (vfs.File, error) {
	return h.open(opOpen, name, func() (vfs.File, error) { return h.FS.OpenDir(name) })
}

func (h *hookFS) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	if h.usage != nil {
		return h.usage()
	}
	return h.FS.GetDiskUsage(path)
}

func (h *hookFS) Rename(oldname, newname string) error {
	return h.do(opRename, newname, 0, func() error { return h.FS.Rename(oldname, newname) })
}

func (h *hookFS) Remove(name string) error {
	return h.do(opRemove, name, 0, func() error { return h.FS.Remove(name) })
}

type hookFile struct {
	vfs.File
	fs   *hookFS
	name string
}

func (f *hookFile) Write(p []byte) (n int, err error) {
	err = f.fs.do(opWrite, f.name, len(p), func() error {
		half := 0
		if f.fs.tear.Load() {
			half = f.fs.tearAt(len(p))
			if n, err = f.File.Write(p[:half]); err != nil {
				return err
			}
			if err := f.fs.call(fsOp{kind: opTorn, name: f.name, bytes: half}); err != nil {
				return err
			}
		}
		n, err = f.File.Write(p[half:])
		n += half
		return err
	})
	return n, err
}

func (f *hookFile) WriteAt(p []byte, o int64) (n int, err error) {
	err = f.fs.do(opWrite, f.name, len(p), func() error {
		n, err = f.File.WriteAt(p, o)
		return err
	})
	return n, err
}

func (f *hookFile) ReadAt(p []byte, o int64) (n int, err error) {
	if err := f.fs.call(fsOp{kind: opRead, name: f.name, bytes: len(p)}); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, o)
}

func (f *hookFile) Sync() error     { return f.fs.do(opSync, f.name, 0, f.File.Sync) }
func (f *hookFile) SyncData() error { return f.fs.do(opSync, f.name, 0, f.File.SyncData) }

// listFiles are the files of dir with the suffix or prefix, sorted by name.
func listFiles(fs vfs.FS, dir, part string) []string {
	names, _ := fs.List(dir)
	var out []string
	for _, n := range names {
		if strings.HasPrefix(n, part) || strings.HasSuffix(n, part) {
			out = append(out, fs.PathJoin(dir, n))
		}
	}
	slices.Sort(out)
	return out
}
