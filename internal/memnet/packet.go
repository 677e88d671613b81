package memnet

import (
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// packetsQueued bounds the packets that have arrived at a port and were not taken; more are lost.
const packetsQueued = 512

// Packet is a datagram.
type Packet struct {
	From string // "name:port"
	Data []byte
	At   time.Time // when it arrived
}

// Packets is a port for datagrams. They get lost, come twice and overtake each other as the
// Link says; those sent into a cut are lost.
type Packets struct {
	host *Host
	addr string
	c    chan Packet
	done chan struct{}
	once sync.Once
}

// ListenPackets takes a port of the host, 0 for a free one.
func (h *Host) ListenPackets(port int) (*Packets, error) {
	n := h.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if port == 0 {
		n.lastPort++
		port = n.lastPort
	}
	a := net.JoinHostPort(h.name, strconv.Itoa(port))
	if h.off {
		return nil, opError("listen", addr(a), syscall.ENETDOWN)
	}
	if n.packets[a] != nil {
		return nil, opError("listen", addr(a), syscall.EADDRINUSE)
	}
	p := &Packets{host: h, addr: a, c: make(chan Packet, packetsQueued), done: make(chan struct{})}
	n.packets[a] = p
	return p, nil
}

// Addr is "name:port".
func (p *Packets) Addr() string { return p.addr }

// C brings what arrives. It is never closed.
func (p *Packets) C() <-chan Packet { return p.c }

// Done is closed when the port or its host is.
func (p *Packets) Done() <-chan struct{} { return p.done }

// Close gives the port back.
func (p *Packets) Close() error {
	p.host.n.mu.Lock()
	defer p.host.n.mu.Unlock()
	p.closeLocked()
	return nil
}

func (p *Packets) closeLocked() {
	if p.host.n.packets[p.addr] == p {
		delete(p.host.n.packets, p.addr)
	}
	p.once.Do(func() { close(p.done) })
}

// Send sends a packet to "name:port". There is no telling whether it arrives.
func (p *Packets) Send(to string, b []byte) error {
	name, _, err := net.SplitHostPort(to)
	if err != nil {
		return opError("send", addr(to), err)
	}
	n := p.host.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.host.off {
		return opError("send", addr(to), syscall.ENETDOWN)
	}
	w := n.way(p.host.name, name)
	if w.cut || n.chance(w.Loss) {
		return nil
	}
	copies := 1
	if n.chance(w.Twice) {
		copies = 2
	}
	for range copies {
		data := slices.Clone(b)
		time.AfterFunc(time.Until(w.arrival(n.rand, len(b))), func() { n.deliver(p, to, data) })
	}
	return nil
}

func (n *Network) chance(share float64) bool { return share > 0 && n.rand.Float64() < share }

func (n *Network) deliver(from *Packets, to string, data []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.packets[to]
	if p == nil || p.host.off {
		return
	}
	select {
	case p.c <- Packet{From: from.addr, Data: data, At: time.Now()}:
	default:
	}
}
