package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// The engine's log is blocks of 32 KiB, each filled with chunks:
//
//	crc u32 | length u16 | type u8 | number of the log u32 | synced offset u64 | data
//
// little-endian; the synced offset says how much of the log was durable when the chunk was written.
const (
	logBlock                  = 32 << 10
	logHeader                 = 4 + 2 + 1 + 4 + 8
	logTypeFirst, logTypeLast = 9, 12 // of the chunks that carry a synced offset
)

var errLogHole = errors.New("synced records of the log are damaged")

// checkLog refuses a log in which something that was synced is damaged. Power loss leaves a
// log that ends somewhere, perhaps with later pieces behind the gap; but a piece behind it that
// says that the gap itself had been synced proves damage. The engine looks for such proof only
// in the blocks after the damage, and takes the rest of its own block for never written: up
// to 32 KiB of commits that were acked would be forgotten in silence, votes among them.
//
// Nothing follows the last record, so damage in that one cannot be told from a torn write.
func checkLog(fs vfs.FS, path string) error {
	name := filepath.Base(path)
	number, err := strconv.ParseUint(strings.TrimSuffix(name, ".log"), 10, 64)
	if err != nil {
		return nil // not one that the engine reads
	}
	f, err := fs.Open(path)
	if err != nil {
		return err
	}
	c := logChecker{f: f, number: uint32(number)}
	err = c.run()
	if err := join(err, f.Close()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

type logChecker struct {
	f      io.ReaderAt
	number uint32
	block  [logBlock]byte
	ended  bool
	end    int64 // where the log ends, once it has ended
}

func (c *logChecker) run() error {
	for at := int64(0); ; at += logBlock {
		n, err := c.f.ReadAt(c.block[:], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		b := c.block[:n]
		from := 0
		if !c.ended {
			from = c.follow(b)
			if c.ended = from >= 0; c.ended {
				c.end = at + int64(from)
			}
		}
		if c.ended && c.findProof(b[from:]) {
			return fmt.Errorf("%w at offset %d (%w)", errLogHole, c.end, pebble.ErrCorruption)
		}
		if n < logBlock {
			return nil
		}
	}
}

// follow walks over the chunks of a block and says where they end, -1 if at the block's end.
func (c *logChecker) follow(b []byte) int {
	i := 0
	for len(b)-i >= logHeader {
		size, _, ok := c.chunk(b[i:])
		if !ok {
			return i
		}
		i += size
	}
	if len(b) < logBlock {
		return i
	}
	return -1
}

// findProof looks at every byte for a chunk that says that the end was synced.
func (c *logChecker) findProof(b []byte) bool {
	for i := 0; i+logHeader <= len(b); i++ {
		if t := b[i+6]; t < logTypeFirst || t > logTypeLast {
			continue
		}
		if _, synced, ok := c.chunk(b[i:]); ok && synced > uint64(c.end) {
			return true
		}
	}
	return false
}

// chunk checks the chunk that b begins with.
func (c *logChecker) chunk(b []byte) (size int, synced uint64, ok bool) {
	size = logHeader + int(binary.LittleEndian.Uint16(b[4:]))
	if b[6] < logTypeFirst || b[6] > logTypeLast || binary.LittleEndian.Uint32(b[7:]) != c.number || size > len(b) {
		return 0, 0, false
	}
	sum := crc32.Checksum(b[6:size], castagnoli)
	if binary.LittleEndian.Uint32(b) != (sum>>15|sum<<17)+0xa282ead8 { // the engine's way to keep a sum of sums apart
		return 0, 0, false
	}
	return size, binary.LittleEndian.Uint64(b[11:]), true
}
