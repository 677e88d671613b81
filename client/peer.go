package client

import (
	"context"
	"sync"
	"time"
)

// The silence limit of a node: how long nothing may move while it owes an answer. A link
// that is slow rather than dead shows by being found silent again and again, so the limit
// doubles each time and comes back slowly with every answer.
const (
	DefaultSilence = time.Second
	maxSilence     = 8 * time.Second
)

// redialPause is how long a failed dial is taken for the answer of the next one as well:
// many partitions ask for the same node at once.
const redialPause = 20 * time.Millisecond

// peer is one address that we talk to. It holds at most one connection.
type peer struct {
	c    *Client
	addr string
	// The dial's, of which there is one at a time; see whatAnswers.
	looked bool
	cut    time.Time // since when every connection was cut off

	mu struct {
		sync.Mutex
		conn    *conn
		dial    *dial // under way, or the last one that failed
		silence time.Duration
		failed  time.Time // when a dial or a connection last failed
		wrong   bool      // the last dial found that the address cannot be right
	}
}

// dial is an attempt that any number of callers wait for.
type dial struct {
	done chan struct{}
	conn *conn
	err  error
	at   time.Time // when it ended
}

// connect gives the connection, made if there is none. The dial goes on when ctx ends:
// others may wait for it.
func (p *peer) connect(ctx context.Context) (*conn, error) {
	p.mu.Lock()
	if cn := p.mu.conn; cn != nil {
		p.mu.Unlock()
		return cn, nil
	}
	d := p.mu.dial
	if d == nil || (d.ended() && time.Since(d.at) > redialPause) {
		d = &dial{done: make(chan struct{})}
		if !p.c.goFunc(func() { p.dial(d) }) {
			p.mu.Unlock()
			return nil, ErrClosed
		}
		p.mu.dial = d
	}
	p.mu.Unlock()
	select {
	case <-d.done:
		return d.conn, d.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (d *dial) ended() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}

func (p *peer) dial(d *dial) {
	p.c.stats.dials.Add(1)
	cn, err := openConn(p.c.ctx, p, &p.c.cfg)
	if err != nil && p.c.cfg.StopAtWrongNodes {
		err = p.whatAnswers(err)
	}
	p.mu.Lock()
	d.conn, d.err, d.at = cn, err, time.Now()
	p.mu.wrong = err != nil && wrongAddress(err)
	if err == nil && !cn.ended() { // if it ends from here on, lost waits for the lock
		p.mu.conn, p.mu.dial = cn, nil
	}
	if err != nil {
		p.mu.failed = d.at
	}
	p.mu.Unlock()
	close(d.done)
	if err != nil {
		return
	}
	// The client's Close waits for us: a connection never outlives it.
	select {
	case <-cn.done:
	case <-p.c.ctx.Done():
		cn.fail(ErrClosed)
	}
	cn.running.Wait()
}

// lost is told by a connection that it has ended.
func (p *peer) lost(cn *conn) {
	p.mu.Lock()
	if p.mu.conn == cn {
		p.mu.conn = nil
	}
	p.mu.failed = time.Now()
	p.mu.Unlock()
	p.c.stats.lost.Add(1)
}

func (p *peer) wasSilent() {
	p.mu.Lock()
	p.mu.silence = min(2*p.mu.silence, maxSilence)
	p.mu.Unlock()
}

// answered is told of every answer but the signs of life.
func (p *peer) answered() {
	p.mu.Lock()
	p.mu.silence = max(p.c.cfg.Silence, p.mu.silence-p.mu.silence/8)
	p.mu.Unlock()
}

func (p *peer) silenceLimit() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.silence
}

// failedWithin tells whether the node was of no use lately.
func (p *peer) failedWithin(d time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.mu.failed.IsZero() && time.Since(p.mu.failed) < d
}

func (p *peer) isWrong() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.wrong
}

// idle tells that nobody would miss the peer.
func (p *peer) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.conn == nil && (p.mu.dial == nil || p.mu.dial.ended())
}
