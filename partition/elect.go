package partition

import (
	"fmt"
	"slices"
	"time"

	"edged/record"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// setAwake puts a group among those that are ticked, or takes it out: a sleeping group costs nothing.
func (c *Core) setAwake(g *group, on bool) {
	if was := g.awakeAt >= 0; was == on {
		return
	}
	c.awake = place(c.awake, g, on, func(g *group) *int { return &g.awakeAt })
	if on {
		if len(c.awake) == 1 {
			c.nextTick = max(c.nextTick, c.now+c.cfg.Timing.Tick)
		}
		for i := range g.answered {
			g.answered[i] = c.now // nobody was asked while it slept
		}
		c.shareAwake(g, 1)
	} else {
		c.shareAwake(g, -1)
	}
}

// shareAwake counts a group that is awake for every node that has a replica of it.
func (c *Core) shareAwake(g *group, n int) {
	for _, node := range g.nodes {
		c.session(node).awake += n
	}
}

// setLeaderless keeps a group among those that look for a leader.
func (c *Core) setLeaderless(g *group, on bool) {
	was := g.leaderlessAt >= 0
	c.leaderless = place(c.leaderless, g, on, func(g *group) *int { return &g.leaderlessAt })
	switch {
	case on && !was:
		g.campaigns, g.campaignAt = 0, -1
		c.stirred = true
		c.wakeGroup(g)
	case !on:
		g.campaignAt = -1
	}
}

// isStray tells that a group led here is preferred to be led by another node.
func (c *Core) isStray(g *group) bool {
	return g.role == RoleLeader && g.target != nil && len(g.target.Voters) > 1 && g.target.Voters[0].Node() != c.cfg.Node
}

// setStray keeps a group among those that are led here and should be led elsewhere.
func (c *Core) setStray(g *group, on bool) {
	if on && g.strayAt < 0 {
		c.nextReturn = min(c.nextReturn, c.now+c.cfg.Timing.ReturnEvery)
	}
	c.strays = place(c.strays, g, on, func(g *group) *int { return &g.strayAt })
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
	if g.damaged != nil || g.removed || c.failed != nil {
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
	for _, s := range c.peers {
		if at := c.deathAt(s); c.now >= at {
			s.why = "connection lost"
			if s.up {
				s.why = fmt.Sprintf("nothing heard for %v", (c.now - s.heard).Round(time.Millisecond))
			}
			c.declareDead(s)
		}
	}
	c.watchDisk()
	if c.now >= c.nextTick && len(c.awake) > 0 {
		c.nextTick = c.now + c.cfg.Timing.Tick
		c.tick()
	}
	c.expireHeld()
	if c.now >= c.nextReturn {
		c.returnLeadership()
	}
}

// deathAt is when a peer that stays silent counts as dead.
func (c *Core) deathAt(s *session) Time {
	switch {
	case s.dead:
		return never
	case s.up:
		return s.heard + s.limit + time.Millisecond
	}
	return s.heard + c.patience(s, c.cfg.Timing.DeadBusy) + time.Millisecond
}

// NextWake is when Flush has to be called again if no event comes first. It is called after
// Flush; everything it names is done by the Flush at that time, or the Core would spin.
func (c *Core) NextWake() Time {
	next := c.now + time.Hour
	if c.failed == nil {
		next = min(next, c.nextBeat(), c.disk.due(&c.cfg.Timing), c.nextReturn, c.lateDue())
		if len(c.awake) > 0 {
			next = min(next, c.nextTick)
		}
		if len(c.leaderless) > 0 {
			next = min(next, c.nextCampaign)
		}
		for _, g := range c.holding {
			next = min(next, g.held[0].heldUntil)
		}
		for _, s := range c.peers {
			next = min(next, c.deathAt(s))
		}
	}
	c.due = max(next, c.now)
	return c.due
}

// tick drives Raft's clock where this node leads, and sends to sleep what saw no traffic. No
// other role has a clock of its own: a follower hears of its leader's death from the session, of
// its stepping down from the claims, and who has no leader campaigns when its turn comes.
func (c *Core) tick() {
	c.ticks++
	for i := len(c.awake) - 1; i >= 0; i-- {
		g := c.awake[i]
		if g.role == RoleLeader {
			c.snapshotsDue(g)
			c.endTransfer(g)
		}
		switch {
		case c.maySleep(g):
			c.setAwake(g, false)
		case g.role == RoleLeader:
			if c.ticks%c.ticksFor(g) == 0 {
				c.guard(g, g.rn.Tick)
				c.touch(g, true)
			}
		default:
			c.askForNews(g)
			c.askCurrent(g)
		}
	}
}

// askForNews is for a follower that has entries of which it was never told that they are
// committed, though its leader lives and is silent: the message was lost, and the leader sleeps.
func (c *Core) askForNews(g *group) {
	every := c.cfg.Timing.SleepAfter / 2
	if g.lead == 0 || g.applied == g.log.last || g.savesInFlight > 0 || c.now-g.lastTraffic < every || c.now-g.askedAt < every {
		return
	}
	g.askedAt = c.now
	c.addItem(c.session(g.lead.Node()), wakeItem([]record.GroupID{g.id}))
}

// maySleep tells whether a group can do without a clock until something happens.
func (c *Core) maySleep(g *group) bool {
	if c.now-g.lastTraffic < c.cfg.Timing.SleepAfter || g.savesInFlight > 0 || len(g.waiters) > 0 || len(g.held) > 0 || len(g.confirms.asked) > 0 {
		return false
	}
	switch {
	case g.role == RoleLeader:
		return c.leaderMaySleep(g)
	case g.role != RoleFollower || g.lead == 0 && !g.isVoter(g.replica):
		return true
	case g.lead == 0:
		return !c.mayCampaign(g) // looked at again when somebody comes to life
	}
	return c.live(g.lead.Node()) && g.applied == g.log.last && (c.current.known || g.id != record.MetadataGroup)
}

// giveUpAfter is how many times SleepAfter a live member may say nothing at all before its
// leader sleeps without it: its replica is out of service, or not made yet. It wakes the leader itself.
const giveUpAfter = 5

// leaderMaySleep holds when all live members have everything and are a majority, and nothing is
// under way. Dead members are caught up when they come back.
func (c *Core) leaderMaySleep(g *group) bool {
	if !g.serving || g.applied < g.log.last || g.transferTo != 0 || !c.quorumLive(g) || len(g.snapshots) > 0 || g.confPending > g.applied {
		return false
	}
	if !g.reached() {
		if _, wait := c.nextChange(g, g.wanted()); wait == 0 || c.live(wait.Node()) && !c.silent(g, wait) {
			return false
		}
	}
	may := true
	g.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		r := record.ReplicaID(id)
		if r != g.replica && pr.Match < g.log.last && c.live(r.Node()) && !c.silent(g, r) {
			may = false
		}
	})
	return may
}

