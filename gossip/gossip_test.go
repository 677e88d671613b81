package gossip

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"edged/internal/memnet"
	"edged/record"
)

const (
	ip1 = "10.0.0.1"
	ip2 = "10.0.0.2"
	ip3 = "10.0.0.3"
	at1 = "10.0.0.1:7946"
	at2 = "10.0.0.2:7946"
	at3 = "10.0.0.3:7946"
)

func TestThreeNodesFindEachOther(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a := start(t, n, ip1, meta(1, 1))
		defer a.Close()
		b := start(t, n, ip2, meta(2, 1), joining(at1))
		defer b.Close()
		c := start(t, n, ip3, meta(3, 1), joining("10.0.0.77:1", at1))
		defer c.Close()
		for _, g := range []*Gossip{a, b, c} {
			within(t, 2*time.Second, "all see all", sees(g, 1, 2, 3))
		}
		got := c.Members()
		want := []Member{
			{Meta: meta(1, 1), Host: ip1, Addr: at1, Alive: true},
			{Meta: meta(2, 1), Host: ip2, Addr: at2, Alive: true},
			{Meta: meta(3, 1), Host: ip3, Addr: at3, Alive: true},
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %+v\nwant %+v", got, want)
		}
		if a.Addr() != at1 {
			t.Fatalf("address %s", a.Addr())
		}
	})
}

// Nodes that start before those they look for find them soon after.
func TestFirstJoinIsQuick(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		b := start(t, n, ip2, meta(2, 1), joining(at1))
		defer b.Close()
		time.Sleep(3 * time.Second)
		a := start(t, n, ip1, meta(1, 1))
		defer a.Close()
		within(t, time.Second, "found", sees(b, 1, 2))
		within(t, time.Second, "found", sees(a, 1, 2))
	})
}

// The token of a new member is there when the member is, not at the next tick of anything.
func TestEventComesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a := start(t, n, ip1, meta(1, 1))
		defer a.Close()
		time.Sleep(time.Minute)
		<-a.Events()
		b := start(t, n, ip2, meta(2, 1), joining(at1))
		defer b.Close()
		began := time.Now()
		for !sees(a, 1, 2)() {
			<-a.Events()
		}
		if took := time.Since(began); took > firstPause {
			t.Fatalf("the event came after %v", took)
		}
		select {
		case <-a.Events():
			time.Sleep(time.Minute)
		default:
			time.Sleep(time.Minute)
		}
		select {
		case <-a.Events():
			t.Fatal("an event without news")
		default:
		}
	})
}

func TestChangedMetaIsSeen(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		fresh := meta(2, 1)
		fresh.Cluster, fresh.State, fresh.Expect = record.ClusterID{}, StateWaiting, 3
		a := start(t, n, ip1, meta(1, 1))
		defer a.Close()
		b := start(t, n, ip2, fresh, joining(at1))
		defer b.Close()
		within(t, 2*time.Second, "found", func() bool {
			ms := a.Members()
			return len(ms) == 2 && ms[1].State == StateWaiting && ms[1].Expect == 3 && ms[1].Cluster.IsZero()
		})
		member := meta(2, 99) // the life stays that of Start
		member.Node = 7
		if err := b.SetMeta(member); err != nil {
			t.Fatal(err)
		}
		within(t, 2*time.Second, "changed", func() bool {
			ms := a.Members()
			return len(ms) == 2 && ms[1].Meta == withName(meta(2, 1), "pi-2") && ms[1].State == StateMember
		})
		member.Name = strings.Repeat("x", MaxName+1)
		if err := b.SetMeta(member); err == nil {
			t.Fatal("a name too long was taken")
		}
	})
}

func withName(m Meta, name string) Meta {
	m.Name = name
	return m
}

