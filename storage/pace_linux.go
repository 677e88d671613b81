package storage

import (
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// pushRange writes a range of a file to the card now and waits for it. It promises nothing
// about power loss; the sync at the file's end does.
func pushRange(fd uintptr, offset, length int64) {
	if fd == vfs.InvalidFd {
		return
	}
	_ = unix.SyncFileRange(int(fd), offset, length,
		unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
}
