package storage

import (
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// probeName is the file that Probe writes, probeBytes how much of it.
const (
	probeName  = "probe"
	probeBytes = 256 << 10
)

// Probe tells whether a disk takes a write and a sync. It does not touch the store.
func Probe(dir string, fs vfs.FS) error {
	name := fs.PathJoin(dir, probeName)
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	n, err := f.Write(make([]byte, probeBytes))
	if err == nil && n < probeBytes {
		err = io.ErrShortWrite
	}
	if err == nil {
		err = f.Sync()
	}
	return join(err, f.Close(), fs.Remove(name), syncDir(fs, dir))
}