// A node that comes back with another address is another member to memberlist, and is taken at
// once although its old life is still held to be alive.
func TestRestartWithANewAddress(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		var saved file
		a := start(t, n, ip1, meta(1, 1))
		defer a.Close()
		b := start(t, n, ip2, meta(2, 1), joining(at1))
		defer b.Close()
		c := start(t, n, ip3, meta(3, 1), joining(at1), saved.use)
		within(t, 2*time.Second, "together", sees(a, 1, 2, 3))
		time.Sleep(5 * time.Second)
		n.Host(ip3).Kill()
		_ = c.Close()
		moved := start(t, n, "10.0.0.99", meta(3, 2), saved.use)
		defer moved.Close()
		for _, g := range []*Gossip{a, b} {
			took := within(t, 3*time.Second, "found at its new address", func() bool {
				ms := g.Members()
				return len(ms) == 3 && ms[2].Host == "10.0.0.99" && ms[2].BootCounter == 2 && ms[2].Alive
			})
			t.Logf("found after %v", took)
		}
		time.Sleep(2 * time.Minute) // the old life dies and changes nothing
		if !sees(a, 1, 2, 3)() || a.Members()[2].BootCounter != 2 {
			t.Fatalf("members %+v", a.Members())
		}
		if s := a.Stats(); s.Refused+s.Clones != 0 {
			t.Fatalf("stats %+v", s)
		}
	})
}

func TestDeadNodeIsNoticedAndKept(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a := start(t, n, ip1, meta(1, 1))
		defer a.Close()
		b := start(t, n, ip2, meta(2, 1), joining(at1))
		within(t, 2*time.Second, "together", sees(a, 1, 2))
		n.Host(ip2).PowerOff()
		_ = b.Close()
		took := within(t, time.Minute, "noticed", sees(a, 1))
		t.Logf("noticed after %v", took)
		time.Sleep(10 * time.Minute)
		if ms := a.Members(); len(ms) != 2 || ms[1].Alive || ms[1].Addr != at2 {
			t.Fatalf("members %+v", ms)
		}
	})
}

// memberlist forgets the dead after a minute. A partition that lasts an hour heals all the same.
func TestLongPartitionHeals(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a := start(t, n, ip1, meta(1, 1))
		defer a.Close()
		b := start(t, n, ip2, meta(2, 1), joining(at1))
		defer b.Close()
		c := start(t, n, ip3, meta(3, 1), joining(at1))
		defer c.Close()
		within(t, 2*time.Second, "together", sees(c, 1, 2, 3))
		n.Cut(ip1, ip3)
		n.Cut(ip2, ip3)
		within(t, time.Minute, "apart", sees(c, 3))
		within(t, time.Minute, "apart", sees(a, 1, 2))
		time.Sleep(time.Hour)
		n.Heal(ip1, ip3)
		n.Heal(ip2, ip3)
		took := within(t, longestPause+5*time.Second, "together again", sees(c, 1, 2, 3))
		within(t, 5*time.Second, "together again", sees(a, 1, 2, 3))
		t.Logf("healed after %v", took)
	})
}

// After a power cut of everything the nodes find each other by what they saved, without Join.
func TestSavedAddressesFindTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		var fa, fb file
		a := start(t, n, ip1, meta(1, 1), fa.use)
		b := start(t, n, ip2, meta(2, 1), joining(at1), fb.use)
		within(t, 2*time.Second, "together", sees(a, 1, 2))
		time.Sleep(time.Hour)
		_ = a.Close()
		_ = b.Close()
		if !slices.Equal(fa.addrs, []string{at2}) || !slices.Equal(fb.addrs, []string{at1}) {
			t.Fatalf("saved %q and %q", fa.addrs, fb.addrs)
		}
		if fa.writes != 1 || fb.writes != 1 {
			t.Fatalf("written %d and %d times in a quiet hour", fa.writes, fb.writes)
		}
		a = start(t, n, ip1, meta(1, 2), fa.use)
		defer a.Close()
		b = start(t, n, ip2, meta(2, 2), fb.use)
		defer b.Close()
		within(t, 2*time.Second, "together", sees(a, 1, 2))
	})
}

