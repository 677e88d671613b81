package partition

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"edged/record"
)

// Role is what a replica is in its group.
type Role uint8

// The roles. A candidate counts as a follower without a leader.
const (
	RoleNone Role = iota // no replica here
	RoleFollower
	RoleLeader
	RoleDamaged
)

func (r Role) String() string {
	return [...]string{"none", "follower", "leader", "damaged"}[r]
}

// View is what others may know of a group at one moment.
type View struct {
	Role    Role
	Replica record.ReplicaID
	Leader  record.NodeID // NoNode while there is none
	Epoch   record.Epoch
	// Serving tells that this leader has committed an entry of its own epoch: only then
	// does it know the high watermark (law 4).
	Serving bool
	// Learners has those too that lose their vote in a change under way.
	Voters, Learners []record.ReplicaID
	// Lagging are those that are not in sync, as the leader of an epoch found them last (Core.Lagging). Nobody else knows.
	Lagging []record.ReplicaID
	Err     error // why a damaged replica is out of service
}

// Partition is a group as the rest of the node sees it. The Core writes it, anyone reads it.
//
// logStart <= high and readable <= high; none of them goes back while the replica lives, unless it is
// of a relaxed group and has to start over. high is the end of what is committed.
type Partition struct {
	Group    record.GroupID
	view     atomic.Pointer[View]
	logStart atomic.Int64
	high     atomic.Int64
	readable atomic.Int64
	applied  atomic.Uint64

	mu struct {
		sync.Mutex
		changed chan struct{} // closed at the next change; nil while nobody waits
	}
}

// NewPartition makes the view of a group that has no replica here yet.
func NewPartition(id record.GroupID) *Partition {
	p := &Partition{Group: id}
	p.view.Store(&View{Leader: record.NoNode, Epoch: record.NoEpoch})
	return p
}

// View is the state as of now.
func (p *Partition) View() *View { return p.view.Load() }

// LogStart is the first offset that readers may ask for.
func (p *Partition) LogStart() record.Offset { return record.Offset(p.logStart.Load()) }

// HighWatermark is the offset after the last committed record that this replica knows of.
func (p *Partition) HighWatermark() record.Offset { return record.Offset(p.high.Load()) }

// Readable is the end of what is committed and also on this node's own disk: as far as its store
// can be read. It trails the high watermark while the others' disks are quicker.
func (p *Partition) Readable() record.Offset { return record.Offset(p.readable.Load()) }

// Applied is an entry of the log that has taken effect, with all before it. What is read of the group's
// state machine after it has that entry in it.
func (p *Partition) Applied() uint64 { return p.applied.Load() }

// Changed returns a channel that is closed when anything of the view changes after the call.
func (p *Partition) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.changed == nil {
		p.mu.changed = make(chan struct{})
	}
	return p.mu.changed
}

// WaitAbove returns when there is something to read after offset, when this replica no longer leads
// in the epoch it led in at the call, or when ctx ends (with its error).
func (p *Partition) WaitAbove(ctx context.Context, offset record.Offset) error {
	epoch := p.View().Epoch
	for {
		changed := p.Changed()
		if v := p.View(); p.Readable() > offset || v.Role != RoleLeader || v.Epoch != epoch {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p *Partition) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.changed != nil {
		close(p.mu.changed)
		p.mu.changed = nil
	}
}

// publish shows others what has changed.
func (c *Core) publish(g *group) {
	leader, epoch := record.NoNode, record.Epoch(g.term)
	if g.lead != 0 {
		leader = g.lead.Node()
	}
	var lagging []record.ReplicaID
	if g.role == RoleLeader && g.sync.term == g.term {
		lagging = g.sync.lagging
	}
	old := g.part.View()
	changed := g.confMoved || old.Role != g.role || old.Leader != leader || old.Epoch != epoch || old.Serving != g.serving ||
		old.Err != g.damaged || old.Replica != g.replica || !slices.Equal(old.Lagging, lagging)
	if changed {
		g.confMoved = false
		g.part.view.Store(&View{
			Role: g.role, Replica: g.replica, Leader: leader, Epoch: epoch, Serving: g.serving,
			Voters: g.conf.Voters, Learners: slices.Concat(g.conf.Learners, g.conf.LearnersNext), Lagging: lagging, Err: g.damaged,
		})
	}
	g.part.applied.Store(g.applied)
	moved := raise(&g.part.high, g.high)
	moved = raise(&g.part.readable, g.endAt(min(g.committed, g.log.durable))) || moved
	// A base record may begin inside its first batch, before that batch has come.
	moved = raise(&g.part.logStart, min(g.logStart, g.part.HighWatermark())) || moved
	if changed || moved {
		g.part.wake()
	}
	if old.Leader != leader || old.Epoch != epoch {
		c.stats.LeaderChanges++
		if c.cfg.OnLeader != nil {
			c.cfg.OnLeader(LeaderChange{Group: g.id, Leader: leader, Epoch: epoch, Reason: g.reasonText(leader)})
		}
	}
}

// lower forgets the offsets of a log that is given up.
func (p *Partition) lower() {
	for _, a := range [...]*atomic.Int64{&p.logStart, &p.readable, &p.high} {
		a.Store(0)
	}
	p.wake()
}

// raise moves an offset forward and tells whether it did.
func raise(a *atomic.Int64, to record.Offset) bool {
	if int64(to) <= a.Load() {
		return false
	}
	a.Store(int64(to))
	return true
}
