package peer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"edged/internal/memnet"
	"edged/record"
)

// ask is one way to call node b from node a.
type ask func(ctx context.Context, payload string) ([]byte, error)

// bothWays runs f for Call from either side of a pair and for CallAddr.
func bothWays(t *testing.T, call func(ctx context.Context, from Identity, payload []byte) ([]byte, error), f func(t *testing.T, n *memnet.Network, do ask, from record.NodeID)) {
	t.Helper()
	for _, way := range []string{"session", "address"} {
		for _, caller := range []record.NodeID{1, 3} {
			t.Run(fmt.Sprint(way, " ", caller), func(t *testing.T) {
				bubble(t, func(t *testing.T, n *memnet.Network) {
					a, b := start(t, n, identity(caller, 1)), start(t, n, identity(2, 1))
					defer a.stop()
					defer b.stop()
					b.rec.call = call
					do := func(ctx context.Context, payload string) ([]byte, error) {
						id, out, err := a.CallAddr(ctx, b.addr, []byte(payload))
						if id != identity(2, 1) {
							return nil, fmt.Errorf("answered by %+v", id)
						}
						return out, err
					}
					if way == "session" {
						join(t, a, b)
						synctest.Wait()
						do = func(ctx context.Context, payload string) ([]byte, error) {
							return a.Call(ctx, 2, []byte(payload))
						}
					}
					f(t, n, do, caller)
				})
			})
		}
	}
}

func TestCallAnswers(t *testing.T) {
	call := func(_ context.Context, from Identity, payload []byte) ([]byte, error) {
		return fmt.Appendf(nil, "%s for %d", payload, from.Boot), nil
	}
	bothWays(t, call, func(t *testing.T, _ *memnet.Network, do ask, from record.NodeID) {
		for i := range 10 {
			got, err := do(t.Context(), fmt.Sprint("answer ", i))
			if want := fmt.Sprintf("answer %d for %d", i, identity(from, 1).Boot); err != nil || string(got) != want {
				t.Fatalf("got %q, %v, want %q", got, err, want)
			}
		}
	})
}

func TestCallErrorsSurviveTheTrip(t *testing.T) {
	plain := errors.New("no code of ours")
	long := fmt.Errorf("%w: %s", record.ErrInvalidConfig, strings.Repeat("long ", 1000))
	leader := &record.NotLeaderError{Leader: 7, Addr: "seven:7400", KafkaAddr: "seven:9092", Epoch: 12}
	for _, sent := range []error{
		record.ErrUnknownTopic, fmt.Errorf("%w: topic %q", record.ErrTopicExists, "temp"), record.ErrBusy, plain, long,
		leader, fmt.Errorf("wrapped: %w", leader), &record.NotLeaderError{Leader: record.NoNode, Epoch: record.NoEpoch},
	} {
		call := func(context.Context, Identity, []byte) ([]byte, error) { return nil, sent }
		bothWays(t, call, func(t *testing.T, _ *memnet.Network, do ask, _ record.NodeID) {
			_, err := do(t.Context(), "x")
			if record.Code(err) != record.Code(sent) || record.Retriable(err) != record.Retriable(sent) {
				t.Fatalf("sent %v, got %v", sent, err)
			}
			var out, in *record.NotLeaderError
			if errors.As(sent, &out) {
				if !errors.As(err, &in) || *in != *out {
					t.Fatalf("sent %+v, got %+v", out, in)
				}
			} else if text := sent.Error(); err.Error() != text[:min(len(text), maxErrorText)] {
				t.Fatalf("sent %q, got %q", sent, err)
			}
		})
	}
}

