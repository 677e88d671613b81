package peer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// session is one control connection with one life of a peer, and everything that ends with it.
type session struct {
	t       *Transport
	link    *link
	remote  Identity
	since   time.Time
	control *conn

	ctx    context.Context // ends with the session
	cancel context.CancelFunc

	controlQ *queue
	dataQ    *queue // outlives a broken data connection, but not the session

	opened   chan struct{} // closed when the acceptor has asked for the data connection
	openOnce sync.Once
	nextData chan *conn           // from Accept to data; the newest one only, put under Transport.mu
	dataConn atomic.Pointer[conn] // what data reads now
	dataUp   atomic.Bool
	heard    atomic.Uint64 // frames read from control

	calls   calls
	serving chan struct{} // one token for each request of the peer being served
}

func newSession(l *link, c *conn) *session {
	t := l.t
	s := &session{t: t, link: l, remote: c.remote, since: time.Now(), control: c,
		controlQ: newQueue(t.limits.ControlQueue), dataQ: newQueue(t.limits.DataQueue),
		opened: make(chan struct{}), nextData: make(chan *conn, 1), serving: make(chan struct{}, t.limits.Calls)}
	s.ctx, s.cancel = context.WithCancel(t.ctx)
	return s
}

// serve reads the control connection until it is lost, and returns why, when every goroutine
// of the session but the calls has ended.
func (s *session) serve() error {
	var wg sync.WaitGroup
	wg.Go(func() { s.control.drain(s.controlQ) })
	wg.Go(s.data)
	s.control.close(s.readControl())
	s.cancel()
	s.link.forget(s)
	s.controlQ.close()
	s.dataQ.close()
	s.calls.fail(ErrConnectionLost)
	wg.Wait()
	select {
	case c := <-s.nextData:
		c.close(errReplaced)
	default:
	}
	return s.control.why
}

func (s *session) readControl() error {
	ping := func() { s.controlQ.push(newFrame(framePing)) }
	for {
		typ, payload, err := s.control.next(s.t.limits.MaxFrame, s.t.limits.Silence/2, ping)
		if err != nil {
			return err
		}
		s.heard.Add(1)
		if err := s.handleControl(typ, payload); err != nil {
			return err
		}
	}
}

func (s *session) handleControl(typ byte, payload []byte) error {
	switch typ {
	case frameMessage:
		s.t.handler.PeerFrame(s.remote.Node, s.remote.Boot, Control, payload)
	case frameCall:
		return s.handleCall(payload)
	case frameAnswer, frameFault:
		return s.calls.settle(typ, payload)
	case framePing:
		s.controlQ.push(newFrame(framePong))
	case framePong:
	case frameOpen:
		s.openOnce.Do(func() { close(s.opened) })
		if c := s.dataConn.Load(); c != nil {
			c.close(errReplaced)
		}
	default:
		return unexpected(typ, payload)
	}
	return nil
}

// alive asks the peer for a sign of life and waits for it. It is how a second process under
// the identity of a connected one is told from a restart.
func (s *session) alive(patience time.Duration) bool {
	before := s.heard.Load()
	s.controlQ.push(newFrame(framePing))
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-timer.C:
		return s.heard.Load() != before
	case <-s.control.ended:
		return false
	}
}

// data keeps the data connection up for as long as the session lasts, and reads it.
func (s *session) data() {
	get := s.awaitData
	if s.link.dials() {
		select {
		case <-s.opened: // not before the acceptor has its session
		case <-s.ctx.Done():
			return
		}
		get = s.dialData
	} else {
		s.controlQ.push(newFrame(frameOpen))
	}
	pace := newPacer(s.t.limits)
	for s.ctx.Err() == nil {
		c, err := get()
		if err == nil {
			pace.measure(s.serveData(c))
		} else {
			s.link.failed(s.at(), fmt.Errorf("data connection: %w", err))
			pace.slower()
		}
		if s.link.dials() {
			pace.rest(s.ctx, nil)
		}
	}
}

// awaitData waits for the dialer, and asks it when it does not come: it may believe that the
// connection which we have lost still stands. Asking at once would make it give up the one that it
// has dialed meanwhile.
func (s *session) awaitData() (*conn, error) {
	timer := time.NewTimer(s.t.limits.Handshake)
	defer timer.Stop()
	select {
	case c := <-s.nextData:
		return c, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	case <-timer.C:
		s.controlQ.push(newFrame(frameOpen))
		return nil, fmt.Errorf("node %d has not opened it", s.remote.Node)
	}
}

func (s *session) dialData() (*conn, error) {
	c, err := s.t.dial(s.ctx, s.at(), forData, s.remote.Node)
	if err != nil {
		return nil, err
	}
	if c.remote.Boot != s.remote.Boot {
		err := fmt.Errorf("node %d has restarted", s.remote.Node)
		c.close(err)
		s.control.close(err)
		return nil, err
	}
	return c, nil
}

// at is where the other end of the session is.
func (s *session) at() string { return s.control.nc.RemoteAddr().String() }

// serveData reads c until it is lost and tells how long it lasted.
func (s *session) serveData(c *conn) time.Duration {
	began := time.Now()
	stop := context.AfterFunc(s.ctx, func() { c.close(s.ctx.Err()) })
	defer stop()
	s.dataConn.Store(c)
	s.dataUp.Store(true)
	var wg sync.WaitGroup
	wg.Go(func() { c.drain(s.dataQ) })
	c.close(s.readData(c))
	wg.Wait()
	s.dataUp.Store(false)
	s.dataConn.Store(nil)
	return time.Since(began)
}

func (s *session) readData(c *conn) error {
	for {
		typ, payload, err := c.next(s.t.limits.MaxFrame, 0, nil)
		if err != nil {
			return err
		}
		if typ != frameMessage {
			return unexpected(typ, payload)
		}
		s.t.handler.PeerFrame(s.remote.Node, s.remote.Boot, Data, payload)
	}
}
