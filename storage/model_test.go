package storage

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"edged/record"
)

// model is a store that anyone can see to be right: slices in memory. apply calls step after
// each state that a crash may leave.
type model struct {
	groups map[record.GroupID]*modelGroup
	step   func()
	last   digests
}

type modelGroup struct {
	replica    record.ReplicaID
	class      uint8
	hs         HardState
	base       Base
	checkpoint Checkpoint
	entries    []Entry // from base.Index+1 on
	sum        uint64  // of the entries' digests
}

func newModel() *model {
	return &model{groups: map[record.GroupID]*modelGroup{}, step: func() {}, last: digests{}}
}

// done notes that a group was changed, and that a crash may leave it so.
func (m *model) done(id record.GroupID) {
	if g := m.groups[id]; g != nil {
		m.last[id] = digest(g.replica, g.class, g.hs, g.base, g.checkpoint, len(g.entries), g.sum)
	} else {
		delete(m.last, id)
	}
	m.step()
}

func (g *modelGroup) last() uint64 { return g.base.Index + uint64(len(g.entries)) }

func (g *modelGroup) next() record.Offset {
	for i := len(g.entries) - 1; i >= 0; i-- {
		if g.entries[i].Kind == KindBatch {
			return g.entries[i].End()
		}
	}
	return g.base.NextOffset
}

func (g *modelGroup) term(index uint64) uint64 {
	if index == g.base.Index {
		return g.base.Term
	}
	return g.entries[index-g.base.Index-1].Term
}

// nextAt is the next offset after the entry with the index.
func (g *modelGroup) nextAt(index uint64) record.Offset {
	o := g.base.NextOffset
	for i := range g.entries {
		if g.entries[i].Index <= index && g.entries[i].Kind == KindBatch {
			o = g.entries[i].End()
		}
	}
	return o
}

func (m *model) apply(us []Update) {
	for i := range us {
		m.update(&us[i])
	}
}

func (m *model) update(u *Update) {
	if u.Remove {
		delete(m.groups, u.Group)
		m.done(u.Group)
		return
	}
	g := m.groups[u.Group]
	if u.Reset != nil {
		if g == nil {
			g = &modelGroup{}
			m.groups[u.Group] = g
		}
		g.replica, g.base, g.entries, g.checkpoint, g.sum = u.Replica, *u.Reset, nil, *u.Checkpoint, 0
	}
	g.class = u.Class
	if u.HardState != nil {
		g.hs = *u.HardState
	}
	m.done(u.Group)
	for i := range u.Entries {
		e := u.Entries[i]
		if e.Index <= g.last() {
			keep := e.Index - g.base.Index - 1
			g.sum -= sumEntries(g.entries[keep:])
			g.entries = slices.Clone(g.entries[:keep])
		}
		g.entries = append(g.entries, e)
		g.sum += sumEntries(u.Entries[i : i+1])
		m.done(u.Group)
	}
	if u.Base != nil {
		drop := u.Base.Index - g.base.Index
		g.sum -= sumEntries(g.entries[:drop])
		g.entries = slices.Clone(g.entries[drop:])
		g.base = *u.Base
	}
	if u.Checkpoint != nil {
		g.checkpoint = *u.Checkpoint
	}
	m.done(u.Group)
}

// digest is a number for the whole state of a group, whose entries have the sum.
func digest(replica record.ReplicaID, class uint8, hs HardState, base Base, c Checkpoint, n int, sum uint64) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %d %v %v %d %d %v %d %d|%s", replica, class, hs, base, c.Applied, c.NextOffset, c.Confs, n, sum, c.State)
	return h.Sum64()
}

// sumEntries adds up the digests of entries.
func sumEntries(es []Entry) (sum uint64) {
	for i := range es {
		e := &es[i]
		h := fnv.New64a()
		fmt.Fprintf(h, "%d %d %d %d %d %d ", e.Index, e.Term, e.Kind, e.BaseOffset, e.Count, e.MaxTimestamp)
		h.Write(e.Data)
		sum += h.Sum64()
	}
	return sum
}

type digests map[record.GroupID]uint64

func (m *model) digests() digests { return maps.Clone(m.last) }

// storeDigests reads everything of every group.
func storeDigests(s *Store) (digests, error) {
	d := digests{}
	for _, st := range s.Groups() {
		if st.Err != nil {
			return nil, st.Err
		}
		var es []Entry
		if st.LastIndex > st.Base.Index {
			var err error
			if es, err = s.Entries(st.Group, st.Base.Index+1, st.LastIndex+1, 1<<40); err != nil {
				return nil, err
			}
		}
		d[st.Group] = digest(st.Replica, st.Class, st.HardState, st.Base, st.Checkpoint, len(es), sumEntries(es))
	}
	return d, nil
}

func (d digests) equal(o digests) bool {
	if len(d) != len(o) {
		return false
	}
	for id, n := range d {
		if o[id] != n {
			return false
		}
	}
	return true
}

