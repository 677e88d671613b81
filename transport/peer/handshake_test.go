package peer

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"edged/internal/memnet"
	"edged/record"
)

type netConn = net.Conn

// deaf is a connection whose reads hang, whatever happens to the other end, until it is closed.
type deaf struct {
	netConn
	deaf atomic.Bool
}

func (d *deaf) Read(b []byte) (int, error) {
	n, err := d.netConn.Read(b)
	for d.deaf.Load() && err == io.EOF {
		_ = d.netConn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err = d.netConn.Read(b); errors.Is(err, net.ErrClosed) {
			return 0, err
		}
		time.Sleep(100 * time.Millisecond)
		err = io.EOF
	}
	return n, err
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		want error
		far  func(id *Identity)
	}{
		"another cluster":                 {ErrOtherCluster, func(id *Identity) { id.Cluster = clusterB }},
		"another cluster's name":          {ErrClusterName, func(id *Identity) { id.ClusterName = "other" }},
		"our own node id, another life":   {ErrClone, func(id *Identity) { id.Node = 5; id.Boot = 77 }},
		"an older boot counter":           {ErrOldLife, func(id *Identity) { id.BootCounter = 2; id.Boot = 77 }},
		"the same counter, another boot":  {ErrOldLife, func(id *Identity) { id.Boot = 77 }},
		"the node id of another instance": {ErrClone, func(id *Identity) { id.Instance[7] = 7; id.BootCounter = 9 }},
	} {
		for _, node := range []record.NodeID{4, 6} { // below and above node 5, which is asked
			t.Run(fmt.Sprint(name, " ", node), func(t *testing.T) {
				bubble(t, func(t *testing.T, n *memnet.Network) {
					a := start(t, n, identity(5, 1))
					defer a.stop()
					honest := start(t, n, identity(node, 3))
					join(t, a, honest)
					synctest.Wait()
					honest.kill()
					pass(time.Second)
					up, gone := fmt.Sprint("up ", honest.cfg.Identity().Boot), fmt.Sprint("gone ", honest.cfg.Identity().Boot)

					id := identity(node, 3)
					c.far(&id)
					b := startOn(t, n, fmt.Sprint("h", node), id)
					defer b.stop()
					if b.self == 5 { // it does not dial itself by this name, but by another's
						_ = b.SetPeer(7, a.addr)
					} else {
						join(t, a, b)
					}
					pass(30 * time.Second)
					a.rec.wantEvents(t, up, gone)
					b.rec.wantEvents(t)
					for side, rec := range map[string]*recorder{"asked": a.rec, "asking": b.rec} {
						errs := rec.refusals()
						if len(errs) == 0 {
							t.Fatalf("%s side was told nothing", side)
						}
						if len(errs) > 40 {
							t.Fatalf("%s side was told %d times in 30 s", side, len(errs))
						}
						for _, err := range errs {
							if !errors.Is(err, c.want) {
								t.Fatalf("%s side was told %v", side, err)
							}
							// The true node must not take the copy's fault for its own, nor the copy its own for
							// another's. Of two under one id that meet each other, the one that dialed is refused.
							var theirs *RemoteRefusal
							if c.want == ErrClone && id.Node == node && errors.As(err, &theirs) != (side == "asking") {
								t.Fatalf("%s side: refused by the other: %v", side, theirs)
							}
						}
					}
				})
			})
		}
	}
}

func TestOtherClusterNamesBoth(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a := start(t, n, identity(1, 1))
		defer a.stop()
		id := identity(2, 1)
		id.Cluster = clusterB
		b := start(t, n, id)
		defer b.stop()
		_, _, err := b.CallAddr(t.Context(), a.addr, nil)
		want := fmt.Sprintf("h1:7400: the node belongs to another cluster: node 2 is of cluster %v, node 1 of cluster %v", clusterB, clusterA)
		if !errors.Is(err, ErrOtherCluster) || err.Error() != want {
			t.Fatalf("got %v\nwant %v", err, want)
		}
	})
}

// The registry's word counts, and it can change.
func TestAdmit(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		var banned atomic.Bool
		banned.Store(true)
		a := start(t, n, identity(1, 1))
		b := start(t, n, identity(2, 1), func(c *Config) {
			c.Admit = func(id Identity) error {
				if banned.Load() {
					return fmt.Errorf("%w: node %d was removed from the cluster", record.ErrRefused, id.Node)
				}
				return nil
			}
		})
		defer a.stop()
		defer b.stop()
		join(t, a, b)
		pass(10 * time.Second)
		a.rec.wantEvents(t)
		if errs := a.rec.refusals(); len(errs) == 0 || !errors.Is(errs[0], record.ErrRefused) || errs[0].Error() != "refused: node 1 was removed from the cluster" {
			t.Fatalf("told %v", errs)
		}
		banned.Store(false)
		pass(10 * time.Second)
		a.rec.wantEvents(t, "up 2001")
	})
}

// A node that is in no cluster yet is no peer, but nobody is to be alarmed by it.
func TestNodesWithoutClusterAreNoPeersYet(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		var id atomic.Pointer[Identity]
		waiting := identity(2, 1)
		waiting.Cluster = record.ClusterID{}
		id.Store(&waiting)
		a := start(t, n, identity(1, 1))
		b := start(t, n, waiting, func(c *Config) { c.Identity = func() Identity { return *id.Load() } })
		defer a.stop()
		defer b.stop()
		join(t, a, b)
		pass(time.Minute)
		a.rec.wantEvents(t)
		b.rec.wantEvents(t)
		member := identity(2, 1)
		id.Store(&member)
		pass(3 * time.Second)
		a.rec.wantEvents(t, "up 2001")
		b.rec.wantEvents(t, "up 1001")
		if len(a.rec.refusals())+len(b.rec.refusals()) != 0 {
			t.Fatal("a node that waits was reported as refused")
		}
	})
}

