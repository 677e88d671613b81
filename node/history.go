package node

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"edged/gossip"
	"edged/partition"
	"edged/record"
)

// historyLength bounds the leader changes that are remembered, over all partitions.
const historyLength = 4096

// history is a ring of leader changes, oldest first.
type history struct {
	mu   sync.Mutex
	ring []leaderChange
	next int
}

type leaderChange struct {
	partition.LeaderChange
	at time.Time
}

func (h *history) add(c partition.LeaderChange) {
	h.mu.Lock()
	defer h.mu.Unlock()
	lc := leaderChange{c, time.Now()}
	if len(h.ring) < historyLength {
		h.ring = append(h.ring, lc)
		return
	}
	h.ring[h.next] = lc
	h.next = (h.next + 1) % historyLength
}

// newest gives up to limit changes that want takes, newest first.
func (h *history) newest(limit int, want func(record.GroupID) bool) []leaderChange {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []leaderChange
	for i := range h.ring {
		c := h.ring[(h.next-1-i+2*len(h.ring))%len(h.ring)]
		if len(out) == limit {
			break
		}
		if want(c.Group) {
			out = append(out, c)
		}
	}
	return out
}

// withoutEchoes leaves out, of changes that come newest first, those that tell of no leader where there
// was none before: an election that found nobody, and a partition that begins.
func withoutEchoes(changes []leaderChange) []leaderChange {
	led := map[record.GroupID]bool{}
	told := map[record.GroupID]bool{}
	var out []leaderChange
	for _, c := range slices.Backward(changes) {
		none := c.Leader == record.NoNode
		first := !told[c.Group]
		if none && !led[c.Group] && !first {
			continue
		}
		led[c.Group], told[c.Group] = !none, true
		out = append(out, c)
	}
	slices.Reverse(out)
	return out
}

// onLeader hears of every change of leader in the groups that this node has a replica of. It is
// called by the Core and does not block.
func (n *Node) onLeader(c partition.LeaderChange) {
	n.history.add(c)
	n.leadership.count(c, n.ident.Get().Node)
	n.metrics.leaderChanges.Add(1)
	n.groups.wake()
	if c.Group == record.MetadataGroup {
		n.wake()
	}
	if c.Leader == n.ident.Get().Node && c.Group != record.MetadataGroup {
		n.led.add(gossip.Leader{Group: c.Group, Leader: c.Leader, Epoch: c.Epoch})
		n.wake()
	}
}

// leaderNews gathers what gossip should spread; newest per group, so bounded by the groups here.
type leaderNews struct {
	mu sync.Mutex
	m  map[record.GroupID]gossip.Leader
}

func (l *leaderNews) add(g gossip.Leader) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m == nil {
		l.m = map[record.GroupID]gossip.Leader{}
	}
	l.m[g.Group] = g
}

func (l *leaderNews) take() []gossip.Leader {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]gossip.Leader, 0, len(l.m))
	for _, g := range l.m {
		out = append(out, g)
	}
	l.m = nil
	return out
}

// refusals are the nodes that there is no connection with for a reason that does not pass by itself. Each try repeats it,
// so what has not been heard of for refusalFor is over, as it is when the connection stands.
type refusals struct {
	mu sync.Mutex
	m  map[string]refusal // by node, or by host where that is not known; at most maxProblems
}

type refusal struct {
	who, addr, why string
	at             time.Time
}

// refusalFor is many times the pause between two tries.
const refusalFor = 30 * time.Second

// add tells whether it is news.
func (r *refusals) add(node record.NodeID, addr string, err error) bool {
	who, key := fmt.Sprintf("node %d", node), node.String()
	if host, _, e := net.SplitHostPort(addr); node == record.NoNode && e == nil {
		who, key = "the node", host // its port is another one at each try
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropOldLocked()
	before, known := r.m[key]
	if !known && len(r.m) >= maxProblems {
		return false
	}
	if r.m == nil {
		r.m = map[string]refusal{}
	}
	r.m[key] = refusal{who, addr, inLine(err), time.Now()}
	return !known || before.why != r.m[key].why
}

func (r *refusals) dropOldLocked() {
	for key, f := range r.m {
		if time.Since(f.at) > refusalFor {
			delete(r.m, key)
		}
	}
}

// forget is that the connection with a node stands, or that nobody wants it any more.
func (r *refusals) forget(node record.NodeID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.m, node.String())
}

func (r *refusals) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropOldLocked()
	var out []string
	for _, f := range r.m {
		out = append(out, fmt.Sprintf("no connection with %s at %s: %s", f.who, f.addr, f.why))
	}
	slices.Sort(out)
	return out
}

// problems are what an operator should see, newest last, each once. Bounded.
type problems struct {
	mu   sync.Mutex
	list []string
}

const maxProblems = 32

// add tells whether the problem is new.
func (p *problems) add(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.list {
		if t == text {
			return false
		}
	}
	if len(p.list) == maxProblems {
		p.list = p.list[1:]
	}
	p.list = append(p.list, text)
	return true
}

func (p *problems) all() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.list...)
}
