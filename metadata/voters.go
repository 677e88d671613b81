package metadata

import (
	"slices"

	"edged/record"
)

// How many nodes it takes to have three and five voters in the metadata group.
const (
	threeVotersFrom = 3
	fiveVotersFrom  = 7
)

// voterCount is how many of n nodes vote: never an even number, because the second of two
// voters only adds a way to stop.
func voterCount(n int) int {
	switch {
	case n >= fiveVotersFrom:
		return 5
	case n >= threeVotersFrom:
		return 3
	}
	return 1
}

// DesiredVoters gives the nodes that should vote in the metadata group; every other
// registered node should be a learner. current are the voters now, the leader first and
// then in the order in which they should be kept. The answer begins with those of them
// that stay, is of odd length whenever current is, and is current itself where nothing
// should or can be done.
//
// It grows 1, 3, 5 with the number of registered nodes, and shrinks only because nodes
// were told to leave or were removed, never because they are away. It names new voters
// only among the nodes in alive, and takes a vote from a dead node only with
// allowReplace, one at a time and only for one that is alive; the caller allows it when
// the node has been away long and a learner has caught up.
//
// The caller makes the change as one joint change of the Raft configuration, when the
// new voters have caught up as learners.
func DesiredVoters(p *Picture, current []record.NodeID, alive map[record.NodeID]bool, allowReplace bool) []record.NodeID {
	var keep []record.NodeID
	var fresh []*Node // who could be given a vote, by id
	usable := p.usable()
	for _, n := range current {
		if slices.ContainsFunc(usable, func(u *Node) bool { return u.ID == n }) {
			keep = append(keep, n)
		}
	}
	for _, n := range usable {
		if alive[n.ID] && !slices.Contains(current, n.ID) {
			fresh = append(fresh, n)
		}
	}
	want := voterCount(len(usable))
	if len(keep) > want {
		return shrunk(current, keep, alive, want)
	}
	add := min(want-len(keep), len(fresh))
	if (len(keep)+add)%2 == 0 {
		add--
	}
	if add < 0 {
		return current // a removed voter has to stay until there is one in its place
	}
	for range add {
		keep, fresh = p.grown(keep, fresh)
	}
	if allowReplace && len(fresh) > 0 && slices.Equal(keep, current) {
		if dead := slices.IndexFunc(keep, func(n record.NodeID) bool { return !alive[n] }); dead >= 0 {
			keep, _ = p.grown(slices.Delete(keep, dead, dead+1), fresh)
		}
	}
	return keep
}

// shrunk leaves want of keep, those that are alive first. It gives current if that would
// leave the group without a majority.
func shrunk(current, keep []record.NodeID, alive map[record.NodeID]bool, want int) []record.NodeID {
	up := slices.DeleteFunc(slices.Clone(keep), func(n record.NodeID) bool { return !alive[n] })
	if len(up) <= want/2 {
		return current
	}
	down := slices.DeleteFunc(keep, func(n record.NodeID) bool { return alive[n] })
	return append(up, down...)[:want]
}

// grown adds to keep the fresh node whose zone has fewest of keep, the first of equals. A
// node without a zone shares it with nobody.
func (p *Picture) grown(keep []record.NodeID, fresh []*Node) ([]record.NodeID, []*Node) {
	best, bestShared := 0, len(keep)+1
	for i, n := range fresh {
		shared := 0
		for _, k := range keep {
			if voter := p.Node(k); n.Zone != "" && voter != nil && voter.Zone == n.Zone {
				shared++
			}
		}
		if shared < bestShared {
			best, bestShared = i, shared
		}
	}
	return append(keep, fresh[best].ID), slices.Concat(fresh[:best], fresh[best+1:])
}
