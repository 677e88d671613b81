package kafka

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Metrics counts since the start, except where it says now.
type Metrics struct {
	Connections   int64            // now
	Accepted      int64            // connections taken
	Refused       int64            // connections over MaxConns or while closing
	Stalled       int64            // connections dropped because they did not read while others waited for memory
	BytesIn       int64            // requests, with their lengths
	BytesOut      int64            // answers, with their lengths
	RequestBytes  int64            // memory of requests being worked on, now
	ResponseBytes int64            // memory of fetched batches on their way out, now
	Requests      map[string]int64 // by name of the API
	Errors        map[string]int64 // answered errors by Kafka's name; one request may have many
	BadRequests   map[string]int64 // what ended a connection, by the Bad... reasons
}

// Reasons of Metrics.BadRequests.
const (
	BadLength   = "length"    // absurd
	BadHeader   = "header"    // not a request header
	BadAPI      = "api"       // a key that is not served
	BadVersion  = "version"   // a version that is not served
	BadBody     = "body"      // not the fields of the request
	BadCutShort = "cut_short" // the connection ended or stalled inside of a request
	BadAcksNone = "acks_none" // a produce that nobody waits for failed: closing is the only way to say so
)

// counters is what stands behind Metrics.
type counters struct {
	accepted, refused, stalled, bytesIn, bytesOut atomic.Int64
	// Counts by place in apis: it is on the way of every request.
	requests [maxKey + 1]atomic.Int64

	mu          sync.Mutex
	errors, bad map[string]int64
}

func (c *counters) read() Metrics {
	m := Metrics{
		Accepted: c.accepted.Load(), Refused: c.refused.Load(), Stalled: c.stalled.Load(),
		BytesIn: c.bytesIn.Load(), BytesOut: c.bytesOut.Load(), Requests: map[string]int64{},
	}
	for key := range c.requests {
		if n := c.requests[key].Load(); n > 0 {
			m.Requests[apis[key].name] = n
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m.Errors, m.BadRequests = maps.Clone(c.errors), maps.Clone(c.bad)
	return m
}

func (c *counters) count(m *map[string]int64, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *m == nil {
		*m = map[string]int64{}
	}
	(*m)[key]++
}

func (c *counters) failed(name string)     { c.count(&c.errors, name) }
func (c *counters) badRequest(name string) { c.count(&c.bad, name) }
