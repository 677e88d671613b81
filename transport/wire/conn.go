package wire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"edged/record"
	"edged/transport"
)

// readBuffer is how much one read takes off the socket at most, in bytes, while frames are small.
const readBuffer = 16 << 10

// conn is one connection.
//
// The reader takes frames and starts requests; a produce is handed to the broker by the
// reader itself, so that the order of a client's batches is the order of its frames.
// Answers go into queue; the writer encodes and writes all that is there in one go, so the
// answers of one fsync leave in one packet.
type conn struct {
	s       *Server
	nc      net.Conn // for reading, and to close
	out     net.Conn // for writing: without the wrapper that hides writev
	ctx     context.Context
	cancel  context.CancelFunc
	greeted bool // reader only

	requestMem, fetchMem *transport.Share
	fetches              atomic.Int32
	writing              *transport.Stopwatch // runs while a chunk is being written
	calls                chan struct{}        // capacity maxCalls: filled by unary, emptied by forget

	handlers sync.WaitGroup // requests that have a goroutine; added to by the reader only
	written  chan struct{}  // closed when the writer is gone
	wake     chan struct{}  // capacity 1: there is something in mu for the writer

	mu struct {
		sync.Mutex
		queue   []answer
		lanes   map[record.TopicPartition][]*produced
		closing bool // the writer ends when the queue is empty
		closed  bool // the writer is gone: answers are dropped
	}
}

// answer waits to be written. Its memory is given back when it is.
type answer struct {
	correlation uint32
	err         error
	body        Message
	requestMem  int64
	fetchMem    int64
	call        bool // holds a place in calls
}

// produced is a batch that waits for the broker, or for the ones before it.
type produced struct {
	ready  bool
	answer answer
}

// protocolError ends a connection after an error frame with this correlation.
type protocolError struct {
	reason      string
	correlation uint32
	err         error
}

func (e *protocolError) Error() string { return e.err.Error() }

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{s: s, nc: nc, out: nc, written: make(chan struct{}), wake: make(chan struct{}, 1), calls: make(chan struct{}, maxCalls), writing: transport.NewStopwatch()}
	if t, ok := nc.(*transport.Conn); ok {
		c.out = t.Conn
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.requestMem, c.fetchMem = s.clients.Requests.Share(s.cfg.ConnBytes), s.clients.Answers.Share(s.cfg.ConnBytes)
	c.mu.lanes = map[record.TopicPartition][]*produced{}
	return c
}

// Abort ends everything that waits for or works on this connection.
func (c *conn) Abort() {
	c.cancel()
	_ = c.nc.Close() // nothing is kept that a failed close could lose
}

// Stalled is for how long the client has taken nothing of its answers.
func (c *conn) Stalled() time.Duration { return c.writing.Elapsed() }

// refuse tells the client why it is not served.
func (c *conn) refuse(err error) {
	defer c.Abort()
	_ = c.out.SetDeadline(time.Now().Add(lingerTime))
	if f, encodeErr := encodeResponse(0, err, nil); encodeErr == nil {
		_, _ = f.Pieces.WriteTo(c.out) // the client that does not hear it sees the close
		c.linger()
	}
}

// run serves until the client leaves, breaks the protocol or the server closes.
func (c *conn) run() {
	go c.writeLoop()
	err := c.readLoop()
	var broken *protocolError
	if errors.As(err, &broken) {
		c.s.metrics.bad(broken.reason)
		c.s.cfg.Logger.Warn("native connection broke the protocol", "from", c.nc.RemoteAddr(), "reason", broken.reason, "err", err)
		c.send(answer{correlation: broken.correlation, err: broken.err})
		c.endWriter()
		c.linger()
	}
	c.Abort()
	c.endWriter()
	c.handlers.Wait()
}

// endWriter lets the writer finish its queue and waits for it.
func (c *conn) endWriter() {
	c.mu.Lock()
	c.mu.closing = true
	c.mu.Unlock()
	c.poke()
	<-c.written
}

