package partition

import (
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
)

// slowFor is how long a disk counts as slow after a slow commit that no quick one followed. It
// ends by itself: a node that leads nothing may have nothing to write.
const slowFor = 10 * time.Second

// diskState is what the log writer's commits tell about this node's disk.
type diskState struct {
	took      Time // the last commit
	slowUntil Time
	pending   int  // saves handed over and not reported
	since     Time // since when nothing was reported though something is pending
	slow      bool // the pending commit was found slow
	stalled   bool // and stalled
	full      bool // nearly: no records are taken from producers
	tight     bool // nor from leaders elsewhere: only what makes room is written, and what is small
}

// handed notes that the log writer has one save more to do.
func (d *diskState) handed(now Time) {
	if d.pending == 0 {
		d.since = now
	}
	d.pending++
}

// reported judges a commit by how long it took: a slow disk takes no new leadership.
func (d *diskState) reported(now Time, saves int, took Time, t *Timing) {
	d.took = took
	d.pending -= saves
	d.since, d.slow, d.stalled = now, false, false
	if d.slowUntil = 0; took > t.DiskSlow {
		d.slowUntil = now + slowFor
	}
}

// due is when the commit that is pending will be slow, or stalled.
func (d *diskState) due(t *Timing) Time {
	switch {
	case d.pending == 0 || d.stalled:
		return never
	case d.slow:
		return d.since + t.DiskStalled + time.Millisecond
	}
	return d.since + t.DiskSlow + time.Millisecond
}

// diskSlow tells that this node should not be given leadership if another can take it.
func (c *Core) diskSlow() bool { return c.disk.slow || c.disk.full || c.now < c.disk.slowUntil }

// diskRoom is told again and again while the disk is full: a peer that can take over may come later.
func (c *Core) diskRoom(ev DiskRoom) {
	full := ev.Full
	c.disk.tight = ev.Tight
	switch {
	case full && !c.disk.full:
		c.log.Warn("the disk is nearly full: taking no records, giving leadership away")
	case !full && c.disk.full:
		c.log.Info("the disk has room again")
	}
	c.disk.full = full
	if full && c.failed == nil {
		c.giveAway("is full")
	}
}

// needsFull tells that a group led here has no majority of live voters without a full disk. It takes no records
// then: behind those that nobody can commit the log start could not move either, and nothing would make room.
func (c *Core) needsFull(g *group) bool {
	full, roomy := 0, 0
	for _, v := range g.conf.Voters {
		s := c.sessions[v.Node()]
		switch {
		case v == g.replica && !c.disk.full:
			roomy++
		case s == nil || !c.live(v.Node()):
		case s.fullDisk:
			full++
		default:
			roomy++
		}
	}
	return full > 0 && roomy <= len(g.conf.Voters)/2
}

// giveAway hands over all that is led here and has somewhere to go, because of the disk.
func (c *Core) giveAway(why string) {
	for _, g := range c.order {
		if g.role == RoleLeader {
			c.handOver(g, g.byPreference(), fmt.Sprintf("the disk of node %d %s", c.cfg.Node, why))
		}
	}
}

// watchDisk notices a commit that does not come back. A leader needs no disk of its own to commit
// what the others have on theirs, so a stalled disk would keep its leadership for ever.
func (c *Core) watchDisk() {
	d := &c.disk
	if c.now < d.due(&c.cfg.Timing) {
		return
	}
	if !d.slow {
		d.slow = true
		return
	}
	d.stalled = true
	c.log.Warn("the disk stalled: giving leadership away", "waiting", c.now-d.since)
	c.giveAway("stalled")
}

// holdsBatch tells whether entries bring records. The rest is small, and some of it makes room.
func (g *group) holdsBatch(entries []*pb.Entry) bool {
	return g.machine == nil && slices.ContainsFunc(entries, func(e *pb.Entry) bool {
		return e.GetType() == pb.EntryNormal && len(e.GetData()) > 0 && e.GetData()[0] < controlMin
	})
}
