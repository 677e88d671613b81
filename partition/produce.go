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
	"go.etcd.io/raft/v3/tracker"
)

// answer ends a produce. Every request that Step took is answered exactly once.
func (c *Core) answer(r *ProduceRequest, res ProduceResult) {
	c.produceBytes -= r.bytes
	r.finish(res)
}

// finish gives back what the request was counted for and tells the producer.
func (r *ProduceRequest) finish(res ProduceResult) {
	if r.budget != nil {
		r.budget.Add(-r.bytes)
	}
	r.Done(res)
}

func (c *Core) refuse(r *ProduceRequest, g *group, err error) {
	res := ProduceResult{Err: err, Epoch: record.NoEpoch}
	if g != nil {
		res.LogStart, res.Epoch = g.logStart, record.Epoch(g.term)
	}
	c.answer(r, res)
}

// produce gives a batch its offset. The order of the checks is the one clients expect:
// who leads, in which epoch, then the batch, then the producer.
func (c *Core) produce(r *ProduceRequest) {
	g := c.find(r.Group)
	if g == nil || g.damaged != nil || c.failed != nil {
		c.refuse(r, g, c.whyNot(g))
		return
	}
	c.refresh(g) // the role below must be Raft's role now
	if g.damaged != nil {
		c.refuse(r, g, c.whyNot(g))
		return
	}
	if c.mayHold(g) || len(g.held) > 0 && r.heldUntil == 0 { // who waits goes first
		c.hold(r, g)
		return
	}
	if g.role != RoleLeader {
		c.stats.NotLeader++
		c.refuse(r, g, c.notLeader(g))
		return
	}
	if err := checkEpoch(r.Epoch, record.Epoch(g.term)); err != nil {
		c.refuse(r, g, err)
		return
	}
	if err := checkBatch(r.Batch); err != nil {
		c.refuse(r, g, err)
		return
	}
	if g.target != nil && g.target.MaxBatch > 0 && len(r.Batch) > int(g.target.MaxBatch) {
		c.refuse(r, g, fmt.Errorf("a batch of %d bytes, the topic takes %d (max.message.bytes): %w", len(r.Batch), g.target.MaxBatch, record.ErrTooLarge))
		return
	}
	if c.disk.full || c.needsFull(g) {
		c.refuse(r, g, record.ErrDiskFull)
		return
	}
	if c.produceBytes > c.cfg.Limits.Produce {
		c.refuse(r, g, record.ErrBusy)
		return
	}
	if c.full(g) {
		c.hold(r, g)
		return
	}
	s := stampOf(r.Batch)
	if s.id >= 0 && !faultNoSequences {
		base, fresh, err := g.producer(s.id).check(s, r.MayJoin != nil && r.MayJoin())
		if err != nil {
			c.refuse(r, g, err)
			return
		}
		if !fresh {
			c.duplicate(g, r, base)
			return
		}
	}
	c.stats.Produced++
	r.Batch.SetBase(g.proposed, record.Epoch(g.term))
	s.app.base = g.proposed
	p := proposal{data: r.Batch, kind: storage.KindBatch, stamp: s, span: record.Offset(r.Batch.Span()), base: g.proposed, produce: r}
	g.proposed += p.span
	c.enqueue(g, p)
}

// maxEntry bounds one entry of a log, in bytes: what a frame between nodes carries with room to spare.
const maxEntry = 4 << 20

// checkBatch keeps out what no replica could take. The caller has verified the batch; an entry that
// cannot be stored would take every replica of the group out of service.
func checkBatch(b record.Batch) error {
	switch {
	case len(b) > maxEntry:
		return fmt.Errorf("a batch of %d bytes, at most %d: %w", len(b), maxEntry, record.ErrTooLarge)
	case len(b) < record.BatchHeaderSize || b.Span() <= 0 || b.Count() <= 0:
		return fmt.Errorf("a batch of %d bytes: %w", len(b), record.ErrCorrupt)
	}
	return nil
}