// compare asks the store all kinds of questions about a group and compares with the obvious answer.
func (m *model) compare(t testing.TB, s *Store, id record.GroupID, rng *rand.Rand) {
	t.Helper()
	g := m.groups[id]
	st, ok := s.State(id)
	if g == nil {
		if ok {
			t.Fatalf("group %d is there", id)
		}
		return
	}
	if !ok || st.Err != nil {
		t.Fatalf("group %d: %v %v", id, ok, st.Err)
	}
	if st.LastIndex != g.last() || st.NextOffset != g.next() || st.Base != g.base || st.HardState != g.hs || st.Class != g.class || st.Replica != g.replica {
		t.Fatalf("group %d: %+v, want last %d next %d %+v %+v", id, st, g.last(), g.next(), g.base, g.hs)
	}
	var size int64
	for i := range g.entries {
		size += int64(len(g.entries[i].Data))
	}
	if n := s.Size(id); n != size {
		t.Fatalf("group %d: size %d, want %d", id, n, size)
	}
	m.compareRuns(t, s, id, st.TermRuns)
	m.compareReads(t, s, id, rng)
	m.compareTimes(t, s, id, rng)
	m.compareRetention(t, s, id, rng)
	if _, err := s.Entries(id, g.base.Index, g.base.Index+1, 1); !errors.Is(err, ErrCompacted) {
		t.Fatalf("group %d: before the base: %v", id, err)
	}
	if _, err := s.Entries(id, g.last()+1, g.last()+2, 1); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("group %d: after the end: %v", id, err)
	}
}

func (m *model) compareRuns(t testing.TB, s *Store, id record.GroupID, runs []TermRun) {
	t.Helper()
	g := m.groups[id]
	var want []TermRun
	o := g.base.NextOffset
	for i := range g.entries {
		e := &g.entries[i]
		if len(want) == 0 || want[len(want)-1].Term != e.Term {
			want = append(want, TermRun{e.Index, e.Term, o})
		}
		o += record.Offset(e.Count)
	}
	if !slices.Equal(runs, want) {
		t.Fatalf("group %d: term runs %v, want %v", id, runs, want)
	}
	for i, r := range want {
		end := g.next()
		if i+1 < len(want) {
			end = want[i+1].Offset
		}
		if e, o := s.EpochEnd(id, record.Epoch(r.Term), 1<<60); uint64(e) != r.Term || o != end {
			t.Fatalf("group %d: epoch %d ends %d %d, want %d", id, r.Term, e, o, end)
		}
	}
	for index := g.base.Index; index <= g.last(); index++ {
		if term, ok := s.Term(id, index); !ok || term != g.term(index) {
			t.Fatalf("group %d: term of %d is %d, want %d", id, index, term, g.term(index))
		}
	}
}

func (m *model) compareReads(t testing.TB, s *Store, id record.GroupID, rng *rand.Rand) {
	t.Helper()
	g := m.groups[id]
	if len(g.entries) > 0 {
		lo := rng.IntN(len(g.entries))
		hi := lo + 1 + rng.IntN(len(g.entries)-lo)
		es, err := s.Entries(id, g.entries[lo].Index, g.entries[hi-1].Index+1, 1<<40)
		if err != nil || len(es) != hi-lo {
			t.Fatalf("group %d: %d entries of %d, %v", id, len(es), hi-lo, err)
		}
		for i := range es {
			if !sameEntry(es[i], g.entries[lo+i]) {
				t.Fatalf("group %d: entry %d differs", id, es[i].Index)
			}
		}
		m.compareHeaders(t, s, id, g.entries[lo:hi])
	}
	span := int64(g.next()-g.base.LogStart) + 1
	if span <= 0 { // the log was cut before its start, and has not come so far again
		return
	}
	from := g.base.LogStart + record.Offset(rng.Int64N(span))
	limit := from
	if ends := g.ends(from); len(ends) > 0 {
		limit = ends[rng.IntN(len(ends))]
	}
	maxBytes := rng.Int64N(5000)
	prefix := []byte("kept")
	out, next, err := s.ReadFrom(id, from, limit, maxBytes, prefix)
	want, wantNext := g.readFrom(from, limit, maxBytes)
	if err != nil || next != wantNext || !bytes.Equal(out, append(prefix, want...)) {
		t.Fatalf("group %d: read from %d to %d (%d bytes): next %d want %d, %d bytes want %d, %v", id, from, limit, maxBytes, next, wantNext, len(out)-4, len(want), err)
	}
	for _, o := range []record.Offset{g.base.LogStart - 1, g.next() + 1} {
		if _, _, err := s.ReadFrom(id, o, o+1, 1, nil); !errors.Is(err, record.ErrOffsetOutOfRange) {
			t.Fatalf("group %d: read at %d: %v", id, o, err)
		}
	}
}

