package gossip

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"edged/internal/memnet"
)

// roaming is the transport of a machine that gets another address while its sockets, which are on all
// addresses, stay.
type roaming struct {
	*Transport // at the address it has now sends and dials
	next       *Transport
	moved      atomic.Bool
	packets    chan *memberlist.Packet
	streams    chan net.Conn
}

func newRoaming(t *testing.T, n *memnet.Network, from, to string) *roaming {
	t.Helper()
	at := func(ip string) *Transport {
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
	r := &roaming{Transport: at(from), next: at(to), packets: make(chan *memberlist.Packet), streams: make(chan net.Conn)}
	for _, tr := range []*Transport{r.Transport, r.next} {
		go func() {
			for {
				select {
				case p := <-tr.packets:
					select {
					case r.packets <- p:
					case <-tr.ctx.Done():
					}
				case s := <-tr.streams:
					select {
					case r.streams <- s:
					case <-tr.ctx.Done():
					}
				case <-tr.ctx.Done():
					return
				}
			}
		}()
	}
	return r
}

func (r *roaming) now() *Transport {
	if r.moved.Load() {
		return r.next
	}
	return r.Transport
}

func (r *roaming) WriteTo(b []byte, addr string) (time.Time, error) { return r.now().WriteTo(b, addr) }
func (r *roaming) DialTimeout(addr string, d time.Duration) (net.Conn, error) {
	return r.now().DialTimeout(addr, d)
}
func (r *roaming) PacketCh() <-chan *memberlist.Packet { return r.packets }
func (r *roaming) StreamCh() <-chan net.Conn           { return r.streams }
func (r *roaming) Shutdown() error {
	_ = r.next.Shutdown()
	return r.Transport.Shutdown()
}

// A node whose address changes is found at the new one within seconds, by those it knew and by those who come
// later, and nobody takes it for a clone. Nor does it have to be heard at the old address first: that of
// a machine that booted without a network was loopback.
func TestMove_othersFollowAndNobodySeesAClone(t *testing.T) {
	for name, before := range map[string]string{"another address": "10.0.0.2", "the first address": "127.0.0.1"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *memnet.Network) {
				const after = "10.0.9.2"
				r := newRoaming(t, n, before, after)
				a := start(t, n, "10.0.0.1", meta(1, 1))
				c := start(t, n, "10.0.0.3", meta(3, 1), joining("10.0.0.1:7946"))
				b, err := Start(Config{
					Meta: meta(2, 7), ClusterName: "edge", Logger: quiet, Transport: r, AdvertiseHost: before, Join: []string{"10.0.0.1:7946"},
				})
				if err != nil {
					t.Fatal(err)
				}
				if before != "127.0.0.1" {
					for _, g := range []*Gossip{a, b, c} {
						within(t, 20*time.Second, "all see all", sees(g, 1, 2, 3))
					}
				}
				n.Cut(before, "10.0.0.1")
				n.Cut(before, "10.0.0.3")
				r.moved.Store(true)
				if err := b.Move(after); err != nil {
					t.Fatal(err)
				}
				if got := b.Addr(); got != after+":7946" {
					t.Fatalf("advertises %s", got)
				}
				d := start(t, n, "10.0.0.4", meta(4, 1), joining("10.0.0.3:7946"))
				for _, g := range []*Gossip{a, b, c, d} {
					within(t, 15*time.Second, "all see all, node 2 at its new address", func() bool {
						return sees(g, 1, 2, 3, 4)() && memberOf(g, 2).Addr == after+":7946"
					})
				}
				for range 60 { // and it stays so
					time.Sleep(time.Second)
					for _, g := range []*Gossip{a, b, c, d} {
						if m := memberOf(g, 2); !m.Alive || m.Host != after {
							t.Fatalf("node 2 is %+v", m)
						}
					}
				}
				for i, g := range []*Gossip{a, b, c, d} {
					if st := g.Stats(); st.Clones+st.Refused > 0 || len(g.Twins()) > 0 {
						t.Errorf("%d: %+v, twins %v", i, st, g.Twins())
					}
				}
				for _, g := range []*Gossip{a, b, c, d} {
					_ = g.Close()
				}
				if err := b.Move(before); err == nil {
					t.Error("moved after Close")
				}
			})
		})
	}
}

// memberOf is what g knows of a node.
func memberOf(g *Gossip, id int32) (found Member) {
	for _, m := range g.Members() {
		if int32(m.Node) == id {
			found = m
		}
	}
	return found
}

// What a node says of itself goes on being said from the new address, and moving nowhere is nothing.
func TestMove_keepsWhatIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		r := newRoaming(t, n, "10.0.0.2", "10.0.9.2")
		a := start(t, n, "10.0.0.1", meta(1, 1))
		b, err := Start(Config{Meta: meta(2, 1), ClusterName: "edge", Logger: quiet, Transport: r, AdvertiseHost: "10.0.0.2", Join: []string{"10.0.0.1:7946"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Move("10.0.0.2"); err != nil || memberOf(b, 2).Moves != 0 {
			t.Errorf("%v, %+v", err, memberOf(b, 2))
		}
		if err := b.Move("0.0.0.0"); err == nil {
			t.Error("moved to no address")
		}
		m := meta(2, 1)
		m.State = StateJoining
		if err := b.SetMeta(m); err != nil {
			t.Fatal(err)
		}
		r.moved.Store(true)
		if err := b.Move("10.0.9.2"); err != nil {
			t.Fatal(err)
		}
		m.State = StateMember
		if err := b.SetMeta(m); err != nil {
			t.Fatal(err)
		}
		within(t, 15*time.Second, "the state, from there", func() bool {
			got := memberOf(a, 2)
			return got.Host == "10.0.9.2" && got.State == StateMember && got.Moves == 1
		})
		_, _ = a.Close(), b.Close()
	})
}
