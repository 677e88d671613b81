package storage

import (
	"sync/atomic"

	"edged/record"
)

// cursors remembers where the latest reads ended, so that a consumer that reads on need not be
// looked up in the index, which is behind the data in the tables and costs a second block. A
// cursor is only a hint: a truncation or another reader may have made it wrong or pushed it out.
type cursors [maxCursors]atomic.Pointer[cursor]

// maxCursors is how many readers of different places are remembered. A power of two.
const maxCursors = 64

// cursor says that the entries of a group from index on hold offset or later.
type cursor struct {
	group  record.GroupID
	offset record.Offset
	index  uint64
}

func (c *cursors) slot(id record.GroupID, o record.Offset) *atomic.Pointer[cursor] {
	const golden = 0x9e3779b97f4a7c15 // spreads neighbours (Knuth, multiplicative hashing)
	h := (uint64(id)*golden ^ uint64(o)) * golden
	return &c[h>>58]
}

func (c *cursors) remember(id record.GroupID, o record.Offset, index uint64) {
	c.slot(id, o).Store(&cursor{group: id, offset: o, index: index})
}

// find gives the entry to begin with for an offset, if it is remembered.
func (c *cursors) find(id record.GroupID, o record.Offset) (index uint64, ok bool) {
	p := c.slot(id, o).Load()
	if p == nil || p.group != id || p.offset != o {
		return 0, false
	}
	return p.index, true
}
