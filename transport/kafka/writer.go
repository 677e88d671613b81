package kafka

import (
	"encoding/binary"
	"slices"
	"time"
)

// writeLoop writes answers in the order of their requests until the connection is aborted.
func (c *conn) writeLoop() {
	defer close(c.written)
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.mu.closed = true
		c.dropLocked()
	}()
	var buf []byte
	for {
		select {
		case <-c.wake:
		case <-c.ctx.Done():
			return
		}
		for {
			calls := c.takeDone()
			if len(calls) == 0 {
				break
			}
			var err error
			buf, err = c.write(calls, buf[:0])
			for _, q := range calls {
				c.forget(q)
			}
			if err != nil {
				c.abort()
				return
			}
		}
		if cap(buf) > chunk {
			buf = nil // an idle connection holds next to nothing
		}
	}
}

// takeDone takes the answers that may leave: up to the first request that has none yet.
func (c *conn) takeDone() []*call {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for n < len(c.mu.queue) && c.mu.queue[n].done {
		n++
	}
	calls := c.mu.queue[:n:n]
	if c.mu.queue = c.mu.queue[n:]; len(c.mu.queue) == 0 {
		c.mu.queue = nil
	}
	return calls
}

// write encodes the answers and sends them, about a chunk at a time.
func (c *conn) write(calls []*call, buf []byte) ([]byte, error) {
	for i, q := range calls {
		if q.answer != nil {
			if q.prepare != nil {
				q.prepare()
			}
			buf = q.encode(slices.Grow(buf, q.sizeHint))
			q.answer = nil // its memory goes before the next one is encoded
		}
		if len(buf) < chunk && i < len(calls)-1 || len(buf) == 0 {
			continue
		}
		if err := c.send(buf); err != nil {
			return nil, err
		}
		buf = buf[:0]
	}
	return buf, nil
}

// encode appends the answer with its length and header.
func (q *call) encode(buf []byte) []byte {
	at := len(buf)
	buf = append(buf, 0, 0, 0, 0)
	buf = binary.BigEndian.AppendUint32(buf, uint32(q.correlation))
	// The header of ApiVersions never has tags: the client cannot know yet whether we know them.
	if q.answer.IsFlexible() && q.key != keyApiVersions {
		buf = append(buf, 0)
	}
	buf = q.answer.AppendTo(buf)
	binary.BigEndian.PutUint32(buf[at:], uint32(len(buf)-at-lengthSize))
	return buf
}

// send writes b, a chunk at a time, each within WriteTimeout.
func (c *conn) send(b []byte) error {
	defer c.writing.Store(0)
	for len(b) > 0 {
		c.writing.Store(int64(c.s.age()))
		if err := c.out.SetWriteDeadline(time.Now().Add(c.s.cfg.WriteTimeout)); err != nil {
			return err
		}
		n, err := c.out.Write(b[:min(chunk, len(b))])
		c.s.metrics.bytesOut.Add(int64(n))
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
