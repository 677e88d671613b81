package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"edged/record"
)

const (
	callHead        = 8 + 4 // id and timeout before a request
	answerHead      = 8     // id before an answer or error
	maxWaiting      = 256   // requests of ours that wait for one peer
	defaultPatience = 10 * time.Second
	maxPatience     = time.Minute // for which a request of another node may keep a goroutine here
)

var errMalformed = errors.New("a request or answer between nodes is malformed")

// calls are our requests that wait for an answer on one session.
type calls struct {
	sync.Mutex
	last    uint64
	over    error
	waiting map[uint64]chan reply // at most maxWaiting; each channel has room for its reply
}

type reply struct {
	payload []byte
	err     error
}

func (cs *calls) begin() (uint64, chan reply, error) {
	cs.Lock()
	defer cs.Unlock()
	switch {
	case cs.over != nil:
		return 0, nil, cs.over
	case len(cs.waiting) >= maxWaiting:
		return 0, nil, fmt.Errorf("%w: %d requests wait for the node already", record.ErrBusy, maxWaiting)
	case cs.waiting == nil:
		cs.waiting = make(map[uint64]chan reply)
	}
	cs.last++
	ch := make(chan reply, 1)
	cs.waiting[cs.last] = ch
	return cs.last, ch, nil
}

func (cs *calls) forget(id uint64) {
	cs.Lock()
	defer cs.Unlock()
	delete(cs.waiting, id)
}

// settle takes an answer or fault. One that nobody waits for any more is fine.
func (cs *calls) settle(typ byte, payload []byte) error {
	id, r, err := parseReply(typ, payload)
	if err != nil {
		return err
	}
	cs.Lock()
	defer cs.Unlock()
	if ch := cs.waiting[id]; ch != nil {
		delete(cs.waiting, id)
		ch <- r
	}
	return nil
}

// fail ends all that wait and all that come.
func (cs *calls) fail(err error) {
	cs.Lock()
	defer cs.Unlock()
	cs.over = err
	for _, ch := range cs.waiting {
		ch <- reply{err: err}
	}
	cs.waiting = nil
}

// Call sends one request to a connected node and waits for its answer, at most until the
// context ends or for 10 s if it has no deadline. Errors: ErrNotConnected, ErrConnectionLost,
// record.ErrBusy, record.ErrTimeout, or what the other node's Handler said.
func (t *Transport) Call(ctx context.Context, node record.NodeID, payload []byte) ([]byte, error) {
	if err := t.checkSize(payload); err != nil {
		return nil, err
	}
	s := t.session(node)
	if s == nil {
		return nil, fmt.Errorf("%w (node %d)", ErrNotConnected, node)
	}
	ctx, cancel := withPatience(ctx)
	defer cancel()
	id, ch, err := s.calls.begin()
	if err != nil {
		return nil, err
	}
	defer s.calls.forget(id)
	if !s.controlQ.push(callFrame(ctx, id, payload)) {
		return nil, fmt.Errorf("%w: too much is queued for node %d", record.ErrBusy, node)
	}
	select {
	case r := <-ch:
		return r.payload, r.err
	case <-ctx.Done():
		return nil, lostPatience(ctx, node.String())
	}
}

// CallAddr sends one request to whichever node listens at addr, on a connection of its own,
// and tells who answered. It is for nodes that do not share a cluster yet, or not a session.
// Besides the errors of Call it gives those of dialing and of the handshake; ErrSelf means that
// addr leads to this very process. The identity is set whenever the handshake was passed.
func (t *Transport) CallAddr(ctx context.Context, addr string, payload []byte) (Identity, []byte, error) {
	if err := t.checkSize(payload); err != nil {
		return Identity{}, nil, err
	}
	ctx, cancel := withPatience(ctx)
	defer cancel()
	c, err := t.dial(ctx, addr, forCall, 0)
	switch {
	case refusal(err):
		return Identity{}, nil, fmt.Errorf("%s: %w", addr, err)
	case err != nil:
		return Identity{}, nil, fmt.Errorf("%w (%s: %w)", ErrNotConnected, addr, err)
	}
	stop := context.AfterFunc(ctx, func() { c.close(context.Cause(ctx)) })
	defer stop()
	r, err := t.exchange(ctx, c, payload)
	c.close(errServed)
	switch {
	case err == nil:
		return c.remote, r.payload, r.err
	case ctx.Err() != nil:
		return c.remote, nil, lostPatience(ctx, addr)
	}
	return c.remote, nil, fmt.Errorf("%w (%s: %v)", ErrConnectionLost, addr, err)
}

