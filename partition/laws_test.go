package partition

import (
	"cmp"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"edged/record"
	"edged/storage"

	pb "go.etcd.io/raft/v3/raftpb"
)

// laws watches a sim from outside and knows what no node can know: what was ever acknowledged,
// committed, voted for. Each law fails the test where it is broken, not where that shows.
type laws struct {
	s       *sim
	leaders map[groupEpoch]record.NodeID
	votes   map[vote]record.ReplicaID
	beats   map[envelope]beatSeen
	hashes  map[entryKey]uint64
	// committed terms by index, from the first index on that was seen
	committed map[record.GroupID]map[uint64]uint64
	lastIndex map[groupEpoch]uint64            // highest committed entry of a term
	high      map[groupEpoch]record.Offset     // highest published by who was in that epoch
	ackedEnd  map[groupEpoch]record.Offset     // by its leader
	end       map[record.GroupID]record.Offset // of what is committed
	seen      []map[record.GroupID]*nodeSeen   // by node, of this life
	relaxed   map[record.GroupID]bool          // groups that promise less
	damaged   bool                             // a test damages replicas itself
	harmOnly  bool                             // what is sent too early or taken too late counts only by the harm it does
	each      func(i int)                      // called after every turn of a node
}

type groupEpoch struct {
	g record.GroupID
	e record.Epoch
}

type vote struct {
	g    record.GroupID
	by   record.ReplicaID
	term uint64
}

type entryKey struct {
	g           record.GroupID
	index, term uint64
}

type beatSeen struct{ at, period Time }

type nodeSeen struct {
	replica   record.ReplicaID
	committed uint64
	high      record.Offset
	serving   record.Epoch
}

func newLaws(s *sim) *laws {
	return &laws{s: s, leaders: map[groupEpoch]record.NodeID{}, votes: map[vote]record.ReplicaID{}, beats: map[envelope]beatSeen{}, hashes: map[entryKey]uint64{},
		committed: map[record.GroupID]map[uint64]uint64{}, lastIndex: map[groupEpoch]uint64{}, high: map[groupEpoch]record.Offset{},
		ackedEnd: map[groupEpoch]record.Offset{}, end: map[record.GroupID]record.Offset{}, relaxed: map[record.GroupID]bool{}}
}

// born forgets what was seen of a node's earlier life.
func (l *laws) born(i int) {
	for len(l.seen) <= i {
		l.seen = append(l.seen, nil)
	}
	l.seen[i] = map[record.GroupID]*nodeSeen{}
}

// leader: one leader per epoch (law 2).
func (l *laws) leader(lc LeaderChange) {
	if lc.Leader == record.NoNode {
		return
	}
	k := groupEpoch{lc.Group, lc.Epoch}
	if old, ok := l.leaders[k]; ok && old != lc.Leader {
		l.s.fail("two leaders of group %d in epoch %d: %d and %d", lc.Group, lc.Epoch, old, lc.Leader)
	}
	l.leaders[k] = lc.Leader
}

// frame looks at everything that node i sends. No replica votes for two candidates in one term, over its
// whole life; none asks for votes with what its disk does not have; no beat comes later than the one before it promised.
func (l *laws) frame(i int, b []byte) {
	e, items, err := decodeEnvelope(b)
	if err != nil {
		l.s.fail("sent frame: %v", err)
	}
	for r := (frameReader{b: items}); len(r.b) > 0; {
		switch r.u8() {
		case itemRaft:
			if g, m := r.raft(); m.GetType() == pb.MsgVoteResp && !m.GetReject() {
				l.voted(g, m)
			} else if t := m.GetType(); t == pb.MsgVote || t == pb.MsgPreVote {
				l.asks(i, g, m)
			}
		case itemBeat:
			period := Time(r.u16()) * time.Millisecond
			r.take(17)
			l.beat(e, period)
		case itemAskClaims:
		case itemClaims:
			r.take(16 * uint64(r.u32()))
		case itemWake:
			r.take(8 * uint64(r.u32()))
		default:
			r.err = errFrame
		}
		if r.err != nil {
			l.s.fail("sent frame: %v", r.err)
		}
	}
}

