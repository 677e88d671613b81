package kafka

import (
	"errors"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sync/semaphore"

	"edged/record"
	"edged/transport"
)

// Defaults of Config.
const (
	DefaultMaxConns       = 1024
	DefaultMaxRequest     = 16 << 20
	DefaultConnBytes      = 16 << 20
	DefaultTotalBytes     = 32 << 20
	DefaultFetchBytes     = 1 << 20
	DefaultIdleTimeout    = 10 * time.Minute
	DefaultRequestTimeout = 30 * time.Second
	DefaultWriteTimeout   = 30 * time.Second
)

// Fixed bounds.
const (
	// maxRequest is the largest request, in bytes: Kafka's own bound, which clients keep to.
	maxRequest = 100 << 20
	// maxPlainRequest bounds every request but a produce, in bytes: they carry names and numbers.
	maxPlainRequest = 256 << 10
	// plainFactor is how much larger than its bytes a plain request and its answer may be in memory;
	// it is counted so, which bounds what small requests with huge counts can cost.
	plainFactor = 24
	// decodeFactor is the same for a request whose counts are not true, while it is decoded.
	decodeFactor = 128
	// requestCost is what a request counts for beside that, in bytes. It bounds the number of
	// requests of a connection by ConnBytes.
	requestCost = 4 << 10
	// produceWindow bounds in bytes what one connection has produced and is not answered yet. Some clients
	// send without end; a partition takes about so much before it says that it is busy.
	produceWindow = 3 << 20
	// maxElements bounds the topics, partitions or groups that one request names.
	maxElements = 32 << 10
	// maxSequences bounds the producers' sequences of which a connection knows whether they go on; those
	// beyond it begin at 0 where they are not known.
	maxSequences = 256
	// MaxTimeout bounds in time what a request may ask for; defaultTimeout is for who asks for nothing.
	MaxTimeout     = 5 * time.Minute
	defaultTimeout = 30 * time.Second
	// chunk is what has to come in within RequestTimeout and to go out within WriteTimeout, in bytes:
	// a slow link is not a dead one.
	chunk = 64 << 10
)

// Config says what a Server serves and how much of it. Zero fields get the defaults above.
type Config struct {
	Broker Broker
	// Groups may be nil: then nothing of consumer groups is advertised.
	Groups Groups
	// MaxConns bounds connections. What comes above it is closed.
	MaxConns int
	// MaxRequest bounds in bytes what a produce request holds in memory; it takes at least one batch of the
	// largest size, and a quarter more. A larger request, up to 100 MiB, is read in parts. Other requests are
	// bounded by a quarter of a MiB.
	MaxRequest int32
	// ConnBytes and TotalBytes bound the memory of requests being worked on, and apart from that the
	// memory of fetched batches on their way out, of one connection and of all. At the bound the
	// server stops reading requests, or fetching. ConnBytes is at least one request, TotalBytes at
	// least one ConnBytes.
	ConnBytes, TotalBytes int64
	// FetchBytes bounds what one fetch answers beyond its first batch, whatever the client asks for.
	FetchBytes int32
	// IdleTimeout closes a connection without requests. RequestTimeout is how long 64 KiB of a
	// request may take to come once it has begun, WriteTimeout how long 64 KiB may take to leave.
	IdleTimeout, RequestTimeout, WriteTimeout time.Duration
	// DecodeBytes bounds what is decoded at one time while the counts in it are not proved; a plain request
	// is at most a 128th of it.
	DecodeBytes int64
	// AutoCreate makes topics that clients ask metadata for, if the clients agree.
	AutoCreate bool
	// Logger gets what an operator should see. nil: slog.Default().
	Logger *slog.Logger
}

// withDefaults fills in zero fields and keeps the bounds consistent.
func (c Config) withDefaults() Config {
	setDefault(&c.MaxConns, DefaultMaxConns)
	setDefault(&c.MaxRequest, DefaultMaxRequest)
	setDefault(&c.ConnBytes, DefaultConnBytes)
	setDefault(&c.TotalBytes, DefaultTotalBytes)
	setDefault(&c.FetchBytes, DefaultFetchBytes)
	setDefault(&c.DecodeBytes, maxPlainRequest*decodeFactor)
	setDefault(&c.IdleTimeout, DefaultIdleTimeout)
	setDefault(&c.RequestTimeout, DefaultRequestTimeout)
	setDefault(&c.WriteTimeout, DefaultWriteTimeout)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.ConnBytes = max(c.ConnBytes, int64(c.MaxRequest)+requestCost)
	c.TotalBytes = max(c.TotalBytes, c.ConnBytes)
	return c
}

// maxPlain bounds a request that is no produce, in bytes.
func (c *Config) maxPlain() int32 {
	return int32(min(maxPlainRequest, c.DecodeBytes/decodeFactor))
}

func setDefault[T ~int | ~int32 | ~int64](v *T, to T) {
	if *v <= 0 {
		*v = to
	}
}

// Server speaks Kafka's protocol on connections that are handed to it.
//
// Goroutines: per connection a reader (the caller of the handler), a writer, and one for the
// request being worked on, if it is not a produce.
type Server struct {
	cfg      Config
	clients  *transport.Clients[*conn]
	decoding *semaphore.Weighted // of DecodeBytes
	metrics  counters
}

// NewServer makes a server. It starts nothing.
func NewServer(cfg Config) *Server {
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, decoding: semaphore.NewWeighted(cfg.DecodeBytes)}
	s.clients = transport.NewClients(cfg.MaxConns, cfg.TotalBytes, func(c *conn) {
		s.metrics.stalled.Add(1)
		cfg.Logger.Warn("kafka: a client does not move on and others wait for the memory: disconnected", "from", c.nc.RemoteAddr())
	})
	return s
}

// Handler gives the handler for connections of a named listener. It serves a connection until it
// ends, and closes it.
func (s *Server) Handler(listener string) transport.Handler {
	return func(nc net.Conn) {
		c := newConn(s, nc, listener)
		if err := s.clients.Admit(c); err != nil {
			s.metrics.refused.Add(1)
			if errors.Is(err, transport.ErrTooMany) {
				s.cfg.Logger.Warn("kafka: too many connections, one is closed", "from", nc.RemoteAddr(), "limit", s.cfg.MaxConns)
			}
			_ = nc.Close()
			return
		}
		defer s.clients.Dismiss(c)
		s.metrics.accepted.Add(1)
		c.run()
	}
}

// Close ends all connections and waits until they are gone. Produces that the broker has not
// answered yet go on; their answers are dropped. It may be called again.
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

// endpoint finds a node in what a client of the listener sees.
func (c Cluster) endpoint(id record.NodeID) (Endpoint, bool) {
	for _, e := range c.Nodes {
		if e.ID == id {
			return e, true
		}
	}
	return Endpoint{}, false
}
