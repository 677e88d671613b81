// Package card is a memory card for tests: a block device that loses what was not flushed when its power
// is cut, as a whole, in parts, or torn, and that may lie about having flushed. Tests put a real ext4 on it.
//
// It is one file of a FUSE file system, on which a loop device sits; a flush of the block device arrives
// as an fsync of the file. Root is needed, /dev/fuse and a free loop device.
package card
