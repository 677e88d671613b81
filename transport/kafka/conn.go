package kafka

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"edged/transport"
)

const (
	// readBuffer is how much one read takes off the socket at most, in bytes, while requests are small.
	readBuffer = 8 << 10
	lengthSize = 4
	// minRequest is the smallest request: key, version, correlation and a null client id.
	minRequest = 10
)

// conn is one connection.
//
// Kafka works on one request of a connection at a time, and clients count on it: what they send
// later sees what they sent earlier. The same holds here, but for produces, which may overlap each
// other: the reader hands them to the broker in their order, and does not wait. Answers leave in
// the order of the requests.
type conn struct {
	s      *Server
	nc     net.Conn // for reading, and to close
	out    net.Conn // for writing: without the wrapper that hides writev
	at     Listener
	ctx    context.Context
	cancel context.CancelFunc

	requestMem, fetchMem *transport.Share
	reading, writing     *transport.Stopwatch    // run while a chunk is being read or written
	client               atomic.Pointer[string]  // name and version of the client's software, if it told
	sequences            map[[2]uint64]*sequence // by hash of topic and partition, and producer; the reader's
	rotation             int                     // where the next fetch begins among its partitions; serial requests only

	handlers sync.WaitGroup // the goroutine of a request that is not a produce; added to by the reader only
	written  chan struct{}  // closed when the writer is gone
	wake     chan struct{}  // capacity 1: there is something in mu for the writer
	turn     chan struct{}  // capacity 1: there is something in mu for the reader

	mu struct {
		sync.Mutex
		queue      []*call // in the order of their requests, until they are taken by the writer
		unanswered int     // calls that have no answer yet
		serial     bool    // one of them is not a produce; then it is the only one
		producing  int64   // bytes of produces without an answer
		closed     bool    // the writer is gone: answers are dropped
	}
}

// brokenError ends a connection: the client broke the protocol.
type brokenError struct {
	reason string
	err    error
}

func (e *brokenError) Error() string { return e.err.Error() }

func broken(reason, format string, args ...any) error {
	return &brokenError{reason, fmt.Errorf(format, args...)}
}

func newConn(s *Server, nc net.Conn, listener string) *conn {
	c := &conn{s: s, nc: nc, out: nc, written: make(chan struct{}), wake: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		reading: transport.NewStopwatch(), writing: transport.NewStopwatch()}
	if t, ok := nc.(*transport.Conn); ok {
		c.out = t.Conn
	}
	c.at = Listener{Name: listener, Local: nc.LocalAddr().String(), Remote: nc.RemoteAddr().String()}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.requestMem = s.clients.Requests.Share(s.cfg.ConnBytes)
	c.fetchMem = s.clients.Answers.Share(s.cfg.ConnBytes)
	return c
}

// Abort ends everything that waits for or works on this connection.
func (c *conn) Abort() {
	c.cancel()
	_ = c.nc.Close() // nothing is kept that a failed close could lose
}

// Stalled is for how long the client has given or taken nothing of what is on its way.
func (c *conn) Stalled() time.Duration { return max(c.reading.Elapsed(), c.writing.Elapsed()) }

// run serves until the client leaves, breaks the protocol or the server closes.
func (c *conn) run() {
	go c.writeLoop()
	err := c.readLoop()
	var b *brokenError
	if errors.As(err, &b) {
		c.fail(b.reason, b.err)
	}
	c.Abort()
	<-c.written
	c.handlers.Wait()
}

// fail notes why a connection is ended. Kafka's protocol has no way to tell the client.
func (c *conn) fail(reason string, err error) {
	c.s.metrics.badRequest(reason)
	client := ""
	if name := c.client.Load(); name != nil {
		client = *name
	}
	c.s.cfg.Logger.Warn("kafka: a connection is closed", "from", c.nc.RemoteAddr(), "client", client, "reason", reason, "err", err)
}

// readLoop reads requests until the connection ends.
func (c *conn) readLoop() error {
	r := bufio.NewReaderSize(c.nc, readBuffer)
	for {
		size, err := c.readLength(r)
		if err != nil {
			return err
		}
		q := &call{conn: c, size: size}
		var frame []byte
		if frame, err = c.readFrame(r, q); err == nil {
			c.s.metrics.bytesIn.Add(int64(size) + lengthSize)
			if q.isStream() {
				err = c.serveStream(r, q)
			} else {
				err = c.dispatch(q, frame)
			}
		}
		if err != nil {
			if !q.queued { // else the writer has it, or settle
				c.forget(q)
			}
			return err
		}
	}
}

