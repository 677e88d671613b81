package peer

import (
	"errors"
	"fmt"
	"net"
)

var (
	errReplaced = errors.New("a newer connection took its place")
	errKnocked  = errors.New("a knock has ended")
	errServed   = errors.New("the request has been answered")
)

// Accept takes a connection that another node opened, from the magic on, and closes it in the
// end. It returns when the handshake has failed, the request has been answered, or the connection
// has found its link, which outlives the listener: on a planned stop peers stay connected for
// the hand-over of leaders. Until the handshake is done a stranger can make us hold maxHello bytes
// for Limits.Handshake; how many strangers there may be is for the listener to say.
func (t *Transport) Accept(nc net.Conn) {
	t.mu.Lock()
	if t.mu.closing {
		t.mu.Unlock()
		_ = nc.Close()
		return
	}
	t.wg.Add(1)
	t.mu.Unlock()
	defer t.wg.Done()

	c, err := t.open(nc)
	if err != nil {
		return
	}
	p, err := t.welcome(c)
	if err == nil {
		err = t.place(c, p)
	}
	if err != nil {
		c.close(err)
		t.log.Debug("connection not taken", "addr", nc.RemoteAddr().String(), "err", err)
		if refusal(err) && t.ctx.Err() == nil {
			t.handler.PeerRefused(c.remote.Node, nc.RemoteAddr().String(), err)
		}
	}
}

// place hands a connection that counts to its owner.
func (t *Transport) place(c *conn, p purpose) error {
	switch p {
	case forControl:
		return t.placeControl(c)
	case forData:
		return t.placeData(c)
	case forKnock:
		t.mu.Lock()
		if l := t.mu.links[c.remote.Node]; l != nil {
			l.knockedFrom(c.nc.RemoteAddr())
		}
		t.mu.Unlock()
		c.close(errKnocked)
	case forCall:
		c.close(t.serveShort(c))
	}
	return nil
}

// placeControl gives c to its link. The dialer only dials when it has no connection, so a
// session that still stands here has lost its other end.
func (t *Transport) placeControl(c *conn) error {
	t.mu.Lock()
	l, err := t.linkLocked(c.remote.Node)
	if err != nil {
		t.mu.Unlock()
		return err
	}
	old := l.shared.session
	passed := putLocked(l.next, c)
	t.mu.Unlock()
	if old != nil {
		old.control.close(errReplaced)
	}
	passed.close(errReplaced)
	return nil
}

func (t *Transport) placeData(c *conn) error {
	t.mu.Lock()
	l := t.mu.links[c.remote.Node]
	if l == nil || l.shared.session == nil || l.shared.session.remote.Boot != c.remote.Boot {
		t.mu.Unlock()
		return fmt.Errorf("%w: the control connection comes first", ErrNotConnected)
	}
	s := l.shared.session
	old := s.dataConn.Load()
	passed := putLocked(s.nextData, c)
	t.mu.Unlock()
	old.close(errReplaced)
	passed.close(errReplaced)
	return nil
}

// putLocked leaves c in a slot of one place and gives what was there before, for the caller to
// end. All that put hold Transport.mu, so the slot is free when it has been emptied.
func putLocked(slot chan *conn, c *conn) (passed *conn) {
	select {
	case passed = <-slot:
	default:
	}
	slot <- c
	return passed
}
