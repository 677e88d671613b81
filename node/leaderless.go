package node

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"edged/record"
)

// noLeader is record.ErrNoLeader for people: which partition, since when, why as far as that is known
// here, and what to do.
func (n *Node) noLeader(g record.GroupID) error {
	what, since := "the cluster's metadata", ""
	if at, ok := n.machine.Picture().Group(g); ok {
		what = fmt.Sprintf("%s/%d", at.Topic.Name, at.Number)
	}
	if lost := n.history.newest(1, func(o record.GroupID) bool { return o == g }); len(lost) > 0 && lost[0].Leader == record.NoNode {
		since = fmt.Sprintf(" for %v", time.Since(lost[0].at).Round(100*time.Millisecond))
	}
	voters := n.votersOf(g)
	away := n.away(voters)
	text := fmt.Sprintf("%s has no leader%s; retry", what, since)
	if alive := len(voters) - len(away); len(away) > 0 && alive <= len(voters)/2 {
		do := "start again " + n.names(away)
		if gone := n.banned(away); len(voters)-len(gone) <= len(voters)/2 {
			do = n.names(gone) + " was removed with force, so that it cannot come back: delete the topic and make it anew"
		}
		text = fmt.Sprintf("%s has no leader%s: %d of its %d replicas are connected, %d are needed; %s",
			what, since, alive, len(voters), len(voters)/2+1, do)
	}
	return &record.Error{Code: record.ErrNoLeader.Code, Message: text, Retriable: true}
}

// votersOf are the nodes that vote in a group, as far as it is known here.
func (n *Node) votersOf(g record.GroupID) []record.NodeID {
	if h := n.host.Load(); h != nil {
		if part := h.Lookup(g); part != nil && len(part.View().Voters) > 0 {
			return nodesOf(part.View().Voters)
		}
	}
	if at, ok := n.machine.Picture().Group(g); ok {
		return nodesOf(at.Partition.Replicas)
	}
	return nil
}

// mayElect tells whether the voters that are connected are enough to elect a leader.
func (n *Node) mayElect(g record.GroupID) bool {
	voters := n.votersOf(g)
	return len(voters) == 0 || len(voters)-len(n.away(voters)) > len(voters)/2
}

// away are those of the nodes that this one is not connected with.
func (n *Node) away(nodes []record.NodeID) []record.NodeID {
	up := n.up()
	return slices.DeleteFunc(slices.Clone(nodes), func(id record.NodeID) bool { return up[id] })
}

// banned are those of the nodes that were removed from the cluster.
func (n *Node) banned(nodes []record.NodeID) []record.NodeID {
	p := n.machine.Picture()
	return slices.DeleteFunc(slices.Clone(nodes), func(id record.NodeID) bool { return !p.Banned(id) })
}

// names lists nodes for people.
func (n *Node) names(ids []record.NodeID) string {
	p := n.machine.Picture()
	var out []string
	for _, id := range ids {
		if node := p.Node(id); node != nil {
			out = append(out, fmt.Sprintf("node %d (%s)", id, node.Name))
		} else {
			out = append(out, fmt.Sprintf("node %d", id))
		}
	}
	return strings.Join(out, ", ")
}
