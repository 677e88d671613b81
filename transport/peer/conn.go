package peer

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"edged/transport"
)

const (
	writeChunk = 128 << 10 // bytes given to the kernel under one write deadline
	flushBytes = 1 << 20   // bytes taken from a queue for one flush, or one frame
	readBuffer = 4 << 10   // per connection; longer payloads are read past it
)

// conn is one connection with frames on it. Its reader and its writer are one goroutine each;
// during the handshake both are the same one.
type conn struct {
	t      *Transport
	nc     net.Conn
	out    net.Conn // nc, without what the listener put around it: net.Buffers needs a bare TCP connection for one write
	in     patientReader
	r      *bufio.Reader
	remote Identity // set by the handshake

	once  sync.Once
	ended chan struct{} // closed by close
	why   error         // what close was told; read it after ended
}

// open takes nc over. It fails when the transport is closing, and closes nc then.
func (t *Transport) open(nc net.Conn) (*conn, error) {
	c := &conn{t: t, nc: nc, out: nc, in: patientReader{nc: nc}, ended: make(chan struct{})}
	if w, ok := nc.(*transport.Conn); ok {
		c.out = w.Conn
	}
	c.r = bufio.NewReaderSize(&c.in, readBuffer)
	t.mu.Lock()
	closing := t.mu.closing
	if !closing {
		t.mu.conns[c] = struct{}{}
	}
	t.mu.Unlock()
	if closing {
		_ = nc.Close()
		return nil, errClosing
	}
	tune(nc)
	return c, nil
}

// close ends the connection, if there is one; the first reason stays. It does not wait for
// reader and writer. Not to be called under Transport.mu.
func (c *conn) close(why error) {
	if c == nil {
		return
	}
	c.once.Do(func() {
		c.why = why
		close(c.ended)
		_ = c.nc.Close()
		c.t.mu.Lock()
		delete(c.t.mu.conns, c)
		c.t.mu.Unlock()
	})
}

// patientReader bounds the time of each read, if patience is set, so that progress and not
// the size of a frame decides.
type patientReader struct {
	nc       net.Conn
	patience time.Duration // 0: wait for ever
	armed    bool          // a deadline is set
}

func (p *patientReader) Read(b []byte) (int, error) {
	if p.patience > 0 || p.armed {
		var deadline time.Time
		if p.patience > 0 {
			deadline = time.Now().Add(p.patience)
		}
		p.armed = p.patience > 0
		if err := p.nc.SetReadDeadline(deadline); err != nil {
			return 0, err
		}
	}
	return p.nc.Read(b)
}

// next reads one frame of at most limit bytes. The payload is the caller's. The frame must
// begin within twice idle (0: may take for ever); when the first half has passed with nothing,
// quiet is called. From then on each read must bring something within Limits.Silence.
func (c *conn) next(limit int, idle time.Duration, quiet func()) (byte, []byte, error) {
	head, err := c.await(idle, quiet)
	if err != nil {
		return 0, nil, err
	}
	h, err := parseHeader(head, limit)
	if err != nil {
		return 0, nil, err
	}
	_, _ = c.r.Discard(headerSize)
	if h.length == 0 {
		return h.typ, nil, h.check(nil)
	}
	c.in.patience = c.t.limits.Silence
	payload := make([]byte, h.length)
	if _, err := io.ReadFull(c.r, payload); err != nil {
		return 0, nil, fmt.Errorf("in the middle of a frame: %w", err)
	}
	return h.typ, payload, h.check(payload)
}

func (c *conn) await(idle time.Duration, quiet func()) ([]byte, error) {
	c.in.patience = idle
	for warned := false; ; warned = true {
		before := c.r.Buffered()
		head, err := c.r.Peek(headerSize)
		var ne net.Error
		switch {
		case err == nil:
			return head, nil
		case !errors.As(err, &ne) || !ne.Timeout():
			return nil, err
		case warned && c.r.Buffered() == before:
			return nil, fmt.Errorf("nothing heard for %v: %w", 2*idle, err)
		case quiet != nil:
			quiet()
		}
	}
}

// write sends frames now: one write to the kernel where it fits, otherwise one for each chunk,
// each with its own deadline, so that a large flush on a slow link is not taken for a dead one.
func (c *conn) write(frames ...frame) error {
	heads := make([]byte, 0, headerSize*len(frames))
	var bufs net.Buffers
	for _, f := range frames {
		from := len(heads)
		heads = f.appendHeader(heads)
		bufs = append(bufs, heads[from:])
		bufs = append(bufs, f.body...)
	}
	for len(bufs) > 0 {
		var chunk net.Buffers
		for room := writeChunk; room > 0 && len(bufs) > 0; {
			n := min(room, len(bufs[0]))
			chunk = append(chunk, bufs[0][:n])
			room -= n
			if bufs[0] = bufs[0][n:]; len(bufs[0]) == 0 {
				bufs = bufs[1:]
			}
		}
		if err := c.nc.SetWriteDeadline(time.Now().Add(c.t.limits.Write)); err != nil {
			return err
		}
		if _, err := chunk.WriteTo(c.out); err != nil {
			return err
		}
	}
	return nil
}

// drain writes what is queued until the connection ends, and ends it on an error.
func (c *conn) drain(q *queue) {
	for {
		frames, bytes := q.take(flushBytes)
		if len(frames) == 0 {
			select {
			case <-q.ready:
				continue
			case <-c.ended:
				return
			}
		}
		err := c.write(frames...)
		q.done(bytes)
		if err != nil {
			c.close(fmt.Errorf("write: %w", err))
			return
		}
	}
}
