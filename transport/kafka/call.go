package kafka

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Keys that the connection itself knows.
const (
	keyProduce     = 0
	keyApiVersions = 18
)

// call is one request and its answer.
type call struct {
	conn         *conn
	api          api
	size         int32 // of the request in bytes
	key, version int16
	correlation  int32
	clientID     string
	req          kmsg.Request
	answer       kmsg.Response // nil once done: there is none to send
	prepare      func()        // if set, the writer calls it before it encodes the answer

	held, fetchHeld int64 // of the connection's memory; given back when the answer is written
	queued          bool  // it stands in the connection's queue
	done            bool  // it has its answer; under the connection's mu
}

func (q *call) isProduce() bool { return q.key == keyProduce }

// identify reads what a request is from its first bytes. What is not served ends the connection, as
// in Kafka: a client that is told the versions and asks for another does not speak our language.
func (q *call) identify(head []byte) error {
	q.key = int16(binary.BigEndian.Uint16(head))
	q.version = int16(binary.BigEndian.Uint16(head[2:]))
	q.correlation = int32(binary.BigEndian.Uint32(head[4:]))
	a, ok := q.conn.s.lookup(q.key)
	if !ok {
		return broken(BadAPI, "a request with the key %d (%s), which this node does not serve", q.key, kmsg.NameForKey(q.key))
	}
	q.api = a
	if (q.version < a.min || q.version > a.max) && q.key != keyApiVersions {
		return broken(BadVersion, "%s version %d, this node speaks %d to %d", a.name, q.version, a.min, a.max)
	}
	if most := q.conn.s.cfg.maxPlain(); q.size > most && !q.isProduce() {
		return broken(BadLength, "a request %s of %d bytes, at most %d are taken", a.name, q.size, most)
	}
	if q.isStream() && q.version < a.served {
		return broken(BadLength, "a request %s version %d of %d bytes, at most %d are taken", a.name, q.version, q.size, q.conn.s.cfg.MaxRequest)
	}
	return nil
}

// decode reads the rest of the header and the body.
func (q *call) decode(frame []byte) error {
	r := kbin.Reader{Src: frame[8:]}
	if id := r.NullableString(); id != nil {
		q.clientID = *id
	}
	q.req = q.api.empty()
	q.req.SetVersion(q.version)
	if q.req.IsFlexible() {
		kmsg.SkipTags(&r)
	}
	if !r.Ok() {
		return broken(BadHeader, "%s version %d: the header is cut short", q.api.name, q.version)
	}
	if q.isProduce() {
		if err := q.checkProduce(r.Src); err != nil {
			return err
		}
	}
	if err := q.read(r.Src); err != nil {
		return broken(BadBody, "%s version %d: %w", q.api.name, q.version, err)
	}
	return nil
}

// read decodes the body. Lists are allocated by counts of which only their end shows whether they were
// true, so what is decoded at one time, of all connections, is bounded by that.
func (q *call) read(body []byte) error {
	if q.isProduce() {
		return q.req.ReadFrom(body) // its counts are true: checkProduce has been there
	}
	n := int64(q.size) * decodeFactor
	if err := q.conn.s.decoding.Acquire(q.conn.ctx, n); err != nil {
		return err
	}
	defer q.conn.s.decoding.Release(n)
	return q.req.ReadFrom(body)
}

// dispatch starts a request when its turn has come. An error ends the connection.
func (c *conn) dispatch(q *call, frame []byte) error {
	if q.key == keyApiVersions && (q.version < 0 || q.version > q.api.max) {
		return c.start(q, func() { q.answer = q.unknownApiVersions() })
	}
	if err := q.decode(frame); err != nil {
		return err
	}
	if q.isProduce() {
		if err := c.await(q); err != nil {
			return err
		}
		c.s.metrics.requests[q.key].Add(1)
		q.produce(q.req.(*kmsg.ProduceRequest))
		return nil
	}
	return c.start(q, func() { q.answer = q.api.serve(q) })
}

// start answers a request in a goroutine of its own, so that the reader notices a client that leaves.
func (c *conn) start(q *call, serve func()) error {
	if err := c.await(q); err != nil {
		return err
	}
	c.s.metrics.requests[q.key].Add(1)
	c.handlers.Go(func() {
		serve()
		c.settle(q)
	})
	return nil
}

// context bounds a request in time: by what the client asks for, 0 and less is nothing.
func (q *call) context(ms int32) (context.Context, context.CancelFunc) {
	d := defaultTimeout
	if ms > 0 {
		d = min(time.Duration(ms)*time.Millisecond, MaxTimeout)
	}
	return context.WithTimeout(q.conn.ctx, d)
}

// reserve waits for memory that the answer takes, and holds it until the answer is written. It is called
// once: who holds a part and waits for more could wait for others that do the same. After an error the
// connection is at its end, as is the request that gets no answer.
func (q *call) reserve(ctx context.Context, bytes int64) error {
	if bytes <= 0 {
		return nil
	}
	held, err := q.conn.fetchMem.Acquire(ctx, bytes)
	if err != nil {
		q.conn.Abort()
		return err
	}
	q.fetchHeld = held
	return nil
}
