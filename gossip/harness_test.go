package gossip

import (
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edged/internal/memnet"
	"edged/record"
)

var quiet = slog.New(slog.DiscardHandler)

func meta(node record.NodeID, counter uint64) Meta {
	return Meta{
		Node: node, Instance: record.InstanceID{byte(node)}, BootCounter: counter, Boot: record.BootID(uint64(node)*1000 + counter),
		Cluster: record.ClusterID{0xa}, Name: "pi-" + node.String(), NativePort: 7400, KafkaPort: 9092, HTTPPort: 7480,
		State: StateMember, Version: "1.2.3",
	}
}

const testPort = 7946

// start runs a node on a host of that address.
func start(t *testing.T, n *memnet.Network, ip string, m Meta, change ...func(*Config)) *Gossip {
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
	cfg := Config{
		Meta: m, ClusterName: "edge", Logger: quiet,
		Transport: NewTransport(ln, pc, h.Dial),
	}
	for _, f := range change {
		f(&cfg)
	}
	g, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func joining(addrs ...string) func(*Config) { return func(c *Config) { c.Join = addrs } }

// bubble runs f under virtual time. It fails if f leaves a goroutine behind.
func bubble(t *testing.T, f func(t *testing.T, n *memnet.Network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, memnet.New())
		time.Sleep(time.Minute) // memberlist ends its goroutines by their timeouts
	})
}

// within waits until ok, at most d, and tells how long it took.
func within(t *testing.T, d time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > d {
			t.Fatalf("not within %v: %s", d, what)
		}
		time.Sleep(10 * time.Millisecond) // virtual
	}
	return time.Since(began)
}

// alive lists the live members' node ids as g sees them.
func alive(g *Gossip) (ids []record.NodeID) {
	for _, m := range g.Members() {
		if m.Alive {
			ids = append(ids, m.Node)
		}
	}
	return ids
}

func sees(g *Gossip, ids ...record.NodeID) func() bool {
	return func() bool { return slices.Equal(alive(g), ids) }
}

// file is a list of addresses that outlives a node.
type file struct {
	mu     sync.Mutex
	addrs  []string
	writes int
}

func (f *file) use(c *Config) {
	c.SavedFile = func() ([]string, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return slices.Clone(f.addrs), nil
	}
	c.Save = func(addrs []string) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.addrs = slices.Clone(addrs)
		f.writes++
		return nil
	}
}
