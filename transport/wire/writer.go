package wire

import (
	"fmt"
	"net"

	"edged/record"
	"edged/transport"
)

// writeLoop writes answers until the connection is aborted, or is closing and none is left.
func (c *conn) writeLoop() {
	defer close(c.written)
	defer c.dropAnswers()
	for {
		select {
		case <-c.wake:
		case <-c.ctx.Done():
			return
		}
		answers, closing := c.takeAnswers()
		err := c.write(answers)
		for _, a := range answers {
			c.forget(a)
		}
		if err != nil {
			c.Abort()
			return
		}
		if closing && len(answers) == 0 {
			return
		}
		if closing {
			c.poke()
		}
	}
}

func (c *conn) takeAnswers() ([]answer, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answers := c.mu.queue
	c.mu.queue = nil
	return answers, c.mu.closing
}

func (c *conn) dropAnswers() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.closed = true
	for _, a := range c.mu.queue {
		c.forget(a)
	}
	c.mu.queue = nil
}

// write sends the answers, many in one go but no more encoded than one chunk and an
// answer: what is not encoded yet shares its memory with the broker.
func (c *conn) write(answers []answer) error {
	var pieces net.Buffers
	size := int64(0)
	for i, a := range answers {
		f := c.encode(a)
		pieces = append(pieces, f.Pieces...)
		size += f.Size
		if size < writeChunk && i < len(answers)-1 {
			continue
		}
		c.writing.Start()
		err := transport.WritePieces(c.out, pieces, writeChunk, c.s.cfg.WriteTimeout, func(n int64) {
			c.s.metrics.bytesOut.Add(n)
			c.writing.Start()
		})
		c.writing.Stop()
		if err != nil {
			return err
		}
		pieces, size = nil, 0
	}
	return nil
}

// encode makes the frame of an answer. One that cannot be sent as it is becomes an error.
func (c *conn) encode(a answer) Frame {
	if a.err != nil {
		c.s.metrics.failed(record.Code(a.err))
	}
	f, err := encodeResponse(a.correlation, a.err, a.body)
	if err == nil && f.Size-lengthSize > int64(c.s.cfg.MaxFrame) {
		err = fmt.Errorf("%w: the answer takes %d bytes, a frame of this node at most %d; ask for less at once", record.ErrTooLarge, f.Size, c.s.cfg.MaxFrame)
	}
	if err == nil {
		return f
	}
	c.s.cfg.Logger.Error("an answer cannot be sent", "to", c.nc.RemoteAddr(), "err", err)
	c.s.metrics.failed(record.Code(err))
	f, err = encodeResponse(a.correlation, err, nil)
	if err != nil {
		// An error of a bounded text always encodes; if not, the client gets to see a gap.
		c.s.cfg.Logger.Error("an error cannot be sent", "err", err)
	}
	return f
}