// A node that was known while it had no cluster, and then turns out to be of another, is not a
// member any more, and can be told of.
func TestStrangers_areToldApart(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		virgin := meta(2, 1)
		virgin.Cluster, virgin.State = record.ClusterID{}, StateJoining
		a := start(t, n, ip1, meta(1, 1))
		defer a.Close()
		b := start(t, n, ip2, virgin, joining(at1))
		defer b.Close()
		within(t, time.Minute, "together", sees(a, 1, 2))
		virgin.Cluster = record.ClusterID{0xb}
		if err := b.SetMeta(virgin); err != nil {
			t.Fatal(err)
		}
		within(t, time.Minute, "apart", sees(a, 1))
		if s := a.Strangers(); len(s) != 1 || s[0].Node != 2 || s[0].Cluster != virgin.Cluster {
			t.Errorf("strangers %+v", s)
		}
	})
}

func TestClustersDoNotMix(t *testing.T) {
	other := meta(2, 1)
	other.Cluster = record.ClusterID{0xb}
	for name, c := range map[string]struct {
		meta   Meta
		change func(*Config)
	}{
		"another name":       {meta(2, 1), func(c *Config) { c.ClusterName = "other" }},
		"another id":         {other, func(*Config) {}},
		"a key on one side":  {meta(2, 1), func(c *Config) { c.Key = make([]byte, 32) }},
		"their name is long": {meta(2, 1), func(c *Config) { c.ClusterName = "edge2" }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *memnet.Network) {
				a := start(t, n, ip1, meta(1, 1), joining(at2))
				defer a.Close()
				b := start(t, n, ip2, c.meta, joining(at1), c.change)
				defer b.Close()
				a.PublishLeaders([]Leader{{Group: 1, Leader: 1, Epoch: 1}})
				time.Sleep(5 * time.Minute)
				if len(a.Members()) != 1 || len(b.Members()) != 1 {
					t.Fatalf("members %+v and %+v", a.Members(), b.Members())
				}
				if _, ok := b.Leader(1); ok && c.meta.Cluster == meta(1, 1).Cluster {
					t.Fatal("leaders of another cluster were heard")
				}
			})
		})
	}
}

// A virgin has a cluster of its own and is to be found all the same: it may be taken in.
func TestVirginIsFound(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		virgin := meta(2, 1)
		virgin.Cluster, virgin.State = record.ClusterID{0xb}, StateVirgin
		a := start(t, n, ip1, meta(1, 1))
		defer a.Close()
		b := start(t, n, ip2, virgin, joining(at1))
		defer b.Close()
		within(t, 2*time.Second, "found", sees(a, 1, 2))
		within(t, 2*time.Second, "found", sees(b, 1, 2))
		used := virgin
		used.State = StateMember // it has got data: two clusters now
		if err := b.SetMeta(used); err != nil {
			t.Fatal(err)
		}
		within(t, time.Second, "gone", sees(b, 2))
		within(t, time.Minute, "gone", sees(a, 1))
	})
}

func TestKeyEncrypts(t *testing.T) {
	key := func(c *Config) { c.Key = []byte("0123456789abcdef") }
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a := start(t, n, ip1, meta(1, 1), key)
		defer a.Close()
		b := start(t, n, ip2, meta(2, 1), joining(at1), key)
		defer b.Close()
		within(t, 2*time.Second, "together", sees(a, 1, 2))
		var many []Leader
		for i := range 300 {
			many = append(many, Leader{Group: record.GroupID(i), Leader: 1, Epoch: 3})
		}
		a.PublishLeaders(many) // packets at their largest, with everything around them
		within(t, 10*time.Second, "all heard", func() bool { return b.Stats().Leaders == 300 })
	})
}

