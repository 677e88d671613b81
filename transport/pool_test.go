package transport

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A share has its own bound within the pool's; who wants more than there is waits for what others give back.
func TestPool_sharesWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var relieved atomic.Int32
		p := NewPool(100, func() { relieved.Add(1) })
		defer p.Close()
		a, b := p.Share(80), p.Share(80)
		if held, err := a.Acquire(t.Context(), 500); err != nil || held != 80 || p.InUse() != 80 {
			t.Fatalf("more than the limit: %d, %v, in use %d", held, err, p.InUse())
		}
		got := make(chan error, 1)
		go func() { _, err := b.Acquire(t.Context(), 50); got <- err }()
		time.Sleep(StallLimit)
		if n := relieved.Load(); n < 3 || len(got) != 0 {
			t.Fatalf("relief was called %d times; the other waits: %v", n, len(got) == 0)
		}
		a.Release(80)
		if err := <-got; err != nil || p.InUse() != 50 {
			t.Fatalf("%v, in use %d", err, p.InUse())
		}
		before := relieved.Load()
		time.Sleep(2 * StallLimit)
		if n := relieved.Load() - before; n > 1 {
			t.Errorf("nobody waits, and relief was called %d times", n)
		}
		b.Release(50)
	})
}

// Who gives up waiting holds nothing.
func TestPool_givingUpLeavesNothingBehind(t *testing.T) {
	p := NewPool(10, func() {})
	defer p.Close()
	a, b := p.Share(10), p.Share(10)
	if _, err := a.Acquire(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if held, err := b.Acquire(ctx, 5); !errors.Is(err, context.Canceled) || held != 0 {
		t.Fatalf("%d, %v", held, err)
	}
	a.Release(10)
	if held, err := b.Acquire(t.Context(), 10); err != nil || held != 10 || p.InUse() != 10 {
		t.Fatalf("%d, %v, in use %d", held, err, p.InUse())
	}
	b.Release(10)
}
