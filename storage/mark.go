package storage

import (
	"encoding/binary"
	"errors"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// mark is a small file beside the engine's that names the newest bucket known to be complete
// in tables. The engine cannot see that the end of its own manifest is gone: it would open
// without the newest tables, and the node would give a second vote in a term it has voted
// in. With the mark such a store is refused.
//
// Two slots, written in turn, so that a torn write spoils only the newer one: then the mark is
// one bucket too low, which is safe. A mark that is gone altogether protects nothing until the
// next bucket is complete, and is no error.
type mark struct {
	mu     turn     // held while the disk syncs
	file   vfs.File // nil if read-only
	serial uint64
	bucket uint32
}

const (
	markName    = "complete"
	markSlot    = 4096 // apart, so that one torn page is one slot
	markLen     = 4 + 8 + 4 + crcLen
	markVersion = uint32('E')<<24 | uint32('M')<<16 | 1
)

// openMark reads the mark in dir, or makes it.
func openMark(fsys vfs.FS, dir string, readOnly bool) (*mark, error) {
	m := &mark{mu: newTurn()}
	path := fsys.PathJoin(dir, markName)
	fresh := false
	f, err := fsys.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		fresh = true
	case err != nil:
		return nil, err
	default:
		m.read(f)
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	if readOnly {
		return m, nil
	}
	m.file, err = fsys.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	if fresh {
		if err := join(m.file.Sync(), syncDir(fsys, dir)); err != nil {
			return nil, join(err, m.file.Close())
		}
	}
	return m, nil
}

func (m *mark) read(f vfs.File) {
	for slot := range int64(2) {
		b := make([]byte, markLen)
		if n, _ := f.ReadAt(b, slot*markSlot); n < markLen {
			continue
		}
		body, err := unseal([]byte(markName), b)
		if err != nil || binary.BigEndian.Uint32(body) != markVersion {
			continue
		}
		if serial := binary.BigEndian.Uint64(body[4:]); serial >= m.serial {
			m.serial, m.bucket = serial, binary.BigEndian.Uint32(body[12:])
		}
	}
}

func (m *mark) value() uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bucket
}

// raise makes the mark at least bucket, durably.
func (m *mark) raise(bucket uint32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if bucket <= m.bucket || m.file == nil {
		return nil
	}
	b := binary.BigEndian.AppendUint32(nil, markVersion)
	b = binary.BigEndian.AppendUint64(b, m.serial+1)
	b = seal([]byte(markName), binary.BigEndian.AppendUint32(b, bucket))
	if _, err := m.file.WriteAt(b, int64((m.serial+1)%2)*markSlot); err != nil {
		return err
	}
	if err := m.file.SyncData(); err != nil {
		return err
	}
	m.serial++
	m.bucket = bucket
	return nil
}

func (m *mark) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.file == nil {
		return nil
	}
	err := m.file.Close()
	m.file = nil
	return err
}
