package transport

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"edged/internal/leak"
	"edged/internal/memnet"
)

func TestMain(m *testing.M) { leak.Main(m) }

// rig is a server on a network in memory.
type rig struct {
	t      *testing.T
	server *Server
	net    *memnet.Network
	served chan error
}

func newRig(t *testing.T, cfg Config) *rig {
	cfg.Logger = slog.New(slog.DiscardHandler)
	r := &rig{t: t, server: New(cfg), net: memnet.New(), served: make(chan error, 1)}
	ln, err := r.net.Host("node").Listen(7400)
	if err != nil {
		t.Fatal(err)
	}
	go func() { r.served <- r.server.Serve(ln) }()
	return r
}

func (r *rig) dial() net.Conn {
	r.t.Helper()
	nc, err := r.net.Host("client").Dial(r.t.Context(), "node:7400")
	if err != nil {
		r.t.Fatal(err)
	}
	return nc
}

func (r *rig) close() {
	r.t.Helper()
	if err := r.server.Close(); err != nil {
		r.t.Error(err)
	}
	if err := <-r.served; err != nil {
		r.t.Errorf("Serve ended with %v", err)
	}
	if s := r.server.Stats(); s.Open != 0 {
		r.t.Errorf("after Close: %+v", s)
	}
}

// echo reads to the end, says it back, and closes.
func echo(nc net.Conn) {
	defer nc.Close()
	_, _ = io.Copy(nc, nc)
}

func TestServer_routesByTheFirstBytesAndKeepsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{Route: func(first [4]byte) Handler {
			if string(first[:]) == "ECHO" {
				return echo
			}
			return nil
		}})
		good := r.dial()
		for _, part := range []string{"EC", "H", "O and more"} { // bytes may come one by one
			if _, err := good.Write([]byte(part)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		got := make([]byte, len("ECHO and more"))
		if _, err := io.ReadFull(good, got); err != nil || string(got) != "ECHO and more" {
			t.Errorf("%q, %v", got, err)
		}
		bad := r.dial()
		if _, err := bad.Write([]byte("NOPE")); err != nil {
			t.Fatal(err)
		}
		if _, err := bad.Read(got); !errors.Is(err, io.EOF) {
			t.Errorf("an unknown protocol: %v", err)
		}
		synctest.Wait() // it is counted a moment after it was closed
		if s := r.server.Stats(); s.Open != 1 || s.Accepted != 2 || s.Silent != 1 {
			t.Errorf("%+v", s)
		}
		r.close() // also ends the handler that still reads
	})
}

func TestServer_silentConnectionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{FirstByteTimeout: 3 * time.Second, Route: func([4]byte) Handler { return echo }})
		began := time.Now()
		nc := r.dial()
		if _, err := nc.Write([]byte("ECH")); err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		// One that has shown its bytes may be idle for ever.
		nc = r.dial()
		if _, err := nc.Write([]byte("ECHO")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if n, err := io.ReadFull(nc, make([]byte, 4)); n != 4 {
			t.Error(err)
		}
		r.close()
	})
}

func TestServer_boundsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{MaxConns: 2, Route: func([4]byte) Handler { return echo }})
		a, b := r.dial(), r.dial()
		synctest.Wait()
		if _, err := r.dial().Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the third: %v", err)
		}
		a.Close()
		synctest.Wait()
		c := r.dial()
		for _, nc := range []net.Conn{b, c} {
			if _, err := nc.Write([]byte("ECHO")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(nc, make([]byte, 4)); err != nil {
				t.Error(err)
			}
		}
		if s := r.server.Stats(); s.Refused != 1 || s.Open != 2 {
			t.Errorf("%+v", s)
		}
		r.close()
	})
}

// failing is a listener whose Accept fails a few times before it works.
type failing struct {
	net.Listener
	mu   sync.Mutex
	left int
}

func (f *failing) Accept() (net.Conn, error) {
	f.mu.Lock()
	fail := f.left > 0
	f.left--
	f.mu.Unlock()
	if fail {
		return nil, syscall.EMFILE
	}
	return f.Listener.Accept()
}

func TestServer_acceptsAgainAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		ln, err := n.Host("node").Listen(1)
		if err != nil {
			t.Fatal(err)
		}
		s := New(Config{Route: func([4]byte) Handler { return echo }, Logger: slog.New(slog.DiscardHandler)})
		served := make(chan error, 1)
		began := time.Now()
		go func() { served <- s.Serve(&failing{Listener: ln, left: 12}) }()
		nc, err := n.Host("client").Dial(t.Context(), "node:1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Write([]byte("ECHO")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(nc, make([]byte, 4)); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 12*time.Second || took < time.Second {
			t.Errorf("took %v", took)
		}
		s.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := s.Serve(ln); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Errorf("Serve after Close: %v", err)
		}
	})
}

// A handler may leave the connection to others: the server forgets it and does not close it.
func TestServer_handlerMayReturnEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := make(chan net.Conn, 1)
		r := newRig(t, Config{Route: func([4]byte) Handler { return func(nc net.Conn) { kept <- nc } }})
		nc := r.dial()
		if _, err := nc.Write([]byte("PEER")); err != nil {
			t.Fatal(err)
		}
		theirs := <-kept
		synctest.Wait()
		r.close()
		go echo(theirs)
		got := make([]byte, 4)
		if _, err := io.ReadFull(nc, got); err != nil || string(got) != "PEER" {
			t.Errorf("%q, %v", got, err)
		}
		nc.Close()
	})
}

func TestConn_givesTheSocket(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Route: func([4]byte) Handler {
		return func(nc net.Conn) {
			defer nc.Close()
			if _, err := nc.(syscall.Conn).SyscallConn(); err != nil {
				t.Error(err)
			}
			_, _ = nc.Write([]byte("done"))
		}
	}})
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Write([]byte("PEER")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(nc, make([]byte, 4)); err != nil {
		t.Error(err)
	}
	nc.Close()
	s.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := (&Conn{Conn: nil}).SyscallConn(); err == nil {
		t.Error("a connection without a socket gave one")
	}
}
