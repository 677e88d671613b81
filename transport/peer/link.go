package peer

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"time"

	"edged/record"
)

// link is one node that we are, or want to be, connected with.
type link struct {
	t    *Transport
	node record.NodeID
	next chan *conn    // from Accept to run: a control connection that counts; the newest one only, put under Transport.mu
	wake chan struct{} // holds a token when shared has changed or the peer has knocked
	pace pacer         // of the dials; run's own
	at   string        // the place where the last dial found the peer; run's own

	shared struct { // guarded by Transport.mu
		wanted  bool
		addr    string // not empty if wanted
		knocked string // the host that the peer last knocked from
		session *session
		lastErr string
		told    map[string]string // the last error at each address, for the log; at most maxTold
	}
}

func newLink(t *Transport, node record.NodeID) *link {
	return &link{t: t, node: node, next: make(chan *conn, 1), wake: make(chan struct{}, 1), pace: newPacer(t.limits)}
}

func (l *link) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// dials tells which side of the pair we are.
func (l *link) dials() bool { return l.t.self < l.node }

func (l *link) target() string {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	return l.shared.addr
}

// places are where the peer may be, "" if nobody wants it: at the address that was given, and on the host that
// it knocked from. The address is what somebody has heard, and may be that of a clone which is gone: a knock is
// the peer itself.
func (l *link) places() []string {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	given := l.shared.addr
	if host, port, err := net.SplitHostPort(given); err == nil && l.shared.knocked != "" && l.shared.knocked != host {
		return []string{given, net.JoinHostPort(l.shared.knocked, port)}
	}
	return []string{given}
}

// knockedFrom notes a knock, so that the peer is dialed at once.
func (l *link) knockedFrom(remote net.Addr) {
	if host, _, err := net.SplitHostPort(remote.String()); err == nil {
		l.shared.knocked = host
	}
	l.wakeUp()
}

// run takes the link through its sessions until the transport closes or nobody wants it any more.
func (l *link) run() {
	h := l.t.handler
	var c *conn
	for {
		if c == nil {
			if c = l.connect(); c == nil {
				return
			}
		}
		s := l.begin(c)
		if s == nil {
			c.close(errRemoved)
			c = nil
			continue
		}
		l.t.log.Info("peer connected", "node", l.node, "boot", s.remote.BootCounter, "addr", c.nc.RemoteAddr().String())
		h.PeerUp(s.remote)
		why := s.serve()
		if l.t.ctx.Err() != nil {
			return
		}
		l.pace.measure(time.Since(s.since))
		var refused bool
		c, refused = l.afterLoss()
		if l.t.ctx.Err() != nil {
			return
		}
		l.t.log.Info("peer lost", "node", l.node, "boot", s.remote.BootCounter, "why", why, "refused", refused)
		h.PeerDown(l.node, s.remote.Boot, refused)
	}
}

// begin makes a session of a control connection, so that Send works, unless the peer was
// removed while we dialed it.
func (l *link) begin(c *conn) *session {
	s := newSession(l, c)
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	if l.dials() && !l.shared.wanted {
		return nil
	}
	l.shared.session, l.shared.lastErr, l.shared.told = s, "", nil
	return s
}

// forget takes a lost session away. From here on Send fails and Accept brings nothing to it.
func (l *link) forget(s *session) {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	l.shared.session, l.shared.lastErr = nil, s.control.why.Error()
}

// connect gives a control connection that counts on both sides, and nil when the link has ended.
func (l *link) connect() *conn {
	if l.dials() {
		return l.dialUntilUp()
	}
	return l.waitUntilUp()
}

func (l *link) dialUntilUp() *conn {
	for try := 0; ; try++ {
		if !l.pace.rest(l.t.ctx, l.wake) {
			return nil
		}
		places := l.places()
		addr := places[try%len(places)]
		if addr == "" {
			if l.retire() {
				return nil
			}
			continue
		}
		c, err := l.t.dial(l.t.ctx, addr, forControl, l.node)
		if err == nil {
			l.at = addr
			return c
		}
		l.failed(addr, err)
		l.pace.slower()
		if refusal(err) {
			l.pace.slowest()
		}
	}
}

