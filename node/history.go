package node

import (
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
