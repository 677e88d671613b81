package partition

import (
	"context"
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
	Serving          bool
	Voters, Learners []record.ReplicaID
	Err              error // why a damaged replica is out of service
}

// Partition is a group as the rest of the node sees it. The Core writes it, anyone reads it.
//
// logStart <= high, and high never goes back: it is the end of what is committed.
type Partition struct {
	Group    record.GroupID
	view     atomic.Pointer[View]
	logStart atomic.Int64
	high     atomic.Int64

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

// Changed returns a channel that is closed when anything of the view changes after the call.
func (p *Partition) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.changed == nil {
		p.mu.changed = make(chan struct{})
	}
	return p.mu.changed
}

// WaitAbove returns when the high watermark passes offset, when this replica no longer leads in
// the epoch it led in at the call, or when ctx ends (with its error).
func (p *Partition) WaitAbove(ctx context.Context, offset record.Offset) error {
	epoch := p.View().Epoch
	for {
		changed := p.Changed()
		if v := p.View(); p.HighWatermark() > offset || v.Role != RoleLeader || v.Epoch != epoch {
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
	old := g.part.View()
	v := View{
		Role: g.role, Replica: g.replica, Leader: record.NoNode, Epoch: record.Epoch(g.term), Serving: g.serving,
		Voters: g.conf.Voters, Learners: g.conf.Learners, Err: g.damaged,
	}
	if g.lead != 0 {
		v.Leader = g.lead.Node()
	}
	changed := false
	if old.Role != v.Role || old.Leader != v.Leader || old.Epoch != v.Epoch || old.Serving != v.Serving ||
		old.Err != v.Err || old.Replica != v.Replica || g.confMoved {
		g.confMoved = false
		g.part.view.Store(&v)
		changed = true
	}
	if h := int64(g.high); h > g.part.high.Load() {
		g.part.high.Store(h)
		changed = true
	}
	if s := int64(g.logStart); s != g.part.logStart.Load() {
		g.part.logStart.Store(s)
		changed = true
	}
	if changed {
		g.part.wake()
	}
	if old.Leader != v.Leader || old.Epoch != v.Epoch {
		c.stats.LeaderChanges++
		if c.cfg.OnLeader != nil {
			c.cfg.OnLeader(LeaderChange{Group: g.id, Leader: v.Leader, Epoch: v.Epoch, Reason: g.reasonText(v.Leader)})
		}
	}
}