func TestLeadersSpread(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		gs := []*Gossip{start(t, n, ip1, meta(1, 1))}
		for i := range 7 {
			node := record.NodeID(i + 2)
			gs = append(gs, start(t, n, fmt.Sprint("10.0.0.", node), meta(node, 1), joining(at1)))
		}
		for _, g := range gs {
			defer g.Close()
			within(t, time.Minute, "together", func() bool { return len(alive(g)) == len(gs) }) // at the latest by an exchange of full state
		}
		var many []Leader
		for i := range 1000 {
			many = append(many, Leader{Group: record.GroupID(i + 1), Leader: 3, Epoch: 5})
		}
		gs[2].PublishLeaders(many)
		for _, g := range gs {
			took := within(t, 2*time.Minute, "all heard", func() bool { return g.Stats().Leaders == 1000 })
			t.Logf("heard after %v more", took)
		}
		gs[4].PublishLeaders([]Leader{{Group: 7, Leader: 5, Epoch: 6}})
		gs[5].PublishLeaders([]Leader{{Group: 7, Leader: 2, Epoch: 4}}) // late news
		for _, g := range gs {
			within(t, time.Minute, "one change heard", func() bool { l, _ := g.Leader(7); return l == Leader{7, 5, 6} })
		}
		late := start(t, n, "10.0.1.1", meta(99, 1), joining(at1))
		defer late.Close()
		within(t, 2*time.Second, "full table with the join", func() bool { return late.Stats().Leaders == 1000 })
		if l, ok := late.Leader(7); !ok || l != (Leader{7, 5, 6}) {
			t.Fatalf("got %+v", l)
		}
		late.RetainLeaders(func(g record.GroupID) bool { return g <= 10 })
		if late.Stats().Leaders != 10 {
			t.Fatalf("retained %d", late.Stats().Leaders)
		}
	})
}

// A cloned card: same name, another address. The later one and the others are told.
func TestCloneIsNoticed(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a := start(t, n, ip1, meta(1, 1))
		defer a.Close()
		b := start(t, n, ip2, meta(2, 1), joining(at1))
		defer b.Close()
		within(t, 2*time.Second, "together", sees(a, 1, 2))
		twin := meta(2, 1)
		twin.Boot = 4711
		clone := start(t, n, ip3, twin, joining(at1))
		defer clone.Close()
		within(t, 10*time.Second, "the clone knows", func() bool { return clone.Stats().Clones > 0 })
		if ms := a.Members(); len(ms) != 2 || ms[1].Host != ip2 {
			t.Fatalf("members %+v", ms)
		}
		if a.Stats().Refused == 0 {
			t.Fatal("the third was not told")
		}
	})
}

// A clone that has been started once more often would take the original's place. It is known
// by the original.
func TestCloneWithAHigherCounterIsNoticed(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a := start(t, n, ip1, meta(1, 1))
		defer a.Close()
		b := start(t, n, ip2, meta(2, 1), joining(at1))
		defer b.Close()
		within(t, 2*time.Second, "together", sees(a, 1, 2))
		clone := start(t, n, ip3, meta(2, 7), joining(at1))
		defer clone.Close()
		within(t, 10*time.Second, "the original knows", func() bool { return b.Stats().Clones > 0 })
		if ms := b.Members(); len(ms) != 2 || ms[1].BootCounter != 1 {
			t.Fatalf("members %+v", ms)
		}
	})
}

func TestLeaveIsHeardAtOnceAndComingBackWorks(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a := start(t, n, ip1, meta(1, 1))
		defer a.Close()
		b := start(t, n, ip2, meta(2, 1), joining(at1))
		within(t, 2*time.Second, "together", sees(a, 1, 2))
		if err := b.Leave(2 * time.Second); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		within(t, time.Second, "gone", sees(a, 1))
		if err := b.Leave(time.Second); err == nil {
			t.Fatal("a leave behind the close")
		}
		if err := b.SetMeta(meta(2, 1)); err == nil {
			t.Fatal("a change behind the close")
		}
		b = start(t, n, ip2, meta(2, 2), joining(at1))
		defer b.Close()
		within(t, 2*time.Second, "back", sees(a, 1, 2))
	})
}

