package partition

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"edged/record"
	"edged/storage"
)

// memStore is a store that keeps everything in maps: the dumb model of package storage that the
// Core's own simulation runs on. Like a write-ahead log it keeps what was committed in order: a
// power cut takes a suffix of what was not synced.
type memStore struct {
	groups map[record.GroupID]*memGroup
	wal    []storage.Update
	synced int   // updates of wal that no power cut takes
	read   int64 // bytes of entries read
}

type memGroup struct {
	state   storage.GroupState
	entries []storage.Entry // from base.Index+1
}

func newMemStore() *memStore { return &memStore{groups: map[record.GroupID]*memGroup{}} }

func (s *memStore) Commit(us []storage.Update, sync bool) error {
	for _, u := range us {
		if err := s.apply(u); err != nil {
			return err
		}
		s.wal = append(s.wal, u)
	}
	if sync {
		s.synced = len(s.wal)
	}
	return nil
}

// cut is a power cut while running was being written: some of what was not synced is gone.
func (s *memStore) cut(rng *rand.Rand, running []storage.Update) error {
	wal := append(s.wal[:len(s.wal):len(s.wal)], running...)
	wal = wal[:s.synced+rng.IntN(len(wal)-s.synced+1)]
	s.groups, s.wal, s.synced = map[record.GroupID]*memGroup{}, nil, 0
	return s.Commit(wal, true)
}

func (s *memStore) apply(u storage.Update) error {
	if u.Remove {
		delete(s.groups, u.Group)
		return nil
	}
	g := s.groups[u.Group]
	if g == nil {
		if u.Reset == nil {
			return fmt.Errorf("group %d was never made", u.Group)
		}
		g = &memGroup{}
		s.groups[u.Group] = g
	}
	g.state.Group, g.state.Replica, g.state.Class = u.Group, u.Replica, u.Class
	if u.Reset != nil {
		if u.Checkpoint == nil {
			return fmt.Errorf("reset without a checkpoint")
		}
		g.state.Base, g.entries = *u.Reset, nil
	}
	if u.HardState != nil {
		g.state.HardState = *u.HardState
	}
	if len(u.Entries) > 0 {
		first := u.Entries[0].Index
		if last := g.last(); first > last+1 || first <= g.state.Base.Index {
			return fmt.Errorf("group %d: entry %d after %d", u.Group, first, last)
		}
		n := first - g.state.Base.Index - 1
		g.entries = append(g.entries[:n:n], u.Entries...)
	}
	if u.Base != nil {
		if u.Base.Index < g.state.Base.Index || u.Base.Index > g.last() {
			return fmt.Errorf("group %d: base moved to %d in a log of %d to %d", u.Group, u.Base.Index, g.state.Base.Index+1, g.last())
		}
		g.entries = g.entries[u.Base.Index-g.state.Base.Index:]
		g.state.Base = *u.Base
	}
	if u.Checkpoint != nil {
		g.state.Checkpoint = *u.Checkpoint
	}
	if cp := g.state.Checkpoint; cp.Applied < g.state.Base.Index || cp.Applied > g.last() || len(cp.Confs) == 0 || cp.Confs[0].Index > g.state.Base.Index {
		return fmt.Errorf("group %d: checkpoint at %d with %d configurations, log from %d to %d", u.Group, cp.Applied, len(cp.Confs), g.state.Base.Index, g.last())
	}
	return nil
}

func (g *memGroup) last() uint64 { return g.state.Base.Index + uint64(len(g.entries)) }

func (g *memGroup) lastTerm() uint64 {
	if n := len(g.entries); n > 0 {
		return g.entries[n-1].Term
	}
	return g.state.Base.Term
}

func (s *memStore) Groups() []storage.GroupState {
	var out []storage.GroupState
	for _, g := range s.groups {
		st := g.state
		st.LastIndex = g.last()
		st.NextOffset = st.Base.NextOffset
		st.TermRuns = nil
		for _, e := range g.entries {
			if n := len(st.TermRuns); n == 0 || st.TermRuns[n-1].Term != e.Term {
				st.TermRuns = append(st.TermRuns, storage.TermRun{Index: e.Index, Term: e.Term, Offset: st.NextOffset})
			}
			if e.Kind == storage.KindBatch {
				st.NextOffset = e.End()
			}
		}
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b storage.GroupState) int { return int(a.Group) - int(b.Group) })
	return out
}

func (s *memStore) Entries(id record.GroupID, lo, hi uint64, maxBytes int64) ([]storage.Entry, error) {
	g := s.groups[id]
	if g == nil || hi > g.last()+1 {
		return nil, fmt.Errorf("group %d: [%d,%d): %w", id, lo, hi, storage.ErrUnavailable)
	}
	if lo <= g.state.Base.Index {
		return nil, storage.ErrCompacted
	}
	var out []storage.Entry
	size := int64(0)
	for _, e := range g.entries[lo-g.state.Base.Index-1 : hi-g.state.Base.Index-1] {
		if size += int64(len(e.Data)); len(out) > 0 && size > maxBytes {
			break
		}
		out = append(out, e)
		s.read += int64(len(e.Data))
	}
	return out, nil
}

func (s *memStore) Headers(id record.GroupID, lo, hi uint64, fn func(storage.Entry, int64) error) error {
	ents, err := s.Entries(id, lo, hi, 1<<40)
	if err != nil {
		return err
	}
	for _, e := range ents {
		size := int64(len(e.Data))
		if err := fn(e, size); err != nil {
			return err
		}
	}
	return nil
}