// linger gives the client time to read the error frame: a close with unread input makes
// the kernel throw away what was written.
func (c *conn) linger() {
	if half, ok := c.out.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.CopyN(io.Discard, c.nc, lingerBytes)
}

// readLoop reads frames until the connection ends; a *protocolError is for the client to know.
func (c *conn) readLoop() error {
	r := bufio.NewReaderSize(c.nc, readBuffer)
	if err := c.nc.SetReadDeadline(time.Now().Add(c.s.cfg.HandshakeTimeout)); err != nil {
		return err
	}
	for {
		size, err := readLength(r, c.s.cfg.MaxFrame)
		if err != nil {
			return c.lengthError(err)
		}
		held, err := c.requestMem.Acquire(c.ctx, int64(size)+requestCost)
		if err != nil {
			return err
		}
		frame, err := c.readBody(r, size)
		if err == nil {
			c.s.metrics.bytesIn.Add(int64(size) + lengthSize)
			err = c.dispatch(frame, held)
		} else {
			c.requestMem.Release(held)
		}
		if err != nil {
			return err
		}
	}
}

func (c *conn) lengthError(err error) error {
	var size *FrameSizeError
	switch {
	case errors.As(err, &size):
		return &protocolError{reason: BadLength, err: fmt.Errorf("%w: %w", record.ErrInvalidRequest, err)}
	case errors.Is(err, io.ErrUnexpectedEOF):
		c.s.metrics.bad(BadCutShort)
	case !c.greeted && errors.Is(err, os.ErrDeadlineExceeded):
		return &protocolError{reason: BadHello, err: fmt.Errorf("%w: no hello within %v", record.ErrInvalidRequest, c.s.cfg.HandshakeTimeout)}
	}
	return err
}

// readBody reads the frame's bytes, for which the memory has been taken.
func (c *conn) readBody(r *bufio.Reader, size int32) ([]byte, error) {
	whole := r.Buffered() >= int(size)
	if !whole && c.greeted {
		if err := c.nc.SetReadDeadline(time.Now().Add(c.s.cfg.FrameTimeout)); err != nil {
			return nil, err
		}
	}
	frame := make([]byte, size)
	if _, err := io.ReadFull(r, frame); err != nil {
		c.s.metrics.bad(BadCutShort)
		return nil, unexpected(err)
	}
	if !whole && c.greeted {
		return frame, c.nc.SetReadDeadline(time.Time{})
	}
	return frame, nil
}

// send queues an answer for the writer.
func (c *conn) send(a answer) {
	c.mu.Lock()
	c.queueLocked(a)
	c.mu.Unlock()
	c.poke()
}

func (c *conn) queueLocked(a answer) {
	if c.mu.closed {
		c.forget(a)
		return
	}
	c.mu.queue = append(c.mu.queue, a)
}

func (c *conn) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// forget gives back what an answer holds.
func (c *conn) forget(a answer) {
	if a.requestMem > 0 {
		c.requestMem.Release(a.requestMem)
	}
	if a.fetchMem > 0 {
		c.fetchMem.Release(a.fetchMem)
	}
	if a.call {
		<-c.calls
	}
}

// enter takes the next place of a partition: answers of produces leave in the order in
// which their requests came, also where a later one is refused at once.
func (c *conn) enter(tp record.TopicPartition) *produced {
	p := &produced{}
	c.mu.Lock()
	c.mu.lanes[tp] = append(c.mu.lanes[tp], p)
	c.mu.Unlock()
	return p
}

// settle gives a produce its answer and queues all that are ready in front of its lane.
func (c *conn) settle(tp record.TopicPartition, p *produced, a answer) {
	c.mu.Lock()
	p.answer, p.ready = a, true
	lane := c.mu.lanes[tp]
	for len(lane) > 0 && lane[0].ready {
		c.queueLocked(lane[0].answer)
		lane = lane[1:]
	}
	if len(lane) == 0 {
		delete(c.mu.lanes, tp)
	} else {
		c.mu.lanes[tp] = lane
	}
	c.mu.Unlock()
	c.poke()
}