func checkEpoch(asked, now record.Epoch) error {
	switch {
	case asked == record.NoEpoch || asked == now:
		return nil
	case asked < now:
		return fmt.Errorf("the request names epoch %d, the partition is in %d: %w", asked, now, record.ErrFencedEpoch)
	}
	return fmt.Errorf("the request names epoch %d, this leader is in %d: %w", asked, now, record.ErrUnknownEpoch)
}

// full tells that a group can take nothing more for now: what it has not committed, or what this
// node's disk has not written, is at its bound. A produce waits for that: refused, it would take with
// it all that its producer has sent behind it.
func (c *Core) full(g *group) bool {
	l := &c.cfg.Limits
	return g.uncommittedBytes+g.propBytes > l.Uncommitted || c.saveBytes > l.SaveQueue
}

// enqueue keeps a proposal until the end of the turn, when all of a group's go to Raft at once. The
// next batch of the same producer is judged as if it was in the log.
func (c *Core) enqueue(g *group, p proposal) {
	g.props = append(g.props, p)
	g.propBytes += int64(len(p.data))
	c.touch(g, false)
	if p.stamp.id >= 0 {
		c.foresee(g, p)
	}
}

// foresee puts a proposed batch into the overlay before Raft has it. rebuildTail undoes it.
func (c *Core) foresee(g *group, p proposal) {
	o := g.producer(p.stamp.id)
	n := &producer{epoch: p.stamp.epoch}
	if o != nil {
		*n = *o
		if g.overlay[p.stamp.id] == nil {
			n.tail = 0
		}
	}
	n.add(p.stamp.epoch, p.stamp.app)
	n.tail++
	if g.overlay == nil {
		g.overlay = map[int64]*producer{}
	}
	g.overlay[p.stamp.id] = n
}

// duplicate answers a batch that the log has already: at once if it is committed,
// else together with the first one.
func (c *Core) duplicate(g *group, r *ProduceRequest, base record.Offset) {
	if base >= g.next {
		// The first one is on its way to Raft in this turn. Raft may yet refuse it, so look again.
		c.readyGuarded(g)
		c.produce(r)
		return
	}
	w := waiter{base: base, duplicate: true, produce: r, term: g.term}
	for _, t := range g.tail {
		if t.stamp.id == r.Batch.ProducerID() && t.stamp.app.base == base {
			w.index, w.term = t.index, t.term
			break
		}
	}
	if w.index <= g.committed { // not in the tail means applied
		c.finish(g, w)
		return
	}
	i := sort.Search(len(g.waiters), func(i int) bool { return g.waiters[i].index > w.index })
	g.waiters = slices.Insert(g.waiters, i, w)
}

// propose queues a command of a state machine.
func (c *Core) propose(r *ProposeRequest) {
	g := c.find(r.Group)
	switch {
	case g == nil || g.damaged != nil || c.failed != nil:
		r.Done(nil, c.whyNot(g))
		return
	case len(r.Data) > maxEntry:
		r.Done(nil, fmt.Errorf("a command of %d bytes, at most %d: %w", len(r.Data), maxEntry, record.ErrTooLarge))
		return
	case len(r.Data) == 0 || g.machine == nil:
		r.Done(nil, fmt.Errorf("the partition takes no such command: %w", record.ErrInvalidRequest))
		return
	}
	c.refresh(g)
	switch {
	case g.role != RoleLeader:
		r.Done(nil, c.notLeader(g))
		return
	case c.full(g):
		r.Done(nil, record.ErrBusy)
		return
	}
	c.enqueue(g, proposal{data: r.Data, kind: storage.KindCommand, stamp: stamp{id: -1}, propose: r})
}

