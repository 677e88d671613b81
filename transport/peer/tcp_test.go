package peer

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"edged/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// signals is a Handler that tells what comes on channels, for tests in real time.
type signals struct {
	recorder
	up, down chan string
	frame    chan []byte
}

func (s *signals) PeerUp(id Identity) { s.up <- id.Node.String() }

func (s *signals) PeerDown(node nodeID, _ bootID, refused bool) {
	if refused {
		s.down <- "gone " + node.String()
		return
	}
	s.down <- "down " + node.String()
}

func (s *signals) PeerFrame(_ nodeID, _ bootID, _ Class, payload []byte) { s.frame <- payload }

type tcpNode struct {
	*Transport
	signals
	l   net.Listener
	srv *transport.Server
	wg  sync.WaitGroup
}

func startTCP(t testing.TB, id Identity) *tcpNode {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tn := &tcpNode{l: l}
	srv := transport.New(transport.Config{Logger: quiet, Route: func([4]byte) transport.Handler { return tn.Accept }})
	tn.srv = srv
	tn.up, tn.down, tn.frame = make(chan string, 10), make(chan string, 10), make(chan []byte, 10)
	tn.Transport = New(Config{Identity: func() Identity { return id }, Handler: &tn.signals, Logger: quiet})
	tn.wg.Go(func() { _ = srv.Serve(l) })
	return tn
}

func (tn *tcpNode) stop() {
	_ = tn.srv.Close()
	_ = tn.Transport.Close()
	tn.wg.Wait()
}

func receive[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(10 * time.Second):
		t.Fatal("nothing came within 10 s")
		panic("unreachable")
	}
}

func TestOverRealTCP(t *testing.T) {
	a, b := startTCP(t, identity(1, 1)), startTCP(t, identity(2, 1))
	defer a.stop()
	_ = a.SetPeer(2, b.l.Addr().String())
	_ = b.SetPeer(1, a.l.Addr().String())
	receive(t, a.up)
	receive(t, b.up)
	large := strings.Repeat("x", 3<<20)
	for _, class := range []Class{Control, Data} {
		if !a.Send(2, 2001, class, text(large, "y")) || !b.Send(1, 1001, class, text(large, "z")) {
			t.Fatal("not taken")
		}
		if got := receive(t, b.frame); string(got) != large+"y" {
			t.Fatalf("%v: %d bytes", class, len(got))
		}
		if got := receive(t, a.frame); string(got) != large+"z" {
			t.Fatalf("%v: %d bytes", class, len(got))
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if got, err := b.Call(ctx, 1, []byte("x")); err != nil || string(got) != "echo x" {
		t.Fatalf("%q, %v", got, err)
	}
	if id, got, err := a.CallAddr(ctx, b.l.Addr().String(), []byte("x")); err != nil || string(got) != "echo x" || id != identity(2, 1) {
		t.Fatalf("%q, %v", got, err)
	}
	_ = b.srv.Close() // a planned stop: peers stay connected for the hand-over
	if !a.Send(2, 2001, Control, text("last words")) {
		t.Fatal("not taken")
	}
	receive(t, b.frame)
	began := time.Now()
	b.stop()
	if got := receive(t, a.down); got != "gone 2" {
		t.Fatalf("told %q", got)
	}
	if took := time.Since(began); took > time.Second {
		t.Fatalf("the loss was told after %v", took)
	}
}

// The lower node goes: the higher one learns by a knock that it is gone.
func TestKnockOverRealTCP(t *testing.T) {
	a, b := startTCP(t, identity(1, 1)), startTCP(t, identity(2, 1))
	defer b.stop()
	_ = a.SetPeer(2, b.l.Addr().String())
	_ = b.SetPeer(1, a.l.Addr().String())
	receive(t, a.up)
	receive(t, b.up)
	a.stop()
	if got := receive(t, b.down); got != "gone 1" {
		t.Fatalf("told %q", got)
	}
}

// A process that is being killed loses its connections first and its listener a moment later.
// In between a probe connects and is cut off: that is no sign of life.
func TestDyingProcessIsGoneOnBothSides(t *testing.T) {
	for _, dying := range []nodeID{1, 2} {
		other := 3 - dying
		a, b := startTCP(t, identity(dying, 1)), startTCP(t, identity(other, 1))
		_ = a.SetPeer(other, b.l.Addr().String())
		front, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		cut := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { // takes connections for a, and from cut on ends the next three at once
			for left := 3; left > 0; {
				nc, err := front.Accept()
				if err != nil {
					return
				}
				select {
				case <-cut:
					left--
					_ = nc.(*net.TCPConn).SetLinger(0)
					_ = nc.Close()
				default:
					a.Accept(nc)
				}
			}
			_ = front.Close()
		})
		_ = b.SetPeer(dying, front.Addr().String())
		receive(t, a.up)
		receive(t, b.up)
		close(cut)
		began := time.Now()
		a.stop()
		if got := receive(t, b.down); got != "gone "+dying.String() {
			t.Errorf("node %d was told %q", other, got)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the loss was told after %v", took)
		}
		_ = front.Close()
		wg.Wait()
		b.stop()
	}
}

func BenchmarkSendOverRealTCP(b *testing.B) {
	a, c := startTCP(b, identity(1, 1)), startTCP(b, identity(2, 1))
	defer a.stop()
	defer c.stop()
	_ = a.SetPeer(2, c.l.Addr().String())
	<-a.up
	payload := text(strings.Repeat("x", 16<<10))
	b.SetBytes(16 << 10)
	b.ReportAllocs()
	waiting := 0
	for b.Loop() {
		for waiting >= 100 {
			<-c.frame
			waiting--
		}
		if !a.Send(2, 2001, Data, payload) {
			b.Fatal("not taken")
		}
		waiting++
	}
	for range waiting {
		<-c.frame
	}
}
