package storage

import (
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// startRange begins to write a range of a file to the card.
func startRange(fd uintptr, offset, length int64) {
	if fd != vfs.InvalidFd {
		_ = unix.SyncFileRange(int(fd), offset, length, unix.SYNC_FILE_RANGE_WRITE)
	}
}

// awaitRange waits until a range of a file is on the card. It promises nothing about power
// loss; the sync at the file's end does.
func awaitRange(fd uintptr, offset, length int64) {
	if fd != vfs.InvalidFd {
		_ = unix.SyncFileRange(int(fd), offset, length,
			unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
	}
}