// silent tells that a replica on a live node does not take part.
func (c *Core) silent(g *group, r record.ReplicaID) bool {
	i, ok := slices.BinarySearch(g.nodes, r.Node())
	return ok && c.now-g.answered[i] >= giveUpAfter*c.cfg.Timing.SleepAfter
}

// progress is what the leader knows of another member.
func (g *group) progress(r record.ReplicaID) (found tracker.Progress, ok bool) {
	g.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id == uint64(r) {
			found, ok = pr, true
		}
	})
	return found, ok
}

// snapshotsDue ends the wait for base records, which Raft would keep up for ever: where one was never
// confirmed, and where it was, but the log begins later by now.
func (c *Core) snapshotsDue(g *group) {
	kept := g.snapshots[:0]
	for _, s := range g.snapshots {
		pr, ok := g.progress(s.to)
		status := raft.SnapshotFailure
		switch {
		case !ok || pr.State != tracker.StateSnapshot:
			continue
		case pr.Match >= s.index:
			status = raft.SnapshotFinish
		case c.now < s.until && c.live(s.to.Node()):
			kept = append(kept, s)
			continue
		}
		c.guard(g, func() { g.rn.ReportSnapshot(uint64(s.to), status) })
		c.touch(g, true)
	}
	g.snapshots = kept
}