func (m *model) compareHeaders(t testing.TB, s *Store, id record.GroupID, want []Entry) {
	t.Helper()
	i := 0
	err := s.Headers(id, want[0].Index, want[len(want)-1].Index+1, func(e Entry, size int64) error {
		w := want[i]
		i++
		if size != int64(len(w.Data)) {
			return fmt.Errorf("entry %d: size %d", e.Index, size)
		}
		if w.Kind == KindBatch {
			w.Data = w.Data[:min(61, len(w.Data))]
		} else {
			w.Data = nil
		}
		if !sameEntry(e, w) {
			return fmt.Errorf("entry %d differs", e.Index)
		}
		return nil
	})
	if err != nil || i != len(want) {
		t.Fatalf("group %d: %d headers of %d, %v", id, i, len(want), err)
	}
}

func sameEntry(a, b Entry) bool {
	return a.Index == b.Index && a.Term == b.Term && a.Kind == b.Kind && a.BaseOffset == b.BaseOffset && a.Count == b.Count &&
		a.MaxTimestamp == b.MaxTimestamp && bytes.Equal(a.Data, b.Data)
}

// ends are the batch ends after from.
func (g *modelGroup) ends(from record.Offset) (ends []record.Offset) {
	for i := range g.entries {
		if e := &g.entries[i]; e.Kind == KindBatch && e.End() > from {
			ends = append(ends, e.End())
		}
	}
	return ends
}

func (g *modelGroup) readFrom(from, limit record.Offset, maxBytes int64) (out []byte, next record.Offset) {
	next = from
	for i := range g.entries {
		e := &g.entries[i]
		if e.Kind != KindBatch || e.End() <= from {
			continue
		}
		if e.End() > limit || len(out) > 0 && int64(len(out)+len(e.Data)) > maxBytes {
			break
		}
		out = append(out, e.Data...)
		next = e.End()
	}
	return out, next
}

func (m *model) compareTimes(t testing.TB, s *Store, id record.GroupID, rng *rand.Rand) {
	t.Helper()
	g := m.groups[id]
	ms := int64(rng.IntN(3_000_000)) - 10
	if len(g.entries) > 0 {
		ms = g.entries[rng.IntN(len(g.entries))].MaxTimestamp + int64(rng.IntN(3)) - 1
	}
	limit := g.base.NextOffset + record.Offset(rng.Int64N(int64(g.next()-g.base.NextOffset)+1))
	var want *Entry
	for i := range g.entries {
		if e := &g.entries[i]; e.Kind == KindBatch && e.MaxTimestamp >= ms && e.BaseOffset < limit && e.End() > g.base.LogStart {
			want = e
			break
		}
	}
	o, ts, ok, err := s.OffsetForTime(id, ms, limit)
	switch {
	case err != nil, ok != (want != nil), ok && (o != want.BaseOffset || ts != want.MaxTimestamp):
		t.Fatalf("group %d: time %d below %d: %d %d %v %v, want %+v", id, ms, limit, o, ts, ok, err, want)
	}
	if g.next() > g.base.LogStart {
		o := g.base.LogStart + record.Offset(rng.Int64N(int64(g.next()-g.base.LogStart)))
		b, err := s.BaseAt(id, o)
		if err != nil || b.LogStart != o || b.NextOffset > o || b.NextOffset != g.nextAt(b.Index) || b.Term != g.term(b.Index) ||
			g.entries[b.Index-g.base.Index].Kind != KindBatch || g.entries[b.Index-g.base.Index].End() <= o {
			t.Fatalf("group %d: base at %d: %+v %v", id, o, b, err)
		}
	}
}

// compareRetention checks the promise: never too little kept, and too much only up to one
// step of the index, whose size the caller's entries bound.
func (m *model) compareRetention(t testing.TB, s *Store, id record.GroupID, rng *rand.Rand) {
	t.Helper()
	g := m.groups[id]
	ms, keepBytes := int64(0), int64(-1)
	if rng.IntN(2) == 0 {
		ms = 1 + int64(rng.IntN(3_000_000))
	} else {
		keepBytes = rng.Int64N(s.Size(id) + 100)
	}
	limit := g.base.NextOffset + record.Offset(rng.Int64N(int64(g.next()-g.base.NextOffset)+1))
	keep, ok := s.RetentionPoint(id, ms, keepBytes, limit)
	if !ok {
		return
	}
	if keep <= g.base.LogStart || keep > limit {
		t.Fatalf("group %d: keep %d, log start %d, limit %d", id, keep, g.base.LogStart, limit)
	}
	var left int64
	for i := range g.entries {
		e := &g.entries[i]
		if e.Kind == KindBatch && e.BaseOffset < keep && ms > 0 && e.MaxTimestamp >= ms {
			t.Fatalf("group %d: batch of time %d would go, limit is %d", id, e.MaxTimestamp, ms)
		}
		if g.nextAt(e.Index-1) >= keep {
			left += int64(len(e.Data))
		}
	}
	if keepBytes >= 0 && left < keepBytes && ms == 0 && left < s.Size(id) {
		t.Fatalf("group %d: %d bytes would be left of %d that are to be kept", id, left, keepBytes)
	}
}
