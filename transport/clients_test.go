package transport

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

type client struct {
	watch *Stopwatch
	ended bool
}

func (c *client) Abort()                 { c.ended = true }
func (c *client) Stalled() time.Duration { return c.watch.Elapsed() }

// While somebody waits for memory, those that stand still are ended, and nobody else.
func TestClients_endThoseThatStandStillWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []*client
		s := NewClients(3, 100, func(c *client) { told = append(told, c) })
		idle, moving, stuck := &client{watch: NewStopwatch()}, &client{watch: NewStopwatch()}, &client{watch: NewStopwatch()}
		for _, c := range []*client{idle, moving, stuck} {
			if err := s.Admit(c); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Admit(&client{}); !errors.Is(err, ErrTooMany) || s.Len() != 3 {
			t.Fatalf("a fourth of three: %v, %d", err, s.Len())
		}
		held := s.Requests.Share(100)
		if _, err := held.Acquire(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		stuck.watch.Start()
		moves := func() {
			for range 2 * int(StallLimit/time.Second) {
				moving.watch.Start()
				time.Sleep(time.Second)
			}
		}
		moves()
		if len(told) != 0 {
			t.Fatal("somebody was ended while nobody waited")
		}
		go func() { _, _ = s.Requests.Share(100).Acquire(t.Context(), 1) }()
		moves()
		synctest.Wait()
		if !stuck.ended || idle.ended || moving.ended || !slices.Contains(told, stuck) {
			t.Errorf("ended: the stuck %v, the idle %v, the moving %v", stuck.ended, idle.ended, moving.ended)
		}
		held.Release(100)
		closed := make(chan struct{})
		go func() { s.Close(); close(closed) }()
		synctest.Wait()
		if !idle.ended || !moving.ended {
			t.Error("Close ends all")
		}
		select {
		case <-closed:
			t.Error("Close waits until they are gone")
		default:
		}
		for _, c := range []*client{idle, moving, stuck} {
			s.Dismiss(c)
		}
		<-closed
		if err := s.Admit(&client{}); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// A stopwatch counts from its last start, and nothing while it stands.
func TestStopwatch_countsFromItsLastStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewStopwatch()
		for _, step := range []struct {
			do   func()
			want time.Duration
		}{{func() {}, 0}, {w.Start, time.Second}, {func() {}, 2 * time.Second}, {w.Start, time.Second}, {w.Stop, 0}} {
			step.do()
			time.Sleep(time.Second)
			if got := w.Elapsed(); got != step.want {
				t.Errorf("%v, want %v", got, step.want)
			}
		}
	})
}
