package peer

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"edged/internal/memnet"
	"edged/record"
)

var (
	clusterA = record.ClusterID{0xa}
	clusterB = record.ClusterID{0xb}
)

var quiet = slog.New(slog.DiscardHandler)

type (
	nodeID = record.NodeID
	bootID = record.BootID
)

// identity gives a member of clusterA; the boot id tells its counter.
func identity(node record.NodeID, counter uint64) Identity {
	return Identity{
		Cluster: clusterA, ClusterName: "edge", Node: node, Instance: record.InstanceID{byte(node)},
		Boot: record.BootID(uint64(node)*1000 + counter), BootCounter: counter,
	}
}

// recorder is a Handler that writes down what it is told.
type recorder struct {
	call func(ctx context.Context, from Identity, payload []byte) ([]byte, error)
	gate chan struct{} // if set, each data frame waits for a token or its closing

	mu      sync.Mutex
	events  []string
	frames  map[Class][]string
	refused []error
}

func (r *recorder) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, fmt.Sprintf(format, args...))
}

func (r *recorder) PeerUp(id Identity) { r.note("up %d", id.Boot) }

func (r *recorder) PeerDown(_ record.NodeID, boot record.BootID, refused bool) {
	if refused {
		r.note("gone %d", boot)
		return
	}
	r.note("down %d", boot)
}

func (r *recorder) PeerFrame(_ record.NodeID, _ record.BootID, class Class, payload []byte) {
	if class == Data && r.gate != nil {
		<-r.gate
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.frames == nil {
		r.frames = make(map[Class][]string)
	}
	r.frames[class] = append(r.frames[class], string(payload[:min(len(payload), 20)]))
}

func (r *recorder) PeerCall(ctx context.Context, from Identity, payload []byte) ([]byte, error) {
	if r.call == nil {
		return append([]byte("echo "), payload...), nil
	}
	return r.call(ctx, from, payload)
}

func (r *recorder) PeerRefused(_ record.NodeID, _ string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = append(r.refused, err)
}

func (r *recorder) got(class Class) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.frames[class])
}

func (r *recorder) refusals() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.refused)
}

// wantEvents lets everything settle and compares all that was told of peers since the start.
func (r *recorder) wantEvents(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.events, want) {
		t.Fatalf("events %q, want %q", r.events, want)
	}
}

// wantLives is wantEvents where it is chance whether a process was seen to be gone before it was back.
func (r *recorder) wantLives(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	for i, e := range r.events {
		r.events[i] = strings.Replace(e, "gone", "down", 1)
	}
	r.mu.Unlock()
	r.wantEvents(t, want...)
}

// testNode is one process on one host of a network in memory.
type testNode struct {
	*Transport
	rec  *recorder
	host *memnet.Host
	addr string
	l    net.Listener
	dead atomic.Bool // killed: what still runs of it reaches nobody
	wg   sync.WaitGroup
}

const testPort = 7400

func start(t *testing.T, n *memnet.Network, id Identity, change ...func(*Config)) *testNode {
	return startOn(t, n, fmt.Sprintf("h%d", id.Node), id, change...)
}

func startOn(t *testing.T, n *memnet.Network, host string, id Identity, change ...func(*Config)) *testNode {
	t.Helper()
	tn := &testNode{rec: &recorder{}, host: n.Host(host)}
	cfg := Config{
		Identity: func() Identity { return id }, Handler: tn.rec, Dial: tn.dial,
		Logger: quiet,
	}
	for _, f := range change {
		f(&cfg)
	}
	tn.Transport = New(cfg)
	l, err := tn.host.Listen(testPort)
	if err != nil {
		t.Fatal(err)
	}
	tn.l, tn.addr = l, l.Addr().String()
	tn.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			tn.wg.Go(func() { tn.Accept(c) })
		}
	})
	return tn
}

func (tn *testNode) dial(ctx context.Context, addr string) (net.Conn, error) {
	if tn.dead.Load() {
		return nil, net.ErrClosed
	}
	return tn.host.Dial(ctx, addr)
}

func (tn *testNode) stop() {
	_ = tn.l.Close()
	_ = tn.Transport.Close()
	tn.wg.Wait()
}

// kill is what kill -9 does: the kernel closes everything, then nothing runs any more.
func (tn *testNode) kill() {
	tn.dead.Store(true)
	tn.host.Kill()
	tn.stop()
}

func join(t *testing.T, nodes ...*testNode) {
	t.Helper()
	for _, a := range nodes {
		for _, b := range nodes {
			if err := a.SetPeer(b.self, b.addr); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// bubble runs f under virtual time. It fails if f leaves a goroutine behind.
func bubble(t *testing.T, f func(t *testing.T, n *memnet.Network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, memnet.New()) })
}

func pass(d time.Duration) {
	time.Sleep(d) // virtual
	synctest.Wait()
}

func text(parts ...string) (out [][]byte) {
	for _, p := range parts {
		out = append(out, []byte(p))
	}
	return out
}