func TestAnotherNodeAtTheAddress(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a, b := start(t, n, identity(1, 1)), start(t, n, identity(3, 1))
		defer a.stop()
		defer b.stop()
		_ = a.SetPeer(2, b.addr)
		pass(time.Second)
		a.rec.wantEvents(t)
		if errs := a.rec.refusals(); len(errs) == 0 || !errors.Is(errs[0], ErrWrongNode) {
			t.Fatalf("told %v", errs)
		}
	})
}

// A clone with a higher boot counter looks like a restart, but for the original that still
// answers on its connection. The original stays connected, and is not held to be a clone later.
func TestCloneOfALivingNodeIsRefused(t *testing.T) {
	for _, node := range []record.NodeID{1, 3} {
		bubble(t, func(t *testing.T, n *memnet.Network) {
			a, b := start(t, n, identity(2, 1)), start(t, n, identity(node, 1))
			defer a.stop()
			defer b.stop()
			join(t, a, b)
			synctest.Wait()
			clone := startOn(t, n, "clone", identity(node, 5))
			_ = clone.SetPeer(2, a.addr)
			pass(10 * time.Second)
			clone.rec.wantEvents(t)
			if errs := clone.rec.refusals(); len(errs) == 0 || !errors.Is(errs[0], ErrClone) {
				t.Fatalf("the clone was told %v", errs)
			}
			clone.stop()
			up, down := fmt.Sprint("up ", b.cfg.Identity().Boot), fmt.Sprint("down ", b.cfg.Identity().Boot)
			a.rec.wantEvents(t, up)
			a.session(node).control.close(errors.New("test"))
			pass(time.Second)
			a.rec.wantEvents(t, up, down, up)
		})
	}
}

// Whatever a stranger sends, it is let go, and nobody is told of a peer.
func TestStrangersAreLetGo(t *testing.T) {
	h := newFrame(frameHello, hello{forControl, identity(1, 1)}.encode())
	whole := append(h.appendHeader([]byte(Magic)), h.body[0]...)
	huge := newFrame(frameHello, make([]byte, maxHello+1))
	for name, sent := range map[string][]byte{
		"nothing":            {},
		"the magic":          []byte(Magic),
		"another protocol":   []byte("GET / HTTP/1.1\r\n\r\n"),
		"half a hello":       whole[:len(whole)-3],
		"a damaged hello":    append(whole[:len(whole)-1:len(whole)-1], 'X'),
		"no ready":           whole,
		"a ready first":      newFrame(frameReady).appendHeader([]byte(Magic)),
		"a hello too large":  append(huge.appendHeader([]byte(Magic)), huge.body[0]...),
		"a hello cut short":  newFrame(frameHello).appendHeader([]byte(Magic)),
		"not ready but ping": newFrame(framePing).appendHeader(append([]byte(nil), whole...)),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *memnet.Network) {
				a := start(t, n, identity(2, 1))
				defer a.stop()
				nc, err := n.Host("stranger").Dial(t.Context(), a.addr)
				if err != nil {
					t.Fatal(err)
				}
				defer nc.Close()
				if _, err := nc.Write(sent); err != nil {
					t.Fatal(err)
				}
				_ = nc.SetReadDeadline(time.Now().Add(5 * time.Second))
				if _, err := io.Copy(io.Discard, nc); err != nil && !errors.Is(err, syscall.ECONNRESET) {
					t.Fatalf("still connected: %v", err)
				}
				a.rec.wantEvents(t)
			})
		})
	}
}

// A byte now and then does not keep a handshake alive.
func TestSlowStrangerIsLetGo(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a := start(t, n, identity(2, 1))
		defer a.stop()
		nc, err := n.Host("stranger").Dial(t.Context(), a.addr)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for _, b := range []byte(Magic + "\x00\x00\x00\x40\x01 and so on and on and on and on") {
			if _, err = nc.Write([]byte{b}); err != nil {
				break
			}
			pass(time.Second)
		}
		if err == nil || time.Since(began) > 4*time.Second {
			t.Fatalf("still connected after %v", time.Since(began))
		}
		_ = nc.Close()
	})
}

func TestNewerVersionIsNamed(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a := start(t, n, identity(2, 1))
		defer a.stop()
		nc, err := n.Host("h1").Dial(t.Context(), a.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		f := newFrame(frameHello, []byte{version + 1, 'n', 'e', 'w'})
		_, _ = nc.Write(append(f.appendHeader([]byte(Magic)), f.body[0]...))
		got, err := io.ReadAll(nc)
		if err != nil || len(got) < headerSize || got[4] != frameRefuse {
			t.Fatalf("answer %q, %v", got, err)
		}
		refused, ok := parseError(got[headerSize:])
		if !ok || !errors.Is(refused, ErrVersion) {
			t.Fatalf("answer %v", refused)
		}
		synctest.Wait()
		if errs := a.rec.refusals(); len(errs) != 1 || !errors.Is(errs[0], ErrVersion) {
			t.Fatalf("told %v", errs)
		}
	})
}

// A damaged frame ends the connection; it never becomes a message.
func TestDamagedFrameEndsTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a, b := start(t, n, identity(1, 1)), start(t, n, identity(2, 1))
		defer a.stop()
		defer b.stop()
		join(t, a, b)
		synctest.Wait()
		f := newFrame(frameMessage, []byte("vote for me"))
		raw := append(f.appendHeader(nil), "vote for us"...)
		if _, err := a.session(2).control.nc.Write(raw); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		b.rec.wantEvents(t, "up 1001", "down 1001", "up 1001")
		if got := b.rec.got(Control); len(got) != 0 {
			t.Fatalf("got %q", got)
		}
	})
}
