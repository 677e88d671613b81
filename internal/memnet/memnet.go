// Package memnet is a network in memory for tests: stream connections with deadlines, and packets,
// between named hosts that can be killed, switched off, cut from each other (also in one direction
// only) and slowed down.
//
//	Network.mu  guards everything; every wait is on a sync.Cond over it, so that inside a
//	            testing/synctest bubble a waiting goroutine counts as blocked and time moves on
//	no goroutines of its own, only timers
//
// What it does as TCP does: a dial succeeds when it is in the listener's backlog; nobody
// listening is ECONNREFUSED; what was written before a close can still be read; a write blocks
// when the other side does not read; a host without power or behind a cut is silent.
package memnet

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	window    = 64 << 10 // bytes written and not yet read, per direction
	backlog   = 128      // connections dialed and not yet accepted, per listener
	firstPort = 40000    // of those given for port 0
)

// Network joins hosts.
type Network struct {
	mu        sync.Mutex
	changed   *sync.Cond // power, cuts, listeners: for dials that wait
	hosts     map[string]*Host
	listeners map[string]*listener
	packets   map[string]*Packets
	ways      map[[2]string]*way
	link      Link
	rand      *rand.Rand
	conns     map[*conn]struct{}
	lastPort  int
	lastConn  int
}

// New makes a network without hosts.
func New() *Network {
	n := &Network{
		hosts: make(map[string]*Host), listeners: make(map[string]*listener),
		packets: make(map[string]*Packets), ways: make(map[[2]string]*way), rand: rand.New(rand.NewPCG(1, 1)),
		conns: make(map[*conn]struct{}), lastPort: firstPort,
	}
	n.changed = sync.NewCond(&n.mu)
	return n
}

// Host is one machine, with one process on it. A process that is ended may still run for a while, as
// a goroutine cannot be killed: Replace makes a new Host for the next one, and the old one is off
// the network for good.
type Host struct {
	n      *Network
	name   string
	off    bool
	frozen bool
}

// Host gives the host of that name, which is made at first use.
func (n *Network) Host(name string) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.hosts[name]
	if h == nil {
		h = &Host{n: n, name: name}
		n.hosts[name] = h
	}
	return h
}

func (n *Network) wakeAll() {
	n.changed.Broadcast()
	for _, c := range n.sorted() {
		c.wake.Broadcast()
	}
}

// Freeze stops the host's process, or lets it go on: nothing leaves the host, and what is sent to it
// waits until then, packets excepted.
func (h *Host) Freeze(frozen bool) {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	h.frozen = frozen
	h.n.wakeAll()
}

// Kill ends the host's process: its connections and listeners are closed, and new dials to it
// are refused until it listens again.
func (h *Host) Kill() {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	h.killLocked(func(c *conn) { c.closeLocked() })
}

// PowerOff ends the host without a word to anybody.
func (h *Host) PowerOff() {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	h.off = true
	h.killLocked(func(c *conn) { c.closed, c.lost = true, true })
	h.n.wakeAll()
}

// PowerOn lets a host answer again. What others still hold of its earlier connections is reset.
func (h *Host) PowerOn() {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	h.off = false
	for _, c := range h.n.sorted() {
		if c.peer.host.name == h.name && c.peer.lost {
			c.broken = syscall.ECONNRESET
		}
	}
	h.n.wakeAll()
}

// Replace gives the host of the same name for another process; h has no network any more. What others
// still hold of its connections is reset.
func (h *Host) Replace() *Host {
	h.PowerOff()
	h.n.mu.Lock()
	next := &Host{n: h.n, name: h.name, off: true}
	h.n.hosts[h.name] = next
	h.n.mu.Unlock()
	next.PowerOn()
	return next
}

// Name of the host.
func (h *Host) Name() string { return h.name }

func (h *Host) killLocked(end func(*conn)) {
	for addr, l := range h.n.listeners {
		if l.host == h {
			l.closeLocked()
			delete(h.n.listeners, addr)
		}
	}
	for _, p := range h.n.packets {
		if p.host == h {
			p.closeLocked()
		}
	}
	for _, c := range h.n.sorted() {
		if c.host == h {
			end(c)
			c.wake.Broadcast()
		}
	}
}

// sorted gives the connections in the order they were made, so that a run can be repeated.
func (n *Network) sorted() []*conn {
	out := make([]*conn, 0, len(n.conns))
	for c := range n.conns {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *conn) int { return cmp.Compare(a.id, b.id) })
	return out
}