func TestCallTimesOut(t *testing.T) {
	var served atomic.Int64
	call := func(ctx context.Context, _ Identity, _ []byte) ([]byte, error) {
		began := time.Now()
		<-ctx.Done()
		served.Store(int64(time.Since(began)))
		return nil, ctx.Err()
	}
	bothWays(t, call, func(t *testing.T, _ *memnet.Network, do ask, _ record.NodeID) {
		for _, patience := range []time.Duration{time.Second, 0} {
			ctx, cancel := t.Context(), func() {}
			if patience > 0 {
				ctx, cancel = context.WithTimeout(ctx, patience)
			} else {
				patience = defaultPatience
			}
			began := time.Now()
			_, err := do(ctx, "x")
			cancel()
			if !errors.Is(err, record.ErrTimeout) || time.Since(began) != patience {
				t.Fatalf("%v after %v", err, time.Since(began))
			}
			synctest.Wait()
			if took := time.Duration(served.Load()); took != patience { // the other side has stopped too
				t.Fatalf("served for %v", took)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := do(ctx, "x"); !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled: %v", err)
		}
	})
}

func TestCallLosesItsConnection(t *testing.T) {
	var n *memnet.Network
	call := func(ctx context.Context, _ Identity, _ []byte) ([]byte, error) {
		n.Host("h2").Kill()
		<-ctx.Done()
		return nil, nil
	}
	bothWays(t, call, func(t *testing.T, net *memnet.Network, do ask, _ record.NodeID) {
		n = net
		if _, err := do(t.Context(), "x"); !errors.Is(err, ErrConnectionLost) {
			t.Fatalf("got %v", err)
		}
	})
}

func TestCallSizes(t *testing.T) {
	const limit = 256 << 10
	call := func(_ context.Context, _ Identity, payload []byte) ([]byte, error) {
		return append(payload, make([]byte, len(payload)%2)...), nil // one byte more for an odd size
	}
	bothWays(t, call, func(t *testing.T, _ *memnet.Network, do ask, _ record.NodeID) {
		if got, err := do(t.Context(), strings.Repeat("x", limit)); err != nil || len(got) != limit {
			t.Fatalf("at the limit: %d, %v", len(got), err)
		}
		if got, err := do(t.Context(), ""); err != nil || len(got) != 0 {
			t.Fatalf("empty: %d, %v", len(got), err)
		}
	})
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a := start(t, n, identity(1, 1))
		b := start(t, n, identity(2, 1), func(c *Config) { c.Limits.MaxCall = 100 })
		defer a.stop()
		defer b.stop()
		b.rec.call = func(context.Context, Identity, []byte) ([]byte, error) { return make([]byte, 101), nil }
		join(t, a, b)
		synctest.Wait()
		for name, f := range map[string]func() error{
			"request":  func() error { _, err := b.Call(t.Context(), 1, make([]byte, 101)); return err },
			"to addr":  func() error { _, _, err := b.CallAddr(t.Context(), a.addr, make([]byte, 101)); return err },
			"received": func() error { _, err := a.Call(t.Context(), 2, make([]byte, 101)); return err },
			"answer":   func() error { _, err := a.Call(t.Context(), 2, nil); return err },
		} {
			if err := f(); !errors.Is(err, record.ErrLimit) {
				t.Fatalf("%s too long: %v", name, err)
			}
		}
		a.rec.wantEvents(t, "up 2001") // nobody lost a connection over it
	})
}

func TestCallsServedAreBounded(t *testing.T) {
	release := make(chan struct{})
	for _, way := range []string{"session", "address"} {
		bubble(t, func(t *testing.T, n *memnet.Network) {
			a := start(t, n, identity(1, 1))
			b := start(t, n, identity(2, 1), func(c *Config) { c.Limits.Calls = 3 })
			defer a.stop()
			defer b.stop()
			release = make(chan struct{})
			b.rec.call = func(context.Context, Identity, []byte) ([]byte, error) { <-release; return nil, nil }
			join(t, a, b)
			synctest.Wait()
			results := make(chan error, 10)
			for range 10 {
				go func() {
					var err error
					if way == "session" {
						_, err = a.Call(t.Context(), 2, nil)
					} else {
						_, _, err = a.CallAddr(t.Context(), b.addr, nil)
					}
					results <- err
				}()
			}
			for range 7 {
				if err := <-results; !errors.Is(err, record.ErrBusy) {
					t.Fatalf("got %v", err)
				}
			}
			if !a.Send(2, 0, Control, text("beat")) {
				t.Fatal("not taken")
			}
			synctest.Wait()
			if len(b.rec.got(Control)) != 1 {
				t.Fatal("a beat waited for a call")
			}
			close(release)
			for range 3 {
				if err := <-results; err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestCallWithoutConnection(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a := start(t, n, identity(1, 1))
		defer a.stop()
		n.Host("h2")
		if _, err := a.Call(t.Context(), 2, nil); !errors.Is(err, ErrNotConnected) {
			t.Fatalf("no session: %v", err)
		}
		if _, _, err := a.CallAddr(t.Context(), "h2:7400", nil); !errors.Is(err, ErrNotConnected) || !isRefused(err) {
			t.Fatalf("nobody listens: %v", err)
		}
		n.Host("h2").PowerOff()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := a.CallAddr(ctx, "h2:7400", nil); !errors.Is(err, ErrNotConnected) || isRefused(err) {
			t.Fatalf("silent: %v", err)
		}
		if _, _, err := a.CallAddr(t.Context(), a.addr, nil); !errors.Is(err, ErrSelf) {
			t.Fatalf("ourselves: %v", err)
		}
	})
}

// A node that wants to join has no cluster yet; it calls, and is called, by address.
func TestCallsWithoutACluster(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		fresh := func(node record.NodeID) Identity {
			id := identity(node, 1)
			id.Cluster = record.ClusterID{}
			return id
		}
		a, b, c := start(t, n, identity(1, 1)), start(t, n, fresh(2)), start(t, n, fresh(3))
		defer a.stop()
		defer b.stop()
		defer c.stop()
		for _, pair := range [][2]*testNode{{a, b}, {b, a}, {b, c}} {
			id, got, err := pair[0].CallAddr(t.Context(), pair[1].addr, []byte("may I"))
			if err != nil || string(got) != "echo may I" || id.Node != pair[1].self {
				t.Fatalf("%v: %q, %v", id, got, err)
			}
		}
	})
}
