package wire

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
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
	clients *transport.Clients[*conn]
	metrics counters
}

// NewServer makes a server. It starts nothing.
func NewServer(cfg Config) *Server {
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg}
	s.clients = transport.NewClients(cfg.MaxConns, cfg.TotalBytes, func(c *conn) {
		s.metrics.stalled.Add(1)
		cfg.Logger.Warn("a native client does not read its answers and others wait for the memory: disconnected", "from", c.nc.RemoteAddr())
	})
	return s
}

// Handle serves the connection until it ends, and closes it. It is a transport.Handler.
func (s *Server) Handle(nc net.Conn) {
	c := newConn(s, nc)
	if err := s.clients.Admit(c); err != nil {
		s.metrics.refused.Add(1)
		if errors.Is(err, transport.ErrTooMany) {
			c.refuse(fmt.Errorf("%w: the node serves %d connections already", record.ErrLimit, s.cfg.MaxConns))
		} else {
			c.refuse(record.ErrShuttingDown)
		}
		return
	}
	defer s.clients.Dismiss(c)
	s.metrics.accepted.Add(1)
	c.run()
}

// Close ends all connections and waits until they are gone. Produces that the broker has
// not answered yet go on; their answers are dropped. It may be called again.
func (s *Server) Close() error {
	s.clients.Close()
	return nil
}

// Metrics may be called at any time.
func (s *Server) Metrics() Metrics {
	m := s.metrics.read()
	m.Connections, m.RequestBytes, m.ResponseBytes = int64(s.clients.Len()), s.clients.Requests.InUse(), s.clients.Answers.InUse()
	return m
}
