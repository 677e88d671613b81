package kafka

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/semaphore"

	"edged/record"
)

// What a produce request that is larger than MaxRequest may take of the memory that it holds, in bytes.
const (
	// answerCost is what a topic or a partition counts for in its answer; all of them together may take a
	// quarter, the batches on their way to the log the rest.
	answerCost = 256
	// maxName bounds the name of a topic, and a transactional id.
	maxName = 32 << 10
)

// stream is a produce request that is larger than MaxRequest. Some clients put into one request all that waits
// for a node, up to 100 MiB. It holds as much memory as a request of MaxRequest and is read batch by batch: each
// goes to the broker when it is there, and the next is read when there is room.
type stream struct {
	producing
	r        *bufio.Reader
	unread   int32               // bytes of the request
	elements int64               // topics and partitions that it may still name
	room     *semaphore.Weighted // for batches on their way
	roomSize int64
	largest  int64 // batch that is taken
	err      error // the first of reading: what is read after it is nothing
}

// isStream tells whether a request is read in parts.
func (q *call) isStream() bool { return q.isProduce() && q.size > q.conn.s.cfg.MaxRequest }

// serveStream reads a request and hands over its batches. The memory is held. An error ends the connection; what
// has been handed over by then is in the log, or not, and nobody is told.
func (c *conn) serveStream(r *bufio.Reader, q *call) error {
	if err := c.await(q); err != nil { // it is the only one at work until it is answered
		return err
	}
	c.s.metrics.requests[q.key].Add(1)
	s := &stream{producing: producing{call: q}, r: r, unread: q.size}
	books := q.held / 4
	s.elements, s.largest = books/answerCost, q.held-books
	s.roomSize = min(s.largest, produceWindow)
	s.room = semaphore.NewWeighted(s.roomSize)
	s.left.Store(1) // until all are handed over
	s.read()
	if s.err == nil && s.unread > 0 {
		s.err = broken(BadBody, "Produce version %d: %d bytes follow its fields", q.version, s.unread)
	}
	s.cut = s.err != nil
	s.finish()
	return s.err
}

// read goes through the fields of the request; see checkProduce.
func (s *stream) read() {
	s.skip(8) // it is known already
	s.string(false)
	s.tags()
	req := &kmsg.ProduceRequest{Version: s.version}
	s.resp = req.ResponseKind().(*kmsg.ProduceResponse)
	s.string(s.flexible())
	req.Acks, req.TimeoutMillis = int16(s.number(2)), int32(s.number(4))
	s.acks = req.Acks
	for topics := s.count(); topics > 0 && s.err == nil; topics-- {
		t := &kmsg.ProduceRequestTopic{Topic: s.string(s.flexible())}
		partitions := s.count()
		s.resp.Topics = append(s.resp.Topics, kmsg.ProduceResponseTopic{Topic: t.Topic, Partitions: make([]kmsg.ProduceResponseTopicPartition, partitions)})
		out := s.resp.Topics[len(s.resp.Topics)-1].Partitions
		for i := 0; i < len(out) && s.err == nil; i++ {
			s.partition(req, t, &out[i])
			s.tags()
		}
		s.tags()
	}
	s.tags()
}

// partition reads what the request has for one partition and hands it over.
func (s *stream) partition(req *kmsg.ProduceRequest, t *kmsg.ProduceRequestTopic, out *kmsg.ProduceResponseTopicPartition) {
	in := &kmsg.ProduceRequestTopicPartition{Partition: int32(s.number(4))}
	size := int64(s.bytesLen())
	if s.err != nil {
		return
	}
	s.left.Add(1)
	if size > s.largest {
		s.skip(int32(size))
		out.Default()
		out.Partition = in.Partition
		s.answerPartition(out, ProduceResult{BaseOffset: -1, LogStart: -1, AppendTime: record.NoTimestamp,
			Err: fmt.Errorf("a batch of %d bytes in a request of %d: %w", size, s.size, record.ErrTooLarge)})
		return
	}
	weight := min(size, s.roomSize)
	if err := s.room.Acquire(s.conn.ctx, weight); err != nil {
		s.fail(err)
		s.left.Add(-1)
		return
	}
	in.Records = make([]byte, size)
	if s.fill(in.Records); s.err != nil {
		s.left.Add(-1)
		return
	}
	s.start(req, t, in, out, func() { s.room.Release(weight) })
}

