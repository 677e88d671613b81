package metadata

import (
	"fmt"
	"slices"

	"edged/record"
)

// autoReplicas is the greatest number of replicas that replication auto asks for.
const autoReplicas = 3

// AutoReplicas is what replication auto means with so many nodes. With two nodes it is
// two replicas: no record is lost with one of them, but both are needed to go on.
func AutoReplicas(nodes int) int { return max(1, min(autoReplicas, nodes)) }

// Place chooses the nodes of new partitions, the preferred leader first, for CreateTopic
// and AlterTopic. rf is the number of replicas, or AutoReplication for as many as the
// nodes that are alive allow. It spreads replicas, then preferred leaders, evenly over the
// nodes, puts the replicas of a partition into different zones as far as there are any,
// and pairs every node with every other, so that the leaders of a lost node come to
// stand on all the rest. A node without a zone counts as a zone of its own.
//
// Failures: ErrNoNodes with fewer nodes alive than rf, ErrLimit when they are full.
func Place(p *Picture, alive map[record.NodeID]bool, partitions int32, rf int16) ([][]record.NodeID, error) {
	nodes := slices.DeleteFunc(p.usable(), func(n *Node) bool { return !alive[n.ID] })
	want := int(rf)
	if rf == AutoReplication {
		want = AutoReplicas(len(nodes))
	}
	switch {
	case want < 1 || want > MaxReplication:
		return nil, invalid("replication is %d; it is 1 to %d", want, MaxReplication)
	case partitions < 1 || partitions > MaxPartitionsPerTopic:
		return nil, invalid("%d partitions; a topic has 1 to %d", partitions, MaxPartitionsPerTopic)
	case want > len(nodes):
		return nil, fmt.Errorf("replication %d, and %d nodes are alive: %w", want, len(nodes), record.ErrNoNodes)
	}
	b := newBalance(p)
	placed := make([][]record.NodeID, partitions)
	for i := range placed {
		for range want {
			n := b.pick(nodes, placed[i])
			if n == nil {
				return nil, fmt.Errorf("the nodes have no room for %d partitions with %d replicas; %d replicas are the most for a node: %w",
					partitions, want, MaxReplicasPerNode, record.ErrLimit)
			}
			b.add(n.ID, placed[i])
			placed[i] = append(placed[i], n.ID)
		}
		b.prefer(placed[i], b.leastLeading(placed[i]))
	}
	return placed, nil
}

// invalid is record.ErrInvalidRequest with a text that says all.
func invalid(format string, args ...any) error {
	return &record.Error{Code: record.ErrInvalidRequest.Code, Message: fmt.Sprintf(format, args...)}
}

// balance counts what nodes hold, and goes on counting while placements are made.
type balance struct {
	zones map[record.NodeID]string
	loads map[record.NodeID]Load
	pairs map[[2]record.NodeID]int // partitions that two nodes share
}

func newBalance(p *Picture) *balance {
	b := &balance{zones: map[record.NodeID]string{}, loads: p.Loads(), pairs: map[[2]record.NodeID]int{}}
	for _, n := range p.nodes {
		b.zones[n.ID] = n.Zone
	}
	for _, t := range p.byName {
		for _, part := range t.Partitions {
			nodes := nodesOf(part.Replicas)
			for i, n := range nodes {
				b.pair(n, nodes[:i])
			}
		}
	}
	return b
}

// pick gives the best node to join those in with, nil if all are full. The first of a
// partition is taken from the nodes that lead least, because it is likely to lead, and
// its company from those that lead most, because they need not.
func (b *balance) pick(nodes []*Node, with []record.NodeID) *Node {
	var best *Node
	var bestCost [5]int
	for _, n := range nodes {
		l := b.loads[n.ID]
		if l.Replicas >= MaxReplicasPerNode || slices.Contains(with, n.ID) {
			continue
		}
		zone, pairs := 0, 0
		for _, w := range with {
			if n.Zone != "" && n.Zone == b.zones[w] {
				zone++
			}
			pairs += b.pairs[pairKey(n.ID, w)]
		}
		lead := l.Leaders
		if len(with) > 0 {
			lead = -lead
		}
		cost := [5]int{zone, l.Replicas, lead, pairs, int(n.ID)}
		if best == nil || slices.Compare(cost[:], bestCost[:]) < 0 {
			best, bestCost = n, cost
		}
	}
	return best
}

// add counts a replica on node, beside those on the nodes in with.
func (b *balance) add(node record.NodeID, with []record.NodeID) {
	l := b.loads[node]
	l.Replicas++
	b.loads[node] = l
	b.pair(node, with)
}

func (b *balance) pair(node record.NodeID, with []record.NodeID) {
	for _, w := range with {
		b.pairs[pairKey(node, w)]++
	}
}

func pairKey(a, b record.NodeID) [2]record.NodeID {
	return [2]record.NodeID{min(a, b), max(a, b)}
}

// leastLeading is the position of the node that leads least, the first of equals.
func (b *balance) leastLeading(nodes []record.NodeID) int {
	least := 0
	for i, n := range nodes {
		if b.loads[n].Leaders < b.loads[nodes[least]].Leaders {
			least = i
		}
	}
	return least
}

// prefer puts the node at position i first and counts one leader more for it.
func (b *balance) prefer(nodes []record.NodeID, i int) {
	nodes[0], nodes[i] = nodes[i], nodes[0]
	b.count(nodes[0], 1)
}

func (b *balance) count(node record.NodeID, leaders int) {
	l := b.loads[node]
	l.Leaders += leaders
	b.loads[node] = l
}

func nodesOf(rs []record.ReplicaID) []record.NodeID {
	nodes := make([]record.NodeID, len(rs))
	for i, r := range rs {
		nodes[i] = r.Node()
	}
	return nodes
}
