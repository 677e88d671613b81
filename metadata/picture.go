package metadata

import (
	"cmp"
	"slices"

	"edged/record"
)

// Picture is the whole metadata at one moment. It is immutable, and so is everything
// reached through it: a command makes a new one that shares all that did not change, so
// that a change to one partition of a thousand copies pointers and nothing else. Slices
// and pointers it gives out must not be written to.
//
// Everything is kept in sorted slices rather than maps: they are found by binary search,
// copied by one allocation, and always walked in the same order.
type Picture struct {
	cluster record.ClusterID
	name    string
	created int64

	nodes  []*Node  // by ID
	banned []Banned // by ID
	byName []*Topic // by Name
	byID   []*Topic // by ID, the same topics
	spans  []span   // by first, disjoint; every partition is in exactly one
	tombs  []nodeTombs

	partitions int // of all topics
	tombstones int // of all nodes

	nextGroup    record.GroupID // greater than every group id given
	nextAttempt  uint32         // greater than every attempt given
	nextProducer int64          // greater than every producer id given
}

// Topic is one topic. A topic that was changed is another value.
type Topic struct {
	Name       string
	ID         record.TopicID
	Created    int64 // milliseconds since 1970, by the clock of the node that asked
	Class      uint8 // retention class for storage, 0 to 7; given at creation and never changed
	Settings   map[string]string
	Configs    Configs // what Settings and the defaults mean
	Partitions []*Partition
}

// Partition is one Raft group's target. Its index in Topic.Partitions is its number.
type Partition struct {
	Group record.GroupID
	// Replicas is the target, the preferred leader first. Never empty.
	Replicas []record.ReplicaID
	// Initial are the voters the group began with. A replica in it starts the group from
	// this configuration; every other one starts empty and waits for the leader.
	Initial []record.ReplicaID
	// Adding are those of Replicas that the leader has not yet reported as voters.
	Adding []record.ReplicaID
	// Removing left the target, and the leader has not yet reported that the Raft
	// configuration is without them. They keep their data and their vote until then.
	Removing []record.ReplicaID
}

// span says that the count groups from first on are the partitions of a topic from
// number base on. A topic has one span from its creation and one for each extension.
type span struct {
	first record.GroupID
	count int32
	topic record.TopicID
	base  int32
}

// Tombstone names one replica whose data its node may delete.
type Tombstone struct {
	Group   record.GroupID
	Replica record.ReplicaID
}

type nodeTombs struct {
	node record.NodeID
	list []Tombstone // by group; a node has one replica of a group at most
}

// Location is where a group is found.
type Location struct {
	Topic     *Topic
	Number    int32 // of the partition in the topic
	Partition *Partition
}

// Held is one replica that a node is to hold.
type Held struct {
	Location
	Replica  record.ReplicaID
	Removing bool // not in the target any more, but not to be deleted either
}

// ClusterID is zero until the cluster was initialised.
func (p *Picture) ClusterID() record.ClusterID { return p.cluster }

// Name is the cluster's name, for people.
func (p *Picture) Name() string { return p.name }

// Created is when the cluster formed, in milliseconds since 1970.
func (p *Picture) Created() int64 { return p.created }

// Virgin tells that nothing worth keeping was ever stored: no topic was ever made, no
// producer id given, and at most one node is registered.
func (p *Picture) Virgin() bool {
	return p.nextGroup == firstGroup && p.nextProducer == firstProducerID && len(p.nodes) <= 1 && len(p.banned) == 0
}

// Topics gives all topics in the order of their names.
func (p *Picture) Topics() []*Topic { return p.byName }

// PartitionCount is the number of partitions of all topics.
func (p *Picture) PartitionCount() int { return p.partitions }

// Topic finds a topic by its name; nil if there is none.
func (p *Picture) Topic(name string) *Topic {
	if i, ok := findTopicName(p.byName, name); ok {
		return p.byName[i]
	}
	return nil
}

// TopicByID finds a topic by its id; nil if there is none.
func (p *Picture) TopicByID(id record.TopicID) *Topic {
	if i, ok := findTopicID(p.byID, id); ok {
		return p.byID[i]
	}
	return nil
}

// Group finds the partition of a group. It is false for the metadata group, for groups of
// deleted topics and for unknown ones.
func (p *Picture) Group(g record.GroupID) (Location, bool) {
	i, exact := slices.BinarySearchFunc(p.spans, g, func(s span, g record.GroupID) int { return cmp.Compare(s.first, g) })
	if !exact {
		i--
	}
	if i < 0 || g-p.spans[i].first >= record.GroupID(p.spans[i].count) {
		return Location{}, false
	}
	s := p.spans[i]
	t := p.TopicByID(s.topic)
	n := s.base + int32(g-s.first)
	return Location{t, n, t.Partitions[n]}, true
}

