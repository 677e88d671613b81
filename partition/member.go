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
		own := a.replicaOn(c.cfg.Node)
		if own == 0 || c.failed != nil {
			a.done(c.failed)
			return
		}
		if !c.mayMake(a) {
			a.done(record.ErrNotReady)
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
		// On disk before the first entry that is confirmed without an fsync: a restart must
		// know that its log may have been longer.
		c.writeCheckpoint(g, true)
	}
	if g.role == RoleLeader {
		c.wakeGroup(g)
	}
	c.touch(g, true)
}

// replicaOn is the replica that an assignment gives to a node, 0 if none.
func (a *Assignment) replicaOn(n record.NodeID) record.ReplicaID {
	for _, rs := range [...][]record.ReplicaID{a.Voters, a.Learners} {
		for _, r := range rs {
			if r.Node() == n {
				return r
			}
		}
	}
	return 0
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
			Applied: s.Base.Index, Confs: []storage.ConfAt{{Index: s.Base.Index, Conf: storage.ConfState{Voters: slices.Clone(a.Initial), Learners: slices.Clone(a.InitialLearners)}}},
			State: checkpointState{kind: a.Machine, relaxed: a.Relaxed, index: s.Base.Index, commit: s.Base.Index, state: a.InitialState}.encode(),
		}
	} else {
		s.Checkpoint = storage.Checkpoint{Confs: []storage.ConfAt{{}}, State: checkpointState{kind: a.Machine, relaxed: a.Relaxed}.encode()}
	}
	s.LastIndex, s.NextOffset = s.Base.Index, s.Base.NextOffset
	return c.found(s, a.done)
}

// found opens a replica that begins with s and puts it on disk.
func (c *Core) found(s storage.GroupState, done func(error)) *group {
	g := c.open(s, false)
	for _, p := range c.peers {
		p.dispute.askAt = disputes // who leads it may sleep
	}
	c.pushSave(g, Save{Sync: true, then: done, Update: storage.Update{
		Group: g.id, Replica: g.replica, Class: g.class, Reset: &s.Base, HardState: &s.HardState, Checkpoint: &s.Checkpoint,
	}})
	return g
}

// empty puts an empty log in the place of a replica's, which keeps its id.
func (c *Core) empty(g *group, hs storage.HardState, done func(error)) {
	c.retire(g, record.ErrInterrupted)
	g.role, g.lead = RoleNone, 0
	c.stand(g)
	c.forget(g)
	g.part.lower()
	fresh := c.found(storage.GroupState{
		Group: g.id, Replica: g.replica, Class: g.class, HardState: hs,
		Checkpoint: storage.Checkpoint{Confs: []storage.ConfAt{{}}, State: checkpointState{kind: g.kind, relaxed: g.relaxed()}.encode()},
	}, done)
	fresh.target = g.target
}

// refill empties a damaged replica. It votes for nobody in the epoch that it knew.
func (c *Core) refill(r *RefillReplica) {
	g := c.find(r.Group)
	switch {
	case c.failed != nil:
		r.Done(c.failed)
		return
	case g == nil || g.damaged == nil:
		r.Done(record.ErrRefused)
		return
	}
	g.replica, g.kind = r.Replica, r.Machine
	hs := g.log.hs
	if hs.Term > 0 && hs.Vote == 0 {
		hs.Vote = r.Replica // it may have voted and forgotten
	}
	c.log.Info("the damaged replica begins anew, empty", "group", g.id, "why", g.damaged)
	c.empty(g, hs, r.Done)
}

// forget takes a group out of the Core. Saves of it that are in flight mean nothing any more.
func (c *Core) forget(g *group) {
	g.removed = true
	delete(c.groups, g.id)
	c.order = slices.DeleteFunc(c.order, func(o *group) bool { return o == g })
}

// removeReplica forgets a replica for good, by command or by a tombstone that names it. If
// another replica of the group was assigned to this node meanwhile, it is made now.
func (c *Core) removeReplica(r *RemoveReplica) {
	g := c.find(r.Group)
	unnamed := g != nil && g.damaged != nil && g.replica == 0 // what was spoiled is which one it is
	if g == nil || g.replica != r.Replica && !unnamed {
		// It is gone already, or another life of it is here. That it went may still be on its
		// way to the disk.
		c.queueSave(nil, Save{Sync: true, empty: true, then: r.Done})
		return
	}
	g.role, g.lead, g.serving, g.damaged = RoleNone, 0, false, nil
	c.retire(g, record.ErrUnknownPartition)
	c.forget(g)
	g.part.view.Store(&View{Leader: record.NoNode, Epoch: record.NoEpoch})
	g.part.wake()
	c.queueSave(g, Save{Sync: true, then: r.Done, Update: storage.Update{Group: g.id, Replica: g.replica, Remove: true}})
	if g.target != nil && g.target.replicaOn(c.cfg.Node) > r.Replica {
		a := *g.target
		a.Done = nil
		c.configure(&a)
	}
}

