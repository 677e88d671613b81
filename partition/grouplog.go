package partition

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"edged/record"
	"edged/storage"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// Reader is what a Core reads of the store. Calls may touch the disk only for entries that
// left the entry cache: Raft's own questions are answered from memory.
type Reader interface {
	Entries(g record.GroupID, lo, hi uint64, maxBytes int64) ([]storage.Entry, error)
	Headers(g record.GroupID, lo, hi uint64, fn func(e storage.Entry, size int64) error) error
}

// groupLog is a group's log as it was handed to the log writer: Raft's Storage. It is ahead of
// the disk, which Raft allows because it looks here only for what its own unstable part does not
// hold. All entries that are not durable yet are in the cache, so a read never misses the writer.
//
// base.Index <= durable <= last, and cached entries end at last.
type groupLog struct {
	group   record.GroupID
	machine bool
	store   Reader
	hs      storage.HardState
	base    storage.Base
	last    uint64
	durable uint64            // entries up to here are on disk
	runs    []storage.TermRun // which term holds from which index on; oldest first
	confs   []storage.ConfAt  // configurations since base; the first holds at base
	applied uint64            // for InitialState: what the checkpoint had applied
	commit  uint64            // for InitialState: what was known to be committed
	cache   []*pb.Entry       // the newest entries, up to last
	bytes   int64             // size of the cache
	snap    func() *pb.Snapshot
	reads   *int64 // bytes read from the store for Raft, in this turn
}

var _ raft.Storage = (*groupLog)(nil)

func newGroupLog(s storage.GroupState, machine bool, store Reader, reads *int64) *groupLog {
	return &groupLog{
		group: s.Group, machine: machine, store: store, reads: reads, hs: s.HardState, base: s.Base,
		last: s.LastIndex, durable: s.LastIndex, runs: slices.Clone(s.TermRuns),
		confs: slices.Clone(s.Checkpoint.Confs), applied: s.Checkpoint.Applied,
	}
}

func (l *groupLog) InitialState() (*pb.HardState, *pb.ConfState, error) {
	hs := &pb.HardState{Term: new(l.hs.Term), Vote: new(uint64(l.hs.Vote)), Commit: new(l.commit)}
	return hs, confToRaft(l.confAt(l.applied)), nil
}

// confAt is the configuration that held at index.
func (l *groupLog) confAt(index uint64) storage.ConfState {
	var c storage.ConfState
	for _, at := range l.confs {
		if at.Index > index {
			break
		}
		c = at.Conf
	}
	return c
}

func (l *groupLog) FirstIndex() (uint64, error) { return l.base.Index + 1, nil }
func (l *groupLog) LastIndex() (uint64, error)  { return l.last, nil }

func (l *groupLog) Term(i uint64) (uint64, error) {
	switch {
	case i == l.base.Index:
		return l.base.Term, nil
	case i < l.base.Index:
		return 0, raft.ErrCompacted
	case i > l.last:
		return 0, raft.ErrUnavailable
	}
	return l.term(i), nil
}

func (l *groupLog) term(i uint64) uint64 {
	n := sort.Search(len(l.runs), func(n int) bool { return l.runs[n].Index > i })
	if n == 0 {
		return l.base.Term
	}
	return l.runs[n-1].Term
}

func (l *groupLog) cacheFirst() uint64 { return l.last + 1 - uint64(len(l.cache)) }

func (l *groupLog) Entries(lo, hi, maxSize uint64) ([]*pb.Entry, error) {
	if lo <= l.base.Index {
		return nil, raft.ErrCompacted
	}
	if hi > l.last+1 {
		return nil, raft.ErrUnavailable
	}
	if first := l.cacheFirst(); lo < first {
		return l.stored(lo, min(hi, first), maxSize)
	}
	ents := l.cache[lo-l.cacheFirst() : hi-l.cacheFirst()]
	size := uint64(0)
	for i, e := range ents {
		size += entrySize(e)
		if i > 0 && size > maxSize {
			ents = ents[:i]
			break
		}
	}
	return slices.Clone(ents), nil
}

// stored reads entries that left the cache. Raft panics on an error it does not expect; the Core
// then takes this replica, and no other, out of service (law 8).
func (l *groupLog) stored(lo, hi, maxSize uint64) ([]*pb.Entry, error) {
	ents, err := l.store.Entries(l.group, lo, hi, int64(min(maxSize, 1<<30)))
	if errors.Is(err, storage.ErrCompacted) {
		return nil, raft.ErrCompacted
	}
	if err != nil {
		return nil, err
	}
	out := make([]*pb.Entry, len(ents))
	for i := range ents {
		out[i] = toRaft(&ents[i])
		*l.reads += int64(entrySize(out[i]))
	}
	return out, nil
}

func (l *groupLog) Snapshot() (*pb.Snapshot, error) {
	if faultNoBaseRecord {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return l.snap(), nil
}

func entrySize(e *pb.Entry) uint64 { return uint64(len(e.GetData())) + 24 }

// append takes entries that go to the log writer now, replacing what they overlap.
func (l *groupLog) append(ents []*pb.Entry) error {
	first := ents[0].GetIndex()
	if first > l.last+1 || first <= l.base.Index {
		return fmt.Errorf("entry %d appended to a log of %d to %d", first, l.base.Index+1, l.last)
	}
	if first <= l.last {
		l.truncate(first)
	}
	for _, e := range ents {
		if n := len(l.runs); n == 0 || l.runs[n-1].Term != e.GetTerm() {
			l.runs = append(l.runs, storage.TermRun{Index: e.GetIndex(), Term: e.GetTerm()})
		}
		l.cache = append(l.cache, e)
		l.bytes += int64(entrySize(e))
		l.last++
	}
	return nil
}

// truncate removes the entries from index on: another leader's log has others there.
func (l *groupLog) truncate(index uint64) {
	if first := l.cacheFirst(); index <= first {
		l.cache, l.bytes = nil, 0
	} else {
		for _, e := range l.cache[index-first:] {
			l.bytes -= int64(entrySize(e))
		}
		clear(l.cache[index-first:])
		l.cache = l.cache[:index-first]
	}
	l.last = index - 1
	l.durable = min(l.durable, l.last)
	for n := len(l.runs); n > 0 && l.runs[n-1].Index >= index; n = len(l.runs) {
		l.runs = l.runs[:n-1]
	}
}

// evict drops cached entries up to index, which must be durable.
func (l *groupLog) evict(index uint64) {
	first := l.cacheFirst()
	if index < first {
		return
	}
	n := min(int(index-first)+1, len(l.cache))
	for _, e := range l.cache[:n] {
		l.bytes -= int64(entrySize(e))
	}
	clear(l.cache[:n]) // the array lives on; the entries must not
	l.cache = l.cache[n:]
}

// moveBase forgets everything up to base.Index.
func (l *groupLog) moveBase(b storage.Base) {
	l.evict(min(b.Index, l.durable))
	l.base = b
	n := sort.Search(len(l.runs), func(n int) bool { return l.runs[n].Index > b.Index+1 })
	if n > 1 { // the run before still holds at base.Index+1
		l.runs = append([]storage.TermRun(nil), l.runs[n-1:]...)
	}
	for len(l.confs) > 1 && l.confs[1].Index <= b.Index {
		l.confs = l.confs[1:]
	}
}

// reset replaces the log by a base that the leader sent.
func (l *groupLog) reset(b storage.Base, conf storage.ConfState) {
	l.base, l.last, l.durable, l.runs = b, b.Index, b.Index, nil
	l.cache, l.bytes = nil, 0
	l.confs = []storage.ConfAt{{Index: b.Index, Conf: conf}}
}
