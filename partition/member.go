package partition

import (
	"fmt"
	"slices"

	"edged/record"
	"edged/storage"

	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// confProposed stands for the index of a configuration change until Raft has given it one.
const confProposed = ^uint64(0)

// promoteWithin is how many entries a learner may be behind to become a voter.
const promoteWithin = 64

// configure takes what the metadata says of a group. A replica that is named and absent is made;
// nothing is removed here.
func (c *Core) configure(a *Assignment) {
	g := c.find(a.Group)
	if g == nil {
		own := record.ReplicaID(0)
		for _, r := range slices.Concat(a.Voters, a.Learners) {
			if r.Node() == c.cfg.Node {
				own = r
			}
		}
		if own == 0 || c.failed != nil {
			a.done(c.failed)
			return
		}
		g = c.create(a, own)
	} else {
		a.done(g.damaged)
	}
	relaxed := g.relaxed()
	g.target = a
	if g.damaged != nil || c.failed != nil {
		return
	}
	g.class = a.Class
	if relaxed != g.relaxed() {
		c.checkpoint(g, true)
	}
	if g.role == RoleLeader {
		c.wakeGroup(g)
	}
	c.touch(g, true)
}

func (a *Assignment) done(err error) {
	if a.Done != nil {
		a.Done(err)
	}
}

// create makes the local replica of a group: with the beginning that all initial voters share,
// or empty, to be filled by the leader.
func (c *Core) create(a *Assignment, own record.ReplicaID) *group {
	s := storage.GroupState{Group: a.Group, Replica: own, Class: a.Class}
	if slices.Contains(a.Initial, own) {
		s.Base = newBase()
		s.HardState.Term = s.Base.Term
		s.Checkpoint = storage.Checkpoint{
			Applied: s.Base.Index, Confs: []storage.ConfAt{{Index: s.Base.Index, Conf: storage.ConfState{Voters: slices.Clone(a.Initial)}}},
			State: checkpointState(a.Relaxed, s.Base.Index, a.InitialState),
		}
	} else {
		s.Checkpoint = storage.Checkpoint{Confs: []storage.ConfAt{{}}, State: checkpointState(a.Relaxed, 0, nil)}
	}
	s.LastIndex, s.NextOffset = s.Base.Index, s.Base.NextOffset
	c.open(s)
	g := c.groups[a.Group]
	base, hs, cp := s.Base, s.HardState, s.Checkpoint
	c.pushSave(g, Save{Sync: true, then: a.done, Update: storage.Update{
		Group: a.Group, Replica: own, Class: a.Class, Reset: &base, HardState: &hs, Checkpoint: &cp,
	}})
	return g
}

// removeReplica forgets a replica for good, by command or by a tombstone that names it.
func (c *Core) removeReplica(r *RemoveReplica) {
	g := c.find(r.Group)
	if g == nil || g.replica != r.Replica {
		r.Done(nil) // it is gone already, or another life of it is here
		return
	}
	c.dropWaiters(g, record.ErrUnknownPartition)
	c.setAwake(g, false)
	c.setLeaderless(g, false)
	c.cacheBytes -= g.log.bytes
	g.log.cache, g.log.bytes = nil, 0
	delete(c.groups, g.id)
	c.order = slices.DeleteFunc(c.order, func(o *group) bool { return o == g })
	g.role, g.lead, g.serving, g.damaged = RoleNone, 0, false, nil
	g.removed = true
	g.part.view.Store(&View{Leader: record.NoNode, Epoch: record.NoEpoch})
	g.part.wake()
	c.saves = append(c.saves, Save{group: g, Sync: true, then: r.Done,
		Update: storage.Update{Group: g.id, Replica: g.replica, Remove: true}})
}

// applyConf makes a committed configuration change take effect.
func (c *Core) applyConf(g *group, e *pb.Entry) error {
	cc, err := confChange(e)
	if err != nil {
		return fmt.Errorf("entry %d: configuration change: %w", e.GetIndex(), err)
	}
	g.conf, g.confMoved = confFromRaft(g.rn.ApplyConfChange(cc)), true
	g.log.confs = append(g.log.confs, storage.ConfAt{Index: e.GetIndex(), Conf: g.conf})
	if g.confPending <= e.GetIndex() {
		g.confPending = 0
	}
	c.log.Info("configuration changed", "group", g.id, "voters", g.conf.Voters, "learners", g.conf.Learners, "leaving", g.conf.VotersOutgoing)
	return nil
}

// confRefused notices that Raft put an empty entry in place of a configuration change that it did
// not want: it says so in no other way.
func (c *Core) confRefused(g *group, index uint64) {
	if g.confPending == index {
		g.confPending = 0
	}
}

// reached tells whether the configuration is the one that the assignment asks for.
func (g *group) reached() bool {
	if g.target == nil || len(g.target.Voters) == 0 {
		return true
	}
	return len(g.conf.VotersOutgoing) == 0 && len(g.conf.LearnersNext) == 0 &&
		sameSet(g.conf.Voters, g.target.Voters) && sameSet(g.conf.Learners, g.target.Learners)
}

func sameSet(a, b []record.ReplicaID) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

func (c *Core) reconcilePending(g *group) bool { return g.role == RoleLeader && !g.reached() }

// reconcile takes the next step from the configuration that is to the one that was asked for: one
// change at a time, learners before voters, nobody removed before the new ones are in.
func (c *Core) reconcile(g *group) {
	if g.target == nil || !g.serving || g.confPending > g.applied || len(g.conf.VotersOutgoing) > 0 {
		return
	}
	if g.reached() {
		if c.cfg.OnConfigured != nil && g.told != g.target {
			g.told = g.target
			c.cfg.OnConfigured(g.id, g.conf.Voters, g.conf.Learners)
		}
		return
	}
	t := g.target
	members := g.members()
	for _, r := range slices.Concat(t.Voters, t.Learners) {
		if !slices.Contains(members, r) {
			c.proposeConf(g, change(pb.ConfChangeAddLearnerNode, r))
			return
		}
	}
	if !sameSet(g.conf.Voters, t.Voters) {
		c.changeVoters(g, t)
		return
	}
	for _, r := range g.conf.Learners {
		if !slices.Contains(t.Learners, r) {
			c.proposeConf(g, change(pb.ConfChangeRemoveNode, r))
			return
		}
	}
}

// changeVoters promotes and demotes in one joint change, as soon as the new voters have caught up. A
// leader that is to go hands over first, so that the group is never without one.
func (c *Core) changeVoters(g *group, t *Assignment) {
	progress := g.rn.Status().Progress
	var changes []*pb.ConfChangeSingle
	for _, r := range t.Voters {
		if slices.Contains(g.conf.Voters, r) {
			continue
		}
		pr := progress[uint64(r)]
		if !c.live(r.Node()) || pr.State != tracker.StateReplicate || pr.Match+promoteWithin < g.log.last {
			return
		}
		changes = append(changes, change(pb.ConfChangeAddNode, r))
	}
	for _, r := range g.conf.Voters {
		if slices.Contains(t.Voters, r) {
			continue
		}
		if r == g.replica {
			if len(changes) == 0 {
				for _, v := range t.Voters {
					if c.startTransfer(g, v, "this replica is to leave") {
						return
					}
				}
			}
			continue
		}
		changes = append(changes, change(pb.ConfChangeAddLearnerNode, r))
	}
	if len(changes) > 0 {
		c.proposeConf(g, changes...)
	}
}

func change(t pb.ConfChangeType, r record.ReplicaID) *pb.ConfChangeSingle {
	return &pb.ConfChangeSingle{Type: t.Enum(), NodeId: new(uint64(r))}
}

func (c *Core) proposeConf(g *group, changes ...*pb.ConfChangeSingle) {
	cc := &pb.ConfChangeV2{Changes: changes, Transition: pb.ConfChangeTransitionAuto.Enum()}
	if err := g.rn.ProposeConfChange(cc); err != nil {
		return // a transfer or a full log; tried again at the next turn
	}
	g.confPending = confProposed
	c.wakeGroup(g)
	c.touch(g, true)
}
