package node

import (
	"fmt"
	"sync"
	"time"

	"edged/partition"
	"edged/record"
)

// pausing is what the Core found of links that pause again and again. At most one of each peer.
type pausing struct {
	mu sync.Mutex
	m  map[record.NodeID]partition.LinkPause
}

// set tells whether the link began to pause, or pauses no longer.
func (p *pausing) set(l partition.LinkPause) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, was := p.m[l.Node]
	if l.Pause == 0 {
		delete(p.m, l.Node)
		return was
	}
	if p.m == nil {
		p.m = map[record.NodeID]partition.LinkPause{}
	}
	p.m[l.Node] = l
	return !was
}

func (p *pausing) of(node record.NodeID) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.m[node].Pause
}

// pausingLinks counts the links that stand and pause again and again.
func (n *Node) pausingLinks() (count int) {
	for _, s := range n.peers.Peers() {
		if s.Up && n.pausing.of(s.Node) > 0 {
			count++
		}
	}
	return count
}

// onPause hears from the Core.
func (n *Node) onPause(l partition.LinkPause) {
	if !n.pausing.set(l) {
		return
	}
	if l.Pause == 0 {
		n.noteWell(eventNetwork, fmt.Sprintf("the link from %s pauses no longer", n.nodeText(l.Node)))
		return
	}
	n.note(eventNetwork, fmt.Sprintf("the link from %s pauses again and again, for %v just now: Wi-Fi that saves power? (iw dev wlan0 set power_save off, there and here); its silence is borne for %v",
		n.nodeText(l.Node), l.Pause.Round(10*time.Millisecond), l.Patience.Round(10*time.Millisecond)))
}
