//go:build !linux

package storage

// pushRange does nothing where the system has no such call.
func pushRange(fd uintptr, offset, length int64) {}