// asks: a request for votes speaks for a log, and a term, that are on the candidate's disk (law 5). The same commit may
// have put a later leader's entries in the place of that log's end: who grants the vote would do so for these as well.
func (l *laws) asks(i int, g record.GroupID, m *pb.Message) {
	at := l.s.nodes[i].store.groups[g]
	if l.harmOnly {
		return
	}
	if at == nil || m.GetType() == pb.MsgVote && at.state.HardState.Term < m.GetTerm() ||
		at.lastTerm() < m.GetLogTerm() || at.lastTerm() == m.GetLogTerm() && at.last() < m.GetIndex() {
		l.s.fail("node %d group %d: %v of term %d with entry %d left before its save", i+1, g, m.GetType(), m.GetTerm(), m.GetIndex())
	}
}

// delivered: what was meant for another life of the receiver is not listened to (law 5). dropped is how many frames the
// receiver had dropped before this one.
func (l *laws) delivered(f simFrame, dropped int64) {
	n := l.s.nodes[f.to]
	e, _, err := decodeEnvelope(f.payload)
	if err == nil && !l.harmOnly && n.up && !n.paused && e.toBoot != n.boot && n.core.stats.DroppedFrames == dropped {
		l.s.fail("node %d takes a frame of node %d that was for an earlier life", n.id, l.s.nodes[f.from].id)
	}
}

func (l *laws) voted(g record.GroupID, m *pb.Message) {
	k := vote{g, record.ReplicaID(m.GetFrom()), m.GetTerm()}
	if old, ok := l.votes[k]; ok && old != record.ReplicaID(m.GetTo()) {
		l.s.fail("group %d term %d: replica %v voted for %v and for %d", g, m.GetTerm(), k.by, old, m.GetTo())
	}
	l.votes[k] = record.ReplicaID(m.GetTo())
}

func (l *laws) beat(e envelope, period Time) {
	if old, ok := l.beats[e]; ok && l.s.now-old.at > old.period+time.Millisecond {
		l.s.fail("node %d beats to node %d after %v and had promised %v", e.from, e.to, l.s.now-old.at, old.period)
	}
	l.beats[e] = beatSeen{l.s.now, period}
}

// still forgets the promises of a node that stood still or was cut off.
func (l *laws) still(i int) {
	maps.DeleteFunc(l.beats, func(e envelope, _ beatSeen) bool {
		return e.from == l.s.nodes[i].id || e.to == l.s.nodes[i].id
	})
}

// stored: what has one index and term has one content, everywhere (law 3).
func (l *laws) stored(i int, us []storage.Update) {
	for _, u := range us {
		if l.relaxed[u.Group] {
			continue
		}
		for _, e := range u.Entries {
			h := fnv.New64a()
			_, _ = h.Write([]byte{byte(e.Kind)})
			_, _ = h.Write(e.Data)
			k := entryKey{u.Group, e.Index, e.Term}
			if old, ok := l.hashes[k]; ok && old != h.Sum64() {
				l.s.fail("node %d: group %d entry %d of term %d has another content elsewhere", i+1, u.Group, e.Index, e.Term)
			}
			l.hashes[k] = h.Sum64()
		}
	}
}

// acked: an answer comes after the commit, and the high watermark is past it.
func (l *laws) acked(i int, r *simRecord) {
	if r.acks != AcksAll {
		return
	}
	g := l.s.group(i, r.group)
	if g.high <= r.offset {
		l.s.fail("record %s was answered with offset %d at high watermark %d", r.value, r.offset, g.high)
	}
	k := groupEpoch{r.group, record.Epoch(g.term)}
	l.ackedEnd[k] = max(l.ackedEnd[k], r.offset+1)
}

// turn checks a node after its turn.
func (l *laws) turn(i int) {
	s, c := l.s, l.s.nodes[i].core
	if l.each != nil {
		l.each(i)
	}
	cache, held, saves := int64(0), 0, map[record.GroupID]int{}
	led, followed, awake := map[record.NodeID]claim{}, map[record.NodeID]claim{}, map[record.NodeID]int{}
	for _, g := range c.order {
		if g.damaged != nil && l.damaged {
			continue
		}
		if g.damaged != nil {
			s.fail("node %d group %d damaged: %v", i+1, g.id, g.damaged)
		}
		l.group(i, g)
		cache += g.log.bytes
		held += len(g.held)
		saves[g.id] = g.savesInFlight
		for _, n := range g.nodes {
			if g.role == RoleLeader {
				cl := led[n]
				cl.add(g.id, g.term)
				led[n] = cl
			}
			if g.awakeAt >= 0 {
				awake[n]++
			}
		}
		if g.role == RoleFollower && g.lead != 0 {
			cl := followed[g.lead.Node()]
			cl.add(g.id, g.term)
			followed[g.lead.Node()] = cl
		}
	}
	for _, p := range c.peers {
		if p.led != led[p.node] || p.followed != followed[p.node] || p.awake != awake[p.node] {
			s.fail("node %d counts for node %d: led %v followed %v awake %d, should be %v %v %d", i+1, p.node, p.led, p.followed, p.awake, led[p.node], followed[p.node], awake[p.node])
		}
	}
	if cache != c.cacheBytes || held != c.held || c.produceBytes < 0 || c.saveBytes < 0 {
		s.fail("node %d counts %d bytes cached and %d held, should be %d and %d; produce %d, save %d", i+1, c.cacheBytes, c.held, cache, held, c.produceBytes, c.saveBytes)
	}
}

