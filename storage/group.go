package storage

import (
	"sort"

	"edged/record"
)

// group is what is kept in memory of a group. The writer works on a copy and puts it in
// place of the published one under Store.mu; readers copy the published one under it. The
// slices are shared, so no element of them changes once it is published: they are only
// appended to, or replaced as a whole.
//
//	base.Index <= applied <= last
//	base.NextOffset <= next; base.NextOffset <= base.LogStart <= next, if the log holds so much
//	dirs[0].first <= base.Index+1 if dirs is not empty; the last dir's range ends with last
//	runs[0].Index <= base.Index+1 if last > base.Index
type group struct {
	id      record.GroupID
	replica record.ReplicaID
	class   uint8
	hs      HardState
	base    Base
	applied uint64

	last uint64        // base.Index if the log is empty
	next record.Offset // after the last batch
	dirs []dirEntry
	runs []TermRun
	// tail is what the last dir holds, up to last.
	tailBytes uint64
	tailMaxTs int64
	headBytes uint64 // payload at or before base.Index in the first dir's bucket
	since     uint32 // stored directory entries of buckets below it are not this log's
	size      int64  // payload after base.Index

	// Only the writer looks at these: where the sparse index stands in the open bucket.
	pointBytes uint64
	pointTs    int64

	err error // the law found broken at open; such a group is out of service
}

// clear makes g an empty log that begins after base.
func (g *group) clear(base Base) {
	g.base = base
	g.last, g.next = base.Index, base.NextOffset
	g.dirs, g.runs = nil, nil
	g.tailBytes, g.tailMaxTs = 0, noTimestamp
	g.headBytes, g.size = 0, 0
	g.err = nil
}

// segment is the range of a group's log that stands in one bucket.
type segment struct {
	slot        slot
	first, last uint64 // first may be before the base: then that part is dead
	offset      record.Offset
	bytes       uint64
	maxTs       int64
}

func (g *group) segment(i int) segment {
	d := &g.dirs[i]
	s := segment{slot: d.slot, first: d.first, offset: d.offset, last: g.last, bytes: g.tailBytes, maxTs: g.tailMaxTs}
	if i+1 < len(g.dirs) {
		n := &g.dirs[i+1]
		s.last, s.bytes, s.maxTs = n.first-1, uint64(n.prevBytes), n.prevMaxTs
	}
	return s
}

// segmentOf is the number of the segment that holds an index above base.Index, at most last.
func (g *group) segmentOf(index uint64) int {
	return sort.Search(len(g.dirs), func(i int) bool { return g.dirs[i].first > index }) - 1
}

// segmentOfOffset is the number of the segment that holds an offset from base.NextOffset on,
// below next. A segment without batches has the offset of the one after it; the last wins.
func (g *group) segmentOfOffset(o record.Offset) int {
	return sort.Search(len(g.dirs), func(i int) bool { return g.dirs[i].offset > o }) - 1
}

// term of an index from base.Index to last.
func (g *group) term(index uint64) uint64 {
	if index <= g.base.Index {
		return g.base.Term
	}
	i := sort.Search(len(g.runs), func(i int) bool { return g.runs[i].Index > index }) - 1
	if i < 0 {
		return g.base.Term
	}
	return g.runs[i].Term
}

// resize counts size anew.
func (g *group) resize() {
	var n uint64
	for i := range g.dirs {
		n += g.segment(i).bytes
	}
	g.size = int64(n - g.headBytes)
}

// liveRuns are the runs as a reader may see them: the first one begins after the base.
func (g *group) liveRuns() []TermRun {
	if len(g.runs) == 0 {
		return nil
	}
	runs := append([]TermRun(nil), g.runs...)
	if first := &runs[0]; first.Index <= g.base.Index {
		first.Index, first.Offset = g.base.Index+1, g.base.NextOffset
	}
	return runs
}