// applyConf makes a committed configuration change take effect.
func (c *Core) applyConf(g *group, e *pb.Entry) error {
	cc, err := confChange(e)
	if err != nil {
		return fmt.Errorf("entry %d: configuration change: %w", e.GetIndex(), err)
	}
	c.setConf(g, confFromRaft(g.rn.ApplyConfChange(cc)))
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
	t := g.wanted()
	if t == nil || len(t.Voters) == 0 {
		return true
	}
	return len(g.conf.VotersOutgoing) == 0 && len(g.conf.LearnersNext) == 0 &&
		sameSet(g.conf.Voters, t.Voters) && sameSet(g.conf.Learners, t.Learners)
}

// wanted is the assignment that a leader brings about, nil if there is none or if it is of
// another epoch.
func (g *group) wanted() *Assignment {
	if g.target != nil && g.target.Machine == MetadataLog && uint64(g.target.Epoch) != g.term {
		return nil
	}
	return g.target
}

// sameSet compares two lists of a few replicas, each named once.
func sameSet(a, b []record.ReplicaID) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(r record.ReplicaID) bool { return !slices.Contains(b, r) })
}

// reconcile takes the next step from the configuration that is to the one that was asked for: one
// change at a time, learners before voters, nobody removed before the new ones are in.
func (c *Core) reconcile(g *group) {
	if !g.serving || g.confPending > g.applied || g.transferTo != 0 {
		return
	}
	if len(g.conf.VotersOutgoing) > 0 {
		// Raft leaves a joint configuration by itself, but tries only while it applies: a
		// transfer may have been in the way then.
		if g.applied == g.log.last {
			c.proposeConf(g)
		}
		return
	}
	t := g.wanted()
	if t == nil {
		return
	}
	if !g.reached() {
		switch changes, wait := c.nextChange(g, t); {
		case len(changes) > 0:
			c.proposeConf(g, changes...)
		case wait == 0:
			c.handOver(g, t.Voters, "this replica is to leave")
		}
		return
	}
	if c.cfg.OnConfigured != nil && g.told != t {
		g.told = t
		c.cfg.OnConfigured(g.id, g.conf.Voters, g.conf.Learners)
	}
}

// nextChange is the next change towards the assignment. Without one, wait is the replica that has
// to catch up first, 0 if this replica is to leave and hands over.
func (c *Core) nextChange(g *group, t *Assignment) (changes []*pb.ConfChangeSingle, wait record.ReplicaID) {
	members := g.members()
	for _, r := range slices.Concat(t.Voters, t.Learners) {
		if !slices.Contains(members, r) {
			return []*pb.ConfChangeSingle{change(pb.ConfChangeAddLearnerNode, r)}, 0
		}
	}
	if !sameSet(g.conf.Voters, t.Voters) {
		return c.changeVoters(g, t)
	}
	for _, r := range g.conf.Learners {
		if !slices.Contains(t.Learners, r) {
			return []*pb.ConfChangeSingle{change(pb.ConfChangeRemoveNode, r)}, 0
		}
	}
	return nil, 0
}

// changeVoters promotes and demotes in one joint change, as soon as the new voters have caught up and
// most of those that will vote then live. A leader that is to go hands over first, so that the group is
// never without one.
func (c *Core) changeVoters(g *group, t *Assignment) (changes []*pb.ConfChangeSingle, wait record.ReplicaID) {
	for _, r := range t.Voters {
		if slices.Contains(g.conf.Voters, r) {
			continue
		}
		pr, ok := g.progress(r)
		if !ok || !c.live(r.Node()) || pr.State != tracker.StateReplicate || pr.Match+promoteWithin < g.log.last {
			return nil, r
		}
		changes = append(changes, change(pb.ConfChangeAddNode, r))
	}
	if dead := slices.IndexFunc(t.Voters, func(r record.ReplicaID) bool { return !c.live(r.Node()) }); dead >= 0 && !c.mostLive(t.Voters) {
		return nil, t.Voters[dead]
	}
	for _, r := range g.conf.Voters {
		if r != g.replica && !slices.Contains(t.Voters, r) {
			changes = append(changes, change(pb.ConfChangeAddLearnerNode, r))
		}
	}
	return changes, 0
}

func change(t pb.ConfChangeType, r record.ReplicaID) *pb.ConfChangeSingle {
	return &pb.ConfChangeSingle{Type: t.Enum(), NodeId: new(uint64(r))}
}

// proposeConf proposes a change; none at all means to leave a joint configuration.
func (c *Core) proposeConf(g *group, changes ...*pb.ConfChangeSingle) {
	cc := &pb.ConfChangeV2{Changes: changes, Transition: pb.ConfChangeTransitionAuto.Enum()}
	if err := g.rn.ProposeConfChange(cc); err != nil {
		return // a transfer or a full log; tried again at the next turn
	}
	g.confPending = confProposed
	c.wakeGroup(g)
	c.touch(g, true)
}