// Close waits for nobody's timeout, even while dials hang.
func TestCloseIsPrompt(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		n.Host(ip2).PowerOff()
		a := start(t, n, ip1, meta(1, 1), joining(at2))
		time.Sleep(time.Second)
		began := time.Now()
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Fatalf("took %v", took)
		}
	})
}

func TestBadSettingsAreRefused(t *testing.T) {
	for name, f := range map[string]func(*Config){
		"node id 0":           func(c *Config) { c.Meta.Node = 0 },
		"no cluster name":     func(c *Config) { c.ClusterName = "" },
		"a cluster name over": func(c *Config) { c.ClusterName = strings.Repeat("x", maxClusterName+1) },
		"a key of 5 bytes":    func(c *Config) { c.Key = []byte("short") },
		"a name over":         func(c *Config) { c.Meta.Name = strings.Repeat("x", MaxName+1) },
		"a name with newline": func(c *Config) { c.Meta.Name = "a\nb" },
		"a version over":      func(c *Config) { c.Meta.Version = strings.Repeat("x", MaxVersion+1) },
		"an unknown state":    func(c *Config) { c.Meta.State = lastState + 1 },
		"no port":             func(c *Config) { c.BindAddr = "127.0.0.1" },
		"no address to tell":  func(c *Config) { c.BindAddr = "0.0.0.0:0" },
		"an unknown name":     func(c *Config) { c.AdvertiseHost = "nowhere.invalid" },
		"somebody's address":  func(c *Config) { c.BindAddr = "192.0.2.1:0" },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Meta: meta(1, 1), ClusterName: "edge", BindAddr: "127.0.0.1:0", Logger: quiet}
			f(&cfg)
			g, err := Start(cfg)
			if err == nil {
				_ = g.Close()
				t.Fatal("taken")
			}
			if !strings.Contains(err.Error(), "gossip") || strings.Contains(err.Error(), "\n") {
				t.Fatalf("not one clear line: %q", err)
			}
		})
	}
}

// Garbage on both sockets, with and without the right label in front: the node goes on, nobody is
// taken for a member, and what it holds does not grow.
func TestGarbageOnTheWire(t *testing.T) {
	bubble(t, func(t *testing.T, n *memnet.Network) {
		a := start(t, n, ip1, meta(1, 1))
		defer a.Close()
		h := n.Host(ip3)
		pc, err := h.ListenPackets(1)
		if err != nil {
			t.Fatal(err)
		}
		to, err := net.ResolveUDPAddr("udp", at1)
		if err != nil {
			t.Fatal(err)
		}
		rnd := rand.New(rand.NewPCG(1, 2))
		for i := range 500 {
			b := make([]byte, 1+rnd.IntN(1400))
			for j := range b {
				b[j] = byte(rnd.Uint32())
			}
			if i%2 == 0 { // behind the label
				b = append([]byte("\xf4\x04edge"), append([]byte{byte(i / 2 % 16)}, b...)...)
			}
			if _, err := pc.WriteTo(b, to); err != nil {
				t.Fatal(err)
			}
			if i%10 == 0 {
				nc, err := h.Dial(t.Context(), at1)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = nc.Write(b)
				defer nc.Close()
			}
			time.Sleep(10 * time.Millisecond)
		}
		b := start(t, n, ip2, meta(2, 1), joining(at1))
		defer b.Close()
		within(t, 20*time.Second, "together", sees(a, 1, 2)) // once the hanging streams have timed out
		if len(a.Members()) != 2 || a.Stats().Leaders != 0 {
			t.Fatalf("members %+v, stats %+v", a.Members(), a.Stats())
		}
	})
}
