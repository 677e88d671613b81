package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"edged/record"
	"edged/transport/wire"
)

// The pause before a request is repeated: 10 ms, doubling to 160 ms, less up to half of
// it at random so that clients do not come back together.
const (
	minBackoff = 10 * time.Millisecond
	maxBackoff = 160 * time.Millisecond
)

// maxJumps is how many redirects in a row are followed without a pause: two nodes that
// each name the other are asked slowly.
const maxJumps = 2

// backoff counts what went wrong since the last success.
type backoff struct {
	pauses, jumps int
}

// pause gives the next pause.
func (b *backoff) pause() time.Duration {
	d := min(minBackoff<<min(b.pauses, 10), maxBackoff)
	b.pauses++
	b.jumps = 0
	return d - rand.N(d/2)
}

// jump tells whether a redirect may be followed at once.
func (b *backoff) jump() bool {
	b.jumps++
	return b.jumps <= maxJumps
}

// verdict is what to do after a failed attempt.
type verdict int

const (
	stop  verdict = iota // the error is the answer
	later                // try again after a pause
	now                  // try again at once: somebody named the right node
)

// route knows where a request can go.
type route interface {
	// next chooses the node for the next attempt.
	next(ctx context.Context) (addr string, err error)
	// failed hears what came of it and judges.
	failed(ctx context.Context, addr string, err error) verdict
}

// attemptTimeout is how long a node may take for a request that any node can answer, or
// answer again, before another one is asked.
func (c *Client) attemptTimeout() time.Duration { return 2 * c.cfg.Silence }

// do repeats a request until it is answered, refused for good, or ctx ends. perAttempt
// bounds one attempt, 0: only ctx does. The request must be one that may be repeated.
func (c *Client) do(ctx context.Context, r route, perAttempt time.Duration, api wire.API, req, resp wire.Message) error {
	var b backoff
	var last error
	for {
		addr, err := r.next(ctx)
		if err == nil {
			err = c.attempt(ctx, addr, perAttempt, api, req, resp)
		}
		switch {
		case err == nil:
			return nil
		case c.ctx.Err() != nil:
			return ErrClosed
		case ctx.Err() != nil:
			return outOfTime(ctx, api, err, last)
		}
		last = clearer(last, err)
		v := r.failed(ctx, addr, err)
		if v == stop || c.hopeless(err) {
			return err
		}
		c.stats.retries.Add(1)
		if v == now && b.jump() {
			continue
		}
		if !c.sleep(ctx, b.pause()) {
			return outOfTime(ctx, api, err, last)
		}
		perAttempt = min(2*perAttempt, max(perAttempt, maxSilence))
	}
}

// outOfTime says what stood in the way when the time was up: err, or what was there before
// if err only says that it was.
func outOfTime(ctx context.Context, api wire.API, err, before error) error {
	if ctx.Err() == nil {
		return ErrClosed
	}
	if errors.Is(err, ctx.Err()) && before == nil {
		return fmt.Errorf("%s: %w", api, err)
	}
	if errors.Is(err, ctx.Err()) {
		err = before
	}
	return &lateError{api, ctx.Err(), cause(clearer(before, err))}
}

// lateError tells that the time was up, and what stood in the way until then.
type lateError struct {
	api  wire.API
	late error // of the context
	last error
}

func (e *lateError) Error() string   { return fmt.Sprintf("%s: %v; last: %v", e.api, e.late, e.last) }
func (e *lateError) Unwrap() []error { return []error{e.late, e.last} }

// cause is what stood in the way, without the steps that ran out of time over it.
func cause(err error) error {
	var late *lateError
	for errors.As(err, &late) {
		err = late.last
	}
	return err
}

// clearer is the one of two errors in a row that tells more: what a node has answered tells more than
// that another one cannot be reached.
func clearer(before, now error) error {
	var lost *ConnError
	if before != nil && errors.As(now, &lost) && !errors.As(before, &lost) {
		return before
	}
	return now
}

// sleep waits, and is false if ctx or the client ended first.
func (c *Client) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-c.ctx.Done():
	}
	return false
}

