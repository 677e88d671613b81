package partition

import (
	"fmt"
	"time"

	"edged/record"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// setAwake puts a group among those that are ticked, or takes it out: a sleeping group costs nothing.
func (c *Core) setAwake(g *group, on bool) {
	c.awake = place(c.awake, g, on, func(g *group) *int { return &g.awakeAt })
}

// setLeaderless keeps a group among those that look for a leader.
func (c *Core) setLeaderless(g *group, on bool) {
	was := g.leaderlessAt >= 0
	c.leaderless = place(c.leaderless, g, on, func(g *group) *int { return &g.leaderlessAt })
	switch {
	case on && !was:
		g.campaigns, g.campaignAt = 0, -1
		c.wakeGroup(g)
	case !on:
		g.campaignAt = -1
	}
}

// place adds g to a list or removes it; at is where g remembers its place.
func place(list []*group, g *group, on bool, at func(*group) *int) []*group {
	i := at(g)
	switch {
	case on && *i < 0:
		*i = len(list)
		return append(list, g)
	case !on && *i >= 0:
		last := list[len(list)-1]
		list[*i] = last
		*at(last) = *i
		*i = -1
		list[len(list)-1] = nil
		return list[:len(list)-1]
	}
	return list
}

// wakeGroup is called for everything that counts as traffic.
func (c *Core) wakeGroup(g *group) {
	if g.damaged != nil || c.failed != nil {
		return
	}
	g.lastTraffic = c.now
	c.setAwake(g, true)
}

// timers does what is due. All of the Core's time passes here.
func (c *Core) timers() {
	if c.failed != nil {
		return
	}
	t := c.cfg.Timing
	for _, s := range c.peers {
		if !s.dead && s.up && c.now-s.heard > s.limit {
			s.why = fmt.Sprintf("nothing heard for %v", (c.now - s.heard).Round(time.Millisecond))
			c.declareDead(s)
		}
		if !s.dead && !s.up && c.now-s.heard > t.DeadBusy {
			s.why = "connection lost"
			c.declareDead(s)
		}
	}
	if c.now >= c.nextTick {
		c.nextTick = c.now + t.Tick
		c.tick()
	}
	c.campaignsDue()
	if len(c.held) > 0 {
		c.retryHeld()
	}
	if c.now >= c.nextReturn {
		c.nextReturn = c.now + t.ReturnEvery
		c.returnLeadership()
	}
	c.beats()
}

// NextWake is when Flush has to be called again if no event comes first.
func (c *Core) NextWake() Time {
	next := c.nextBeat()
	if c.failed != nil {
		return c.now + time.Hour
	}
	if len(c.awake) > 0 {
		next = min(next, c.nextTick)
	}
	for _, g := range c.leaderless {
		if g.campaignAt >= 0 {
			next = min(next, g.campaignAt)
		}
	}
	for _, r := range c.held {
		next = min(next, r.heldUntil)
	}
	for _, s := range c.peers {
		switch {
		case s.dead:
		case s.up:
			next = min(next, s.heard+s.limit+time.Millisecond)
		default:
			next = min(next, s.heard+c.cfg.Timing.DeadBusy+time.Millisecond)
		}
	}
	if c.returnPending() {
		next = min(next, c.nextReturn)
	}
	c.due = max(next, c.now)
	return c.due
}

// tick drives Raft's clock in the groups that are awake, and sends to sleep those that saw no
// traffic. Followers are not ticked while their leader's session is fresh: its silence would be
// noticed there, and a tick would only start elections against a leader that sleeps.
func (c *Core) tick() {
	for i := len(c.awake) - 1; i >= 0; i-- {
		g := c.awake[i]
		c.snapshotsDue(g)
		if c.maySleep(g) {
			c.setAwake(g, false)
			continue
		}
		follows := g.role == RoleFollower && g.lead != 0
		if follows && c.live(g.lead.Node()) {
			continue
		}
		if follows && g.lead != g.replica {
			c.orphan(g, "node "+g.lead.Node().String()+" is not connected")
		}
		if g.leaderlessAt >= 0 && !c.mayCampaign(g) {
			continue // nobody to elect or be elected by
		}
		c.guard(g, g.rn.Tick)
		c.touch(g, true)
	}
}

// maySleep tells whether a group can do without a clock until something happens. A leader may only
// sleep when all live members have everything, know it, and are a majority.
func (c *Core) maySleep(g *group) bool {
	if c.now-g.lastTraffic < c.cfg.Timing.SleepAfter || g.savesInFlight > 0 || len(g.waiters) > 0 || g.confPending > g.applied {
		return false
	}
	switch g.role {
	case RoleFollower:
		return !g.isVoter(g.replica) || g.lead != 0 && c.live(g.lead.Node()) && g.applied == g.log.last
	case RoleLeader:
		if !g.serving || g.applied < g.log.last || g.transferUntil > c.now || !c.quorumLive(g) || len(g.snapshots) > 0 || c.reconcilePending(g) {
			return false
		}
		for id, pr := range g.rn.Status().Progress {
			if r := record.ReplicaID(id); r != g.replica && c.live(r.Node()) && pr.Match < g.log.last {
				return false
			}
		}
		return true
	}
	return g.role == RoleDamaged
}

// snapshotsDue gives up base records that a follower never confirmed: Raft would wait for ever.
func (c *Core) snapshotsDue(g *group) {
	kept := g.snapshots[:0]
	for _, s := range g.snapshots {
		switch {
		case g.role != RoleLeader:
		case c.now >= s.until || !c.live(s.to.Node()):
			c.guard(g, func() { g.rn.ReportSnapshot(uint64(s.to), raft.SnapshotFailure) })
			c.touch(g, true)
		default:
			if pr, ok := g.rn.Status().Progress[uint64(s.to)]; ok && pr.Match < g.log.base.Index {
				kept = append(kept, s)
			}
		}
	}
	g.snapshots = kept
}

// settleRole draws the consequences of a change of leader, once, after what was committed
// before it has been answered.
func (c *Core) settleRole(g *group) {
	leads := g.state == raft.StateLeader
	switch {
	case leads && (g.role != RoleLeader || g.ledTerm != g.term):
		c.dropWaiters(g, record.ErrInterrupted)
		g.role, g.ledTerm, g.serving, g.proposed = RoleLeader, g.term, faultStaleReads, g.next
		g.snapshots, g.transferUntil, g.confPending, g.told = nil, 0, 0, nil
		if g.reason == "" {
			g.reason = "no leader was known"
		}
		g.reason = fmt.Sprintf("node %d was elected: %s", c.cfg.Node, g.reason)
		c.setLeaderless(g, false)
		c.wakeGroup(g)
		c.commitTo(g, g.committed)
	case !leads && g.role == RoleLeader:
		g.role, g.serving, g.snapshots, g.transferUntil = RoleFollower, false, nil, 0
		if g.reason = "the leader stepped down"; g.lead != 0 && g.lead != g.replica {
			g.reason = fmt.Sprintf("node %d took over in a newer epoch", g.lead.Node())
		}
		c.dropWaiters(g, record.ErrInterrupted)
	}
	if !leads {
		c.setLeaderless(g, g.lead == 0 && g.isVoter(g.replica))
	}
}

// followUp is what a settled group has to do next.
func (c *Core) followUp(g *group) {
	if g.role == RoleLeader {
		c.guard(g, func() { c.reconcile(g) })
	}
	if view := g.part.View(); g.lead != 0 && view.Leader == g.lead.Node() && view.Epoch == record.Epoch(g.term) {
		g.reason = "" // told already
	}
}

// campaignsDue starts the elections whose time has come. The voters that live stand in an
// order that depends on the group, so that after the death of a node each survivor is first
// for its share of the groups.
func (c *Core) campaignsDue() {
	for i := len(c.leaderless) - 1; i >= 0; i-- {
		g := c.leaderless[i]
		if !c.mayCampaign(g) {
			g.campaignAt = -1
			continue
		}
		if g.campaignAt < 0 {
			g.campaignAt = c.now + c.campaignDelay(g)
		}
		if g.campaignAt > c.now {
			continue
		}
		g.campaigns++
		c.stats.Campaigns++
		c.guard(g, func() { _ = g.rn.Campaign() })
		c.touch(g, true)
		back := c.cfg.Timing.CampaignRetry << min(g.campaigns-1, 4)
		g.campaignAt = c.now + c.campaignDelay(g) + min(back, 10*c.cfg.Timing.CampaignRetry)
	}
}

// mayCampaign tells whether an election could be won here, and should be.
func (c *Core) mayCampaign(g *group) bool {
	return g.isVoter(g.replica) && c.quorumLive(g) && (len(g.conf.Voters) == 1 || !c.disk.slow && !c.resigning)
}

// campaignDelay is the wait of this node's turn.
func (c *Core) campaignDelay(g *group) Time {
	rank := 0
	mine := claimHash(g.id, uint64(c.cfg.Node))
	for _, v := range g.conf.Voters {
		if v != g.replica && c.live(v.Node()) && claimHash(g.id, uint64(v.Node())) < mine {
			rank++
		}
	}
	t := c.cfg.Timing
	if len(g.conf.Voters) == 1 {
		return 0
	}
	if rank == 0 {
		return t.CampaignFirst
	}
	return t.CampaignFirst + Time(rank)*t.CampaignNext - t.CampaignNext/4 + Time(c.cfg.Rand.Int64N(int64(t.CampaignNext/2)))
}

// voteAsked prepares a follower for a request to vote. Within the lease of a leader that it
// believes in, Raft would ignore it silently: a dead leader is forgotten first. And a voter that
// has more than the candidate stands itself, soon.
func (c *Core) voteAsked(g *group, m *pb.Message) {
	if g.lead != 0 && g.role == RoleFollower && g.lead != g.replica && !c.live(g.lead.Node()) {
		c.orphan(g, "node "+g.lead.Node().String()+" is not connected")
	}
	last := g.log.last
	term, _ := g.log.Term(last)
	if g.lead == 0 && g.leaderlessAt >= 0 && (m.GetLogTerm() < term || m.GetLogTerm() == term && m.GetIndex() < last) {
		if at := c.now + c.cfg.Timing.CampaignFirst/3; g.campaignAt < 0 || at < g.campaignAt {
			g.campaignAt = at
		}
	}
}

// sendHeartbeats makes a leader heard at once, in a group where a follower did not know of it.
func (c *Core) sendHeartbeats(g *group) {
	for range c.cfg.Timing.HeartbeatTicks {
		c.guard(g, g.rn.Tick)
	}
	c.touch(g, true)
}
