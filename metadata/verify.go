package metadata

import (
	"cmp"
	"fmt"
	"slices"

	"edged/record"
)

// verify checks every law that a single state can show. A state made by commands always
// passes; it stands guard over what comes from a snapshot, and over the commands in tests.
func (p *Picture) verify() error {
	if p.nextGroup < firstGroup || p.nextAttempt < firstAttempt || p.nextProducer < firstProducerID {
		return fmt.Errorf("a counter is before its beginning: group %d, attempt %d, producer %d", p.nextGroup, p.nextAttempt, p.nextProducer)
	}
	for _, check := range []func() error{p.verifyNodes, p.verifyTopics, p.verifySpans, p.verifyReplicas, p.verifyTombstones} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// ascending tells that the keys of s rise strictly, so that nothing is there twice.
func ascending[T any](s []T, compare func(a, b T) int) bool {
	for i := 1; i < len(s); i++ {
		if compare(s[i-1], s[i]) >= 0 {
			return false
		}
	}
	return true
}

func (p *Picture) verifyNodes() error {
	if !ascending(p.nodes, func(a, b *Node) int { return cmp.Compare(a.ID, b.ID) }) ||
		!ascending(p.banned, func(a, b Banned) int { return cmp.Compare(a.ID, b.ID) }) {
		return fmt.Errorf("nodes are not in order")
	}
	for _, b := range p.banned {
		if p.Node(b.ID) != nil {
			return fmt.Errorf("node %d is registered and removed", b.ID)
		}
	}
	return nil
}

func (p *Picture) verifyTopics() error {
	if !ascending(p.byName, func(a, b *Topic) int { return cmp.Compare(a.Name, b.Name) }) ||
		!ascending(p.byID, func(a, b *Topic) int { return slices.Compare(a.ID[:], b.ID[:]) }) {
		return fmt.Errorf("topics are not in order")
	}
	partitions := 0
	for _, t := range p.byName {
		if err := ValidTopicName(t.Name); err != nil {
			return err
		}
		if len(t.Partitions) == 0 || t.ID == (record.TopicID{}) || p.TopicByID(t.ID) != t {
			return fmt.Errorf("topic %s has no partition, no id or another topic's", t.Name)
		}
		partitions += len(t.Partitions)
	}
	if partitions != p.partitions || partitions > MaxPartitions {
		return fmt.Errorf("%d partitions counted, %d remembered, %d allowed", partitions, p.partitions, MaxPartitions)
	}
	return nil
}

// verifySpans checks law 1 and that every partition is found by its group.
func (p *Picture) verifySpans() error {
	end := firstGroup
	for _, s := range p.spans {
		if s.first < end || s.count < 1 || s.first+record.GroupID(s.count) > p.nextGroup {
			return fmt.Errorf("group %d and the %d after it are given twice or not yet", s.first, s.count)
		}
		end = s.first + record.GroupID(s.count)
	}
	for _, t := range p.byName {
		for n, part := range t.Partitions {
			if at, ok := p.Group(part.Group); !ok || at.Partition != part || at.Topic != t || at.Number != int32(n) {
				return fmt.Errorf("%s/%d is not found by its group %d", t.Name, n, part.Group)
			}
		}
	}
	return nil
}

// verifyReplicas checks laws 2 and 3.
func (p *Picture) verifyReplicas() error {
	seen := make(map[record.ReplicaID]bool, 3*p.partitions)
	for _, t := range p.byName {
		for n, part := range t.Partitions {
			if len(part.Replicas) == 0 || len(part.Initial) == 0 {
				return fmt.Errorf("%s/%d has no replica", t.Name, n)
			}
			held := slices.Concat(part.Replicas, part.Removing)
			for i, r := range held {
				if _, twice := replicaOn(held[:i], r.Node()); twice || seen[r] {
					return fmt.Errorf("%s/%d: replica %v or its node is there twice", t.Name, n, r)
				}
				seen[r] = true
			}
			for _, r := range slices.Concat(held, part.Initial) {
				if r.Attempt() >= p.nextAttempt || r.Attempt() < firstAttempt {
					return fmt.Errorf("%s/%d: replica %v was not given yet", t.Name, n, r)
				}
			}
			for _, r := range part.Adding {
				if !slices.Contains(part.Replicas, r) {
					return fmt.Errorf("%s/%d: replica %v is being added but not wanted", t.Name, n, r)
				}
			}
		}
	}
	return nil
}

// verifyTombstones checks law 4: what may be deleted is not wanted by anybody.
func (p *Picture) verifyTombstones() error {
	if !ascending(p.tombs, func(a, b nodeTombs) int { return cmp.Compare(a.node, b.node) }) {
		return fmt.Errorf("tombstones are not in the order of nodes")
	}
	count := 0
	for _, n := range p.tombs {
		if len(n.list) == 0 || p.Node(n.node) == nil || !ascending(n.list, func(a, b Tombstone) int { return cmp.Compare(a.Group, b.Group) }) {
			return fmt.Errorf("tombstones of node %d are none, not in order, or of a node that is not there", n.node)
		}
		for _, t := range n.list {
			at, exists := p.Group(t.Group)
			if t.Replica.Node() != n.node || t.Group >= p.nextGroup || t.Replica.Attempt() >= p.nextAttempt {
				return fmt.Errorf("node %d has a tombstone for replica %v of group %d, which it never had", n.node, t.Replica, t.Group)
			}
			if exists {
				if _, held := replicaOn(slices.Concat(at.Partition.Replicas, at.Partition.Removing), n.node); held {
					return fmt.Errorf("node %d is to hold group %d and to delete it", n.node, t.Group)
				}
			}
		}
		count += len(n.list)
	}
	if count != p.tombstones || count > MaxTombstones {
		return fmt.Errorf("%d tombstones counted, %d remembered, %d allowed", count, p.tombstones, MaxTombstones)
	}
	return nil
}
