// Package transport accepts connections for the protocols below it.
package transport

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Defaults of Config.
const (
	DefaultMaxConns         = 2048
	DefaultFirstByteTimeout = 10 * time.Second
)

// How long Serve waits after an accept that failed, for instance because the process is
// out of file descriptors: doubling from the first to the second.
const (
	minAcceptPause = 5 * time.Millisecond
	maxAcceptPause = time.Second
)

// Handler serves one connection and closes it. It may return before that and leave the
// connection to goroutines of its own, which the server then does not wait for.
type Handler func(net.Conn)

// Config says how a Server treats what knocks.
type Config struct {
	// MaxConns bounds the connections that are being served or waited for, over all
	// protocols; what comes above it is closed at once. Protocols may keep lower bounds of
	// their own, so that clients cannot lock out peers. 0: DefaultMaxConns.
	MaxConns int
	// FirstByteTimeout is how long a connection may take to show its first four bytes.
	// 0: DefaultFirstByteTimeout.
	FirstByteTimeout time.Duration
	// Route chooses by the first four bytes, which the handler will read again. nil is
	// nobody: the connection is closed.
	Route func(first [4]byte) Handler
	// Logger gets what an operator should see. nil: slog.Default().
	Logger *slog.Logger
}

// Server accepts connections on any number of listeners and hands them to a protocol.
//
// Goroutines: one per connection, from accept until its handler returns. Serve runs in
// the caller's. Close ends all of them and waits.
type Server struct {
	cfg Config

	mu struct {
		sync.Mutex
		closed    bool
		listeners map[net.Listener]struct{}
		conns     map[net.Conn]struct{}
	}
	running sync.WaitGroup // added to only under mu and only while not closed
	done    chan struct{}  // closed by Close

	accepted, refused, silent atomic.Int64
}

// Stats counts since the start, except Open.
type Stats struct {
	Open     int64 // connections now
	Accepted int64
	Refused  int64 // over MaxConns
	Silent   int64 // closed before four bytes, or by Route
}

// New makes a server that accepts nothing until Serve.
func New(cfg Config) *Server {
	if cfg.MaxConns <= 0 {
		cfg.MaxConns = DefaultMaxConns
	}
	if cfg.FirstByteTimeout <= 0 {
		cfg.FirstByteTimeout = DefaultFirstByteTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	s := &Server{cfg: cfg, done: make(chan struct{})}
	s.mu.listeners = map[net.Listener]struct{}{}
	s.mu.conns = map[net.Conn]struct{}{}
	return s
}

// Serve accepts until Close or until the listener fails for good. It closes the listener.
// After Close it returns nil. For TLS pass a listener of crypto/tls.
func (s *Server) Serve(ln net.Listener) error {
	if !s.addListener(ln) {
		return ln.Close()
	}
	defer s.dropListener(ln)
	pause := minAcceptPause
	for {
		conn, err := ln.Accept()
		switch {
		case err == nil:
			pause = minAcceptPause
			s.admit(conn)
		case s.isClosed():
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept on %v: %w", ln.Addr(), err)
		default:
			s.cfg.Logger.Warn("accepting a connection failed", "listener", ln.Addr(), "err", err, "retry_in", pause)
			select {
			case <-time.After(pause):
			case <-s.done:
			}
			pause = min(2*pause, maxAcceptPause)
		}
	}
}

// Close stops accepting, closes all connections and waits until their handlers have
// returned. It may be called again.
func (s *Server) Close() error {
	s.mu.Lock()
	if !s.mu.closed {
		s.mu.closed = true
		close(s.done)
	}
	var errs []error
	for ln := range s.mu.listeners {
		errs = append(errs, ln.Close())
	}
	clear(s.mu.listeners)
	for conn := range s.mu.conns {
		_ = conn.Close() // it ends the handler; how it went is the handler's to tell
	}
	s.mu.Unlock()
	s.running.Wait()
	return errors.Join(errs...)
}

// Stats may be called at any time.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	open := len(s.mu.conns)
	s.mu.Unlock()
	return Stats{Open: int64(open), Accepted: s.accepted.Load(), Refused: s.refused.Load(), Silent: s.silent.Load()}
}

// admit starts the goroutine of a connection, if there is room.
func (s *Server) admit(conn net.Conn) {
	s.accepted.Add(1)
	s.mu.Lock()
	ok := !s.mu.closed && len(s.mu.conns) < s.cfg.MaxConns
	if ok {
		s.mu.conns[conn] = struct{}{}
		s.running.Go(func() { s.serve(conn) })
	}
	s.mu.Unlock()
	if !ok {
		s.refused.Add(1)
		_ = conn.Close()
	}
}

// serve shows the first bytes to Route and runs the handler.
func (s *Server) serve(conn net.Conn) {
	defer s.forget(conn)
	peeked := &Conn{Conn: conn}
	if err := peeked.peek(s.cfg.FirstByteTimeout); err != nil {
		s.silent.Add(1)
		_ = conn.Close()
		return
	}
	handle := s.cfg.Route(peeked.first)
	if handle == nil {
		s.silent.Add(1)
		s.cfg.Logger.Debug("connection of no known protocol", "from", conn.RemoteAddr(), "first_bytes", fmt.Sprintf("%q", peeked.first[:]))
		_ = conn.Close()
		return
	}
	handle(peeked)
}

func (s *Server) forget(conn net.Conn) {
	s.mu.Lock()
	delete(s.mu.conns, conn)
	s.mu.Unlock()
}

func (s *Server) addListener(ln net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return false
	}
	s.mu.listeners[ln] = struct{}{}
	return true
}

func (s *Server) dropListener(ln net.Listener) {
	s.mu.Lock()
	_, mine := s.mu.listeners[ln]
	delete(s.mu.listeners, ln)
	s.mu.Unlock()
	if mine {
		_ = ln.Close()
	}
}

func (s *Server) isClosed() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// Conn is an accepted connection whose first four bytes have been looked at and will be
// read again. Conn.Conn is the connection itself, for writers that want its fast paths.
type Conn struct {
	net.Conn
	first  [4]byte
	unread []byte // what is left of first for Read; touched by the reader only
}

func (c *Conn) peek(timeout time.Duration) error {
	if err := c.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if _, err := io.ReadFull(c.Conn, c.first[:]); err != nil {
		return err
	}
	c.unread = c.first[:]
	return c.SetReadDeadline(time.Time{})
}

// Read gives the bytes that were looked at first.
func (c *Conn) Read(b []byte) (int, error) {
	if len(c.unread) > 0 {
		n := copy(b, c.unread)
		c.unread = c.unread[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// SyscallConn gives the socket, for options that the net package does not know.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	sc, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("a %T has no socket", c.Conn)
	}
	return sc.SyscallConn()
}
