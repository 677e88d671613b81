package groups

import (
	"fmt"

	"edged/record"
)

// SyncRequest asks for the member's assignment; the leader brings all of them.
type SyncRequest struct {
	Identity
	ProtocolType, Protocol string // empty from clients that do not say
	Assignments            map[string][]byte
}

// SyncResult is the member's assignment.
type SyncResult struct {
	Err                    error
	ProtocolType, Protocol string
	Assignment             []byte
}

// Sync gives a member its assignment: done is called when the leader has made it and it is written
// down, so that nobody goes by an assignment that a new coordinator does not know.
func (c *Coordinator) Sync(req SyncRequest, done func(SyncResult)) {
	g := c.find(req.Group)
	m, err := (*member)(nil), error(record.ErrUnknownMember)
	if g != nil {
		m, err = g.checkGeneration(req.Identity)
	}
	switch {
	case err != nil:
	case req.ProtocolType != "" && req.ProtocolType != g.protocolType, req.Protocol != "" && req.Protocol != g.protocol:
		err = record.ErrGroupProtocol
	case g.phase == preparing:
		err = record.ErrRebalance
	}
	if err != nil {
		done(SyncResult{Err: err})
		return
	}
	m.synced = true
	if c.allSynced(g) {
		g.syncBy = 0
	}
	if g.phase == stable {
		c.refresh(g, m)
		done(g.assigned(m))
		return
	}
	m.answerSync(SyncResult{Err: record.ErrRebalance}) // it has asked twice
	m.syncing = done
	if m.ID == g.leader && g.saving != g.generation {
		c.assign(g, req.Assignments)
	}
}

func (c *Coordinator) allSynced(g *group) bool {
	for _, m := range g.members {
		if !m.synced {
			return false
		}
	}
	return true
}

func (g *group) assigned(m *member) SyncResult {
	return SyncResult{ProtocolType: g.protocolType, Protocol: g.protocol, Assignment: m.Assignment}
}

// assign writes the leader's assignment down, then tells everybody.
func (c *Coordinator) assign(g *group, assignments map[string][]byte) {
	s := g.stored()
	s.EmptySince = 0
	size := 0
	for i := range s.Members {
		s.Members[i].Assignment = assignments[s.Members[i].ID]
		size += len(s.Members[i].Assignment)
	}
	generation := g.generation
	done := func(err error) {
		if g.phase != completing || g.generation != generation {
			return
		}
		g.saving = -1
		if err != nil {
			c.notice(g, "generation %d cannot be kept: %v", generation, err)
			g.failSync(err)
			c.prepare(g)
			return
		}
		g.phase, g.emptySince = stable, 0
		for _, m := range s.Members { // all are there: who leaves begins a rebalance
			to := g.byID[m.ID]
			to.Assignment = m.Assignment
			if to.syncing != nil {
				c.refresh(g, to)
			}
			to.answerSync(g.assigned(to))
		}
	}
	if size > MaxAssignmentBytes {
		done(fmt.Errorf("an assignment of %d bytes, at most %d are taken: %w", size, MaxAssignmentBytes, record.ErrLimit))
		return
	}
	g.saving = generation
	c.propose(&PutGroup{s}, done)
}

// Heartbeat keeps a member alive. record.ErrRebalance tells it to join again.
func (c *Coordinator) Heartbeat(id Identity) error {
	g := c.find(id.Group)
	if g == nil {
		return record.ErrUnknownMember
	}
	m, err := g.checkGeneration(id)
	if err != nil {
		return err
	}
	c.refresh(g, m)
	if g.phase == preparing {
		return record.ErrRebalance
	}
	return nil
}

// Leaving is a member that leaves, named by its id, by its instance or by both.
type Leaving struct {
	Member, Instance string
	Reason           string
}

// Leave takes members out of a group and gives an error for each.
func (c *Coordinator) Leave(name string, members []Leaving) []error {
	errs := make([]error, len(members))
	g := c.find(name)
	for i, l := range members {
		if g == nil {
			errs[i] = record.ErrUnknownMember
			continue
		}
		errs[i] = c.leave(g, l)
	}
	if g != nil {
		c.maybeBegin(g)
		c.settle(g)
	}
	return errs
}

func (c *Coordinator) leave(g *group, l Leaving) error {
	if _, ok := g.pending[l.Member]; ok && l.Instance == "" {
		delete(g.pending, l.Member)
		return nil
	}
	id := Identity{Member: l.Member, Instance: l.Instance}
	if l.Member == "" {
		if m := g.instances[l.Instance]; m != nil {
			id.Member = m.ID
		}
	}
	m, err := g.check(id)
	if err != nil {
		return err
	}
	c.notice(g, "member %s leaves%s", m.ID, because(l.Reason))
	c.remove(g, m)
	c.prepare(g)
	return nil
}
