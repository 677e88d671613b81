package main

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// A message that repeats is logged so often within a while, then only counted: a peer that is refused for
// days must not fill the journal, which on a small board is in memory.
const (
	burst      = 5
	burstTime  = time.Minute
	maxCounted = 256 // different messages; more of them are not limited
)

// limiter is a slog.Handler that lets the same message through a few times a minute. What was left out is
// told with the next one that goes through. Debug messages are not limited: who asks for them wants all.
type limiter struct {
	inner slog.Handler
	seen  *counted
}

type counted struct {
	mu sync.Mutex
	of map[string]*repeated
}

type repeated struct {
	since   time.Time // of the minute that is counted
	count   int
	dropped int
}

func newLimiter(inner slog.Handler) slog.Handler {
	return &limiter{inner, &counted{of: map[string]*repeated{}}}
}

func (l *limiter) Enabled(ctx context.Context, level slog.Level) bool {
	return l.inner.Enabled(ctx, level)
}

func (l *limiter) Handle(ctx context.Context, r slog.Record) error {
	if r.Level > slog.LevelDebug {
		pass, dropped := l.seen.count(r.Message, r.Time)
		if !pass {
			return nil
		}
		if dropped > 0 {
			r = r.Clone()
			r.AddAttrs(slog.Int("left_out", dropped))
		}
	}
	return l.inner.Handle(ctx, r)
}

func (l *limiter) WithAttrs(as []slog.Attr) slog.Handler {
	return &limiter{l.inner.WithAttrs(as), l.seen}
}

func (l *limiter) WithGroup(name string) slog.Handler {
	return &limiter{l.inner.WithGroup(name), l.seen}
}

// count tells whether a message may pass, and how many were left out before it.
func (c *counted) count(message string, now time.Time) (pass bool, dropped int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.of[message]
	if r == nil {
		if len(c.of) >= maxCounted {
			c.forget(now)
		}
		if len(c.of) >= maxCounted {
			return true, 0
		}
		r = &repeated{since: now}
		c.of[message] = r
	}
	if now.Sub(r.since) >= burstTime {
		dropped = r.dropped
		r.since, r.count, r.dropped = now, 0, 0
	}
	r.count++
	if r.count > burst {
		r.dropped++
		return false, 0
	}
	return true, dropped
}

// forget drops the messages that were not heard for a while.
func (c *counted) forget(now time.Time) {
	for m, r := range c.of {
		if now.Sub(r.since) >= burstTime && r.dropped == 0 {
			delete(c.of, m)
		}
	}
}
