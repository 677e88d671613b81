package storage

import (
	"io"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// manifestCopy is the name under which a manifest is written anew.
const manifestCopy = "manifest.new"

// renewManifest writes the newest manifest once more, in a file of its own. After a sync that failed the system's memory may
// show what is not on the disk and never will be: the engine would remove logs because such a manifest says that
// their tables are there. Logs need no such care, they are written into tables at each start.
func renewManifest(dir string, fs vfs.FS) error {
	desc, err := pebble.Peek(dir, fs)
	if err != nil || !desc.Exists {
		return err
	}
	old, err := fs.Open(desc.ManifestFilename)
	if err != nil {
		return err
	}
	name := fs.PathJoin(dir, manifestCopy)
	renewed, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return join(err, old.Close())
	}
	_, err = io.Copy(renewed, old)
	if err == nil {
		err = renewed.Sync()
	}
	if err = join(err, renewed.Close(), old.Close()); err != nil {
		return join(err, fs.Remove(name))
	}
	return join(fs.Rename(name, desc.ManifestFilename), syncDir(fs, dir))
}
