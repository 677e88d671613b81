package metadata

import (
	"slices"

	"edged/record"
)

// MaxMovesInFlight is how many partitions copy their data to other nodes at one time. It
// is small because the copies share disks and links with the clients.
const MaxMovesInFlight = 8

// Plan gives the next few commands that bring partitions nearer to what they should be,
// and none when all is well or has to wait. The metadata leader calls it now and then and
// proposes what it says. In this order of importance, one step at a time for a partition:
//
//   - a replica that was to be added on a node that has died is given to another node;
//   - replicas leave nodes that are leaving or were removed;
//   - replicas on nodes that are gone are given to others, if there are any to take them;
//   - partitions of fewer replicas than wanted get one more, those of more give one up;
//   - preferred leaders are spread evenly among the replicas that are there.
//
// Nothing is moved only to even out replicas: copies wear out cards, and new topics fill
// an empty node. A dead node alone is never a reason to take a replica away from it.
//
// alive should be forgiving, so that a node that starts again or loses its Wi-Fi for a
// while counts as alive all the time. up are the nodes that are connected now: a replica is
// only given up while most of the partition's are up and most of those that stay, and one
// that is not up goes first. gone are the nodes that have been away so long that what they
// hold should be somewhere else.
func Plan(p *Picture, alive, up, gone map[record.NodeID]bool) []Command {
	pl := newPlanner(p, alive, up)
	pl.gone = gone
	budget := MaxMovesInFlight - pl.inFlight()
	var out []Command
	for _, t := range p.byName {
		for _, part := range t.Partitions {
			if len(out) >= budget {
				return out
			}
			nodes := pl.next(t, part)
			if nodes != nil {
				out = append(out, &SetReplicas{Group: part.Group, Nodes: nodes, Was: part.Replicas})
			}
		}
	}
	return out
}

// Movable counts the replicas of a leaving node that are on their way to other nodes, or can be sent.
// Those that it holds beyond that wait for a node that can take them.
func Movable(p *Picture, node record.NodeID, alive, up map[record.NodeID]bool) int {
	pl := newPlanner(p, alive, up)
	n := 0
	for _, held := range p.ReplicasOn(node) {
		changing := len(held.Partition.Adding)+len(held.Partition.Removing) > 0 && pl.deadAdding(held.Partition) < 0
		if changing || pl.next(held.Topic, held.Partition) != nil {
			n++
		}
	}
	return n
}

type planner struct {
	p               *Picture
	alive, up, gone map[record.NodeID]bool
	usable          map[record.NodeID]bool // registered and not leaving
	candidates      []*Node                // usable and alive
	balance         *balance               // goes on counting what is planned
}

func newPlanner(p *Picture, alive, up map[record.NodeID]bool) *planner {
	pl := &planner{p: p, alive: alive, up: up, balance: newBalance(p), usable: map[record.NodeID]bool{}}
	for _, n := range p.usable() {
		pl.usable[n.ID] = true
		if alive[n.ID] && up[n.ID] {
			pl.candidates = append(pl.candidates, n)
		}
	}
	return pl
}

// inFlight counts the partitions that are changing. One that waits for a dead node alone
// is not counted: it costs nothing, and might hold up the others for ever.
func (pl *planner) inFlight() int {
	n := 0
	for _, t := range pl.p.byName {
		for _, part := range t.Partitions {
			if len(part.Adding)+len(part.Removing) > 0 && pl.deadAdding(part) < 0 {
				n++
			}
		}
	}
	return n
}

// deadAdding is the position in Replicas of one that is being added on a dead node, else -1.
func (pl *planner) deadAdding(part *Partition) int {
	return slices.IndexFunc(part.Replicas, func(r record.ReplicaID) bool {
		return slices.Contains(part.Adding, r) && !pl.alive[r.Node()]
	})
}

