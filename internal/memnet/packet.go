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

// Packets is a port for datagrams. They get lost, come twice and overtake each other as the
// Link says; those sent into a cut are lost. It is a net.PacketConn without deadlines.
type Packets struct {
	host *Host
	addr addr
	c    chan packet
	done chan struct{} // closed when the port or its host is
	once sync.Once
}

type packet struct {
	from addr
	data []byte
}

var _ net.PacketConn = (*Packets)(nil)

// ListenPackets takes a port of the host, 0 for a free one.
func (h *Host) ListenPackets(port int) (*Packets, error) {
	n := h.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if port == 0 {
		n.lastPort++
		port = n.lastPort
	}
	a := addr(net.JoinHostPort(h.name, strconv.Itoa(port)))
	if h.off {
		return nil, opError("listen", a, syscall.ENETDOWN)
	}
	if n.packets[string(a)] != nil {
		return nil, opError("listen", a, syscall.EADDRINUSE)
	}
	p := &Packets{host: h, addr: a, c: make(chan packet, packetsQueued), done: make(chan struct{})}
	n.packets[string(a)] = p
	return p, nil
}

// ReadFrom waits for a packet; what does not fit into b is lost.
func (p *Packets) ReadFrom(b []byte) (int, net.Addr, error) {
	select {
	case pk := <-p.c:
		return copy(b, pk.data), pk.from, nil
	case <-p.done:
		return 0, nil, opError("read", p.addr, net.ErrClosed)
	}
}

// LocalAddr is "name:port".
func (p *Packets) LocalAddr() net.Addr { return p.addr }

// SetDeadline and the two below it do nothing: Close ends a wait.
func (p *Packets) SetDeadline(time.Time) error      { return nil }
func (p *Packets) SetReadDeadline(time.Time) error  { return nil }
func (p *Packets) SetWriteDeadline(time.Time) error { return nil }

// Close gives the port back.
func (p *Packets) Close() error {
	p.host.n.mu.Lock()
	defer p.host.n.mu.Unlock()
	p.closeLocked()
	return nil
}

func (p *Packets) closeLocked() {
	if p.host.n.packets[string(p.addr)] == p {
		delete(p.host.n.packets, string(p.addr))
	}
	p.once.Do(func() { close(p.done) })
}

// WriteTo sends a packet to "name:port". There is no telling whether it arrives.
func (p *Packets) WriteTo(b []byte, to net.Addr) (int, error) {
	name, _, err := net.SplitHostPort(to.String())
	if err != nil {
		return 0, opError("send", to, err)
	}
	n := p.host.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.host.off {
		return 0, opError("send", to, syscall.ENETDOWN)
	}
	if p.host.frozen {
		return len(b), nil
	}
	w := n.way(p.host.name, name)
	if w.cut || n.chance(w.Loss) {
		return len(b), nil
	}
	copies := 1
	if n.chance(w.Twice) {
		copies = 2
	}
	for range copies {
		data := slices.Clone(b)
		time.AfterFunc(time.Until(w.arrival(n.rand, len(b))), func() { n.deliver(p, to.String(), data) })
	}
	return len(b), nil
}

func (n *Network) chance(share float64) bool { return share > 0 && n.rand.Float64() < share }

func (n *Network) deliver(from *Packets, to string, data []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.packets[to]
	if p == nil || n.blocked(from.host, p.host) {
		return
	}
	select {
	case p.c <- packet{from: from.addr, data: data}:
	default:
	}
}
