package memnet

import (
	"math/rand/v2"
	"syscall"
	"time"
)

// Link is what happens to everything on its way from one host to another. The zero value is a
// perfect wire. Streams are slowed but keep their order; packets also get lost, come twice
// and overtake each other.
type Link struct {
	Delay  time.Duration // of everything
	Jitter time.Duration // up to this much more, at random
	Rate   int64         // bytes a second; 0 is no limit
	Loss   float64       // share of packets that never arrive
	Twice  float64       // share of packets that arrive twice
}

// way is one direction between two hosts.
type way struct {
	Link
	cut  bool
	busy time.Time // until then what was sent before keeps a slow link busy
}

// SetRand makes jitter, loss and repetition follow r. Without it they follow a fixed seed.
func (n *Network) SetRand(r *rand.Rand) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rand = r
}

// SetLink sets one direction between two hosts, for what is sent from now on.
func (n *Network) SetLink(from, to string, l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.way(from, to).Link = l
}

// SetLinks sets every direction that SetLink does not name later, of hosts known and to come.
func (n *Network) SetLinks(l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.link = l
	for _, w := range n.ways {
		w.Link = l
	}
}

// SetLatency sets how long bytes take from here on, in one direction.
func (n *Network) SetLatency(d time.Duration) { n.SetLinks(Link{Delay: d}) }

// Cut separates two hosts: dials hang and bytes are held back until Heal.
func (n *Network) Cut(a, b string) { n.setCut(true, [2]string{a, b}, [2]string{b, a}) }

// CutOneWay holds back what one host sends to another; what comes from there still arrives.
// A new connection needs both directions.
func (n *Network) CutOneWay(from, to string) { n.setCut(true, [2]string{from, to}) }

// Heal ends a Cut. What was held back arrives now.
func (n *Network) Heal(a, b string) { n.setCut(false, [2]string{a, b}, [2]string{b, a}) }

// HealAll ends all cuts.
func (n *Network) HealAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.ways {
		w.cut = false
	}
	n.wakeAll()
}

func (n *Network) setCut(cut bool, ways ...[2]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range ways {
		n.way(w[0], w[1]).cut = cut
	}
	n.wakeAll()
}

// Reset breaks every connection between two hosts. What was on its way is lost.
func (n *Network) Reset(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.sorted() {
		if from, to := c.host.name, c.peer.host.name; from == a && to == b || from == b && to == a {
			c.broken = syscall.ECONNRESET
		}
	}
	n.wakeAll()
}

func (n *Network) way(from, to string) *way {
	k := [2]string{from, to}
	w := n.ways[k]
	if w == nil {
		w = &way{Link: n.link}
		n.ways[k] = w
	}
	return w
}

// blocked tells that nothing passes from one host to another.
func (n *Network) blocked(from, to *Host) bool {
	return from.off || to.off || from.frozen || to.frozen || n.way(from.name, to.name).cut
}

// arrival is when so many bytes that are sent now are there.
func (w *way) arrival(r *rand.Rand, bytes int) time.Time {
	at := time.Now()
	if w.Rate > 0 {
		if w.busy.After(at) {
			at = w.busy
		}
		at = at.Add(time.Duration(int64(bytes) * int64(time.Second) / w.Rate))
		w.busy = at
	}
	at = at.Add(w.Delay)
	if w.Jitter > 0 {
		at = at.Add(time.Duration(r.Int64N(int64(w.Jitter))))
	}
	return at
}
