package gossip

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	maxDatagram = 64 << 10               // bytes; the longest that UDP has
	maxStreams  = 64                     // connections accepted and not yet closed; more are closed at once
	acceptPause = 100 * time.Millisecond // after an accept that failed
	bindTries   = 20                     // for a free port that is free for both protocols
)

// Transport carries memberlist's packets and streams over any listener and packet socket. It
// replaces memberlist's own for three reasons: Shutdown ends dials and streams under way and
// waits for nobody's timeout; a packet costs a buffer of its size, not 64 KiB; and a network in
// memory can stand below it.
type Transport struct {
	ln   net.Listener
	pc   net.PacketConn
	dial func(ctx context.Context, addr string) (net.Conn, error)

	packets chan *memberlist.Packet
	streams chan net.Conn
	slots   chan struct{} // one token per accepted connection
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
}

var _ memberlist.Transport = (*Transport)(nil)

// NewTransport takes both sockets over and starts to read them. They must have the same port.
func NewTransport(ln net.Listener, pc net.PacketConn, dial func(ctx context.Context, addr string) (net.Conn, error)) *Transport {
	t := &Transport{
		ln: ln, pc: pc, dial: dial,
		packets: make(chan *memberlist.Packet), streams: make(chan net.Conn), slots: make(chan struct{}, maxStreams),
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.wg.Go(t.accept)
	t.wg.Go(t.receive)
	return t
}

// listen opens a TCP and a UDP socket on one port of addr (host:port, an empty host is every
// IPv4 address, port 0 is any that is free for both).
func listen(addr string) (*Transport, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("the gossip address %q is not host:port: %w", addr, err)
	}
	if host == "" {
		host = "0.0.0.0"
	}
	for try := 1; ; try++ {
		ln, err := net.Listen("tcp", net.JoinHostPort(host, port))
		if err != nil {
			return nil, fmt.Errorf("gossip cannot listen: %w", err)
		}
		pc, err := net.ListenPacket("udp", ln.Addr().String())
		if err == nil {
			var d net.Dialer
			dial := func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
			return NewTransport(ln, pc, dial), nil
		}
		_ = ln.Close()
		if !errors.Is(err, syscall.EADDRINUSE) || port != "0" || try == bindTries {
			return nil, fmt.Errorf("gossip cannot listen: %w", err)
		}
	}
}

// Addr is where both sockets listen.
func (t *Transport) Addr() net.Addr { return t.ln.Addr() }

func (t *Transport) accept() {
	for {
		nc, err := t.ln.Accept()
		if err != nil {
			select {
			case <-t.ctx.Done():
				return
			case <-time.After(acceptPause):
				continue
			}
		}
		select {
		case t.slots <- struct{}{}:
		default:
			_ = nc.Close()
			continue
		}
		select {
		case t.streams <- t.bind(nc, func() { <-t.slots }):
		case <-t.ctx.Done():
			_ = nc.Close()
			return
		}
	}
}

func (t *Transport) receive() {
	buf := make([]byte, maxDatagram)
	for {
		n, from, err := t.pc.ReadFrom(buf)
		switch {
		case t.ctx.Err() != nil:
			return
		case err != nil:
			select {
			case <-t.ctx.Done():
				return
			case <-time.After(acceptPause):
			}
			continue
		case n == 0:
			continue
		}
		p := &memberlist.Packet{Buf: append([]byte(nil), buf[:n]...), From: from, Timestamp: time.Now()}
		select {
		case t.packets <- p:
		case <-t.ctx.Done():
			return
		}
	}
}

// stream is a connection that ends with the transport.
type stream struct {
	net.Conn
	once sync.Once
	end  func()
}

func (t *Transport) bind(nc net.Conn, end func()) *stream {
	stop := context.AfterFunc(t.ctx, func() { _ = nc.Close() })
	return &stream{Conn: nc, end: func() { stop(); end() }}
}

func (s *stream) Close() error {
	s.once.Do(s.end)
	return s.Conn.Close()
}

// FinalAdvertiseAddr gives what others are told: ip, or the address that the sockets are bound to.
func (t *Transport) FinalAdvertiseAddr(ip string, _ int) (net.IP, int, error) {
	host, port, err := net.SplitHostPort(t.ln.Addr().String())
	if err != nil {
		return nil, 0, err
	}
	p, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, 0, err
	}
	if ip == "" {
		ip = host
	}
	a := net.ParseIP(ip)
	if a == nil || a.IsUnspecified() {
		return nil, 0, fmt.Errorf("gossip needs an address that others can reach, and %q is none: set the address to advertise", ip)
	}
	if v4 := a.To4(); v4 != nil {
		a = v4
	}
	return a, int(p), nil
}

// WriteTo sends a packet.
func (t *Transport) WriteTo(b []byte, addr string) (time.Time, error) {
	to, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return time.Time{}, err
	}
	_, err = t.pc.WriteTo(b, to)
	return time.Now(), err
}

// PacketCh brings packets.
func (t *Transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// DialTimeout opens a stream.
func (t *Transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(t.ctx, timeout)
	defer cancel()
	nc, err := t.dial(ctx, addr)
	if err != nil {
		return nil, dialError{err}
	}
	return t.bind(nc, func() {}), nil
}

// StreamCh brings the streams that others open.
func (t *Transport) StreamCh() <-chan net.Conn { return t.streams }

// Shutdown closes both sockets and all streams, and returns when nothing more is read.
func (t *Transport) Shutdown() error {
	t.cancel()
	err := errors.Join(t.ln.Close(), t.pc.Close())
	t.wg.Wait()
	return err
}
