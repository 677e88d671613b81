package metadata

import (
	"fmt"
	"math"
	"slices"

	"edged/record"
)

const firstAttempt = 2 // MetadataReplica has attempt 1

// SetReplicas gives a partition a new target: these nodes, the preferred leader first.
// Nodes that hold a replica keep it, new nodes get one under a fresh id, and those left
// out go to Removing. The result is SetReplicasResult. It is refused with ErrBusy while
// MaxRemoving replicas are on their way out, and for a node that has an older replica of
// the group still to be removed or deleted: a node never has two of one group.
type SetReplicas struct {
	Group record.GroupID
	Nodes []record.NodeID
	// Was is the target that the proposer saw. If it is not empty and not the target any
	// more, the command is refused, because it was decided on an old picture.
	Was []record.ReplicaID
}

// SetReplicasResult is the partition as it is now.
type SetReplicasResult struct{ Location }

func (*SetReplicas) kind() kind { return kindSetReplicas }

func (c *SetReplicas) fields(x *codec) {
	x.group("group", &c.Group)
	list(x, "nodes", &c.Nodes, MaxReplication, func(n *record.NodeID) { x.node("node id", n) })
	list(x, "replicas", &c.Was, MaxReplication, func(r *record.ReplicaID) { x.replica("replica id", r) })
}

func (c *SetReplicas) apply(p *Picture) (*Picture, any, error) {
	at, err := p.located(c.Group)
	if err != nil {
		return nil, nil, err
	}
	old := at.Partition
	if err := c.check(p, old); err != nil {
		return nil, nil, fmt.Errorf("replicas of %s/%d: %w", at.Topic.Name, at.Number, err)
	}
	next := *p
	part := &Partition{Group: old.Group, Initial: old.Initial, Removing: slices.Clone(old.Removing)}
	for _, n := range c.Nodes {
		r, has := replicaOn(old.Replicas, n)
		if !has {
			r = next.newReplica(n)
		}
		part.Replicas = append(part.Replicas, r)
		if !has || slices.Contains(old.Adding, r) {
			part.Adding = append(part.Adding, r)
		}
	}
	for _, r := range old.Replicas {
		if !slices.Contains(part.Replicas, r) {
			part.Removing = append(part.Removing, r)
		}
	}
	if slices.Equal(part.Replicas, old.Replicas) {
		return p, SetReplicasResult{at}, nil
	}
	out, at := next.withPartition(at, part)
	return out, SetReplicasResult{at}, nil
}

func (c *SetReplicas) check(p *Picture, old *Partition) error {
	if len(c.Was) > 0 && !slices.Equal(c.Was, old.Replicas) {
		return fmt.Errorf("they are not what this change was decided on: %w", record.ErrRefused)
	}
	if len(c.Nodes) == 0 {
		return fmt.Errorf("no node is named: %w", record.ErrInvalidRequest)
	}
	if err := p.checkTargets(c.Nodes, old.Replicas); err != nil {
		return err
	}
	kept := slices.DeleteFunc(slices.Clone(old.Replicas), func(r record.ReplicaID) bool { return !slices.Contains(c.Nodes, r.Node()) })
	if len(old.Removing)+len(old.Replicas)-len(kept) > MaxRemoving {
		return fmt.Errorf("%d replicas are still to be removed; retry: %w", len(old.Removing), record.ErrBusy)
	}
	loads := p.Loads()
	var fresh uint32
	for _, n := range c.Nodes {
		if _, has := replicaOn(old.Replicas, n); has {
			continue
		}
		fresh++
		if p.holdsOld(old, n) {
			return fmt.Errorf("node %d has an older replica still to be removed; retry: %w", n, record.ErrBusy)
		}
		if loads[n].Replicas >= MaxReplicasPerNode {
			return fmt.Errorf("node %d holds %d replicas, the most it can: %w", n, MaxReplicasPerNode, record.ErrLimit)
		}
	}
	return p.checkAttempts(fresh)
}

// holdsOld tells that node has a replica of the group that is on its way out.
func (p *Picture) holdsOld(part *Partition, node record.NodeID) bool {
	_, removing := replicaOn(part.Removing, node)
	_, tombstone := findTombstone(p.Tombstones(node), part.Group)
	return removing || tombstone
}

// ReplicasChanged is what a partition's leader reports when a change of the Raft
// configuration was applied: which replicas are voters now, and which the configuration
// does not contain any more, so that their nodes may delete them. Naming a replica again,
// or one that is of no interest, does no harm. A leader reports only what the
// configuration says that it has applied, never what it is about to do. The result is nil.
type ReplicasChanged struct {
	Group   record.GroupID
	Added   []record.ReplicaID
	Removed []record.ReplicaID
}

func (*ReplicasChanged) kind() kind { return kindReplicasChanged }

func (c *ReplicasChanged) fields(x *codec) {
	x.group("group", &c.Group)
	list(x, "added", &c.Added, MaxNodes, func(r *record.ReplicaID) { x.replica("replica id", r) })
	list(x, "removed", &c.Removed, MaxNodes, func(r *record.ReplicaID) { x.replica("replica id", r) })
}

func (c *ReplicasChanged) apply(p *Picture) (*Picture, any, error) {
	at, err := p.located(c.Group)
	if err != nil {
		return nil, nil, err
	}
	part := *at.Partition
	part.Adding = without(part.Adding, c.Added)
	part.Removing = without(part.Removing, c.Removed)
	if len(part.Adding) == len(at.Partition.Adding) && len(part.Removing) == len(at.Partition.Removing) {
		return p, nil, nil
	}
	var dead []Tombstone
	for _, r := range at.Partition.Removing {
		if !slices.Contains(part.Removing, r) {
			dead = append(dead, Tombstone{part.Group, r})
		}
	}
	next, err := p.withTombstones(dead)
	if err != nil {
		return nil, nil, fmt.Errorf("replicas of %s/%d: %w", at.Topic.Name, at.Number, err)
	}
	next, _ = next.withPartition(at, &part)
	return next, nil, nil
}

// located finds a group or says that there is none.
func (p *Picture) located(g record.GroupID) (Location, error) {
	at, ok := p.Group(g)
	if !ok {
		return at, fmt.Errorf("group %d: %w", g, record.ErrUnknownPartition)
	}
	return at, nil
}

// withPartition gives a picture in which part takes the place of the partition at.
func (p *Picture) withPartition(at Location, part *Partition) (*Picture, Location) {
	t := *at.Topic
	t.Partitions = replaced(t.Partitions, int(at.Number), part)
	return p.withTopic(&t), Location{&t, at.Number, part}
}

// newReplica draws a replica id. Only for a picture that is being made.
func (p *Picture) newReplica(node record.NodeID) record.ReplicaID {
	r := record.MakeReplicaID(node, p.nextAttempt)
	p.nextAttempt++
	return r
}

// checkAttempts tells whether n more replica ids can be drawn.
func (p *Picture) checkAttempts(n uint32) error {
	if p.nextAttempt > math.MaxUint32-n {
		return fmt.Errorf("replica ids are used up: %w", record.ErrLimit)
	}
	return nil
}

// without gives the replicas of rs that are not in these.
func without(rs, these []record.ReplicaID) []record.ReplicaID {
	var out []record.ReplicaID
	for _, r := range rs {
		if !slices.Contains(these, r) {
			out = append(out, r)
		}
	}
	return out
}
