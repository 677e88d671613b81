package transport

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// StallLimit is how long a connection may take nothing of its answers while others wait for the
// memory that they hold. As long as nobody waits it has its whole write timeout.
const StallLimit = 5 * time.Second

// Pool is the memory that the connections of one protocol share in one direction: what they
// hold together has a bound, and each has a bound of its own. Who wants more waits.
//
// Goroutines: none, but for a timer while somebody waits.
type Pool struct {
	total  *semaphore.Weighted
	inUse  atomic.Int64
	relief func()

	mu struct {
		sync.Mutex
		waiting int
		timer   *time.Timer // runs relieve; nil while nobody waits
		closed  bool
	}
}

// NewPool makes a pool of so many bytes. relief is called again and again while a connection waits for
// a part of the total: the server then drops those that hold memory and do not move.
func NewPool(total int64, relief func()) *Pool {
	return &Pool{total: semaphore.NewWeighted(total), relief: relief}
}

// InUse is how many bytes are held now.
func (p *Pool) InUse() int64 { return p.inUse.Load() }

// Close ends the timer. Shares stay usable.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.closed = true
	if p.mu.timer != nil {
		p.mu.timer.Stop()
	}
}

// Share is one connection's part of a Pool.
type Share struct {
	pool  *Pool
	own   *semaphore.Weighted
	limit int64
}

// Share makes a part of at most limit bytes, which is not more than the pool's total.
func (p *Pool) Share(limit int64) *Share {
	return &Share{pool: p, own: semaphore.NewWeighted(limit), limit: limit}
}

// Acquire waits for n bytes and tells how many are held now: more than the limit counts as the limit.
func (s *Share) Acquire(ctx context.Context, n int64) (held int64, err error) {
	n = min(n, s.limit)
	if err := s.own.Acquire(ctx, n); err != nil {
		return 0, err
	}
	if !s.pool.total.TryAcquire(n) {
		s.pool.wait(1)
		err := s.pool.total.Acquire(ctx, n)
		s.pool.wait(-1)
		if err != nil {
			s.own.Release(n)
			return 0, err
		}
	}
	s.pool.inUse.Add(n)
	return n, nil
}

// Release gives n bytes back.
func (s *Share) Release(n int64) {
	s.pool.inUse.Add(-n)
	s.pool.total.Release(n)
	s.own.Release(n)
}

func (p *Pool) wait(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.waiting += n
	if p.mu.waiting > 0 && p.mu.timer == nil && !p.mu.closed {
		p.mu.timer = time.AfterFunc(StallLimit/5, p.relieve)
	}
}

func (p *Pool) relieve() {
	p.mu.Lock()
	p.mu.timer = nil
	waiting := p.mu.waiting > 0 && !p.mu.closed
	p.mu.Unlock()
	if waiting {
		p.relief()
		p.wait(0)
	}
}