// Listen listens on a port of the host, 0 for a free one. The address is "name:port".
func (h *Host) Listen(port int) (net.Listener, error) {
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
	if n.listeners[string(a)] != nil {
		return nil, opError("listen", a, syscall.EADDRINUSE)
	}
	l := &listener{host: h, addr: a, wake: sync.NewCond(&n.mu)}
	n.listeners[string(a)] = l
	n.changed.Broadcast()
	return l, nil
}

// Dial connects from the host to "name:port".
func (h *Host) Dial(ctx context.Context, to string) (net.Conn, error) {
	name, _, err := net.SplitHostPort(to)
	if err != nil {
		return nil, opError("dial", addr(to), err)
	}
	n := h.n
	n.Host(name)
	stop := context.AfterFunc(ctx, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.changed.Broadcast()
	})
	defer stop()
	n.mu.Lock()
	defer n.mu.Unlock()
	there, back := n.way(h.name, name), n.way(name, h.name)
	arrives := there.arrival(n.rand, 0).Add(time.Until(back.arrival(n.rand, 0)))
	timer := time.AfterFunc(time.Until(arrives), n.changedNow)
	defer timer.Stop()
	for ctx.Err() == nil && !h.off && (h.frozen || there.cut || back.cut || n.hosts[name].off || time.Now().Before(arrives)) {
		n.changed.Wait()
	}
	if err := ctx.Err(); err != nil {
		return nil, opError("dial", addr(to), err)
	}
	if h.off {
		return nil, opError("dial", addr(to), syscall.ENETDOWN)
	}
	l := n.listeners[to]
	if l == nil || len(l.waiting) >= backlog {
		return nil, opError("dial", addr(to), os.NewSyscallError("connect", syscall.ECONNREFUSED))
	}
	n.lastPort++
	from := addr(net.JoinHostPort(h.name, strconv.Itoa(n.lastPort)))
	near, far := n.newConn(h, from, l.addr), n.newConn(l.host, l.addr, from)
	near.peer, far.peer = far, near
	l.waiting = append(l.waiting, far)
	l.wake.Broadcast()
	return near, nil
}

func (n *Network) changedNow() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changed.Broadcast()
}

type addr string

func (addr) Network() string  { return "mem" }
func (a addr) String() string { return string(a) }

func opError(op string, a net.Addr, err error) error {
	return &net.OpError{Op: op, Net: "mem", Addr: a, Err: err}
}

type listener struct {
	host    *Host
	addr    addr
	wake    *sync.Cond
	waiting []*conn
	closed  bool
}

func (l *listener) Addr() net.Addr { return l.addr }

func (l *listener) Accept() (net.Conn, error) {
	l.host.n.mu.Lock()
	defer l.host.n.mu.Unlock()
	for len(l.waiting) == 0 && !l.closed {
		l.wake.Wait()
	}
	if l.closed {
		return nil, opError("accept", l.addr, net.ErrClosed)
	}
	c := l.waiting[0]
	l.waiting = l.waiting[1:]
	return c, nil
}

func (l *listener) Close() error {
	l.host.n.mu.Lock()
	defer l.host.n.mu.Unlock()
	if l.host.n.listeners[string(l.addr)] == l {
		delete(l.host.n.listeners, string(l.addr))
	}
	l.closeLocked()
	return nil
}

func (l *listener) closeLocked() {
	l.closed = true
	for _, c := range l.waiting {
		c.closeLocked()
	}
	l.waiting = nil
	l.wake.Broadcast()
}

// conn is one end of a connection. It holds what has been written to it and not yet read.
type conn struct {
	n             *Network
	id            int
	host          *Host
	local, remote addr
	peer          *conn
	wake          *sync.Cond

	closed  bool  // by us
	lost    bool  // by us, without a word to the peer
	broken  error // reset
	arrived []segment
	held    int       // bytes in arrived
	alarm   time.Time // of the last timer that wakes a reader when a segment is here

	readBy, writeBy deadline
}

// segment is a piece of the stream, or its end if b is nil.
type segment struct {
	at time.Time
	b  []byte
}

