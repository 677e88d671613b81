package partition

import (
	"fmt"
	"slices"

	"edged/record"
	"edged/storage"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// ready draws the consequences of everything that a group's Raft was given in this turn.
//
// What Raft wants saved goes to the log writer together with the messages that may leave only
// after it; what Raft wants applied is applied here, because it is bookkeeping in memory: a
// goroutine for it would be a second owner of the producer table.
func (c *Core) ready(g *group) {
	if c.failed != nil {
		g.stepped = false
		return
	}
	queued := g.dirty
	g.dirty = true // what is stepped below is drawn below
	for len(g.props) > 0 || g.rn.HasReady() {
		if len(g.props) > 0 {
			c.submit(g)
		}
		if !g.rn.HasReady() {
			continue
		}
		rd := g.rn.Ready()
		if rd.SoftState != nil {
			g.state, g.lead, g.leadSince = rd.SoftState.RaftState, record.ReplicaID(rd.SoftState.Lead), c.now
		}
		if rd.HardState != nil {
			g.term, g.heard = rd.GetTerm(), rd.GetCommit()
		}
		c.carryOut(g, rd)
		if g.damaged != nil {
			return
		}
		// Who was still leader when its entry was committed hears of it, then the role changes.
		c.commitTo(g, g.heard)
		c.settleRole(g)
		c.readStates(g, rd.ReadStates)
	}
	g.dirty, g.stepped, g.heartbeatAnswered = queued, false, false
	c.stand(g)
	c.publish(g)
	c.followUp(g)
}

// carryOut does what one Ready asks for. Raft does not wait for a candidate's own save before it
// asks for votes; we do: a request that outlives the log it speaks for can elect a leader
// that has lost acknowledged entries.
func (c *Core) carryOut(g *group, rd raft.Ready) {
	var votes []*pb.Message
	saved := false
	for _, m := range rd.Messages {
		switch {
		case m.GetTo() == raft.LocalAppendThread:
			c.save(g, m, votes)
			saved, votes = true, nil
		case m.GetTo() == raft.LocalApplyThread:
			c.commitTo(g, g.heard) // what is applied is committed first
			g.applying = append(g.applying, m)
			c.applyNext(g)
		case (m.GetType() == pb.MsgVote || m.GetType() == pb.MsgPreVote) && !faultEarlyVote:
			votes = append(votes, m)
		default:
			c.send(g, m)
		}
		if g.damaged != nil {
			return
		}
	}
	if len(votes) == 0 {
		return
	}
	if saved || g.savesInFlight > 0 {
		c.pushSave(g, Save{empty: true, responses: votes})
		return
	}
	for _, m := range votes {
		c.send(g, m)
	}
}

// save hands to the log writer what Raft wants on disk. The commit index alone is not worth a
// write, but for a configuration change: a replica that confirms entries after it while it would
// come back in the configuration before it could be part of two majorities that do not meet.
func (c *Core) save(g *group, m *pb.Message, votes []*pb.Message) {
	s := Save{Update: c.update(g), responses: m.GetResponses()}
	if len(votes) > 0 {
		s.responses = slices.Concat(votes, s.responses)
	}
	u := &s.Update
	write := false
	if m.Snapshot != nil && !raft.IsEmptySnap(m.Snapshot) {
		if err := c.install(g, m.Snapshot, u); err != nil {
			c.damage(g, err)
			return
		}
		write, s.Sync = true, true
	}
	if m.Term != nil && g.log.hs != (storage.HardState{Term: m.GetTerm(), Vote: record.ReplicaID(m.GetVote())}) {
		hs := storage.HardState{Term: m.GetTerm(), Vote: record.ReplicaID(m.GetVote())}
		g.log.hs, u.HardState = hs, &hs
		write, s.Sync = true, true
	}
	if len(m.GetEntries()) > 0 {
		if err := c.appendEntries(g, m.GetEntries(), &s); err != nil {
			c.damage(g, err)
			return
		}
		write = true
		s.Sync = s.Sync || !g.relaxed()
	}
	if g.confHeard() > g.commitSaved && !faultForgetConf {
		u.Checkpoint = c.makeCheckpoint(g)
		write, s.Sync = true, true
	}
	if faultEarlyAnswer {
		c.release(g, s.responses)
		s.responses = nil
	}
	if write {
		c.attachBase(g, u)
		c.pushSave(g, s)
		return
	}
	s.empty = true
	if len(s.responses) == 0 {
		return
	}
	if g.savesInFlight > 0 {
		c.pushSave(g, s)
		return
	}
	c.release(g, s.responses)
}

// relaxed is the topic's setting, or what it was before the metadata is known again.
func (g *group) relaxed() bool {
	if g.target == nil {
		return g.wasRelaxed
	}
	return g.target.Relaxed
}

func (c *Core) update(g *group) storage.Update {
	return storage.Update{Group: g.id, Replica: g.replica, Class: g.class}
}

// attachBase lets a base that moved ride with a write, always together with a checkpoint at or
// past the entry that moved it: after a restart that entry may not be applied again.
func (c *Core) attachBase(g *group, u *storage.Update) {
	if !g.baseUnsaved || u.Reset != nil {
		return
	}
	g.baseUnsaved = false
	b := g.log.base
	u.Base, u.Checkpoint = &b, c.makeCheckpoint(g)
}

func (c *Core) makeCheckpoint(g *group) *storage.Checkpoint {
	state := g.stateBytes()
	kept := checkpointState{kind: g.kind, relaxed: g.relaxed(), index: max(g.applied, g.stateIndex), term: g.stateTerm, commit: g.heard, state: state}
	c.since(g, -g.sinceBytes)
	g.checkpointed, g.stateSize = g.applied, int64(len(state))
	return &storage.Checkpoint{Applied: g.applied, NextOffset: g.appliedNext, Confs: slices.Clone(g.log.confs), State: kept.encode()}
}

// checkpointPart bounds what checkpoints add to the log: they are written after so many times
// their own size of it.
const checkpointPart = 16

// checkpoint writes down what a restart would otherwise have to apply again, once that is worth
// it. It needs no fsync of its own: an older checkpoint only means more to apply. A beginning that
// moved is written down at once, so that an idle group gives its space back.
func (c *Core) checkpoint(g *group) {
	l := &c.cfg.Limits
	due := g.baseUnsaved || g.sinceBytes >= max(l.CheckpointBytes, checkpointPart*g.stateSize) || g.applied-g.checkpointed >= l.CheckpointEntries
	if due && g.damaged == nil {
		c.writeCheckpoint(g, false)
	}
}

func (c *Core) writeCheckpoint(g *group, sync bool) {
	s := Save{Update: c.update(g), Sync: sync}
	c.attachBase(g, &s.Update)
	if s.Update.Checkpoint == nil {
		s.Update.Checkpoint = c.makeCheckpoint(g)
	}
	c.pushSave(g, s)
}

// checkpointAll writes down where every group is, before a planned stop.
func (c *Core) checkpointAll() {
	for _, g := range c.order {
		if g.damaged == nil && c.failed == nil && (g.applied != g.checkpointed || g.baseUnsaved) {
			c.writeCheckpoint(g, false)
		}
	}
}

func (c *Core) pushSave(g *group, s Save) {
	if s.Sync && s.Update.Checkpoint != nil {
		s.commit = g.heard
		g.commitSaved = s.commit
	}
	g.savesInFlight++
	c.queueSave(g, s)
}

func (c *Core) queueSave(g *group, s Save) {
	c.saveSeq++
	s.group, s.seq = g, c.saveSeq
	c.saveBytes += s.bytes
	c.disk.handed(c.now)
	c.saves = append(c.saves, s)
}

// appendEntries takes entries into the log as the disk will have it. Every replica checks that
// offsets follow each other without a hole (law 3).
func (c *Core) appendEntries(g *group, ents []*pb.Entry, s *Save) error {
	if first := ents[0].GetIndex(); first <= g.log.last {
		if first <= g.committed {
			return fmt.Errorf("entry %d would replace a committed one (commit %d)", first, g.committed)
		}
		g.truncateTail(first)
		g.cuts++
	}
	err := g.log.append(ents)
	c.countCache(g)
	if err != nil {
		return err
	}
	s.Update.Entries = make([]storage.Entry, len(ents))
	for i, e := range ents {
		se, err := toStored(e, g.machine != nil)
		if err != nil {
			return err
		}
		t := tailEntry{index: se.Index, term: se.Term, end: g.next, stamp: stamp{id: -1}, bytes: int64(entrySize(e)), conf: isConf(se.Kind)}
		if se.Kind == storage.KindBatch {
			if se.BaseOffset != g.next {
				return fmt.Errorf("entry %d of term %d has base offset %d where %d should follow", se.Index, se.Term, se.BaseOffset, g.next)
			}
			t.end, t.stamp = se.End(), stampOf(record.Batch(se.Data))
		}
		own := len(g.flight) > 0 && g.role == RoleLeader && se.Term == g.term && se.Kind == g.flight[0].kind
		t.foreseen = own && t.stamp.id >= 0
		g.pushTail(t)
		if own {
			c.landed(g, se.Index, se.Term)
		}
		if g.confPending == confProposed && (t.conf || se.Kind == storage.KindEmpty) {
			g.confPending = se.Index // the change, or the empty entry that Raft put in its place
		}
		s.Update.Entries[i] = se
		s.bytes += t.bytes
		c.since(g, t.bytes)
	}
	if len(g.props) == 0 && len(g.flight) == 0 {
		g.proposed = g.next
	}
	s.last, s.cut = g.log.last, g.cuts
	c.cacheOrder = append(c.cacheOrder, cached{g, s.last})
	return nil
}

// install replaces the local log by a base record from the leader.
func (c *Core) install(g *group, snap *pb.Snapshot, u *storage.Update) error {
	r, err := decodeBaseRecord(snap.GetData())
	if err != nil {
		return err
	}
	if err := g.restoreState(r.state); err != nil {
		return fmt.Errorf("base record at entry %d: %w", snap.GetMetadata().GetIndex(), err)
	}
	meta := snap.GetMetadata()
	b := storage.Base{Index: meta.GetIndex(), Term: meta.GetTerm(), NextOffset: r.next, LogStart: r.logStart}
	c.dropWaiters(g, record.ErrInterrupted)
	c.setConf(g, confFromRaft(meta.GetConfState()))
	g.log.reset(b, g.conf)
	c.countCache(g)
	g.cuts++
	g.tail, g.tailConfs, g.overlay, g.uncommittedBytes, g.baseUnsaved = nil, 0, nil, 0, false
	if g.stateIndex, g.stateTerm = r.stateIndex, 0; r.stateIndex > b.Index {
		g.stateTerm = g.term
	}
	g.next, g.proposed, g.appliedNext = r.next, r.next, r.next
	g.high, g.logStart = max(g.high, r.next), r.logStart
	g.heard, g.committed, g.applied = max(g.heard, b.Index), b.Index, b.Index
	u.Reset, u.Checkpoint = &b, c.makeCheckpoint(g)
	c.log.Info("installing a base record: this replica was behind the log's beginning", "group", g.id, "entry", b.Index, "offset", r.next)
	return nil
}

// release brings messages to where they go: back to Raft, or to a peer.
func (c *Core) release(g *group, ms []*pb.Message) {
	for _, m := range ms {
		if m.GetTo() == uint64(g.replica) {
			c.step(g, m)
		} else {
			c.send(g, m)
		}
	}
}

// releaseSaved releases what waited for a save. What was said to an earlier life of a peer
// ends here: the frame would name the life that the peer has now (law 5).
func (c *Core) releaseSaved(g *group, s *Save) {
	kept := s.responses[:0]
	for _, m := range s.responses {
		to := c.sessions[record.ReplicaID(m.GetTo()).Node()]
		if m.GetTo() != uint64(g.replica) && to != nil && s.seq <= to.bornSeq && !faultNoBootID {
			continue
		}
		kept = append(kept, m)
	}
	c.release(g, kept)
}

// saved takes the log writer's report: now the messages that waited for it may leave.
func (c *Core) saved(ev *Saved) {
	if ev.Err != nil {
		c.fail(ev.Err)
	}
	c.disk.reported(c.now, len(ev.Saves), ev.Took, &c.cfg.Timing)
	for i := range ev.Saves {
		s := &ev.Saves[i]
		c.saveBytes -= s.bytes
		if s.then != nil {
			s.then(ev.Err)
		}
		g := s.group
		if g == nil || g.removed {
			continue
		}
		g.savesInFlight--
		if c.failed != nil || g.damaged != nil {
			continue
		}
		if s.last > 0 && s.cut == g.cuts {
			g.log.durable = max(g.log.durable, s.last)
		}
		if s.commit > g.commitDurable {
			g.commitDurable = s.commit
			c.guard(g, func() { c.applyNext(g) })
		}
		c.releaseSaved(g, s)
		c.answerSaved(g)
	}
}

// commitTo moves the commit index, and with it the high watermark. It is not waited for that
// this node's own disk has the entries: a majority has (law 1).
func (c *Core) commitTo(g *group, commit uint64) {
	g.commitTail(commit)
	if g.role != RoleLeader {
		return
	}
	if !g.serving && g.state == raft.StateLeader {
		g.serving = g.committed > g.log.base.Index && g.log.term(g.committed) == g.term
	}
	if raise(&g.part.high, g.high) { // before anybody is answered: who hears of his record may read it at once
		g.part.wake()
	}
	c.answerCommitted(g)
}

// applyNext applies what Raft handed out, in order, up to a configuration change of which the disk
// does not know yet that it is committed.
func (c *Core) applyNext(g *group) {
	for len(g.applying) > 0 && g.damaged == nil {
		m := g.applying[0]
		if !c.apply(g, m.GetEntries()) {
			return
		}
		g.applying[0] = nil
		g.applying = g.applying[1:]
		for _, r := range m.GetResponses() {
			c.step(g, r)
		}
	}
}

// apply takes committed entries in order and tells whether it got through. Entries up to
// stateIndex were in the state that a base record brought.
func (c *Core) apply(g *group, ents []*pb.Entry) bool {
	through := true
	for _, e := range ents {
		index := e.GetIndex()
		if index <= g.applied {
			continue
		}
		if e.GetType() != pb.EntryNormal && index > g.commitDurable && !faultForgetConf {
			through = false
			break
		}
		result, err := c.applyEntry(g, e)
		if err != nil {
			c.damage(g, err)
			return false
		}
		if g.applied = index; index >= g.stateIndex {
			g.stateTerm = 0
		}
		if len(g.tail) > 0 && g.tail[0].index == index {
			g.appliedNext = g.tail[0].end
			g.popTail()
		}
		if len(g.waiters) > 0 {
			c.answerCommand(g, index, e.GetTerm(), result)
		}
	}
	c.trimMachineLog(g)
	c.checkpoint(g)
	return through
}

func (c *Core) applyEntry(g *group, e *pb.Entry) (result any, err error) {
	fresh := e.GetIndex() > g.stateIndex
	switch {
	case e.GetType() != pb.EntryNormal:
		return nil, c.applyConf(g, e)
	case len(e.GetData()) == 0:
		c.confRefused(g, e.GetIndex())
	case g.machine != nil:
		if fresh {
			result = g.machine.Apply(e.GetIndex(), e.GetData())
		}
	case e.GetData()[0] >= controlMin:
		return nil, c.applyControl(g, e)
	case fresh:
		g.table.apply(stampOf(record.Batch(e.GetData())))
	}
	return result, nil
}

// applyControl takes an instruction of the leader that all replicas follow at the same place.
func (c *Core) applyControl(g *group, e *pb.Entry) error {
	l, err := decodeLogStart(e.GetData())
	if err != nil {
		return fmt.Errorf("entry %d: %w", e.GetIndex(), err)
	}
	if l.anew && (g.role != RoleLeader || g.ledTerm != e.GetTerm()) { // who proposed it did so then
		c.forgetProducers(g, e.GetIndex())
	}
	if l.offset <= g.logStart || l.keep > e.GetIndex() {
		return nil
	}
	g.logStart = l.offset
	b := storage.Base{Index: g.log.base.Index, Term: g.log.base.Term, NextOffset: g.log.base.NextOffset, LogStart: l.offset}
	if l.keep-1 > b.Index {
		b.Index, b.Term, b.NextOffset = l.keep-1, g.log.term(l.keep-1), l.base
	}
	c.moveBase(g, b)
	return nil
}

func (c *Core) moveBase(g *group, b storage.Base) {
	g.log.moveBase(b)
	c.countCache(g)
	g.baseUnsaved = true
}

// trimMachineLog lets a state machine's log begin later: its history is in the state. Each
// replica does so by itself; nobody reads these entries by offset. While a follower takes a base
// record the log after that stays.
func (c *Core) trimMachineLog(g *group) {
	keep := c.cfg.Limits.MachineLog
	if g.machine == nil || g.applied < g.log.base.Index+2*keep || len(g.snapshots) > 0 {
		return
	}
	at := g.applied - keep
	c.moveBase(g, storage.Base{Index: at, Term: g.log.term(at)})
}

// countCache brings the sum over all groups up to date with one of them.
func (c *Core) countCache(g *group) {
	c.cacheBytes += g.log.bytes - g.counted
	g.counted = g.log.bytes
}

const (
	// evictTries bounds the work of a turn on the entry cache.
	evictTries = 256
	// cacheNotes bounds the notes on what is in the cache.
	cacheNotes = 1 << 14
)

// evictCache keeps the entries in memory within their bound, oldest first. Entries that are not
// durable, or not applied, stay: Raft will ask for them.
func (c *Core) evictCache() {
	for tries := min(len(c.cacheOrder), evictTries); c.cacheBytes > c.cfg.Limits.EntryCache && tries > 0; tries-- {
		o := c.cacheOrder[0]
		c.cacheOrder = c.cacheOrder[1:]
		o.g.log.evict(min(o.index, o.g.log.durable, o.g.applied))
		c.countCache(o.g)
		if o.g.log.cacheFirst() <= min(o.index, o.g.log.last) && o.g.damaged == nil && !o.g.removed {
			c.cacheOrder = append(c.cacheOrder, o) // not yet
		}
	}
	if c.cacheBytes == 0 || c.cacheStale || len(c.cacheOrder) > cacheNotes {
		c.compactCacheOrder()
	}
}

// compactCacheOrder keeps one note per group.
func (c *Core) compactCacheOrder() {
	c.cacheOrder, c.cacheStale = nil, false
	for _, g := range c.order {
		if len(g.log.cache) > 0 {
			c.cacheOrder = append(c.cacheOrder, cached{g, g.log.last})
		}
	}
}