// moveLogStart queues the entry that moves a partition's beginning. Live followers that are
// behind keep what they still need, unless forced.
func (c *Core) moveLogStart(r *LogStartRequest) {
	g := c.find(r.Group)
	if g == nil || g.damaged != nil || c.failed != nil {
		r.Done(c.whyNot(g))
		return
	}
	c.refresh(g)
	switch {
	case g.role != RoleLeader:
		r.Done(c.notLeader(g))
		return
	case r.Index > g.committed+1 || r.Offset > g.high || r.Base > r.Offset || r.Index <= g.log.base.Index:
		r.Done(fmt.Errorf("log start %d at entry %d, the log is committed up to %d: %w", r.Offset, r.Index, g.high, record.ErrOffsetOutOfRange))
		return
	case r.Offset <= g.logStart:
		r.Done(nil)
		return
	case !r.Force && r.Index > c.neededFrom(g):
		r.Done(fmt.Errorf("a live follower still needs entry %d: %w", c.neededFrom(g), record.ErrBusy))
		return
	}
	if err := c.checkLogStart(g, r); err != nil {
		r.Done(err)
		return
	}
	data := logStart{keep: r.Index, base: r.Base, offset: r.Offset}.encode()
	c.enqueue(g, proposal{data: data, kind: storage.KindControl, stamp: stamp{id: -1}, start: r})
}

// checkLogStart holds the request against the log itself: a wrong base offset would go to every
// replica and into every base record.
func (c *Core) checkLogStart(g *group, r *LogStartRequest) error {
	wrong := fmt.Errorf("entry %d does not begin at offset %d and hold %d: %w", r.Index, r.Base, r.Offset, record.ErrInvalidRequest)
	if r.Index == g.committed+1 {
		if r.Base != g.high || r.Offset != g.high {
			return wrong
		}
		return nil
	}
	return c.cfg.Store.Headers(g.id, r.Index, r.Index+1, func(e storage.Entry, _ int64) error {
		if e.Kind != storage.KindBatch || e.BaseOffset != r.Base || r.Offset >= e.End() {
			return wrong
		}
		return nil
	})
}

// neededFrom is the lowest entry that a live follower does not have.
func (c *Core) neededFrom(g *group) uint64 {
	need := g.log.last + 1
	g.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if r := record.ReplicaID(id); r != g.replica && c.live(r.Node()) && !c.silent(g, r) {
			need = min(need, pr.Match+1)
		}
	})
	return need
}

// submit gives Raft what was proposed in this turn.
func (c *Core) submit(g *group) {
	props := g.props
	g.props, g.propBytes = nil, 0
	m := &pb.Message{Type: pb.MsgProp.Enum(), From: new(uint64(g.replica)), Entries: make([]*pb.Entry, len(props))}
	for i, p := range props {
		m.Entries[i] = &pb.Entry{Type: pb.EntryNormal.Enum(), Data: p.data}
	}
	g.flight = props
	err := raft.ErrProposalDropped
	if g.state == raft.StateLeader {
		err = g.rn.Step(m)
	}
	if err == nil {
		c.wakeGroup(g)
		return
	}
	// Nothing of it is in the log: the offsets are free again (law 3).
	g.flight = nil
	g.rebuildTail(g.tail)
	for _, p := range props {
		switch {
		case p.produce == nil:
			p.reject(c.droppedError(g, err))
		case c.mayHold(g):
			c.hold(p.produce, g)
		default:
			c.refuse(p.produce, g, c.droppedError(g, err))
		}
	}
}

func (c *Core) droppedError(g *group, err error) error {
	if !errors.Is(err, raft.ErrProposalDropped) {
		return fmt.Errorf("%w: %v", record.ErrInternal, err)
	}
	if g.role == RoleLeader {
		return record.ErrBusy
	}
	return c.notLeader(g)
}

// reject ends a proposal that is not a produce.
func (p proposal) reject(err error) {
	switch {
	case p.propose != nil:
		p.propose.Done(nil, err)
	case p.start != nil:
		p.start.Done(err)
	}
}

