package wire

import (
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"edged/record"
	"edged/transport"
)

// Defaults of Config.
const (
	DefaultMaxConns         = 1024
	DefaultConnBytes        = 4 << 20
	DefaultTotalBytes       = 32 << 20
	DefaultMaxFetches       = 256
	DefaultHandshakeTimeout = 10 * time.Second
	DefaultFrameTimeout     = 30 * time.Second
	DefaultWriteTimeout     = 30 * time.Second
)

// Fixed bounds.
const (
	// requestCost is what a request counts for beside its frame, in bytes: its goroutine
	// and its place in the books. It bounds the number of requests by ConnBytes and TotalBytes.
	requestCost = 4 << 10
	// MaxTimeout bounds in time what a request may ask for; defaultTimeout is for 0.
	MaxTimeout     = 5 * time.Minute
	defaultTimeout = 30 * time.Second
	// maxCalls bounds the requests of one connection that are neither produce nor fetch,
	// until their answers are written. Above it the server stops reading requests.
	maxCalls = 16
	// writeChunk is what has to go out within WriteTimeout, in bytes: a slow link is not a dead one.
	writeChunk = 64 << 10
	// A connection that broke the protocol is read for so long and so much after the
	// error frame: closing it with unread bytes would take the frame away from the client.
	lingerTime  = time.Second
	lingerBytes = 1 << 20
)

// Config says what a Server serves and how much of it. Zero fields get the defaults above.
type Config struct {
	Broker Broker
	// Groups may be nil: then requests about consumer groups are answered as unknown.
	Groups Groups
	// MaxFrame bounds a frame in bytes, both ways: at least the largest max.message.bytes
	// plus FrameSlack. Taken as 2*FrameSlack or MaxFrameLimit if it is outside of those.
	MaxFrame int32
	// MaxConns bounds connections. What comes above it gets an error frame that says so.
	MaxConns int
	// ConnBytes and TotalBytes bound the memory of requests being worked on, and apart from
	// that the memory of fetched batches on their way out, of one connection and of all.
	// At the bound the server stops reading requests, or fetching. ConnBytes is at least
	// one frame, TotalBytes at least one ConnBytes.
	ConnBytes, TotalBytes int64
	// MaxFetches bounds the fetches that one connection has waiting. More are answered "busy".
	MaxFetches int
	// HandshakeTimeout is how long the hello may take to come, FrameTimeout how long a
	// frame may take once its length is read, WriteTimeout how long 64 KiB may take to leave.
	HandshakeTimeout, FrameTimeout, WriteTimeout time.Duration
	// Logger gets what an operator should see. nil: slog.Default().
	Logger *slog.Logger
}

// withDefaults fills in zero fields and keeps the bounds consistent.
func (c Config) withDefaults() Config {
	setDefault(&c.MaxFrame, DefaultMaxFrame)
	setDefault(&c.MaxConns, DefaultMaxConns)
	setDefault(&c.ConnBytes, DefaultConnBytes)
	setDefault(&c.TotalBytes, DefaultTotalBytes)
	setDefault(&c.MaxFetches, DefaultMaxFetches)
	setDefault(&c.HandshakeTimeout, DefaultHandshakeTimeout)
	setDefault(&c.FrameTimeout, DefaultFrameTimeout)
	setDefault(&c.WriteTimeout, DefaultWriteTimeout)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.MaxFrame = min(max(c.MaxFrame, 2*FrameSlack), MaxFrameLimit)
	c.ConnBytes = max(c.ConnBytes, int64(c.MaxFrame)+requestCost)
	c.TotalBytes = max(c.TotalBytes, c.ConnBytes)
	return c
}

func setDefault[T ~int | ~int32 | ~int64](v *T, to T) {
	if *v <= 0 {
		*v = to
	}
}

// Server speaks the native protocol on connections that are handed to it.
//
// Goroutines: per connection a reader (the caller of Handle), a writer, and one for each
// request that is not a produce; their number is bounded by ConnBytes and TotalBytes.
type Server struct {
	cfg     Config
	in, out *transport.Pool // TotalBytes of requests, and of fetched batches
	metrics counters
	started time.Time

	mu struct {
		sync.Mutex
		closed bool
		conns  map[*conn]struct{}
	}
	running sync.WaitGroup // one per Handle; added to only under mu and only while not closed
}

// NewServer makes a server. It starts nothing.
func NewServer(cfg Config) *Server {
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, started: time.Now()}
	s.in = transport.NewPool(cfg.TotalBytes, s.relieve)
	s.out = transport.NewPool(cfg.TotalBytes, s.relieve)
	s.mu.conns = map[*conn]struct{}{}
	return s
}

// Handle serves the connection until it ends, and closes it. It is a transport.Handler.
func (s *Server) Handle(nc net.Conn) {
	c := newConn(s, nc)
	err := s.admit(c)
	if err != nil {
		s.metrics.refused.Add(1)
		c.refuse(err)
		return
	}
	defer s.dismiss(c)
	c.run()
}

// Close ends all connections and waits until they are gone. Produces that the broker has
// not answered yet go on; their answers are dropped. It may be called again.
func (s *Server) Close() error {
	s.mu.Lock()
	s.mu.closed = true
	for c := range s.mu.conns {
		c.abort()
	}
	s.mu.Unlock()
	s.in.Close()
	s.out.Close()
	s.running.Wait()
	return nil
}

// Metrics may be called at any time.
func (s *Server) Metrics() Metrics {
	s.mu.Lock()
	open := len(s.mu.conns)
	s.mu.Unlock()
	m := s.metrics.read()
	m.Connections, m.RequestBytes, m.ResponseBytes = int64(open), s.in.InUse(), s.out.InUse()
	return m
}

func (s *Server) admit(c *conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.closed:
		return record.ErrShuttingDown
	case len(s.mu.conns) >= s.cfg.MaxConns:
		return fmt.Errorf("%w: the node serves %d connections already", record.ErrLimit, s.cfg.MaxConns)
	}
	s.mu.conns[c] = struct{}{}
	s.running.Add(1)
	s.metrics.accepted.Add(1)
	return nil
}

func (s *Server) dismiss(c *conn) {
	s.mu.Lock()
	delete(s.mu.conns, c)
	s.mu.Unlock()
	s.running.Done()
}

// relieve drops connections whose clients leave their answers lying while others wait for
// memory: a few consumers that stand still must not stop all the rest.
func (s *Server) relieve() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.mu.conns {
		if at := c.writing.Load(); at != 0 && s.age()-at > transport.StallLimit {
			s.metrics.stalled.Add(1)
			s.cfg.Logger.Warn("a native client does not read its answers and others wait for the memory: disconnected", "from", c.nc.RemoteAddr())
			c.abort()
		}
	}
}

// age is the monotonic time since the server was made, never 0.
func (s *Server) age() time.Duration { return time.Since(s.started) + 1 }