func (s *stream) flexible() bool { return s.version >= 9 }

// fail keeps the first error.
func (s *stream) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// fill reads bytes of the request. After an error they are 0.
func (s *stream) fill(b []byte) {
	if s.err == nil && int64(len(b)) > int64(s.unread) {
		s.fail(broken(BadBody, "Produce version %d: its lengths do not fit its %d bytes", s.version, s.size))
	}
	if s.err == nil {
		s.unread -= int32(len(b))
		s.fail(s.conn.readFull(s.r, b))
	}
	if s.err != nil {
		clear(b)
	}
}

// skip reads bytes that are not looked at.
func (s *stream) skip(n int32) {
	var b [512]byte
	for ; n > 0 && s.err == nil; n -= int32(len(b)) {
		s.fill(b[:min(n, int32(len(b)))])
	}
}

// number reads a number of so many bytes.
func (s *stream) number(size int) uint32 {
	var b [4]byte
	s.fill(b[4-size:])
	return binary.BigEndian.Uint32(b[:])
}

func (s *stream) uvarint() uint32 {
	var x uint32
	for shift := 0; shift < 35; shift += 7 {
		b := s.number(1)
		if x |= b & 0x7f << shift; b < 0x80 {
			return x
		}
	}
	s.fail(broken(BadBody, "Produce version %d: a number that does not end", s.version))
	return 0
}

// length reads what stands in front of a list or of bytes; null is 0.
func (s *stream) length(compact bool, size int) int32 {
	if compact {
		return max(int32(s.uvarint())-1, 0)
	}
	if size == 2 {
		return max(int32(int16(s.number(2))), 0)
	}
	return max(int32(s.number(4)), 0)
}

func (s *stream) bytesLen() int32 {
	n := s.length(s.flexible(), 4)
	if s.err == nil && n > s.unread {
		s.fail(broken(BadBody, "Produce version %d: a batch of %d bytes where the request has %d", s.version, n, s.unread))
	}
	return n
}

// count reads the length of a list whose elements are in the answer too.
func (s *stream) count() int32 {
	n := s.length(s.flexible(), 4)
	if s.elements -= int64(n); s.elements < 0 {
		s.fail(broken(BadBody, "a produce of %d bytes names more topics and partitions than are taken in one of that size", s.size))
	}
	if s.err != nil {
		return 0
	}
	return n
}

func (s *stream) string(compact bool) string {
	n := s.length(compact, 2)
	if n > maxName {
		s.fail(broken(BadBody, "Produce version %d: a name of %d bytes", s.version, n))
	}
	if s.err != nil {
		return ""
	}
	b := make([]byte, n)
	s.fill(b)
	return string(b)
}

// tags skips what a flexible version may have behind its fields.
func (s *stream) tags() {
	if !s.flexible() {
		return
	}
	for n := s.uvarint(); n > 0 && s.err == nil; n-- {
		s.uvarint()
		s.skip(int32(s.uvarint()))
	}
}

// readFull reads into b, a chunk at a time, each within RequestTimeout.
func (c *conn) readFull(r *bufio.Reader, b []byte) error {
	defer c.reading.Stop()
	for got := 0; got < len(b); {
		part := b[got:min(got+chunk, len(b))]
		if r.Buffered() < len(part) {
			c.reading.Start()
			if err := c.nc.SetReadDeadline(time.Now().Add(c.s.cfg.RequestTimeout)); err != nil {
				return err
			}
		}
		n, err := io.ReadFull(r, part)
		if err != nil {
			c.s.metrics.badRequest(BadCutShort)
			return err
		}
		got += n
	}
	return nil
}