// settleRole draws the consequences of a change of leader, once, after what was committed
// before it has been answered.
func (c *Core) settleRole(g *group) {
	leads := g.state == raft.StateLeader
	switch {
	case leads && (g.role != RoleLeader || g.ledTerm != g.term):
		c.becomeLeader(g)
	case !leads && g.role == RoleLeader:
		g.role, g.serving = RoleFollower, false
		g.snapshots, g.transferTo, g.transferUntil, g.confPending = nil, 0, 0, 0
		if g.reason = "the leader stepped down"; g.lead != 0 && g.lead != g.replica {
			g.reason = fmt.Sprintf("node %d took over in a newer epoch", g.lead.Node())
		}
		c.dropWaiters(g, record.ErrInterrupted)
	}
	if leads {
		return
	}
	c.setLeaderless(g, g.lead == 0 && g.isVoter(g.replica))
	if g.state == raft.StateCandidate && g.candidateTerm != g.term {
		// A majority lets it stand; to campaign again before the votes are on disk would end
		// the election that is running.
		g.candidateTerm, g.campaignAt = g.term, c.now+c.voteWait(g)
		c.stirred = true
	}
}

func (c *Core) becomeLeader(g *group) {
	c.dropWaiters(g, record.ErrInterrupted)
	g.role, g.ledTerm, g.serving, g.proposed = RoleLeader, g.term, faultStaleReads, g.next
	if faultOffsetAtApply {
		g.proposed = g.appliedNext
	}
	g.snapshots, g.transferTo, g.transferUntil, g.told = nil, 0, 0, nil
	g.resetAnswered(c.now)
	g.confPending = g.log.last // Raft refuses changes until it has applied what was there
	if g.reason == "" {
		g.reason = "no leader was known"
	}
	g.reason = fmt.Sprintf("node %d was elected: %s", c.cfg.Node, g.reason)
	c.setLeaderless(g, false)
	c.wakeGroup(g)
	if faultHighTooEarly {
		g.high, g.serving = g.next, true
	}
	c.commitTo(g, g.committed)
	c.startAnew(g)
}

// followUp is what a settled group has to do next.
func (c *Core) followUp(g *group) {
	if g.role == RoleLeader {
		c.reconcile(g)
	}
	c.setStray(g, c.isStray(g))
	if len(g.held) > 0 && !c.mayHold(g) && !c.full(g) {
		c.retryHeld(g)
	}
	c.askCurrent(g)
	if view := g.part.View(); g.lead != 0 && view.Leader == g.lead.Node() && view.Epoch == record.Epoch(g.term) {
		g.reason = "" // told already
	}
}

// campaignsDue starts the elections whose time has come. The voters that live stand in an
// order that depends on the group, so that after the death of a node each survivor is first
// for its share of the groups.
func (c *Core) campaignsDue() {
	if c.failed != nil || c.now < c.nextCampaign && !c.stirred {
		return
	}
	c.stirred, c.nextCampaign = false, never
	for i := len(c.leaderless) - 1; i >= 0; i-- {
		g := c.leaderless[i]
		if !c.mayCampaign(g) {
			g.campaignAt = -1
			continue
		}
		if g.campaignAt < 0 {
			c.wakeGroup(g)
			g.campaignAt = c.now + c.campaignDelay(g)
		}
		if len(g.poll.grants) > 0 && g.poll.until <= c.now {
			c.endPoll(g)
		}
		if g.campaignAt <= c.now {
			c.campaign(g)
		}
		c.nextCampaign = min(c.nextCampaign, g.campaignAt)
		if len(g.poll.grants) > 0 {
			c.nextCampaign = min(c.nextCampaign, g.poll.until)
		}
	}
}

