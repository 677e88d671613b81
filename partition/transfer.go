package partition

import (
	"fmt"
	"slices"
	"time"

	"edged/record"

	"go.etcd.io/raft/v3/tracker"
)

// transferWithin is how many entries the target of a transfer may be behind: a group takes no
// produce until the target has caught up.
const transferWithin = 256

// transfer starts to hand a group to another node.
func (c *Core) transfer(r *TransferRequest) {
	g := c.find(r.Group)
	if g == nil || g.damaged != nil || c.failed != nil {
		r.Done(c.whyNot(g))
		return
	}
	c.refresh(g)
	if g.role != RoleLeader {
		r.Done(c.notLeader(g))
		return
	}
	if r.To == c.cfg.Node {
		r.Done(nil)
		return
	}
	for _, v := range g.byPreference() {
		if (r.To == record.NoNode || v.Node() == r.To) && c.startTransfer(g, v, "leadership was transferred") {
			r.Done(nil)
			return
		}
	}
	r.Done(fmt.Errorf("no replica on that node is connected and caught up: %w", record.ErrRefused))
}

// startTransfer hands a group to a voter that is live and nearly caught up.
func (c *Core) startTransfer(g *group, to record.ReplicaID, why string) bool {
	if g.transferTo != 0 || to.Node() == c.cfg.Node || g.damaged != nil || !slices.Contains(g.conf.Voters, to) {
		return false
	}
	pr, ok := g.progress(to)
	if !ok || pr.State != tracker.StateReplicate || pr.Match+transferWithin < g.log.last || !c.live(to.Node()) || c.sessions[to.Node()].slowDisk {
		return false
	}
	g.reason = why
	g.transferTo, g.transferUntil = to, c.now+c.cfg.Timing.Transfer
	c.guard(g, func() { g.rn.TransferLeader(uint64(to)) })
	c.wakeGroup(g)
	c.touch(g, true)
	return true
}

// endTransfer gives up a transfer that came to nothing. Raft would do so too, later: it takes no
// proposals until then. That the target may be campaigning all the same does no harm.
func (c *Core) endTransfer(g *group) {
	if g.transferTo == 0 || c.now < g.transferUntil && c.live(g.transferTo.Node()) {
		return
	}
	g.transferTo, g.transferUntil, g.reason = 0, 0, ""
	c.guard(g, func() { g.rn.TransferLeader(uint64(g.replica)) }) // to itself means to nobody
	c.touch(g, true)
}

// handOver starts a transfer to the first of the voters that can take it.
func (c *Core) handOver(g *group, voters []record.ReplicaID, why string) bool {
	return slices.ContainsFunc(voters, func(v record.ReplicaID) bool { return c.startTransfer(g, v, why) })
}

// resign hands over everything that is led here and has somewhere to go, before a planned stop.
func (c *Core) resign() {
	c.resigning = true
	for _, g := range c.order {
		if g.role == RoleLeader {
			c.handOver(g, g.byPreference(), "the leader is stopping")
		}
	}
}

// byPreference are a group's voters, in the order of the assignment first.
func (g *group) byPreference() []record.ReplicaID {
	var out []record.ReplicaID
	if g.target != nil {
		for _, v := range g.target.Voters {
			if slices.Contains(g.conf.Voters, v) {
				out = append(out, v)
			}
		}
	}
	for _, v := range g.conf.Voters {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// returnAgain is the wait before a return that was not possible is tried again.
const returnAgain = 5 * time.Second

// returnLeadership hands one group back to its preferred leader once that has been up and calm
// for a while. It looks only at the groups that are not led where they should be.
func (c *Core) returnLeadership() {
	c.nextReturn = never
	if c.resigning {
		return
	}
	for _, g := range c.strays {
		if !c.isStray(g) {
			continue // assigned otherwise in this turn
		}
		to := g.target.Voters[0]
		if !c.live(to.Node()) {
			continue // peerUp looks again
		}
		if calm := c.sessions[to.Node()].upSince + c.cfg.Timing.CalmBeforeReturn; calm > c.now {
			c.nextReturn = min(c.nextReturn, calm)
			continue
		}
		if g.serving && g.reached() && c.startTransfer(g, to, "leadership goes back to the preferred node") {
			c.nextReturn = c.now + c.cfg.Timing.ReturnEvery
			return
		}
		c.nextReturn = min(c.nextReturn, c.now+returnAgain)
	}
}

// Transferring counts the groups that are led here and could be led by a live voter elsewhere; it
// tries those again whose transfer came to nothing. A node that stops waits until it is 0.
func (c *Core) Transferring() int {
	n := 0
	for _, g := range c.order {
		if g.role != RoleLeader {
			continue
		}
		voters := g.byPreference()
		if slices.ContainsFunc(voters, func(v record.ReplicaID) bool { return v != g.replica && c.live(v.Node()) }) {
			n++
			c.handOver(g, voters, "the leader is stopping")
		}
	}
	return n
}
