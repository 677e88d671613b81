package sim

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// disk is a machine's disk: a file system in memory that can lose what was not synced, and that
// can be told to be slow, to stick, to be full or to fail.
//
// Only syncs of the log wait: everywhere else somebody may hold a lock that others want, and a goroutine that waits
// for a lock stops virtual time.
type disk struct {
	vfs.FS // mem
	mem    *vfs.MemFS

	mu struct {
		sync.Mutex
		rng   *rand.Rand
		slow  time.Duration // each sync takes up to this long
		stuck chan struct{} // closed when the disk moves again; nil while it does
		ended chan struct{} // closed when heal ends the waits of syncs
		full  bool          // nothing can be written
		fails int           // so many of the next log syncs fail
	}
	syncs int
}

func newDisk(mem *vfs.MemFS, seed uint64) *disk {
	d := &disk{FS: mem, mem: mem}
	d.mu.rng, d.mu.ended = rand.New(rand.NewPCG(seed, 3)), make(chan struct{})
	return d
}

// errBadSector is what a failing disk says.
var errBadSector = errors.New("input/output error (simulated)")

func (d *disk) setSlow(s time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.slow = s
}

func (d *disk) stick() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.stuck == nil {
		d.mu.stuck = make(chan struct{})
	}
}

func (d *disk) setFull(full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.full = full
}

func (d *disk) fail(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.fails = n
}

// heal ends everything that is wrong with the disk.
func (d *disk) heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.slow, d.mu.full, d.mu.fails = 0, false, 0
	close(d.mu.ended) // a sync that still waits may hold up one who holds a lock
	d.mu.ended = make(chan struct{})
	if d.mu.stuck != nil {
		close(d.mu.stuck)
		d.mu.stuck = nil
	}
}

// write is what happens before bytes are taken.
func (d *disk) write() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.full {
		return syscall.ENOSPC
	}
	return nil
}

// sync is what happens before a sync of the log.
func (d *disk) sync() error {
	d.mu.Lock()
	d.syncs++
	var wait time.Duration
	if d.mu.slow > 0 {
		wait = time.Duration(d.mu.rng.Int64N(int64(d.mu.slow)))
	}
	stuck, ended := d.mu.stuck, d.mu.ended
	var err error
	if d.mu.fails > 0 {
		d.mu.fails--
		err = errBadSector
	}
	d.mu.Unlock()
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ended:
		}
	}
	if stuck != nil {
		<-stuck
	}
	return err
}

func (d *disk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := d.write(); err != nil {
		return nil, err
	}
	f, err := d.FS.Create(name, c)
	return d.file(name, f, err)
}

func (d *disk) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.ReuseForWrite(oldname, newname, c)
	return d.file(newname, f, err)
}

func (d *disk) file(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &diskFile{File: f, d: d, log: strings.HasSuffix(name, ".log")}, nil
}

type diskFile struct {
	vfs.File
	d   *disk
	log bool
}

func (f *diskFile) Write(p []byte) (int, error) {
	if err := f.d.write(); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

func (f *diskFile) before() error {
	if !f.log {
		return nil
	}
	return f.d.sync()
}

func (f *diskFile) Sync() error {
	if err := f.before(); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *diskFile) SyncData() error {
	if err := f.before(); err != nil {
		return err
	}
	return f.File.SyncData()
}
