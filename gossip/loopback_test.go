package gossip

import (
	"net"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"edged/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Real sockets, ports chosen by the system: the first join takes a moment, not seconds.
func TestOverLoopback(t *testing.T) {
	var gs []*Gossip
	defer func() {
		for _, g := range gs {
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	for i := range 3 {
		cfg := Config{Meta: meta(record.NodeID(i+1), 1), ClusterName: "edge", BindAddr: "127.0.0.1:0", Logger: quiet, Key: make([]byte, 32)}
		if i > 0 {
			cfg.Join = []string{"nowhere.invalid:1", "no address", "localhost:" + port(t, gs[0].Addr())}
		}
		g, err := Start(cfg)
		if err != nil {
			t.Fatal(err)
		}
		gs = append(gs, g)
	}
	began := time.Now()
	for _, g := range gs {
		for len(alive(g)) < 3 {
			select {
			case <-g.Events():
			case <-time.After(10 * time.Second):
				t.Fatalf("only %v after 10 s", alive(g))
			}
		}
	}
	t.Logf("together after %v", time.Since(began))
	gs[1].PublishLeaders([]Leader{{Group: 1, Leader: 2, Epoch: 3}})
	for {
		if l, ok := gs[2].Leader(1); ok && l == (Leader{1, 2, 3}) {
			break
		}
		select {
		case <-gs[2].Events():
		case <-time.After(10 * time.Second):
			t.Fatal("the leader was not heard within 10 s")
		}
	}
}

func port(t *testing.T, addr string) string {
	t.Helper()
	_, p, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Many at once: each finds a port that is free for TCP and for UDP.
func TestPortZeroBindsBoth(t *testing.T) {
	var addrs []string
	for range 50 {
		tr, err := listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := tr.Shutdown(); err != nil {
				t.Error(err)
			}
		}()
		if tcp, udp := tr.ln.Addr().String(), tr.pc.LocalAddr().String(); tcp != udp || slices.Contains(addrs, tcp) {
			t.Fatalf("TCP on %s, UDP on %s", tcp, udp)
		}
		addrs = append(addrs, tr.ln.Addr().String())
	}
	if _, err := listen(addrs[0]); err == nil {
		t.Fatal("a port that is taken was bound")
	}
}
