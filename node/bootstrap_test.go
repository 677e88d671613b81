package node

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// lockedBuffer is a log that a test reads while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A node whose join addresses lead nowhere says so: what clients and /readyz are told, and the log.
func TestJoin_thatCannotWorkSaysWhy(t *testing.T) {
	for what, expect := range map[string]int{"joining": 0, "forming": 3} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var log lockedBuffer
			n := startNodeWith(t, t.TempDir(), func(_ *Config, o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) }, expect, "nosuch.invalid:7946")
			await(t, "the cause in /readyz", func() bool {
				err := n.unready()
				return err != nil && strings.Contains(err.Error(), "nosuch.invalid:7946 does not resolve")
			})
			await(t, "the cause in the log", func() bool {
				return strings.Contains(log.String(), "this node cannot join: nosuch.invalid:7946 does not resolve")
			})
			if c := strings.Count(log.String(), "waiting "); c != 1 {
				t.Errorf("the log says %d times what the node waits for:\n%s", c, log.String())
			}
		})
	}
}

// Trouble that passes while nodes start is not warned of, and what stays is said rarely.
func TestToldTroubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told toldTroubles
		count := func(d time.Duration, trouble bool) (n int) {
			for range d / bootstrapEvery {
				if told.due(trouble) {
					n++
				}
				time.Sleep(bootstrapEvery)
			}
			return n
		}
		if n := count(troubleAfter, true); n != 0 {
			t.Errorf("told %d times at once", n)
		}
		count(time.Second, false)
		if n := count(troubleAfter+time.Second, true); n != 1 {
			t.Errorf("told %d times of what stays, want once", n)
		}
		if n := count(10*troubleEvery, true); n != 10 {
			t.Errorf("told %d times in ten minutes, want 10", n)
		}
	})
}
