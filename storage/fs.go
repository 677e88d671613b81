package storage

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// disk stands between the engine and the real file system, because the engine cannot live
// with three kinds of error:
//
//   - An error of the write-ahead log or the manifest ends the process inside the engine, in
//     places where nothing can catch it. So the disk *freezes* at the first such error: what
//     is on disk stays exactly as it is, as if power had gone at that moment, and every later
//     write only pretends to succeed. Commit looks at frozen before it tells anyone of success.
//     Reads go on, from memory and from the tables. An fsync is never tried twice. A full disk is
//     no such error: see withRoom.
//   - An error while a table is written is tried again by the engine at once and for ever. So
//     it is returned late, after a pause that grows.
//   - A sync of a large table makes the log's sync wait behind it. So tables are pushed to
//     the card in small pieces.
type disk struct {
	vfs.FS
	event  func(Event)
	frozen atomic.Pointer[error]
	froze  chan struct{} // closed when frozen is set
	// opening is true until Open has the engine: then any failed write freezes, tables too, and
	// a frozen disk pretends in everything. The engine would else try for ever inside its Open.
	opening atomic.Bool
	// stop ends the pauses; closed by release.
	stop     chan struct{}
	stopOnce sync.Once
	failures atomic.Int32 // of tables, in a row
	reserve  *reserve
	waiting  atomic.Int32 // writes that wait for room
}

const (
	// paceBytes is a piece of a table or a log. Two pieces of a table may wait unwritten in the
	// system's memory.
	paceBytes = 256 << 10
	// firstPause and longestPause bound the wait after a failed write of a table.
	firstPause   = 10 * time.Millisecond
	longestPause = 2 * time.Second
	// slowSync is how long a sync of the log may take before an EventSlowDisk tells of it.
	slowSync = time.Second
)

func newDisk(inner vfs.FS, event func(Event)) *disk {
	d := &disk{FS: inner, reserve: &reserve{}, event: event, froze: make(chan struct{}), stop: make(chan struct{})}
	d.opening.Store(true)
	return d
}

// Unwrap makes the disk known as a wrapper.
func (d *disk) Unwrap() vfs.FS { return d.FS }

// release lets everything that pauses fail now; for Close.
func (d *disk) release() { d.stopOnce.Do(func() { close(d.stop) }) }

// freeze stops all writing, once.
func (d *disk) freeze(err error) {
	if d.frozen.CompareAndSwap(nil, &err) {
		close(d.froze)
		d.event(Event{Kind: EventFatal, Text: "storage has stopped writing; it goes on by itself when the disk takes writes again", Err: err})
	}
}

func (d *disk) frozenErr() error {
	if p := d.frozen.Load(); p != nil {
		return *p
	}
	return nil
}

// fileKind is what an error of a file means.
type fileKind uint8

const (
	kindOther  fileKind = iota
	kindLog             // write-ahead log
	kindTable           // sorted table
	kindFreeze          // manifest, markers, directories: an error freezes
)

func kindOf(name string) fileKind {
	base := filepath.Base(name)
	switch {
	case strings.HasSuffix(base, ".log"):
		return kindLog
	case strings.HasSuffix(base, ".sst"):
		return kindTable
	case strings.HasPrefix(base, "MANIFEST-"), strings.HasPrefix(base, "marker."):
		return kindFreeze
	}
	return kindOther
}

// written says what to tell the engine of a write that ended with err.
func (d *disk) written(name string, kind fileKind, op string, err error) error {
	switch {
	case err == nil:
		return nil
	case kind == kindLog, kind == kindFreeze, kind == kindTable && d.opening.Load():
		d.freeze(fmt.Errorf("%s %s: %w", op, filepath.Base(name), err))
		return nil
	case kind == kindTable:
		d.pause()
	}
	return err
}

// pause waits, longer after each failure in a row, or until release.
func (d *disk) pause() {
	wait := longestPause
	if n := d.failures.Add(1); n < 9 {
		wait = min(firstPause<<(n-1), longestPause)
	}
	d.sleep(wait)
}

