package transport

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// What Admit refuses a connection for.
var (
	ErrClosed  = errors.New("the server is closed")
	ErrTooMany = errors.New("too many connections")
)

// Client is one connection, as the server of its protocol looks after it.
type Client interface {
	comparable
	// Abort ends everything that waits for or works on the connection. It may be called at any time, and again.
	Abort()
	// Stalled is for how long the connection has not moved the bytes that it is to take or to give now; 0 if
	// there are none.
	Stalled() time.Duration
}

// Clients is the connections of one protocol and the memory that they share. While some wait for memory, those
// that hold it and stand still are ended: a few clients that do not move must not stop all the rest.
//
// Goroutines: none, but for those of its pools.
type Clients[C Client] struct {
	// Requests is the memory of requests that are being worked on, Answers that of fetched batches on their way out.
	Requests, Answers *Pool

	limit   int
	stalled func(C)

	mu struct {
		sync.Mutex
		closed bool
		all    map[C]struct{}
	}
	running sync.WaitGroup // one for each in all; added to only under mu and only while not closed
}

// NewClients makes a keeper of at most limit connections, with so many bytes for their requests and as many for
// their answers. stalled hears of each that is ended because it stands still.
func NewClients[C Client](limit int, bytes int64, stalled func(C)) *Clients[C] {
	s := &Clients[C]{limit: limit, stalled: stalled}
	s.Requests, s.Answers = NewPool(bytes, s.relieve), NewPool(bytes, s.relieve)
	s.mu.all = map[C]struct{}{}
	return s
}

// Admit takes a connection in until Dismiss, or tells why not: ErrClosed, ErrTooMany.
func (s *Clients[C]) Admit(c C) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.closed:
		return ErrClosed
	case len(s.mu.all) >= s.limit:
		return ErrTooMany
	}
	s.mu.all[c] = struct{}{}
	s.running.Add(1)
	return nil
}

// Dismiss forgets a connection that was admitted and is done.
func (s *Clients[C]) Dismiss(c C) {
	s.mu.Lock()
	delete(s.mu.all, c)
	s.mu.Unlock()
	s.running.Done()
}

// Len is how many there are.
func (s *Clients[C]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.all)
}

// Close ends all of them and waits until they are gone. It may be called again.
func (s *Clients[C]) Close() {
	s.mu.Lock()
	s.mu.closed = true
	for c := range s.mu.all {
		c.Abort()
	}
	s.mu.Unlock()
	s.Requests.Close()
	s.Answers.Close()
	s.running.Wait()
}

func (s *Clients[C]) relieve() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.mu.all {
		if c.Stalled() > StallLimit {
			s.stalled(c)
			c.Abort()
		}
	}
}

// Stopwatch tells for how long something has been going on; another goroutine may read it. It does not run until Start.
type Stopwatch struct {
	made  time.Time
	since atomic.Int64 // nanoseconds from made on the monotonic clock, never 0 while it runs
}

// NewStopwatch makes one that stands still.
func NewStopwatch() *Stopwatch { return &Stopwatch{made: time.Now()} }

// Start lets it run, from 0 again if it does already.
func (w *Stopwatch) Start() { w.since.Store(int64(time.Since(w.made)) + 1) }

// Stop lets it stand still.
func (w *Stopwatch) Stop() { w.since.Store(0) }

// Elapsed is the time since Start, 0 after Stop.
func (w *Stopwatch) Elapsed() time.Duration {
	since := w.since.Load()
	if since == 0 {
		return 0
	}
	return time.Since(w.made) + 1 - time.Duration(since)
}
