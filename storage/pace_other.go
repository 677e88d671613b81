//go:build !linux

package storage

// Where the system has no such call nothing is paced.
func startRange(fd uintptr, offset, length int64) {}
func awaitRange(fd uintptr, offset, length int64) {}