// sleep is false if release ended it.
func (d *disk) sleep(wait time.Duration) bool {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-d.stop:
		return false
	}
}

// pretend says how a write to a frozen disk ends: the log and the manifest pretend, a table
// is refused at release, so that what is in memory stays in memory.
func (d *disk) pretend(kind fileKind, err error) error {
	if kind == kindTable && !d.opening.Load() {
		<-d.stop
		return err
	}
	return nil
}

// Create makes a file.
func (d *disk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	kind := kindOf(name)
	if err := d.frozenErr(); err != nil {
		return nullFile{}, d.pretend(kind, err)
	}
	var f vfs.File
	err := d.withRoom(kind, func() (err error) {
		f, err = d.FS.Create(name, c)
		return err
	})
	return d.created(name, kind, "create", f, err)
}

// Open opens a file to read. The engine reads a log only to replay it.
func (d *disk) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if kindOf(name) == kindLog {
		if err := checkLog(d.FS, name); err != nil {
			return nil, err
		}
	}
	return d.FS.Open(name, opts...)
}

// ReuseForWrite takes an old log as a new one.
func (d *disk) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if d.frozenErr() != nil {
		return nullFile{}, nil
	}
	var f vfs.File
	err := d.withRoom(kindOf(newname), func() (err error) {
		f, err = d.FS.ReuseForWrite(oldname, newname, c)
		return err
	})
	return d.created(newname, kindOf(newname), "reuse", f, err)
}

func (d *disk) created(name string, kind fileKind, op string, f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		if err = d.written(name, kind, op, err); err != nil {
			return nil, err
		}
		return nullFile{}, nil
	}
	return &diskFile{File: f, disk: d, name: name, kind: kind}, nil
}

// OpenDir opens a directory to sync it. A failed sync of a directory freezes: the engine
// cannot be told in every place where it syncs one.
func (d *disk) OpenDir(name string) (vfs.File, error) {
	f, err := d.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &diskFile{File: f, disk: d, name: name, kind: kindFreeze}, nil
}

// Remove keeps every file of a frozen disk: the manifest that is on disk may still name it.
func (d *disk) Remove(name string) error {
	if d.frozenErr() != nil {
		return nil
	}
	return d.FS.Remove(name)
}

// Rename moves nothing on a frozen disk.
func (d *disk) Rename(oldname, newname string) error {
	if d.frozenErr() != nil {
		return nil
	}
	kind := kindOf(newname)
	return d.written(newname, kind, "rename", d.withRoom(kind, func() error { return d.FS.Rename(oldname, newname) }))
}

// diskFile is a file that is written through a disk.
type diskFile struct {
	vfs.File
	disk *disk
	name string
	kind fileKind
	// What is written is on the card up to paced (tables), on its way there up to begun.
	paced, begun, end int64
}

func (f *diskFile) Write(p []byte) (int, error) {
	if err := f.disk.frozenErr(); err != nil {
		return len(p), f.disk.pretend(f.kind, err)
	}
	n := 0
	err := f.disk.withRoom(f.kind, func() error {
		more, err := f.File.Write(p[n:])
		n += more
		return err
	})
	if err != nil {
		if err = f.disk.written(f.name, f.kind, "write", err); err == nil {
			n = len(p)
		}
		return n, err
	}
	f.end += int64(n)
	if f.end-f.begun >= paceBytes {
		f.pace()
	}
	return n, nil
}

// pace begins to write the newest piece of a table or a log to the card. Of a table it waits for
// the piece before: one is on its way while the next is made. A log's writer waits at its syncs.
func (f *diskFile) pace() {
	if f.kind != kindTable && f.kind != kindLog {
		return
	}
	startRange(f.File.Fd(), f.begun, f.end-f.begun)
	if f.kind == kindTable && f.begun > f.paced {
		awaitRange(f.File.Fd(), f.paced, f.begun-f.paced)
	}
	f.paced, f.begun = f.begun, f.end
}

func (f *diskFile) Sync() error     { return f.sync("sync", f.File.Sync) }
func (f *diskFile) SyncData() error { return f.sync("sync", f.File.SyncData) }