func (t *Transport) exchange(ctx context.Context, c *conn, payload []byte) (reply, error) {
	if err := c.write(callFrame(ctx, 1, payload)); err != nil {
		return reply{}, err
	}
	typ, b, err := c.next(answerHead+max(t.limits.MaxCall, maxHello), 0, nil)
	if err != nil {
		return reply{}, err
	}
	if typ != frameAnswer && typ != frameFault {
		return reply{}, unexpected(typ, b)
	}
	_, r, err := parseReply(typ, b)
	return r, err
}

func (t *Transport) checkSize(payload []byte) error {
	if len(payload) > t.limits.MaxCall {
		return fmt.Errorf("%w: a request between nodes of %d bytes is longer than %d", record.ErrLimit, len(payload), t.limits.MaxCall)
	}
	return nil
}

func withPatience(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, defaultPatience)
}

func lostPatience(ctx context.Context, whom string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w (node %s)", record.ErrTimeout, whom)
	}
	return ctx.Err()
}

// callFrame makes the frame of a request; its timeout is what is left of ctx.
func callFrame(ctx context.Context, id uint64, payload []byte) frame {
	ms := int64(maxPatience / time.Millisecond)
	if at, ok := ctx.Deadline(); ok {
		ms = min(max(time.Until(at).Milliseconds(), 1), math.MaxUint32)
	}
	head := binary.BigEndian.AppendUint64(make([]byte, 0, callHead), id)
	return newFrame(frameCall, binary.BigEndian.AppendUint32(head, uint32(ms)), payload)
}

func parseCall(b []byte) (id uint64, patience time.Duration, payload []byte, err error) {
	if len(b) < callHead {
		return 0, 0, nil, errMalformed
	}
	patience = time.Duration(binary.BigEndian.Uint32(b[8:])) * time.Millisecond
	return binary.BigEndian.Uint64(b), min(patience, maxPatience), b[callHead:], nil
}

func answerFrame(id uint64, payload []byte, err error) frame {
	head := binary.BigEndian.AppendUint64(make([]byte, 0, answerHead), id)
	if err != nil {
		return newFrame(frameFault, head, appendError(nil, err))
	}
	return newFrame(frameAnswer, head, payload)
}

func parseReply(typ byte, b []byte) (uint64, reply, error) {
	if len(b) < answerHead {
		return 0, reply{}, errMalformed
	}
	id, rest := binary.BigEndian.Uint64(b), b[answerHead:]
	if typ == frameAnswer {
		return id, reply{payload: rest}, nil
	}
	err, ok := parseError(rest)
	if !ok {
		return 0, reply{}, errMalformed
	}
	return id, reply{err: err}, nil
}

// answer runs the Handler for one request and makes the frame that goes back.
func (t *Transport) answer(ctx context.Context, from Identity, id uint64, patience time.Duration, payload []byte) frame {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := t.handler.PeerCall(ctx, from, payload)
	if err != nil && ctx.Err() != nil {
		err = record.ErrTimeout
	}
	if err == nil && len(out) > t.limits.MaxCall {
		err = fmt.Errorf("%w: an answer between nodes of %d bytes is longer than %d", record.ErrLimit, len(out), t.limits.MaxCall)
	}
	return answerFrame(id, out, err)
}

// handleCall serves a request that came on the session, on a goroutine of its own, because the
// beats behind it must not wait for it.
func (s *session) handleCall(b []byte) error {
	id, patience, payload, err := parseCall(b)
	if err != nil {
		return err
	}
	if err := s.t.checkSize(payload); err != nil {
		s.controlQ.push(answerFrame(id, nil, err))
		return nil
	}
	select {
	case s.serving <- struct{}{}:
	default:
		s.controlQ.push(answerFrame(id, nil, record.ErrBusy))
		return nil
	}
	s.t.goIfOpen(func() {
		defer func() { <-s.serving }()
		s.controlQ.push(s.t.answer(s.ctx, s.remote, id, patience, payload))
	})
	return nil
}

// serveShort serves the one request of a short connection, on the goroutine of Accept.
func (t *Transport) serveShort(c *conn) error {
	slow := time.AfterFunc(t.limits.Handshake, func() { c.close(errors.New("the request took too long to arrive")) })
	typ, b, err := c.next(callHead+t.limits.MaxCall, 0, nil)
	slow.Stop()
	if err != nil {
		return err
	}
	if typ != frameCall {
		return unexpected(typ, b)
	}
	id, patience, payload, err := parseCall(b)
	if err != nil {
		return err
	}
	select {
	case t.short <- struct{}{}:
		defer func() { <-t.short }()
	default:
		return errors.Join(c.write(answerFrame(id, nil, record.ErrBusy)), record.ErrBusy)
	}
	if err := c.write(t.answer(t.ctx, c.remote, id, patience, payload)); err != nil {
		return err
	}
	return errServed
}
