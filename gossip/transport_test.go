package gossip

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"edged/internal/memnet"
)

func transport(t *testing.T, n *memnet.Network, ip string) *Transport {
	t.Helper()
	h := n.Host(ip)
	ln, err := h.Listen(testPort)
	if err != nil {
		t.Fatal(err)
	}
	pc, err := h.ListenPackets(testPort)
	if err != nil {
		t.Fatal(err)
	}
	return NewTransport(ln, pc, h.Dial)
}

// Streams that nobody takes do not pile up: those above maxStreams are closed at once, and a closed
// one makes room.
func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		tr := transport(t, n, ip1)
		defer func() { _ = tr.Shutdown() }()
		h := n.Host(ip2)
		var taken []net.Conn
		go func() {
			for {
				select {
				case c := <-tr.StreamCh():
					taken = append(taken, c)
				case <-tr.ctx.Done():
					return
				}
			}
		}()
		open := func() net.Conn {
			nc, err := h.Dial(t.Context(), at1)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return nc
		}
		for range maxStreams {
			defer open().Close()
		}
		over := open()
		defer over.Close()
		if _, err := over.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("one too many: %v", err)
		}
		_ = taken[0].Close()
		defer open().Close()
		if len(taken) != maxStreams+1 {
			t.Fatalf("%d taken", len(taken))
		}
	})
}

func TestShutdownEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		a, b := transport(t, n, ip1), transport(t, n, ip2)
		near, err := a.DialTimeout(at2, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		far := <-b.StreamCh()
		n.Host(ip3).PowerOff()
		ended := make(chan error, 2)
		go func() { // a dial that hangs
			_, err := a.DialTimeout("10.0.0.3:1", time.Hour)
			ended <- err
		}()
		go func() { // a read that hangs
			_, err := near.Read(make([]byte, 1))
			ended <- err
		}()
		if _, err := a.WriteTo([]byte("nobody takes it"), at2); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		began := time.Now()
		if err := errors.Join(a.Shutdown(), b.Shutdown()); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-ended; !errors.Is(err, context.Canceled) && !errors.Is(err, net.ErrClosed) {
				t.Fatalf("ended with %v", err)
			}
		}
		if time.Since(began) != 0 {
			t.Fatalf("took %v", time.Since(began))
		}
		if _, err := far.Read(make([]byte, 1)); err == nil {
			t.Fatal("an accepted stream outlived its transport")
		}
	})
}
