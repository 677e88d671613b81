package kafka

import (
	"encoding/binary"
	"net"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/transport"
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
	var out output
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
			err := c.write(calls, &out)
			for _, q := range calls {
				c.forget(q)
			}
			if err != nil {
				c.Abort()
				return
			}
		}
		if cap(out.buf) > chunk {
			out.buf = nil // an idle connection holds next to nothing
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
func (c *conn) write(calls []*call, out *output) error {
	for i, q := range calls {
		if q.answer != nil {
			if q.prepare != nil {
				q.prepare()
			}
			q.encode(out)
			q.answer = nil // its memory goes before the next one is encoded
		}
		if out.size() < chunk && i < len(calls)-1 || out.size() == 0 {
			continue
		}
		c.writing.Start()
		err := transport.WritePieces(c.out, out.take(), chunk, c.s.cfg.WriteTimeout, func(n int64) {
			c.s.metrics.bytesOut.Add(n)
			c.writing.Start()
		})
		c.writing.Stop()
		if err != nil {
			return err
		}
	}
	return nil
}

// output gathers encoded answers. Batches are not copied into it.
type output struct {
	buf      []byte
	batches  []placed
	batching int // bytes of them
}

// placed are batches that come before the rest of the output from at on.
type placed struct {
	at   int
	data []byte
}

func (o *output) size() int { return len(o.buf) + o.batching }

// place puts batches in without a copy: they must not change until they are written.
func (o *output) place(data []byte) {
	o.batches = append(o.batches, placed{len(o.buf), data})
	o.batching += len(data)
}

// take gives all that was gathered, which holds until the next answer is encoded.
func (o *output) take() net.Buffers {
	pieces := make(net.Buffers, 0, 2*len(o.batches)+1)
	from := 0
	for _, b := range o.batches {
		if b.at > from {
			pieces = append(pieces, o.buf[from:b.at])
		}
		pieces = append(pieces, b.data)
		from = b.at
	}
	if from < len(o.buf) {
		pieces = append(pieces, o.buf[from:])
	}
	clear(o.batches)
	o.buf, o.batches, o.batching = o.buf[:0], o.batches[:0], 0
	return pieces
}

// encode adds the answer with its length and header.
func (q *call) encode(o *output) {
	at, before := len(o.buf), o.size()
	o.buf = append(o.buf, 0, 0, 0, 0)
	o.buf = binary.BigEndian.AppendUint32(o.buf, uint32(q.correlation))
	// The header of ApiVersions never has tags: the client cannot know yet whether we know them.
	if q.answer.IsFlexible() && q.key != keyApiVersions {
		o.buf = append(o.buf, 0)
	}
	if resp, ok := q.answer.(*kmsg.FetchResponse); ok {
		placeFetch(o, resp)
	} else {
		o.buf = q.answer.AppendTo(o.buf)
	}
	binary.BigEndian.PutUint32(o.buf[at:], uint32(o.size()-before-lengthSize))
}

// placeFetch encodes a fetch's answer around its batches, which are most of it. It is encoded as if it had none;
// then their places are found in that, and their lengths put in.
func placeFetch(o *output, resp *kmsg.FetchResponse) {
	var batches [][]byte
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			batches = append(batches, p.RecordBatches)
			p.RecordBatches = []byte{}
		}
	}
	bare := resp.AppendTo(nil)
	r := kbin.Reader{Src: bare}
	copied := 0
	flexible := resp.IsFlexible()
	arrayLen, tags := r.ArrayLen, func() {}
	if flexible {
		arrayLen, tags = r.CompactArrayLen, func() { kmsg.SkipTags(&r) }
	}
	fixed := 4 + 2 + 8 + 8 // partition, error, high watermark, stable offset
	if resp.Version >= 5 {
		fixed += 8 // log start
	}
	r.Span(4) // throttling
	if resp.Version >= 7 {
		r.Span(2 + 4) // error, session
	}
	for range arrayLen() {
		switch {
		case resp.Version >= 13:
			r.Uuid()
		case flexible:
			_ = r.UnsafeCompactString()
		default:
			_ = r.UnsafeString()
		}
		for range arrayLen() {
			r.Span(fixed)
			arrayLen() // of aborted transactions, which there are none of
			if resp.Version >= 11 {
				r.Int32() // the replica to read from
			}
			at := len(bare) - len(r.Src)
			o.buf = append(o.buf, bare[copied:at]...)
			data := batches[0]
			batches = batches[1:]
			if flexible {
				o.buf = kbin.AppendUvarint(o.buf, uint32(len(data)+1))
				r.Uvarint()
			} else {
				o.buf = kbin.AppendInt32(o.buf, int32(len(data)))
				r.Int32()
			}
			copied = len(bare) - len(r.Src)
			if len(data) > 0 {
				o.place(data)
			}
			tags()
		}
		tags()
	}
	o.buf = append(o.buf, bare[copied:]...)
}
