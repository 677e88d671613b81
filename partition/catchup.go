package partition

import (
	"edged/record"

	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// Followers that are behind the entry cache are served from the store, and that takes the Core's
// own time: a node that was away comes back to hundreds of groups, and a leader that read for all
// of them in one turn would be silent for seconds and count as dead itself. So what asks for more
// waits its turn, a few reads at a time.

const (
	// turnReads bounds what one turn reads from the store for followers, in bytes. One message
	// more may be read than that.
	turnReads = 1 << 20
	// lateEvery is the pause between two such turns when nothing else happens.
	lateEvery = Time(2e6)
)

// lateKey is a follower of a group led here.
type lateKey struct {
	group record.GroupID
	from  record.ReplicaID
}

// late keeps the answers of followers that would be sent entries from the store: one of each.
type late struct {
	read    int64 // in this turn
	queue   []lateKey
	waiting map[lateKey]*pb.Message
}

// postpone keeps a follower's answer for a later turn, if to step it now would read the store too
// much, or if its node cannot be sent more just now.
func (c *Core) postpone(s *session, g *group, m *pb.Message) bool {
	if g.role != RoleLeader || c.late.read < turnReads && c.now >= s.fullUntil {
		return false
	}
	pr, ok := g.progress(record.ReplicaID(m.GetFrom()))
	if !ok || pr.State == tracker.StateSnapshot || pr.Next >= g.log.cacheFirst() {
		return false
	}
	k := lateKey{g.id, record.ReplicaID(m.GetFrom())}
	_, queued := c.late.waiting[k]
	if !queued {
		if c.late.waiting == nil {
			c.late.waiting = map[lateKey]*pb.Message{}
		}
		c.late.queue = append(c.late.queue, k)
	}
	if !queued || m.GetType() == pb.MsgAppResp { // an answer to a heartbeat says less
		c.late.waiting[k] = m
	}
	return true
}

// serveLate steps what was postponed, as far as this turn's reads go.
func (c *Core) serveLate() {
	kept := c.late.queue[:0]
	for _, k := range c.late.queue {
		g, s := c.find(k.group), c.sessions[k.from.Node()]
		if g != nil && g.role == RoleLeader && s.up && (c.late.read >= turnReads || c.now < s.fullUntil) {
			kept = append(kept, k)
			continue
		}
		m := c.late.waiting[k]
		delete(c.late.waiting, k)
		if g != nil {
			c.step(g, m)
		}
	}
	c.late.queue, c.late.read = kept, 0
}

// lateDue is when postponed answers are looked at again.
func (c *Core) lateDue() Time {
	if len(c.late.queue) == 0 {
		return never
	}
	return c.now + lateEvery
}

// boundRestart keeps what a restart has to apply again within its bound over all groups, by
// checkpoints of those that have most of it.
func (c *Core) boundRestart() {
	if c.sinceBytes <= c.cfg.Limits.CheckpointTotal || c.failed != nil {
		return
	}
	part := c.sinceBytes / int64(2*len(c.order))
	for _, g := range c.order {
		if g.sinceBytes > part && g.damaged == nil && g.applied > g.checkpointed {
			c.writeCheckpoint(g, false)
		}
	}
}