func (l *link) waitUntilUp() *conn {
	ctx, cancel := context.WithCancel(l.t.ctx)
	defer cancel()
	var result chan error // of the knock that is under way
	for due := true; ; {
		addr := l.target()
		if addr == "" && l.retire() {
			return nil
		}
		if due && addr != "" && result == nil {
			due, result = false, l.knock(ctx, addr)
		}
		select {
		case c := <-l.next:
			return c
		case err := <-result:
			result = nil
			l.failed(addr, err)
		case <-l.wake:
			due = true
		case <-l.t.ctx.Done():
			return nil
		}
	}
}

// afterLoss finds out whether the peer's process is gone, within Limits.Probe. If that brings a
// new connection it is given too. A process that is being killed loses its connections before
// its listener: for a moment its address still connects and then cuts off, so that is asked again.
func (l *link) afterLoss() (c *conn, refused bool) {
	addr := l.target()
	if addr == "" {
		return nil, false
	}
	if slices.Contains(l.places(), l.at) {
		addr = l.at
	}
	ctx, cancel := context.WithTimeout(l.t.ctx, l.t.limits.Probe)
	defer cancel()
	dials := l.dials() && l.pace.ready()
	for pause := minProbePause; ; pause *= 2 {
		c, err := l.probe(ctx, addr, dials)
		if !cutOff(err) || !sleep(ctx, pause) {
			l.failed(addr, err)
			return c, isRefused(err)
		}
	}
}

// minProbePause is the pause before a peer that cut us off is probed again; it doubles.
const minProbePause = time.Millisecond

func (l *link) probe(ctx context.Context, addr string, dials bool) (*conn, error) {
	if dials {
		return l.t.dial(ctx, addr, forControl, l.node)
	}
	select {
	case c := <-l.next:
		return c, nil
	case err := <-l.knock(ctx, addr):
		return nil, err
	}
}

// cutOff tells that somebody took the connection and ended it without a word.
func cutOff(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// knock tells the dialing side that we are here, and us whether it is. The channel brings the
// outcome at the latest when the context ends.
func (l *link) knock(ctx context.Context, addr string) chan error {
	result := make(chan error, 1)
	started := l.t.goIfOpen(func() {
		c, err := l.t.dial(ctx, addr, forKnock, l.node)
		if err == nil {
			c.close(errKnocked)
		}
		result <- err
	})
	if !started {
		result <- errClosing
	}
	return result
}

// retire ends the link if nobody wants it and nothing waits in it.
func (l *link) retire() bool {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	if l.shared.wanted || len(l.next) > 0 {
		return false
	}
	delete(l.t.mu.links, l.node)
	return true
}

// failed keeps and tells why we are not connected; nil is no failure.
func (l *link) failed(addr string, err error) {
	if err == nil || l.t.ctx.Err() != nil || errors.Is(err, context.Canceled) {
		return
	}
	text := err.Error()
	l.t.mu.Lock()
	news := l.shared.told[addr] != text
	if l.shared.told == nil || len(l.shared.told) >= maxTold {
		l.shared.told = map[string]string{}
	}
	l.shared.told[addr], l.shared.lastErr = text, text
	l.t.mu.Unlock()
	if news && !errors.Is(err, ErrNotConnected) { // data was faster than control; it comes again
		l.t.log.Warn("no connection with peer", "node", l.node, "addr", addr, "err", err)
	}
	if refusal(err) {
		l.t.handler.PeerRefused(l.node, addr, err)
	}
}

// maxTold bounds the addresses of a peer of which is remembered what the log was told.
const maxTold = 8

// isRefused tells that the machine answered and nobody listens there.
func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