// landed matches an entry that Raft put into the log with the proposal it came from. Raft keeps
// the order of proposals and adds only entries of other kinds between them.
func (c *Core) landed(g *group, index, term uint64) {
	p := g.flight[0]
	if g.flight[0] = (proposal{}); len(g.flight) == 1 {
		g.flight = nil
	} else {
		g.flight = g.flight[1:]
	}
	w := waiter{index: index, term: term, base: p.base, produce: p.produce, propose: p.propose, start: p.start}
	if p.produce != nil && p.produce.Acks == AcksNone {
		c.finish(g, w)
		return
	}
	if p.produce != nil && p.produce.Acks == AcksOne {
		g.acksOne++
	}
	g.waiters = append(g.waiters, w)
}

// finish tells a waiter that its entry is as safe as it asked for.
func (c *Core) finish(g *group, w waiter) {
	switch {
	case w.produce != nil:
		c.answer(w.produce, ProduceResult{BaseOffset: w.base, LogStart: g.logStart, Epoch: record.Epoch(w.term), Duplicate: w.duplicate})
	case w.start != nil:
		w.start.Done(nil)
	case w.propose != nil:
		w.propose.Done(nil, nil)
	}
}

// answerCommitted answers who waits for entries up to the commit index. Commands wait for
// their result instead.
func (c *Core) answerCommitted(g *group) {
	n := 0
	for n < len(g.waiters) && g.waiters[n].index <= g.committed {
		n++
	}
	if n == 0 {
		return
	}
	done := g.waiters[:n]
	kept := done[:0]
	for _, w := range done {
		if w.propose != nil && w.index > g.applied {
			kept = append(kept, w)
			continue
		}
		if w.produce != nil && w.produce.Acks == AcksOne && !w.duplicate {
			g.acksOne--
		}
		c.finishOrFail(g, w)
	}
	k := len(kept)
	copy(g.waiters[n-k:n], kept)
	clear(g.waiters[:n-k]) // the array lives on; the requests must not
	g.waiters = g.waiters[n-k:]
}

// finishOrFail answers by the entry that stands at the waiter's index now: another leader may
// have put its own there, in another term, or a whole base record, before this one noticed.
func (c *Core) finishOrFail(g *group, w waiter) {
	if w.index <= g.log.base.Index || g.log.term(w.index) != w.term {
		c.failWaiter(g, w, record.ErrInterrupted)
		return
	}
	c.finish(g, w)
}

func (c *Core) failWaiter(g *group, w waiter, err error) {
	switch {
	case w.produce != nil:
		c.refuse(w.produce, g, err)
	case w.start != nil:
		w.start.Done(err)
	case w.propose != nil:
		w.propose.Done(nil, err)
	}
}

// answerSaved answers acks=1: the entry is on the leader's own disk.
func (c *Core) answerSaved(g *group) {
	if g.acksOne == 0 {
		return
	}
	kept := g.waiters[:0]
	for _, w := range g.waiters {
		if w.produce != nil && w.produce.Acks == AcksOne && !w.duplicate && w.index <= g.log.durable {
			g.acksOne--
			c.finishOrFail(g, w)
			continue
		}
		kept = append(kept, w)
	}
	clear(g.waiters[len(kept):])
	g.waiters = kept
}

// answerCommand gives a proposer what its command returned.
func (c *Core) answerCommand(g *group, index, term uint64, result any) {
	for i, w := range g.waiters {
		if w.index > index {
			return
		}
		if w.index == index && w.propose != nil {
			g.waiters = slices.Delete(g.waiters, i, i+1)
			if w.term != term {
				w.propose.Done(nil, record.ErrInterrupted)
				return
			}
			if err, ok := result.(error); ok {
				w.propose.Done(nil, err)
				return
			}
			w.propose.Done(result, nil)
			return
		}
	}
}

