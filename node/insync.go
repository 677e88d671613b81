package node

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"edged/partition"
	"edged/record"
	"edged/transport/peer"
	"edged/transport/wire"
)

// Which replicas are in sync is known to a partition's leader alone (partition.Core.Lagging). While one is not, its
// leader tells all nodes every few seconds; while all are, nobody says anything.

// lagFor is how long what a leader said of lag holds: it repeats it each janitorEvery.
const lagFor = 3 * janitorEvery

// maxLags bounds the partitions of one leader that are told of, so that a call holds them.
const maxLags = 2048

// lagCall is what a leader tells: all that lags in the partitions that it leads.
type lagCall struct{ Lags []partition.Lag }

// lags is what other leaders have told, by node; and whether the others were told of something last.
type lags struct {
	mu   sync.Mutex
	of   map[record.NodeID]toldLags // of nodes that have been connected
	told atomic.Bool
}

type toldLags struct {
	at time.Time
	by map[record.GroupID][]record.ReplicaID
}

// lookForLag looks at the partitions led here, and tells the others what lags or that nothing does any more.
func (n *Node) lookForLag() {
	var found []partition.Lag
	n.host.Load().Inspect(func(c *partition.Core) { found = c.Lagging() })
	if len(found) == 0 && !n.lags.told.Load() {
		return
	}
	n.lags.told.Store(len(found) > 0)
	call := lagCall{found[:min(len(found), maxLags)]}
	for to := range n.up() {
		if to == n.ident.Get().Node {
			continue
		}
		n.wg.Go(func() {
			ctx, cancel := context.WithTimeout(n.ctx, askTimeout)
			defer cancel()
			var none struct{}
			if err := n.call(ctx, to, opLagging, call, &none); err != nil {
				n.log.Debug("a node was not told what lags", "node", to, "err", err) // it is told again
			}
		})
	}
}

// laggingFor takes what another leader tells.
func (n *Node) laggingFor(from peer.Identity, body []byte) (struct{}, error) {
	var call lagCall
	if err := decodeBody(body, &call); err != nil {
		return struct{}{}, err
	}
	t := toldLags{time.Now(), map[record.GroupID][]record.ReplicaID{}}
	for _, l := range call.Lags[:min(len(call.Lags), maxLags)] {
		t.by[l.Group] = l.Replicas
	}
	n.lags.mu.Lock()
	defer n.lags.mu.Unlock()
	if n.lags.of == nil {
		n.lags.of = map[record.NodeID]toldLags{}
	}
	for id, old := range n.lags.of {
		if time.Since(old.at) > lagFor {
			delete(n.lags.of, id)
		}
	}
	n.lags.of[from.Node] = t
	return struct{}{}, nil
}

// lagging are the replicas of a group that its leader found not to be in sync.
func (n *Node) lagging(g record.GroupID, leader record.NodeID) []record.ReplicaID {
	if leader == n.ident.Get().Node {
		if part := n.host.Load().Lookup(g); part != nil {
			return part.View().Lagging
		}
		return nil
	}
	n.lags.mu.Lock()
	defer n.lags.mu.Unlock()
	return n.lags.saidLocked(leader, g)
}

func (l *lags) saidLocked(leader record.NodeID, g record.GroupID) []record.ReplicaID {
	if t := l.of[leader]; time.Since(t.at) <= lagFor {
		return t.by[g]
	}
	return nil
}

// inSync are the nodes whose replicas count: they vote, are meant to stay, are connected and not far behind. It is what
// status, metrics, topic describe and Kafka's metadata go by.
func (n *Node) inSync(g record.GroupID, d *wire.Partition, up map[record.NodeID]bool) []record.NodeID {
	lagging := nodesOf(n.lagging(g, d.Leader))
	out := []record.NodeID{}
	for _, v := range d.Voters {
		if (up[v] || v == d.Leader) && slices.Contains(d.Replicas, v) && !slices.Contains(lagging, v) {
			out = append(out, v)
		}
	}
	return out
}

// underReplicatedHere counts the partitions led here with too few replicas in sync.
func (n *Node) underReplicatedHere() (count int32) {
	h := n.host.Load()
	if h == nil {
		return 0
	}
	p, up := n.machine.Picture(), n.up()
	for _, held := range p.ReplicasOn(n.ident.Get().Node) {
		part := h.Lookup(held.Partition.Group)
		if part == nil || part.View().Role != partition.RoleLeader {
			continue
		}
		_, under := n.health(p, held.Topic, held.Number, held.Partition, up)
		count += one(under)
	}
	return count
}