// next gives the nodes that a partition should move to, nil to leave it.
func (pl *planner) next(t *Topic, part *Partition) []record.NodeID {
	nodes := nodesOf(part.Replicas)
	if dead := pl.deadAdding(part); dead >= 0 {
		return pl.substitute(part, nodes, dead)
	}
	if len(part.Adding)+len(part.Removing) > 0 {
		return nil
	}
	want := int(t.Configs.Replication)
	if want == AutoReplication {
		want = AutoReplicas(len(pl.usable))
	}
	if bad := slices.IndexFunc(nodes, func(n record.NodeID) bool { return !pl.usable[n] }); bad >= 0 {
		return pl.evict(part, nodes, bad, want)
	}
	if gone := slices.IndexFunc(nodes, func(n record.NodeID) bool { return pl.gone[n] }); gone >= 0 && len(nodes) <= want {
		if moved := pl.evict(part, nodes, gone, want); moved != nil {
			return moved
		}
	}
	switch {
	case len(nodes) < want:
		if n := pl.candidate(part, nodes); n != nil {
			pl.balance.add(n.ID, nodes)
			return append(nodes, n.ID)
		}
		return nil
	case len(nodes) > want:
		left := pl.drop(slices.Clone(nodes), pl.spare(nodes))
		if !pl.mostUp(left) {
			return nil // the one that goes may be all that lives of it
		}
		return left
	}
	return pl.level(nodes)
}

// evict takes the replica at position i away, nil if that has to wait: without a majority the partition
// could not do it.
func (pl *planner) evict(part *Partition, nodes []record.NodeID, i, want int) []record.NodeID {
	if !pl.mostUp(nodes) {
		return nil
	}
	if len(nodes) <= want {
		return pl.substitute(part, nodes, i)
	}
	left := pl.drop(slices.Clone(nodes), i)
	if !pl.mostUp(left) {
		return nil
	}
	return left
}

// candidate is the best node to add a replica on, nil if there is none.
func (pl *planner) candidate(part *Partition, nodes []record.NodeID) *Node {
	free := slices.DeleteFunc(slices.Clone(pl.candidates), func(n *Node) bool { return pl.p.holdsOld(part, n.ID) })
	return pl.balance.pick(free, nodes)
}

// substitute puts another node in place of the one at position i. Its turn as preferred
// leader goes to a replica that is there already.
func (pl *planner) substitute(part *Partition, nodes []record.NodeID, i int) []record.NodeID {
	n := pl.candidate(part, nodes)
	if n == nil {
		return nil
	}
	nodes = slices.Delete(nodes, i, i+1)
	pl.balance.add(n.ID, nodes)
	return append(nodes, n.ID)
}

func (pl *planner) drop(nodes []record.NodeID, i int) []record.NodeID {
	return slices.Delete(nodes, i, i+1)
}

// mostUp tells whether most of the nodes are connected now.
func (pl *planner) mostUp(nodes []record.NodeID) bool {
	n := 0
	for _, id := range nodes {
		if pl.up[id] {
			n++
		}
	}
	return n > len(nodes)/2
}

// spare is the position of the replica to give up: a dead one before one that is alive,
// then the one on the node that holds most, and the preferred leader last.
func (pl *planner) spare(nodes []record.NodeID) int {
	best := len(nodes) - 1
	for i := best - 1; i >= 1; i-- {
		a, b := nodes[i], nodes[best]
		if pl.up[a] != pl.up[b] {
			if !pl.up[a] {
				best = i
			}
		} else if pl.balance.loads[a].Replicas > pl.balance.loads[b].Replicas {
			best = i
		}
	}
	if !pl.up[nodes[0]] && pl.up[nodes[best]] {
		return 0
	}
	return best
}

// level makes another replica the preferred leader if its node leads two fewer. The sum
// of the squares of what nodes lead falls with each such step, so it comes to an end.
func (pl *planner) level(nodes []record.NodeID) []record.NodeID {
	best := 0
	for i, n := range nodes {
		if pl.alive[n] && pl.balance.loads[n].Leaders < pl.balance.loads[nodes[best]].Leaders {
			best = i
		}
	}
	if pl.balance.loads[nodes[best]].Leaders > pl.balance.loads[nodes[0]].Leaders-2 {
		return nil
	}
	pl.balance.count(nodes[0], -1)
	pl.balance.prefer(nodes, best)
	return nodes
}