// dropWaiters answers everybody who waits for an entry of this replica's leadership. Nobody
// knows whether their entries survive.
func (c *Core) dropWaiters(g *group, err error) {
	c.dropConfirms(g, err)
	waiters, props := g.waiters, slices.Concat(g.flight, g.props)
	g.waiters, g.flight, g.props, g.propBytes, g.acksOne = nil, nil, nil, 0, 0
	for _, w := range waiters {
		c.failWaiter(g, w, err)
	}
	for _, p := range props {
		if p.produce != nil {
			c.refuse(p.produce, g, err)
		} else {
			p.reject(err)
		}
	}
	if len(props) > 0 && g.damaged == nil {
		g.rebuildTail(g.tail)
	}
}

// whyNot says why a group takes nothing at all here.
func (c *Core) whyNot(g *group) error {
	switch {
	case c.failed != nil:
		return c.failed
	case g == nil:
		return &record.NotLeaderError{Leader: record.NoNode, Epoch: record.NoEpoch}
	}
	return fmt.Errorf("%w: %v", record.ErrDamaged, g.damaged)
}

// notLeader names the leader; the node adds the address.
func (c *Core) notLeader(g *group) error {
	e := &record.NotLeaderError{Leader: record.NoNode, Epoch: record.Epoch(g.term)}
	if g.lead != 0 && g.lead != g.replica {
		e.Leader = g.lead.Node()
	}
	return e
}

// mayHold tells that an election or a transfer is under way that will likely end soon: a
// produce is better kept than sent around.
func (c *Core) mayHold(g *group) bool {
	return g.lead == 0 && g.role == RoleFollower && c.quorumLive(g) || g.role == RoleLeader && g.transferTo != 0
}

// hold keeps a produce until its group has a leader again, or room. The order of a group's produces
// stays what it was: a producer's sequence must not overtake itself.
func (c *Core) hold(r *ProduceRequest, g *group) {
	if r.heldUntil == 0 {
		if c.held >= c.cfg.Limits.HeldProduces {
			c.refuseHeld(r, g)
			return
		}
		c.stats.Held++
		r.heldUntil = c.now + c.cfg.Timing.Hold
		if g.role == RoleLeader {
			r.heldUntil = c.now + c.cfg.Timing.HoldFull
		}
	}
	if r.heldUntil <= c.now {
		c.refuseHeld(r, g)
		return
	}
	g.held = append(g.held, r)
	c.held++
	c.holding = place(c.holding, g, true, func(g *group) *int { return &g.holdingAt })
}

// refuseHeld sends back a produce that cannot wait, or has waited for too long.
func (c *Core) refuseHeld(r *ProduceRequest, g *group) {
	if g.role == RoleLeader && g.transferTo == 0 {
		c.refuse(r, g, record.ErrBusy)
		return
	}
	c.stats.NotLeader++
	c.refuse(r, g, c.notLeader(g))
}

// takeHeld empties a group's row of held produces.
func (c *Core) takeHeld(g *group) []*ProduceRequest {
	held := g.held
	g.held = nil
	c.held -= len(held)
	c.holding = place(c.holding, g, false, func(g *group) *int { return &g.holdingAt })
	return held
}

// retryHeld looks at a group's held produces again, in their order: it has a leader now or none to
// wait for, or room. Behind the first that has to wait on, all do.
func (c *Core) retryHeld(g *group) {
	for _, r := range c.takeHeld(g) {
		if len(g.held) > 0 {
			c.hold(r, g)
		} else {
			c.produce(r)
		}
	}
}

func (c *Core) dropHeld(g *group, err error) {
	for _, r := range c.takeHeld(g) {
		c.refuse(r, g, err)
	}
}

// expireHeld sends back who waited for too long. The oldest of a group is first in its row.
func (c *Core) expireHeld() {
	for i := len(c.holding) - 1; i >= 0; i-- {
		if g := c.holding[i]; g.held[0].heldUntil <= c.now || !c.mayHold(g) && !c.full(g) {
			c.retryHeld(g)
		}
	}
}