// NextGroup is above the ids of all groups that there were up to here. So a topic that is not in the
// picture although its groups are below has been deleted, and is not only yet to come.
func (p *Picture) NextGroup() record.GroupID { return p.nextGroup }

// Node finds a registered node; nil if there is none or it was removed.
func (p *Picture) Node(id record.NodeID) *Node {
	if i, ok := findNode(p.nodes, id); ok {
		return p.nodes[i]
	}
	return nil
}

// NodesSorted gives the registered nodes by id.
func (p *Picture) NodesSorted() []*Node { return p.nodes }

// Banned tells that the node was removed from the cluster for good.
func (p *Picture) Banned(id record.NodeID) bool {
	_, ok := findBanned(p.banned, id)
	return ok
}

// ReplicasOn gives what the node is to hold, by topic name and partition. It walks every
// partition of the cluster.
func (p *Picture) ReplicasOn(node record.NodeID) []Held {
	var held []Held
	for _, t := range p.byName {
		for n, part := range t.Partitions {
			at := Location{t, int32(n), part}
			if r, ok := replicaOn(part.Replicas, node); ok {
				held = append(held, Held{at, r, false})
			} else if r, ok := replicaOn(part.Removing, node); ok {
				held = append(held, Held{at, r, true})
			}
		}
	}
	return held
}

// Tombstones gives the replicas whose data the node may delete, by group.
func (p *Picture) Tombstones(node record.NodeID) []Tombstone {
	if i, ok := findTombs(p.tombs, node); ok {
		return p.tombs[i].list
	}
	return nil
}

// Load counts what a node has been given.
type Load struct {
	Replicas int // targets and those on the way out
	Leaders  int // partitions that prefer the node as leader
}

// Loads counts for every node that holds anything. It walks every partition.
func (p *Picture) Loads() map[record.NodeID]Load {
	loads := make(map[record.NodeID]Load, len(p.nodes))
	for _, t := range p.byName {
		for _, part := range t.Partitions {
			for i, r := range part.Replicas {
				l := loads[r.Node()]
				l.Replicas++
				if i == 0 {
					l.Leaders++
				}
				loads[r.Node()] = l
			}
			for _, r := range part.Removing {
				l := loads[r.Node()]
				l.Replicas++
				loads[r.Node()] = l
			}
		}
	}
	return loads
}

// MetadataReplica is the replica id of the metadata group on a node. There is one for
// each node id, ever: a node that lost its disk comes back under a new node id.
func MetadataReplica(node record.NodeID) record.ReplicaID { return record.MakeReplicaID(node, 1) }

// replicaOn finds the replica that node holds.
func replicaOn(rs []record.ReplicaID, node record.NodeID) (record.ReplicaID, bool) {
	for _, r := range rs {
		if r.Node() == node {
			return r, true
		}
	}
	return 0, false
}

func findNode(s []*Node, id record.NodeID) (int, bool) {
	return slices.BinarySearchFunc(s, id, func(n *Node, id record.NodeID) int { return cmp.Compare(n.ID, id) })
}

func findBanned(s []Banned, id record.NodeID) (int, bool) {
	return slices.BinarySearchFunc(s, id, func(b Banned, id record.NodeID) int { return cmp.Compare(b.ID, id) })
}

func findTopicName(s []*Topic, name string) (int, bool) {
	return slices.BinarySearchFunc(s, name, func(t *Topic, name string) int { return cmp.Compare(t.Name, name) })
}

func findTopicID(s []*Topic, id record.TopicID) (int, bool) {
	return slices.BinarySearchFunc(s, id, func(t *Topic, id record.TopicID) int { return slices.Compare(t.ID[:], id[:]) })
}

func findTombs(s []nodeTombs, id record.NodeID) (int, bool) {
	return slices.BinarySearchFunc(s, id, func(t nodeTombs, id record.NodeID) int { return cmp.Compare(t.node, id) })
}

func findTombstone(s []Tombstone, g record.GroupID) (int, bool) {
	return slices.BinarySearchFunc(s, g, func(t Tombstone, g record.GroupID) int { return cmp.Compare(t.Group, g) })
}

// The three below give a changed copy and leave s as it is, because s may be published.

func inserted[T any](s []T, i int, v T) []T {
	out := make([]T, 0, len(s)+1)
	return append(append(append(out, s[:i]...), v), s[i:]...)
}

func replaced[T any](s []T, i int, v T) []T {
	out := slices.Clone(s)
	out[i] = v
	return out
}

func removed[T any](s []T, i int) []T {
	return slices.Concat(s[:i], s[i+1:])
}
