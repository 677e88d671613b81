package partition

import (
	"fmt"
	"slices"

	"edged/record"
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
	if g.stepped {
		c.guard(g, func() { c.ready(g) })
	}
	if g.role != RoleLeader {
		r.Done(c.notLeader(g))
		return
	}
	if r.To == c.cfg.Node {
		r.Done(nil)
		return
	}
	for _, v := range g.conf.Voters {
		if (r.To == record.NoNode || v.Node() == r.To) && c.startTransfer(g, v, "leadership was transferred") {
			r.Done(nil)
			return
		}
	}
	r.Done(fmt.Errorf("no voter of group %d on that node is connected and caught up: %w", g.id, record.ErrRefused))
}

// startTransfer hands a group to a voter that is live and nearly caught up.
func (c *Core) startTransfer(g *group, to record.ReplicaID, why string) bool {
	pr, ok := g.rn.Status().Progress[uint64(to)]
	s := c.sessions[to.Node()]
	if !ok || to == g.replica || pr.IsLearner || !c.live(to.Node()) || s.slowDisk || pr.Match+transferWithin < g.log.last || g.transferUntil > c.now {
		return false
	}
	g.reason = why
	g.transferUntil = c.now + c.cfg.Timing.Transfer
	c.guard(g, func() { g.rn.TransferLeader(uint64(to)) })
	c.wakeGroup(g)
	c.touch(g, true)
	return true
}

// resign hands over everything that is led here and has somewhere to go, before a planned stop.
func (c *Core) resign() {
	c.resigning = true
	for _, g := range c.order {
		if g.role != RoleLeader || g.damaged != nil {
			continue
		}
		for _, v := range c.byPreference(g) {
			if c.startTransfer(g, v, "the leader is stopping") {
				break
			}
		}
	}
}

// byPreference are a group's voters, those of the assignment first.
func (c *Core) byPreference(g *group) []record.ReplicaID {
	var out []record.ReplicaID
	if g.target != nil {
		out = slices.Clone(g.target.Voters)
	}
	for _, v := range g.conf.Voters {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// returnLeadership hands one group back to its preferred leader once that has been up and calm
// for a while.
func (c *Core) returnLeadership() {
	for _, g := range c.order {
		if c.wantsReturn(g) && c.startTransfer(g, g.target.Voters[0], "leadership goes back to the preferred node") {
			return
		}
	}
}

func (c *Core) wantsReturn(g *group) bool {
	if g.role != RoleLeader || !g.serving || g.target == nil || len(g.target.Voters) < 2 || g.target.Voters[0] == g.replica || !g.reached() {
		return false
	}
	s := c.sessions[g.target.Voters[0].Node()]
	return s != nil && s.up && !s.dead && c.now-s.upSince >= c.cfg.Timing.CalmBeforeReturn
}

func (c *Core) returnPending() bool { return slices.ContainsFunc(c.order, c.wantsReturn) }

// diskState is what the log writer's commits tell about this node's disk.
type diskState struct {
	slow bool
	last Time
}

// observe judges a commit by how long it took: a slow disk takes no new leadership, a stalled
// one gives away what it has.
func (d *diskState) observe(c *Core, took Time) {
	d.last = took
	d.slow = took > c.cfg.Timing.DiskSlow
	if took <= c.cfg.Timing.DiskStalled || c.failed != nil {
		return
	}
	c.log.Warn("the disk stalled: giving leadership away", "commit_took", took)
	for _, g := range c.order {
		if g.role != RoleLeader || len(g.conf.Voters) < 2 {
			continue
		}
		for _, v := range g.conf.Voters {
			if c.startTransfer(g, v, "the leader's disk stalled") {
				break
			}
		}
	}
}

// Transferring counts the groups that are led here and could be led by a live voter elsewhere; it
// tries those again whose transfer came to nothing. A node that stops waits until it is 0.
func (c *Core) Transferring() int {
	n := 0
	for _, g := range c.order {
		if g.role != RoleLeader || g.damaged != nil {
			continue
		}
		movable := false
		for _, v := range c.byPreference(g) {
			if movable = v != g.replica && c.live(v.Node()); movable {
				break
			}
		}
		if !movable {
			continue
		}
		n++
		if g.transferUntil <= c.now {
			for _, v := range c.byPreference(g) {
				if c.startTransfer(g, v, "the leader is stopping") {
					break
				}
			}
		}
	}
	return n
}
