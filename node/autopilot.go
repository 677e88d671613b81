package node

import (
	"context"
	"slices"
	"sync"
	"time"

	"edged/metadata"
	"edged/partition"
	"edged/record"
)

// forgiving is how long a node that was lost still counts as alive where data would be moved.
const forgiving = 30 * time.Second

// replaceVoterAfter is how long a voter of the metadata may be away before it is replaced.
const replaceVoterAfter = 5 * time.Minute

// aliveness remembers which nodes are connected, and when the others were lost.
type aliveness struct {
	mu   sync.Mutex
	last map[record.NodeID]time.Time // when a node was lost; zero while it is connected
}

// connected is that a node is there, from now until lost. A connection that broke is not yet a node that is
// lost: whether it comes back at once is tried first, and for these seconds it is not connected either.
func (a *aliveness) connected(n record.NodeID) { a.set(n, time.Time{}) }

func (a *aliveness) lost(n record.NodeID) { a.set(n, time.Now()) }

func (a *aliveness) set(n record.NodeID, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == nil {
		a.last = map[record.NodeID]time.Time{}
	}
	a.last[n] = at
}

// since is how long ago a node was lost, 0 for one that is not.
func (a *aliveness) since(n record.NodeID) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, ok := a.last[n]
	switch {
	case !ok:
		return time.Duration(1<<63 - 1)
	case at.IsZero():
		return 0
	}
	return time.Since(at)
}

// awayMs is since for people: -1 if it is not known.
func (a *aliveness) awayMs(n record.NodeID) int64 {
	if d := a.since(n); d < 1<<62 {
		return max(d.Milliseconds(), 1)
	}
	return -1
}

// up are the nodes that are connected now, this one included.
func (n *Node) up() map[record.NodeID]bool {
	up := map[record.NodeID]bool{n.ident.Get().Node: true}
	for _, s := range n.peers.Peers() {
		if s.Up {
			up[s.Node] = true
		}
	}
	return up
}

// autopilot is what the metadata's leader does beyond answering: it names the cluster, keeps the
// voters of the metadata, and moves replicas step by step. more is true while there is more to do.
func (n *Node) autopilot(p *metadata.Picture) (more bool) {
	h := n.host.Load()
	v := h.Partition(record.MetadataGroup).View()
	if v.Role != partition.RoleLeader || !v.Serving {
		return v.Leader == record.NoNode || v.Role == partition.RoleLeader // nobody rings when it begins to serve
	}
	ctx, cancel := context.WithTimeout(n.ctx, askTimeout)
	defer cancel()
	cluster := n.cluster.Load()
	if cluster == nil {
		return true // startHost has not come to its end
	}
	if p.ClusterID().IsZero() {
		_, _ = n.propose(ctx, &metadata.InitCluster{Cluster: *cluster, Name: n.cfg.Cluster, Created: n.opts.Wall().UnixMilli()})
		return true
	}
	up := n.up()
	alive := n.forgiven(p, up)
	more = n.keepVoters(p, h, v, up)
	for _, cmd := range metadata.Plan(p, alive, up, n.gone(p, up)) {
		more = true
		if _, err := n.propose(ctx, cmd); err != nil {
			n.log.Warn("a step of the plan was not taken", "step", cmd, "err", err)
			break
		}
	}
	return more
}

// forgiven are the nodes that are connected or were so a moment ago.
func (n *Node) forgiven(p *metadata.Picture, up map[record.NodeID]bool) map[record.NodeID]bool {
	alive := map[record.NodeID]bool{}
	for _, node := range p.NodesSorted() {
		alive[node.ID] = up[node.ID] || n.alive.since(node.ID) < forgiving
	}
	return alive
}

// gone are the nodes that have been away so long that what they hold should be somewhere else.
func (n *Node) gone(p *metadata.Picture, up map[record.NodeID]bool) map[record.NodeID]bool {
	after := n.live.Load().replaceAfter()
	if after <= 0 || time.Since(n.started) < after {
		return nil
	}
	gone := map[record.NodeID]bool{}
	for _, node := range p.NodesSorted() {
		gone[node.ID] = !up[node.ID] && n.alive.since(node.ID) > after
	}
	return gone
}

// keepVoters asks the Core to make the metadata group what it should be: 1, 3 or 5 voters, every
// other registered node a learner.
func (n *Node) keepVoters(p *metadata.Picture, h *partition.Host, v *partition.View, up map[record.NodeID]bool) (more bool) {
	self := n.ident.Get().Node
	current := []record.NodeID{self}
	for _, r := range v.Voters {
		if r.Node() != self {
			current = append(current, r.Node())
		}
	}
	if n.foundersMissing(p, v) {
		return true
	}
	want := metadata.DesiredVoters(p, current, up, n.mayReplaceVoter(current, up))
	a := &partition.Assignment{Group: record.MetadataGroup, Machine: partition.MetadataLog, Epoch: v.Epoch}
	for _, id := range want {
		a.Voters = append(a.Voters, metadata.MetadataReplica(id))
	}
	for _, node := range p.NodesSorted() {
		if r := metadata.MetadataReplica(node.ID); !slices.Contains(a.Voters, r) {
			a.Learners = append(a.Learners, r)
		}
	}
	// Members that founded the cluster and have not registered yet keep their place.
	for _, r := range slices.Concat(v.Voters, v.Learners) {
		if !slices.Contains(a.Voters, r) && !slices.Contains(a.Learners, r) && !p.Banned(r.Node()) {
			a.Learners = append(a.Learners, r)
		}
	}
	n.lost.leaveOut(a)
	if sameReplicas(a.Voters, v.Voters) && sameReplicas(a.Learners, v.Learners) {
		return false
	}
	h.Configure(a)
	return true
}

// foundersMissing tells whether a voter has not registered yet. It is waited for: a founder whose
// vote were taken because it is a moment slower than the others would leave the cluster with one
// voter for no reason.
func (n *Node) foundersMissing(p *metadata.Picture, v *partition.View) bool {
	return time.Since(n.started) < forgiving && slices.ContainsFunc(v.Voters, func(r record.ReplicaID) bool {
		return p.Node(r.Node()) == nil && !p.Banned(r.Node())
	})
}

// mayReplaceVoter tells whether a voter of the metadata has been away so long that another node
// should vote in its place. A reboot or an hour of bad Wi-Fi is no reason.
func (n *Node) mayReplaceVoter(voters []record.NodeID, up map[record.NodeID]bool) bool {
	if time.Since(n.started) < replaceVoterAfter {
		return false
	}
	return slices.ContainsFunc(voters, func(v record.NodeID) bool { return !up[v] && n.alive.since(v) > replaceVoterAfter })
}

func sameReplicas(a, b []record.ReplicaID) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}