// readLength waits for the next request. A connection without one is closed after IdleTimeout,
// but not while it waits for an answer.
func (c *conn) readLength(r *bufio.Reader) (int32, error) {
	for {
		if r.Buffered() == 0 {
			if err := c.nc.SetReadDeadline(time.Now().Add(c.s.cfg.IdleTimeout)); err != nil {
				return 0, err
			}
		}
		_, err := r.Peek(1)
		if errors.Is(err, os.ErrDeadlineExceeded) && c.busy() {
			continue
		}
		if err != nil {
			return 0, err
		}
		break
	}
	if r.Buffered() < lengthSize {
		if err := c.nc.SetReadDeadline(time.Now().Add(c.s.cfg.RequestTimeout)); err != nil {
			return 0, err
		}
	}
	var b [lengthSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		c.s.metrics.badRequest(BadCutShort)
		return 0, err
	}
	size := int32(binary.BigEndian.Uint32(b[:]))
	if size < minRequest || size > maxRequest {
		return 0, broken(BadLength, "a request of %d bytes (first bytes %q), this listener takes %d to %d%s", uint32(size), b[:], minRequest, maxRequest, guess(b))
	}
	return size, nil
}

// guess says what a length that is none may be instead.
func guess(b [lengthSize]byte) string {
	switch s := string(b[:]); {
	case b[0] == 0x16 && b[1] == 3:
		return "; the client seems to speak TLS, this listener does not"
	case s == "GET " || s == "POST" || s == "HEAD" || s == "PUT ":
		return "; the client seems to speak HTTP"
	case s == "EDGP":
		return "; it is another node, which should connect to the native port"
	}
	return "; is the client speaking Kafka's protocol?"
}

func (c *conn) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.unanswered > 0
}

// readFrame takes the memory for a request and reads it, but for one that is read in parts. The first eight
// bytes say what it is.
func (c *conn) readFrame(r *bufio.Reader, q *call) ([]byte, error) {
	if r.Buffered() < minRequest {
		if err := c.nc.SetReadDeadline(time.Now().Add(c.s.cfg.RequestTimeout)); err != nil {
			return nil, err
		}
	}
	head, err := r.Peek(minRequest)
	if err != nil {
		c.s.metrics.badRequest(BadCutShort)
		return nil, err
	}
	if err := q.identify(head); err != nil {
		return nil, err
	}
	weight := int64(min(q.size, c.s.cfg.MaxRequest))
	if !q.isProduce() {
		weight *= plainFactor
	}
	if q.held, err = c.requestMem.Acquire(c.ctx, weight+requestCost); err != nil {
		return nil, err
	}
	if q.isStream() {
		return nil, nil
	}
	frame := make([]byte, q.size)
	return frame, c.readFull(r, frame)
}

// await holds the reader until a request may start: a produce when everything before it that is no produce is
// answered and the window has room, anything else when everything before it is answered.
func (c *conn) await(q *call) error {
	for {
		c.mu.Lock()
		ok := c.mu.unanswered == 0
		if q.isProduce() {
			ok = ok || !c.mu.serial && c.mu.producing+int64(q.size) <= produceWindow
		}
		if ok {
			c.mu.queue = append(c.mu.queue, q)
			c.mu.unanswered++
			c.mu.serial = !q.isProduce()
			if q.isProduce() {
				c.mu.producing += int64(q.size)
			}
		}
		c.mu.Unlock()
		if ok {
			q.queued = true
			return nil
		}
		select {
		case <-c.turn:
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
	}
}

// settle gives a call its answer, once. A nil answer is none: nothing is sent.
func (c *conn) settle(q *call) {
	c.mu.Lock()
	q.done = true
	c.mu.unanswered--
	if q.isProduce() {
		c.mu.producing -= int64(q.size)
	} else {
		c.mu.serial = false
	}
	if c.mu.closed {
		c.dropLocked()
	}
	c.mu.Unlock()
	poke(c.wake)
	poke(c.turn)
}

func poke(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// dropLocked forgets answers that nobody will write.
func (c *conn) dropLocked() {
	kept := c.mu.queue[:0]
	for _, q := range c.mu.queue {
		if q.done {
			c.forget(q)
		} else {
			kept = append(kept, q)
		}
	}
	clear(c.mu.queue[len(kept):])
	c.mu.queue = kept
}

// forget gives back what a call holds.
func (c *conn) forget(q *call) {
	if q.held > 0 {
		c.requestMem.Release(q.held)
		q.held = 0
	}
	if q.fetchHeld > 0 {
		c.fetchMem.Release(q.fetchHeld)
		q.fetchHeld = 0
	}
}