func (l *laws) group(i int, g *group) {
	s := l.s
	if !(g.log.base.Index <= g.applied && g.applied <= g.committed && g.committed <= g.log.last && g.applied <= g.log.durable && g.log.durable <= g.log.last) {
		s.fail("node %d group %d: base %d applied %d committed %d durable %d last %d", i+1, g.id, g.log.base.Index, g.applied, g.committed, g.log.durable, g.log.last)
	}
	if g.high > g.next || g.next != g.proposed && len(g.props) == 0 || len(g.flight) > 0 || g.uncommittedBytes < 0 || g.propBytes < 0 {
		s.fail("node %d group %d: high %d next %d proposed %d flight %d uncommitted %d", i+1, g.id, g.high, g.next, g.proposed, len(g.flight), g.uncommittedBytes)
	}
	if p := s.nodes[i].core.sessions[g.lead.Node()]; g.role == RoleFollower && g.lead != 0 && (p == nil || p.dead) {
		s.fail("node %d group %d follows node %d, which it thinks dead", i+1, g.id, g.lead.Node())
	}
	if g.role != RoleLeader && len(g.waiters) > 0 {
		s.fail("node %d group %d: %d wait for a leader that it is not", i+1, g.id, len(g.waiters))
	}
	if l.relaxed[g.id] {
		return
	}
	was := l.seen[i][g.id]
	if was == nil || was.replica != g.replica {
		was = &nodeSeen{replica: g.replica, committed: g.committed, serving: record.NoEpoch}
		l.seen[i][g.id] = was
	}
	l.commits(i, g, was)
	l.serves(i, g, was)
}

// commits: what is committed once stays, on every node.
func (l *laws) commits(i int, g *group, was *nodeSeen) {
	terms := l.committed[g.id]
	if terms == nil {
		terms = map[uint64]uint64{}
		l.committed[g.id] = terms
	}
	if g.committed < was.committed || g.high < was.high {
		l.s.fail("node %d group %d: commit went from %d to %d, high watermark from %d to %d", i+1, g.id, was.committed, g.committed, was.high, g.high)
	}
	for index := max(was.committed, g.log.base.Index) + 1; index <= g.committed; index++ {
		term := g.log.term(index)
		if old, ok := terms[index]; ok && old != term {
			l.s.fail("node %d group %d: entry %d is committed in term %d here and in %d elsewhere", i+1, g.id, index, term, old)
		}
		terms[index] = term
		k := groupEpoch{g.id, record.Epoch(term)}
		l.lastIndex[k] = max(l.lastIndex[k], index)
	}
	was.committed, was.high = g.committed, g.high
	l.end[g.id] = max(l.end[g.id], g.endAt(g.committed))
	if p := l.s.parts[[2]int64{int64(l.s.nodes[i].id), int64(g.id)}]; p.HighWatermark() > l.end[g.id] || p.Readable() > p.HighWatermark() || p.LogStart() > p.HighWatermark() {
		l.s.fail("node %d group %d shows log start %d, readable %d, high watermark %d; committed is up to %d", i+1, g.id, p.LogStart(), p.Readable(), p.HighWatermark(), l.end[g.id])
	}
}

// serves: a leader that begins to serve has everything that was committed, acknowledged or
// shown in its epoch or an earlier one (law 4). What came later it cannot know.
func (l *laws) serves(i int, g *group, was *nodeSeen) {
	epoch := record.Epoch(g.term)
	if g.role == RoleLeader && g.serving && was.serving != epoch {
		was.serving = epoch
		shown, acked, last := upTo(l.high, g.id, epoch), upTo(l.ackedEnd, g.id, epoch), upTo(l.lastIndex, g.id, epoch)
		if g.high < shown || g.high < acked {
			l.s.fail("node %d serves group %d in epoch %d at high watermark %d; %d was shown and %d acknowledged before", i+1, g.id, epoch, g.high, shown, acked)
		}
		if last > g.log.base.Index && (last > g.log.last || g.log.term(last) != l.committed[g.id][last]) {
			l.s.fail("node %d leads group %d in epoch %d without the committed entry %d", i+1, g.id, epoch, last)
		}
	}
	k := groupEpoch{g.id, epoch}
	l.high[k] = max(l.high[k], g.high)
}

