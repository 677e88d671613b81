package storage

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"edged/record"
)

const reserveName = "reserve"

// reserve is a file that takes up room on the disk. When the disk is full it is given up, so that
// what is under way, and what makes room again, can be written. It is made again when there is room.
type reserve struct {
	fs   vfs.FS
	path string
	size int64

	mu   sync.Mutex
	held bool
}

// open takes over the file of the life before as it is: nobody can see whether it has its room, so it is
// made again by the first restore.
func (r *reserve) open() {
	_, err := r.fs.Stat(r.path)
	r.held = err == nil
}

// giveUp gives the room back to the disk. false if there was none.
func (r *reserve) giveUp() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.held || r.size == 0 {
		return false
	}
	r.held = false
	return r.fs.Remove(r.path) == nil
}

// whole tells whether the room is kept.
func (r *reserve) whole() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held || r.size == 0
}

// restore keeps the room.
func (r *reserve) restore() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.size == 0 {
		return nil
	}
	f, err := r.fs.Create(r.path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if err = f.Preallocate(0, r.size); errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		err = fillZeros(f, r.size)
	}
	if err = join(err, f.Close()); err != nil {
		_ = r.fs.Remove(r.path) // a part of it is no use
		return err
	}
	r.held = true
	return nil
}

// fillZeros is for file systems that cannot set room aside.
func fillZeros(f vfs.File, size int64) error {
	zeros := make([]byte, 64<<10)
	for size > 0 {
		n, err := f.Write(zeros[:min(size, int64(len(zeros)))])
		if err != nil {
			return err
		}
		size -= int64(n)
	}
	return nil
}

func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// GiveUpReserve frees the reserve of a store that is not open, if less than least bytes are free
// otherwise: a start writes too, and so does the end of a stop. It is no error if there is none. In a directory
// without an identity, which may be somebody else's, nothing is touched.
func GiveUpReserve(dir string, fs vfs.FS, least int64) {
	_, err := fs.Stat(fs.PathJoin(dir, identityNames[0]))
	if _, copyErr := fs.Stat(fs.PathJoin(dir, identityNames[1])); err != nil && copyErr != nil {
		return
	}
	if u, err := fs.GetDiskUsage(dir); err == nil && int64(u.AvailBytes) < least {
		_ = fs.Remove(fs.PathJoin(dir, reserveName))
	}
}

// Room tells whether there is room for more records: at least keep bytes beside the reserve. It makes the
// reserve again when there is room for that too. A file system that cannot tell is written to until it refuses.
func (s *Store) Room(keep int64) bool {
	if s.disk.waiting.Load() > 0 {
		return false
	}
	free, _, err := s.FreeSpace()
	if err != nil {
		return true
	}
	r := s.disk.reserve
	if r.whole() {
		return free >= keep
	}
	if free < keep+r.size {
		return false
	}
	if err := r.restore(); err != nil {
		s.event(Event{Kind: EventBackgroundError, Text: "the reserve cannot be made again", Err: err})
		return !isFull(err)
	}
	return true
}

// Tight tells that less than keep bytes are free beside the reserve, or that the reserve is in use.
func (s *Store) Tight(keep int64) bool {
	free, _, err := s.FreeSpace()
	return s.disk.waiting.Load() > 0 || err == nil && (free < keep || !s.disk.reserve.whole())
}

// withRoom runs a write that may find the disk full: it gives the reserve up, and where that is not
// enough it waits until there is room, so that nothing that is under way is lost and the process lives.
// Reads go on meanwhile. What has begun is never begun again: op goes on where it stopped.
func (d *disk) withRoom(kind fileKind, op func() error) error {
	err := op()
	if !isFull(err) {
		return err
	}
	if d.reserve.giveUp() {
		d.event(Event{Kind: EventDiskFull, Text: "the disk is full: the reserve is in use", Err: err})
		if err = op(); !isFull(err) {
			return err
		}
	}
	if d.opening.Load() || kind == kindOther {
		return err // at a start somebody should be told
	}
	if kind != kindTable {
		d.waiting.Add(1) // before anybody who hears of it asks for room
		defer d.waiting.Add(-1)
	}
	d.event(Event{Kind: EventDiskFull, Text: "the disk is full: writing waits for room", Err: fmt.Errorf("%w: %w", record.ErrDiskFull, err)})
	if kind == kindTable {
		return err // it is begun anew by the engine, and what is written of it goes
	}
	for wait := firstPause; isFull(err) && d.frozenErr() == nil; wait = min(2*wait, longestPause/4) {
		if !d.sleep(wait) {
			return err
		}
		err = op()
	}
	return err
}