type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (n *Network) newConn(h *Host, local, remote addr) *conn {
	n.lastConn++
	c := &conn{n: n, id: n.lastConn, host: h, local: local, remote: remote, wake: sync.NewCond(&n.mu)}
	n.conns[c] = struct{}{}
	return c
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) Read(b []byte) (int, error) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, opError("read", c.remote, net.ErrClosed)
		case c.broken != nil:
			return 0, opError("read", c.remote, c.broken)
		case c.readBy.passed():
			return 0, opError("read", c.remote, os.ErrDeadlineExceeded)
		case len(b) == 0:
			return 0, nil
		case len(c.arrived) > 0 && c.due():
			s := &c.arrived[0]
			if s.b == nil {
				return 0, io.EOF
			}
			k := copy(b, s.b)
			if c.held >= window {
				c.peer.wake.Broadcast() // a writer waits
			}
			c.held -= k
			if s.b = s.b[k:]; len(s.b) == 0 {
				c.arrived = c.arrived[1:]
			}
			return k, nil
		}
		c.wake.Wait()
	}
}

// due tells that the oldest segment is here; if it is on its way a timer will wake the reader, one for each segment
// that comes to be the oldest.
func (c *conn) due() bool {
	if c.n.blocked(c.peer.host, c.host) {
		return false
	}
	at := c.arrived[0].at
	wait := time.Until(at)
	if wait > 0 && !c.alarm.Equal(at) {
		c.alarm = at
		time.AfterFunc(wait, c.wakeNow)
	}
	return wait <= 0
}

func (c *conn) wakeNow() {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	c.wake.Broadcast()
}

func (c *conn) Write(b []byte) (int, error) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	written := 0
	for {
		room := window - c.peer.held
		switch {
		case c.closed:
			return written, opError("write", c.remote, net.ErrClosed)
		case c.broken != nil:
			return written, opError("write", c.remote, c.broken)
		case c.peer.closed && !c.n.blocked(c.host, c.peer.host) && !c.n.blocked(c.peer.host, c.host):
			return written, opError("write", c.remote, syscall.ECONNRESET)
		case c.writeBy.passed():
			return written, opError("write", c.remote, os.ErrDeadlineExceeded)
		case written == len(b):
			return written, nil
		case room > 0:
			k := min(room, len(b)-written)
			c.send(slices.Clone(b[written : written+k]))
			c.peer.held += k
			written += k
			if len(c.peer.arrived) == 1 { // else the reader waits for one before it
				c.peer.wake.Broadcast()
			}
		default:
			c.wake.Wait()
		}
	}
}

// send puts a segment on its way, behind those before it.
func (c *conn) send(b []byte) {
	at := c.n.way(c.host.name, c.peer.host.name).arrival(c.n.rand, len(b))
	if k := len(c.peer.arrived); k > 0 && at.Before(c.peer.arrived[k-1].at) {
		at = c.peer.arrived[k-1].at
	}
	c.peer.arrived = append(c.peer.arrived, segment{at, b})
}

func (c *conn) Close() error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if c.closed {
		return opError("close", c.remote, net.ErrClosed)
	}
	c.closeLocked()
	return nil
}

// closeLocked closes our end. The peer learns of it behind what was written before.
func (c *conn) closeLocked() {
	if c.closed {
		return
	}
	c.closed = true
	c.readBy.set(time.Time{}, nil)
	c.writeBy.set(time.Time{}, nil)
	c.wake.Broadcast()
	c.send(nil)
	c.peer.wake.Broadcast()
	if c.peer.closed {
		delete(c.n.conns, c)
		delete(c.n.conns, c.peer)
	}
}

func (d *deadline) set(at time.Time, wake func()) {
	d.at = at
	switch {
	case at.IsZero():
		if d.timer != nil {
			d.timer.Stop()
		}
	case d.timer == nil:
		d.timer = time.AfterFunc(time.Until(at), wake)
	default:
		d.timer.Reset(time.Until(at))
	}
}

func (c *conn) SetReadDeadline(at time.Time) error {
	return c.setDeadlines(at, &c.readBy)
}

func (c *conn) SetWriteDeadline(at time.Time) error {
	return c.setDeadlines(at, &c.writeBy)
}

func (c *conn) SetDeadline(at time.Time) error {
	return c.setDeadlines(at, &c.readBy, &c.writeBy)
}

func (c *conn) setDeadlines(at time.Time, ds ...*deadline) error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if c.closed {
		return opError("set", c.remote, net.ErrClosed)
	}
	for _, d := range ds {
		d.set(at, c.wakeNow) // who waits hears of it when it has passed
	}
	return nil
}

// String names the connection in the messages of tests.
func (c *conn) String() string { return fmt.Sprintf("%s->%s", c.local, c.remote) }
