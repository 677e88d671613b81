package memnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// connect gives both ends of a connection from a to b.
func connect(t *testing.T, n *Network, a, b string) (near, far net.Conn) {
	t.Helper()
	l, err := n.Host(b).Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = n.Host(a).Dial(t.Context(), l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return near, far
}

func TestBytesArriveInOrderThenTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := connect(t, New(), "a", "b")
		sent := bytes.Repeat([]byte("0123456789"), 50_000) // several windows
		go func() {
			_, _ = near.Write(sent)
			_ = near.Close()
		}()
		got, err := io.ReadAll(far)
		if err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("got %d bytes of %d, err %v", len(got), len(sent), err)
		}
		if _, err := far.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("write to a closed peer: %v", err)
		}
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Fatalf("read of an own closed end: %v", err)
		}
	})
}

func TestDeadlinesEndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := connect(t, New(), "a", "b")
		began := time.Now()
		_ = near.SetReadDeadline(began.Add(time.Second))
		_, err := near.Read(make([]byte, 1))
		var ne net.Error
		if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &ne) || !ne.Timeout() || time.Since(began) != time.Second {
			t.Fatalf("read: %v after %v", err, time.Since(began))
		}
		_ = near.SetWriteDeadline(time.Now().Add(time.Second))
		k, err := near.Write(make([]byte, window+1))
		if k != window || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("write: %d, %v", k, err)
		}
		_ = near.SetDeadline(time.Time{})
		if _, err := io.ReadFull(far, make([]byte, window)); err != nil {
			t.Fatal(err)
		}
		if _, err := near.Write([]byte("x")); err != nil {
			t.Fatalf("write after the deadline was lifted: %v", err)
		}
	})
}

func TestDialRefusedOrSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		a, b := n.Host("a"), n.Host("b")
		if _, err := a.Dial(t.Context(), "b:1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("nobody listens: %v", err)
		}
		b.PowerOff()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.Dial(ctx, "b:1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("no power: %v", err)
		}
		time.AfterFunc(time.Second, b.PowerOn)
		if _, err := a.Dial(t.Context(), "b:1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("power is back, no process: %v", err)
		}
	})
}

func TestKillIsHeardPowerOffIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		near, _ := connect(t, n, "a", "b")
		n.Host("b").Kill()
		if _, err := near.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("after a kill: %v", err)
		}
		near, far := connect(t, n, "a", "b")
		n.Host("b").PowerOff()
		if _, err := far.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Fatalf("the dead write: %v", err)
		}
		_ = near.SetReadDeadline(time.Now().Add(time.Hour))
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("after power off: %v", err)
		}
		n.Host("b").PowerOn()
		if _, err := near.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("after power on: %v", err)
		}
	})
}

func TestCutHoldsBackAndLatencyDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		n.SetLatency(10 * time.Millisecond)
		began := time.Now()
		near, far := connect(t, n, "a", "b")
		if d := time.Since(began); d != 20*time.Millisecond {
			t.Fatalf("a dial took %v, want one round trip", d)
		}
		n.Cut("a", "b")
		if _, err := near.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		_ = near.Close()
		time.AfterFunc(time.Minute, func() { n.Heal("a", "b") })
		began = time.Now()
		got, err := io.ReadAll(far)
		if string(got) != "x" || err != nil || time.Since(began) != time.Minute {
			t.Fatalf("%q, %v after %v", got, err, time.Since(began))
		}
	})
}