// attempt asks one node once.
func (c *Client) attempt(ctx context.Context, addr string, limit time.Duration, api wire.API, req, resp wire.Message) error {
	actx, cancel := context.WithCancel(ctx)
	if limit > 0 {
		actx, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	stop := context.AfterFunc(c.ctx, cancel)
	defer stop()
	cn, err := c.connect(actx, addr)
	if err == nil {
		err = cn.call(actx, api, req, resp)
	}
	if err != nil && actx.Err() != nil && ctx.Err() == nil && errors.Is(err, actx.Err()) {
		return &ConnError{addr, fmt.Errorf("no answer within %v", limit)}
	}
	return err
}

// anyNode is the route of requests that every node answers, or knows who does.
type anyNode struct {
	c     *Client
	tried string
	named string // by a redirect
}

func (r *anyNode) next(context.Context) (string, error) {
	addr := r.named
	if addr == "" {
		addr = r.c.pick(r.tried)
	}
	r.tried, r.named = addr, ""
	return addr, nil
}

func (r *anyNode) failed(_ context.Context, addr string, err error) verdict {
	var nl *record.NotLeaderError
	if errors.As(err, &nl) && nl.Addr != "" && nl.Addr != addr {
		r.c.stats.redirects.Add(1)
		r.named = nl.Addr
		return now
	}
	return judge(err)
}

// judge tells whether an error can pass. A deadline is one that a single step was given:
// the caller's own has been looked at before.
func judge(err error) verdict {
	var lost *ConnError
	if errors.As(err, &lost) || record.Retriable(err) || errors.Is(err, context.DeadlineExceeded) {
		return later
	}
	return stop
}

// toLeader is the route of requests for the leader of a partition: the one we believe in,
// else its replicas in turn, else any node; all of them know better or will soon.
type toLeader struct {
	c     *Client
	tp    record.TopicPartition
	id    string // of the topic that is meant; empty: any
	tried string
	turns int
}

func (r *toLeader) next(ctx context.Context) (string, error) {
	// Not longer than this at once, so that whoever waits hears what stands in the way.
	tctx, cancel := context.WithTimeout(ctx, r.c.attemptTimeout())
	defer cancel()
	if _, err := r.c.topic(tctx, r.tp.Topic); err != nil {
		return "", err
	}
	addr := ""
	var replicas []string
	known := r.c.withPartition(r.tp, func(p *partition) {
		if p.trusted(time.Now()) {
			addr = p.addr
		}
		replicas = append(replicas, p.replicas...)
	})
	switch {
	case !known:
		return "", fmt.Errorf("%v: %w", r.tp, record.ErrUnknownPartition)
	case addr != "":
	case r.turns%(len(replicas)+1) < len(replicas): // each replica once, then somebody else
		addr = r.c.pickFrom(replicas, r.tried)
	default:
		addr = r.c.pick(r.tried)
	}
	r.turns++
	r.tried = addr
	return addr, nil
}

func (r *toLeader) failed(ctx context.Context, addr string, err error) verdict {
	var nl *record.NotLeaderError
	switch {
	case errors.As(err, &nl):
		return r.redirected(addr, nl)
	case isUnknown(err):
		return r.unknown(ctx, addr)
	case errors.Is(err, record.ErrBusy), errors.Is(err, record.ErrTimeout), errors.Is(err, record.ErrOffsetUnavailable):
		return later // the leader is the right one
	}
	r.c.distrust(r.tp, addr)
	return judge(err)
}

// unknown finds out whether there is no such partition or only one node that is behind.
func (r *toLeader) unknown(ctx context.Context, addr string) verdict {
	if addr == "" { // we have just asked
		return stop
	}
	t, err := r.c.fetchTopic(ctx, r.tp.Topic, r.id)
	switch {
	case isUnknown(err):
		r.c.unlearn(r.tp.Topic)
		return stop
	case err == nil && r.id != "" && t.ID != r.id:
		return stop
	}
	if !r.c.withPartition(r.tp, func(*partition) {}) {
		return stop
	}
	r.c.distrust(r.tp, addr)
	return later
}

// redirected takes the leader that a node named, unless we know a newer one.
func (r *toLeader) redirected(addr string, nl *record.NotLeaderError) verdict {
	r.c.distrust(r.tp, addr)
	if nl.Leader != record.NoNode {
		r.c.stats.redirects.Add(1)
	}
	if r.c.believe(r.tp, claim{nl.Leader, nl.Addr, nl.Epoch}) {
		return now
	}
	return later
}
