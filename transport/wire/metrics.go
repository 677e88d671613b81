package wire

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
	BytesIn       int64            // frames of requests, with their lengths
	BytesOut      int64            // frames of answers, with their lengths
	RequestBytes  int64            // memory of requests being worked on, now
	ResponseBytes int64            // memory of fetched batches on their way out, now
	Requests      map[string]int64 // by name of the API
	Errors        map[string]int64 // answered errors by code
	BadFrames     map[string]int64 // what could not be understood, by the Bad... reasons
}

// Reasons of Metrics.BadFrames.
const (
	BadLength   = "length"    // absurd: connection closed
	BadHeader   = "header"    // not [api, version, correlation, body]: connection closed
	BadHello    = "no_hello"  // a request before hello: connection closed
	BadAPI      = "api"       // unknown
	BadVersion  = "version"   // unknown
	BadBody     = "body"      // not the fields of the request
	BadCutShort = "cut_short" // the connection ended or stalled inside of a frame
)

type gauge = atomic.Int64

// counters is what stands behind Metrics.
type counters struct {
	accepted, refused, stalled, bytesIn, bytesOut gauge

	mu                         sync.Mutex
	requests, errors, badframe map[string]int64
}

func (c *counters) read() Metrics {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Metrics{
		Accepted: c.accepted.Load(), Refused: c.refused.Load(), Stalled: c.stalled.Load(),
		BytesIn: c.bytesIn.Load(), BytesOut: c.bytesOut.Load(),
		Requests: maps.Clone(c.requests), Errors: maps.Clone(c.errors), BadFrames: maps.Clone(c.badframe),
	}
}

func (c *counters) count(m *map[string]int64, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *m == nil {
		*m = map[string]int64{}
	}
	(*m)[key]++
}

func (c *counters) request(api API)    { c.count(&c.requests, api.String()) }
func (c *counters) failed(code string) { c.count(&c.errors, code) }
func (c *counters) bad(reason string)  { c.count(&c.badframe, reason) }