func (f *diskFile) sync(op string, sync func() error) error {
	if err := f.disk.frozenErr(); err != nil {
		return f.disk.pretend(f.kind, err)
	}
	if f.kind == kindLog {
		defer f.disk.watchSync()()
	}
	err := sync()
	if err == nil && f.kind == kindTable {
		f.disk.failures.Store(0)
	}
	return f.disk.written(f.name, f.kind, op, err)
}

// slowLook is how often a sync that goes on is looked at.
const slowLook = slowSync / 4

// syncTime is how long a sync has taken. A gap between two looks that is longer than it should be is time in which
// this process stood still (it was stopped, or its machine), and no fault of the disk.
type syncTime struct {
	last time.Time
	took time.Duration
}

func (s *syncTime) look(now time.Time) time.Duration {
	s.took += min(now.Sub(s.last), 2*slowLook)
	s.last = now
	return s.took
}

// watchSync tells of a sync that is slow, while it lasts and at its end, which the returned function is told.
func (d *disk) watchSync() (end func()) {
	var mu sync.Mutex
	var slow, over bool
	s := syncTime{last: time.Now()}
	var t *time.Timer
	mu.Lock()
	defer mu.Unlock()
	t = time.AfterFunc(slowLook, func() {
		mu.Lock()
		news := false
		if !over {
			news = s.look(time.Now()) >= slowSync && !slow
			slow = slow || news
			t.Reset(slowLook)
		}
		mu.Unlock()
		if news {
			d.event(Event{Kind: EventSlowDisk, Text: fmt.Sprintf("a sync of the log takes longer than %v", slowSync)})
		}
	})
	return func() {
		t.Stop()
		mu.Lock()
		over = true
		took, told := s.look(time.Now()), slow
		mu.Unlock()
		if told {
			d.event(Event{Kind: EventSlowDisk, Text: fmt.Sprintf("a sync of the log took %v", took.Round(time.Millisecond)), Took: took})
		}
	}
}

// SyncTo hands a prefix to the system; its errors come back with the next Sync.
func (f *diskFile) SyncTo(length int64) (bool, error) {
	if f.disk.frozenErr() != nil {
		return false, nil
	}
	full, err := f.File.SyncTo(length)
	return full, f.disk.written(f.name, f.kind, "sync", err)
}

// Preallocate is only a wish.
func (f *diskFile) Preallocate(offset, length int64) error {
	if f.disk.frozenErr() == nil {
		_ = f.File.Preallocate(offset, length)
	}
	return nil
}

func (f *diskFile) Close() error {
	err := f.File.Close()
	if f.disk.frozenErr() != nil && f.kind != kindTable {
		return nil
	}
	return f.disk.written(f.name, f.kind, "close", err)
}

// nullFile takes writes on a frozen disk and keeps nothing.
type nullFile struct{}

func (nullFile) Close() error                           { return nil }
func (nullFile) Read([]byte) (int, error)               { return 0, fs.ErrClosed }
func (nullFile) ReadAt([]byte, int64) (int, error)      { return 0, fs.ErrClosed }
func (nullFile) Write(p []byte) (int, error)            { return len(p), nil }
func (nullFile) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (nullFile) Preallocate(int64, int64) error         { return nil }
func (nullFile) Stat() (vfs.FileInfo, error)            { return nullInfo{}, nil }
func (nullFile) Sync() error                            { return nil }
func (nullFile) SyncTo(int64) (bool, error)             { return false, nil }
func (nullFile) SyncData() error                        { return nil }
func (nullFile) Prefetch(int64, int64) error            { return nil }
func (nullFile) Fd() uintptr                            { return vfs.InvalidFd }

// nullInfo describes a nullFile.
type nullInfo struct{}

func (nullInfo) Name() string           { return "" }
func (nullInfo) Size() int64            { return 0 }
func (nullInfo) Mode() fs.FileMode      { return 0 }
func (nullInfo) ModTime() time.Time     { return time.Time{} }
func (nullInfo) IsDir() bool            { return false }
func (nullInfo) Sys() any               { return nil }
func (nullInfo) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }
