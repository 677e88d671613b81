package peer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"edged/internal/memnet"
	"edged/record"
)

func TestMessagesBothWaysOnBothConnections(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a, b := start(t, n, identity(1, 1)), start(t, n, identity(2, 1))
		defer a.stop()
		defer b.stop()
		join(t, a, b)
		a.rec.wantEvents(t, "up 2001")
		b.rec.wantEvents(t, "up 1001")
		for i := range 100 {
			for _, class := range []Class{Control, Data} {
				if !a.Send(2, 2001, class, text("m", fmt.Sprint(i))) || !b.Send(1, 0, class, text(fmt.Sprint("m", i))) {
					t.Fatal("a message was not taken")
				}
			}
		}
		synctest.Wait()
		for _, rec := range []*recorder{a.rec, b.rec} {
			for _, class := range []Class{Control, Data} {
				got := rec.got(class)
				if len(got) != 100 || got[0] != "m0" || got[99] != "m99" {
					t.Fatalf("%v: %d messages, %q", class, len(got), got)
				}
			}
		}
		st := a.Peers()[0]
		if !st.Up || !st.DataUp || st.Node != 2 || st.Identity.Boot != 2001 || st.QueuedData != 0 || st.QueuedControl != 0 {
			t.Fatalf("status %+v", st)
		}
	})
}

// A message composed for one life of a node must not reach another: an answer to a vote that
// outlived the voter's memory of it would elect a leader without an acked entry.
func TestSendNamesTheLifeItIsFor(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a, b := start(t, n, identity(1, 1)), start(t, n, identity(2, 1))
		defer a.stop()
		join(t, a, b)
		synctest.Wait()
		b.kill()
		b = start(t, n, identity(2, 2))
		defer b.stop()
		join(t, a, b)
		pass(time.Second)
		if a.Send(2, 2001, Control, text("vote of an old life")) {
			t.Fatal("taken for a life that has ended")
		}
		if !a.Send(2, 2002, Control, text("new")) {
			t.Fatal("not taken for the new life")
		}
		synctest.Wait()
		if got := b.rec.got(Control); !slices.Equal(got, []string{"new"}) {
			t.Fatalf("got %q", got)
		}
	})
}

func TestQueueOfAnOldLifeIsDropped(t *testing.T) {
	for _, dead := range []record.NodeID{1, 2} {
		bubble(t, func(t *testing.T, n *memnet.Network) {
			a, b := start(t, n, identity(3-dead, 1)), start(t, n, identity(dead, 1))
			defer a.stop()
			join(t, a, b)
			synctest.Wait()
			b.host.PowerOff()
			b.stop()
			for range 10 { // more than the network itself holds
				a.Send(dead, 0, Control, text(strings.Repeat("old", 10_000)))
				a.Send(dead, 0, Data, text(strings.Repeat("old", 10_000)))
			}
			pass(time.Second)
			b.host.PowerOn()
			b = start(t, n, identity(dead, 2))
			defer b.stop()
			join(t, a, b)
			pass(10 * time.Second)
			old, now := uint64(dead)*1000+1, uint64(dead)*1000+2
			a.rec.wantLives(t, fmt.Sprint("up ", old), fmt.Sprint("down ", old), fmt.Sprint("up ", now))
			if len(b.rec.got(Control))+len(b.rec.got(Data)) != 0 {
				t.Fatal("a message for an old life arrived in the new one")
			}
		})
	}
}

func TestKilledIsGoneAtOnceOnBothSides(t *testing.T) {
	for dead, after := range bothSidesAfter(time.Second, time.Minute) { // an attempt to connect comes sooner after a long session
		bubble(t, func(t *testing.T, n *memnet.Network) {
			n.SetLatency(time.Millisecond)
			a, b := start(t, n, identity(3-dead, 1)), start(t, n, identity(dead, 1))
			defer a.stop()
			join(t, a, b)
			pass(after)
			began := time.Now()
			b.kill()
			pass(10 * time.Millisecond)
			boot := uint64(dead)*1000 + 1
			a.rec.wantEvents(t, fmt.Sprint("up ", boot), fmt.Sprint("gone ", boot))
			if took := time.Since(began); took > 10*time.Millisecond {
				t.Fatalf("known after %v", took)
			}
			pass(time.Minute)
			a.rec.wantEvents(t, fmt.Sprint("up ", boot), fmt.Sprint("gone ", boot))
		})
	}
}

// bothSidesAfter gives each node of a pair, once for each duration.
func bothSidesAfter(ds ...time.Duration) iter.Seq2[record.NodeID, time.Duration] {
	return func(yield func(record.NodeID, time.Duration) bool) {
		for _, d := range ds {
			if !yield(1, d) || !yield(2, d) {
				return
			}
		}
	}
}

func TestSilentIsLostButNotGone(t *testing.T) {
	for _, dead := range []record.NodeID{1, 2} {
		bubble(t, func(t *testing.T, n *memnet.Network) {
			a, b := start(t, n, identity(3-dead, 1)), start(t, n, identity(dead, 1))
			defer a.stop()
			join(t, a, b)
			synctest.Wait()
			b.host.PowerOff()
			b.stop()
			boot := uint64(dead)*1000 + 1
			pass(4 * time.Second)
			a.rec.wantEvents(t, fmt.Sprint("up ", boot))
			pass(3 * time.Second) // Silence and Probe
			a.rec.wantEvents(t, fmt.Sprint("up ", boot), fmt.Sprint("down ", boot))
			pass(time.Minute)
			a.rec.wantEvents(t, fmt.Sprint("up ", boot), fmt.Sprint("down ", boot))
		})
	}
}

func TestIdlePairStaysUp(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a, b := start(t, n, identity(1, 1)), start(t, n, identity(2, 1))
		defer a.stop()
		defer b.stop()
		join(t, a, b)
		pass(time.Hour)
		a.rec.wantEvents(t, "up 2001")
		b.rec.wantEvents(t, "up 1001")
	})
}

func TestShortCutOnlyDelays(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a, b := start(t, n, identity(1, 1)), start(t, n, identity(2, 1))
		defer a.stop()
		defer b.stop()
		join(t, a, b)
		synctest.Wait()
		n.Cut("h1", "h2")
		a.Send(2, 2001, Control, text("held"))
		pass(2 * time.Second)
		n.Heal("h1", "h2")
		synctest.Wait()
		if got := b.rec.got(Control); !slices.Equal(got, []string{"held"}) {
			t.Fatalf("got %q", got)
		}
		a.rec.wantEvents(t, "up 2001")
		b.rec.wantEvents(t, "up 1001")
	})
}

func TestLongCutAndReturn(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a, b := start(t, n, identity(1, 1)), start(t, n, identity(2, 1))
		defer a.stop()
		defer b.stop()
		join(t, a, b)
		synctest.Wait()
		n.Cut("h1", "h2")
		pass(time.Minute)
		a.rec.wantEvents(t, "up 2001", "down 2001")
		b.rec.wantEvents(t, "up 1001", "down 1001")
		n.Heal("h1", "h2")
		pass(3 * time.Second) // RedialMax and a bit
		a.rec.wantEvents(t, "up 2001", "down 2001", "up 2001")
		b.rec.wantEvents(t, "up 1001", "down 1001", "up 1001")
	})
}

func TestRestartIsANewLife(t *testing.T) {
	for _, node := range []record.NodeID{1, 2} {
		bubble(t, func(t *testing.T, n *memnet.Network) {
			a, b := start(t, n, identity(3-node, 1)), start(t, n, identity(node, 1))
			defer a.stop()
			join(t, a, b)
			pass(time.Minute)
			want := []string{fmt.Sprint("up ", uint64(node)*1000+1)}
			for counter := uint64(2); counter < 5; counter++ {
				b.kill()
				b = start(t, n, identity(node, counter))
				if err := b.SetPeer(a.self, a.addr); err != nil { // a is told nothing
					t.Fatal(err)
				}
				pass(100 * time.Millisecond)
				want = append(want, fmt.Sprint("down ", uint64(node)*1000+counter-1), fmt.Sprint("up ", uint64(node)*1000+counter))
				a.rec.wantLives(t, want...)
			}
			b.stop()
		})
	}
}

// A node that was off for long is back in milliseconds, not at the next of the paused dials:
// the higher one knocks.
func TestReturnIsQuickOnBothSides(t *testing.T) {
	for _, node := range []record.NodeID{1, 2} {
		bubble(t, func(t *testing.T, n *memnet.Network) {
			a, b := start(t, n, identity(3-node, 1)), start(t, n, identity(node, 1))
			defer a.stop()
			join(t, a, b)
			synctest.Wait()
			b.kill()
			pass(time.Minute)
			b = start(t, n, identity(node, 2))
			defer b.stop()
			if err := b.SetPeer(a.self, a.addr); err != nil { // a is told nothing
				t.Fatal(err)
			}
			pass(10 * time.Millisecond)
			old := uint64(node)*1000 + 1
			a.rec.wantEvents(t, fmt.Sprint("up ", old), fmt.Sprint("gone ", old), fmt.Sprint("up ", old+1))
		})
	}
}

// What others have heard of a node may be the address of a clone that went off without a word. A node that knocks is
// found where it knocked from, with both connections, and again after each loss.
func TestNodeThatKnocksIsFoundWhereItIs(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		warned := new(warnings)
		a := start(t, n, identity(1, 1), func(c *Config) { c.Logger = slog.New(warned) })
		defer a.stop()
		off := n.Host("clone")
		off.PowerOff()
		var want []string
		for counter := uint64(1); counter < 4; counter++ {
			b := startOn(t, n, fmt.Sprint("place", counter), identity(2, counter))
			if err := errors.Join(a.SetPeer(2, "clone:7400"), b.SetPeer(1, a.addr)); err != nil {
				t.Fatal(err)
			}
			pass(10 * time.Second)
			want = append(want, fmt.Sprint("up ", 2000+counter))
			a.rec.wantLives(t, want...)
			if !a.Send(2, 0, Data, text("large")) {
				t.Error("not sent")
			}
			pass(time.Second)
			if got := b.rec.got(Data); !slices.Equal(got, []string{"large"}) {
				t.Errorf("by the data connection came %q", got)
			}
			a.session(2).control.close(errors.New("test"))
			pass(10 * time.Second)
			want = append(want, fmt.Sprint("down ", 2000+counter), fmt.Sprint("up ", 2000+counter))
			a.rec.wantLives(t, want...)
			b.kill()
			synctest.Wait()
			want = append(want, fmt.Sprint("down ", 2000+counter))
		}
		before := warned.count.Load()
		pass(10 * time.Minute)
		if said := warned.count.Load() - before; said > 4 {
			t.Errorf("two places where nobody is are worth %d lines", said)
		}
	})
}

// warnings counts lines of the log.
type warnings struct {
	slog.Handler
	count atomic.Int64
}

func (*warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (w *warnings) Handle(context.Context, slog.Record) error {
	w.count.Add(1)
	return nil
}

func TestBothRestartTogether(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		n.SetLatency(5 * time.Millisecond)
		a, b := start(t, n, identity(1, 1)), start(t, n, identity(2, 1))
		for counter := uint64(2); counter < 10; counter++ {
			join(t, a, b)
			pass(time.Second)
			a.rec.wantEvents(t, fmt.Sprint("up ", b.cfg.Identity().Boot))
			b.rec.wantEvents(t, fmt.Sprint("up ", a.cfg.Identity().Boot))
			a.host.PowerOff()
			b.host.PowerOff()
			a.stop()
			b.stop()
			a.host.PowerOn()
			b.host.PowerOn()
			a, b = start(t, n, identity(1, counter)), start(t, n, identity(2, counter))
		}
		a.stop()
		b.stop()
	})
}

func TestNewAddressIsFoundAfterALoss(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a, b := start(t, n, identity(1, 1)), start(t, n, identity(2, 1))
		defer a.stop()
		join(t, a, b)
		pass(time.Second)
		b.kill()
		synctest.Wait()
		b = startOn(t, n, "elsewhere", identity(2, 2))
		defer b.stop()
		join(t, a, b)
		pass(10 * time.Millisecond)
		a.rec.wantEvents(t, "up 2001", "gone 2001", "up 2002")
	})
}

func TestQueuesAreBoundedAndSendNeverBlocks(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		small := func(c *Config) { c.Limits.DataQueue, c.Limits.MaxFrame = 100_000, 1<<20 }
		a, b := start(t, n, identity(1, 1), small), start(t, n, identity(2, 1), small)
		defer a.stop()
		defer b.stop()
		b.rec.gate = make(chan struct{})
		defer close(b.rec.gate)
		join(t, a, b)
		synctest.Wait()
		if a.Send(2, 0, Data, text(strings.Repeat("x", 1<<20+1))) {
			t.Fatal("a message above MaxFrame was taken")
		}
		taken := 0
		for range 1000 {
			if a.Send(2, 0, Data, text(strings.Repeat("x", 10_000))) {
				taken += 10_000
			}
			synctest.Wait()
		}
		// The bound, what the writer hands over, and what the network and the reader hold.
		if taken < 100_000 || taken > 100_000+64<<10+readBuffer+20_000 {
			t.Fatalf("%d bytes were taken", taken)
		}
		st := a.Peers()[0]
		if st.QueuedData > 100_000 || st.Dropped == 0 {
			t.Fatalf("status %+v", st)
		}
		if !a.Send(2, 0, Control, text("free")) {
			t.Fatal("a full data queue must not close the control queue")
		}
	})
}

func TestOneMessageFitsAnEmptyQueue(t *testing.T) {
	q := newQueue(10)
	if !q.push(newFrame(frameMessage, make([]byte, 1000))) || q.push(newFrame(framePing)) {
		t.Fatal("an empty queue takes one frame of any size, and then none")
	}
	frames, n := q.take(1)
	if len(frames) != 1 || q.push(newFrame(framePing)) {
		t.Fatal("what is being written counts")
	}
	q.done(n)
	if !q.push(newFrame(framePing)) {
		t.Fatal("what is written does not count any more")
	}
	q.close()
	if frames, _ := q.take(1); len(frames) != 0 || q.push(newFrame(framePing)) {
		t.Fatal("a closed queue has nothing and takes nothing")
	}
}

func TestLargeDataDoesNotDelayControl(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a, b := start(t, n, identity(1, 1)), start(t, n, identity(2, 1))
		defer a.stop()
		defer b.stop()
		b.rec.gate = make(chan struct{}) // nobody takes data
		defer close(b.rec.gate)
		join(t, a, b)
		synctest.Wait()
		for range 4 {
			a.Send(2, 0, Data, text(strings.Repeat("x", 1<<20)))
		}
		synctest.Wait()
		began := time.Now()
		a.Send(2, 0, Control, text("beat"))
		synctest.Wait()
		if got := b.rec.got(Control); len(got) != 1 || time.Since(began) != 0 {
			t.Fatalf("control got %q after %v", got, time.Since(began))
		}
	})
}

// A frame that takes longer than Limits.Write and Limits.Silence as a whole is fine as long as
// it moves.
func TestSlowLinkIsNotADeadOne(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a, b := start(t, n, identity(1, 1)), start(t, n, identity(2, 1))
		defer a.stop()
		defer b.stop()
		join(t, a, b)
		synctest.Wait()
		n.SetLatency(900 * time.Millisecond) // 64 KiB a round: about 70 KB/s
		if !a.Send(2, 0, Data, text(strings.Repeat("x", 2<<20))) {
			t.Fatal("not taken")
		}
		began := time.Now()
		for len(b.rec.got(Data)) == 0 {
			pass(time.Second)
			if time.Since(began) > time.Minute {
				t.Fatal("the frame did not arrive")
			}
		}
		if time.Since(began) < 10*time.Second {
			t.Fatalf("the link was too fast for this test: %v", time.Since(began))
		}
		b.rec.wantEvents(t, "up 1001")
	})
}

func TestRemovedPeerIsClosedAndForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a, b := start(t, n, identity(1, 1)), start(t, n, identity(2, 1))
		defer a.stop()
		defer b.stop()
		join(t, a, b)
		synctest.Wait()
		a.RemovePeer(2)
		pass(time.Minute)
		a.rec.wantEvents(t, "up 2001", "down 2001")
		b.rec.wantEvents(t, "up 1001", "down 1001")
		if got := a.Peers(); len(got) != 0 {
			t.Fatalf("still known: %+v", got)
		}
		a.RemovePeer(2)
		join(t, a, b)
		pass(time.Second)
		a.rec.wantEvents(t, "up 2001", "down 2001", "up 2001")
		a.RemovePeer(2)
		join(t, a, b) // before the link has noticed
		pass(time.Second)
		a.rec.wantEvents(t, "up 2001", "down 2001", "up 2001", "down 2001", "up 2001")
	})
}

func TestUnknownMemberOfOurClusterIsLetIn(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a, b := start(t, n, identity(1, 1)), start(t, n, identity(2, 1))
		defer b.stop()
		if err := a.SetPeer(2, b.addr); err != nil {
			t.Fatal(err)
		}
		b.rec.wantEvents(t, "up 1001")
		if !b.Send(1, 1001, Control, text("hello")) {
			t.Fatal("no way back to a node that dialed us")
		}
		a.stop()
		b.rec.wantEvents(t, "up 1001", "down 1001")
		if got := b.Peers(); len(got) != 0 {
			t.Fatalf("still known: %+v", got)
		}
	})
}

func TestPeersAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a := start(t, n, identity(9, 1), func(c *Config) { c.Limits.Peers = 2 })
		defer a.stop()
		for node, want := range map[record.NodeID]error{9: nil, 10: nil, 11: nil} {
			if err := a.SetPeer(node, "nowhere:1"); !errors.Is(err, want) {
				t.Fatal(err)
			}
		}
		if err := a.SetPeer(12, "nowhere:1"); !errors.Is(err, record.ErrLimit) {
			t.Fatalf("one too many: %v", err)
		}
		if err := a.SetPeer(10, "nowhere:2"); err != nil {
			t.Fatalf("a known one again: %v", err)
		}
		b := start(t, n, identity(2, 1))
		defer b.stop()
		if err := b.SetPeer(9, a.addr); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		a.rec.wantEvents(t)
		if err := a.SetPeer(1, ""); !errors.Is(err, record.ErrInvalidRequest) {
			t.Fatalf("no address: %v", err)
		}
	})
}

func TestDataConnectionComesBackAlone(t *testing.T) {
	for _, side := range []string{"dialer", "acceptor"} {
		bubble(t, func(t *testing.T, n *memnet.Network) {
			a, b := start(t, n, identity(1, 1)), start(t, n, identity(2, 1))
			defer a.stop()
			defer b.stop()
			join(t, a, b)
			synctest.Wait()
			if side == "dialer" {
				a.session(2).dataConn.Load().close(errors.New("test"))
			} else {
				b.session(1).dataConn.Load().close(errors.New("test"))
			}
			pass(time.Second)
			a.Send(2, 0, Data, text("there"))
			b.Send(1, 0, Data, text("back"))
			synctest.Wait()
			if len(b.rec.got(Data)) != 1 || len(a.rec.got(Data)) != 1 {
				t.Fatal("data does not flow")
			}
			a.rec.wantEvents(t, "up 2001")
			b.rec.wantEvents(t, "up 1001")
		})
	}
}

// The acceptor lost its data connection and the dialer does not know: it is asked to dial again.
func TestHalfOpenDataConnectionIsReopened(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		var half *deaf
		a := start(t, n, identity(1, 1), func(c *Config) {
			dial, count := c.Dial, 0
			c.Dial = func(ctx context.Context, addr string) (nc netConn, err error) {
				if nc, err = dial(ctx, addr); err == nil {
					if count++; count == 2 { // control, then data
						half = &deaf{netConn: nc}
						return half, nil
					}
				}
				return nc, err
			}
		})
		b := start(t, n, identity(2, 1))
		defer a.stop()
		defer b.stop()
		if err := a.SetPeer(2, b.addr); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		half.deaf.Store(true)
		b.session(1).dataConn.Load().close(errors.New("test"))
		pass(10 * time.Second)
		b.Send(1, 0, Data, text("back"))
		synctest.Wait()
		if len(a.rec.got(Data)) != 1 {
			t.Fatal("data does not flow")
		}
		a.rec.wantEvents(t, "up 2001")
		b.rec.wantEvents(t, "up 1001")
	})
}

func TestCloseAtAnyMomentLeavesNothing(t *testing.T) {
	for after := range 30 {
		bubble(t, func(t *testing.T, n *memnet.Network) {
			n.SetLatency(time.Millisecond)
			a, b, c := start(t, n, identity(1, 1)), start(t, n, identity(2, 1)), start(t, n, identity(3, 1))
			join(t, a, b, c)
			time.Sleep(time.Duration(after) * 500 * time.Microsecond)
			b.stop()
			a.stop()
			c.stop()
			if err := a.SetPeer(4, "h4:1"); !errors.Is(err, record.ErrShuttingDown) {
				t.Fatalf("after Close: %v", err)
			}
			if a.Send(2, 0, Control, text("x")) {
				t.Fatal("taken after Close")
			}
		})
	}
}