// upTo is the highest value that a group had up to an epoch.
func upTo[T cmp.Ordered](m map[groupEpoch]T, g record.GroupID, epoch record.Epoch) (highest T) {
	for k, v := range m {
		if k.g == g && k.e <= epoch {
			highest = max(highest, v)
		}
	}
	return highest
}

// contents reads a node's log as a consumer would: value by offset, up to the high watermark.
func (s *sim) contents(node int, g record.GroupID) map[record.Offset]string {
	out := map[record.Offset]string{}
	mg, cg := s.nodes[node].store.groups[g], s.group(node, g)
	if mg == nil || cg == nil {
		return out
	}
	next := mg.state.Base.NextOffset
	for _, e := range mg.entries {
		if e.Kind != storage.KindBatch {
			continue
		}
		if e.BaseOffset != next {
			s.fail("node %d group %d: offset %d after %d", s.nodes[node].id, g, e.BaseOffset, next)
		}
		next = e.End()
		if e.End() > cg.high {
			break
		}
		for r, err := range record.Batch(e.Data).Records() {
			if err != nil {
				s.fail("stored batch: %v", err)
			}
			out[r.Offset] = string(r.Value)
		}
	}
	return out
}

// check compares what was acknowledged with what every replica holds, after the faults are over.
func (s *sim) check(groups ...record.GroupID) {
	s.t.Helper()
	for _, g := range groups {
		l := s.leader(g)
		want := s.contents(l, g)
		start := s.group(l, g).logStart
		s.checkAcked(g, want, start)
		s.checkProducers(g, want)
		members := s.group(l, g).members()
		for i := range s.nodes {
			cg := s.group(i, g)
			if cg == nil || !s.nodes[i].up || !slices.Contains(members, cg.replica) {
				continue
			}
			if got := s.group(i, g).logStart; got != start {
				s.fail("group %d: log start %d on node %d, %d on node %d", g, start, l+1, got, i+1)
			}
			for o, v := range s.contents(i, g) {
				if o >= start && want[o] != v {
					s.fail("group %d offset %d: node %d has %q, node %d has %q", g, o, l+1, want[o], i+1, v)
				}
			}
			a, b := s.group(l, g), cg
			if a.applied == b.applied && string(a.stateBytes()) != string(b.stateBytes()) {
				s.fail("group %d: the states of nodes %d and %d differ at entry %d", g, l+1, i+1, a.applied)
			}
		}
	}
}

// checkAcked: what was acknowledged by a majority is there, at the offset that was answered (law 1).
func (s *sim) checkAcked(g record.GroupID, want map[record.Offset]string, start record.Offset) {
	s.t.Helper()
	for _, r := range s.produced {
		if r.group == g && r.acked && r.acks == AcksAll && r.offset >= start && want[r.offset] != r.value {
			s.fail("group %d: acknowledged record %s is not at offset %d: there is %q", g, r.value, r.offset, want[r.offset])
		}
	}
}

// checkProducers: a record of an idempotent producer is there once, and after the one before it.
func (s *sim) checkProducers(g record.GroupID, want map[record.Offset]string) {
	s.t.Helper()
	offsets := make([]record.Offset, 0, len(want))
	for o := range want {
		offsets = append(offsets, o)
	}
	slices.Sort(offsets)
	seen, last := map[string]record.Offset{}, map[int64]int32{}
	for _, o := range offsets {
		v := want[o]
		r := s.byValue(v)
		if old, ok := seen[v]; ok && r.pid >= 0 {
			s.fail("group %d: record %s of an idempotent producer is at offsets %d and %d", g, v, old, o)
		}
		seen[v] = o
		if r.pid < 0 {
			continue
		}
		if before, ok := last[r.pid]; ok && r.seq != before+1 {
			s.fail("group %d offset %d: sequence %d of producer %d after %d", g, o, r.seq, r.pid, before)
		}
		last[r.pid] = r.seq
	}
}