// campaign stands for election once and says when to try again.
func (c *Core) campaign(g *group) {
	t := c.cfg.Timing
	if g.state != raft.StateFollower && g.savesInFlight > 0 {
		g.campaignAt = c.now + t.CampaignRetry // its own vote is on the way to the disk
		return
	}
	g.campaigns++
	c.stats.Campaigns++
	c.guard(g, func() { _ = g.rn.Campaign() })
	c.touch(g, true)
	back := min(t.CampaignRetry<<min(g.campaigns-1, 4), 10*t.CampaignRetry)
	g.campaignAt = c.now + c.campaignDelay(g) + back
	if g.relaxed() {
		g.poll = poll{term: g.term + 1, until: c.now + 3*t.CampaignRetry + 2*c.pauseOf(g)}
		g.campaignAt = max(g.campaignAt, g.poll.until+t.CampaignRetry)
	}
}

// mayCampaign tells whether an election could be won here, and should be.
func (c *Core) mayCampaign(g *group) bool {
	return g.isVoter(g.replica) && c.quorumLive(g) && (len(g.conf.Voters) == 1 || !c.resigning)
}

// campaignDelay is the wait of this node's turn. A slow disk goes to the back of the row.
func (c *Core) campaignDelay(g *group) Time {
	if len(g.conf.Voters) == 1 {
		return 0
	}
	rank := c.rank(g)
	t := c.cfg.Timing
	delay := t.CampaignFirst
	if c.diskSlow() {
		delay += t.DiskSlow
	}
	if rank > 0 {
		delay += c.pauseOf(g) + Time(rank)*t.CampaignNext - t.CampaignNext/4 + Time(c.cfg.Rand.Int64N(int64(t.CampaignNext/2)))
	}
	return delay
}

// rank is how many live voters stand before this one.
func (c *Core) rank(g *group) (rank int) {
	for _, v := range g.conf.Voters {
		if v != g.replica && c.live(v.Node()) && g.standsBefore(v, g.replica) {
			rank++
		}
	}
	return rank
}

// standsBefore is the order in which voters stand. A new group is for the leader that the metadata
// prefers; what a dead node led is spread over the others.
func (g *group) standsBefore(a, b record.ReplicaID) bool {
	if g.term == newBase().Term && g.target != nil {
		if i, j := slices.Index(g.target.Voters, a), slices.Index(g.target.Voters, b); i >= 0 && j >= 0 {
			return i < j
		}
	}
	return claimHash(g.id, uint64(a.Node())) < claimHash(g.id, uint64(b.Node()))
}

// voteWait is how long a candidate gives the voters' disks, which it judges by its own, and the way there and
// back. Two that stand at the same time would do so again after the same wait: where the way is long, who comes first
// tries again first.
func (c *Core) voteWait(g *group) Time {
	t := c.cfg.Timing
	way := c.pauseOf(g)
	return Time(1+2*min(c.rank(g), 1))*way + 3*t.CampaignRetry + min(4*c.disk.took, 10*t.DiskSlow) + Time(c.cfg.Rand.Int64N(int64(t.CampaignNext)))
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
	if g.lead == 0 && g.leaderlessAt >= 0 && g.state == raft.StateFollower && (m.GetLogTerm() < term || m.GetLogTerm() == term && m.GetIndex() < last) {
		if at := c.now + c.cfg.Timing.CampaignFirst/3; g.campaignAt < 0 || at < g.campaignAt {
			g.campaignAt, c.stirred = at, true
		}
	}
}

// sendHeartbeats makes a leader heard at once. Raft takes the beat of its own clock only from a
// local sender, and real ticks would bring its next check of the majority nearer.
func (c *Core) sendHeartbeats(g *group) {
	c.step(g, &pb.Message{Type: pb.MsgBeat.Enum(), From: new(raft.LocalAppendThread)})
}
