package node

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"edged/transport/kafka"
	"edged/transport/wire"
)

// interfaces is a machine's network that a test plugs in and out. The node goes by the interface wlan0.
type interfaces struct {
	mu    sync.Mutex
	addrs []ifaceAddr
	err   error
}

func (i *interfaces) set(err error, pairs ...string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.addrs, i.err = nil, err
	for j := 0; j < len(pairs); j += 2 {
		i.addrs = append(i.addrs, ifaceAddr{pairs[j], netip.MustParseAddr(pairs[j+1])})
	}
}

func (i *interfaces) network() network {
	return network{
		source: func(string) (netip.Addr, bool) { return netip.Addr{}, false },
		addrs: func() ([]ifaceAddr, error) {
			i.mu.Lock()
			defer i.mu.Unlock()
			return i.addrs, i.err
		},
		resolve: func(string) (netip.Addr, bool) { return netip.Addr{}, false },
	}
}

// A board that boots before its network is up serves at once, and tells everybody its address when it has one:
// native clients, Kafka clients, scripts, and people by an event.
func TestPlace_bootBeforeTheNetwork(t *testing.T) {
	t.Parallel()
	var nics interfaces
	nics.set(nil, "lo", "127.0.0.1", "wlan0", "fe80::1")
	n := startNodeWith(t, t.TempDir(), func(c *Config, o *Options) { c.Advertise, o.network = "wlan0", nics.network() }, 1)
	hosts := func() []string {
		t.Helper()
		m, err := broker{n.Node}.Metadata(within(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		k := kafkaBroker{n.Node}.Cluster(kafka.Listener{Local: "127.0.0.1:1", Remote: "127.0.0.1:2"})
		if len(m.Nodes) != 1 || len(k.Nodes) != 1 {
			t.Fatalf("%+v %+v", m.Nodes, k.Nodes)
		}
		b, err := os.ReadFile(n.dataFile("addresses.json"))
		if err != nil {
			t.Fatal(err)
		}
		file := "of nobody"
		for _, ip := range []string{"127.0.0.1", "192.0.2.7", "192.0.2.8"} {
			if strings.Contains(string(b), `"native":"`+ip+":") {
				file = ip
			}
		}
		host := func(addr string) string { h, _, _ := net.SplitHostPort(addr); return h }
		return []string{host(m.Nodes[0].Native), host(m.Nodes[0].HTTP), k.Nodes[0].Host, file, host(n.gossip.Addr())}
	}
	all := func(ip string) {
		t.Helper()
		await(t, "all tell "+ip, func() bool {
			for _, h := range hosts() {
				if h != ip {
					return false
				}
			}
			return true
		})
	}
	await(t, "it is ready without a network", func() bool { return n.notReady() == nil })
	all("127.0.0.1")
	if p := n.describeSelf().Problems; len(p) != 1 || !strings.Contains(p[0], "wlan0 has no address") {
		t.Errorf("problems: %q", p)
	}
	for _, step := range []struct {
		err   error
		addrs []string
		want  string
	}{
		{nil, []string{"wlan0", "192.0.2.7"}, "192.0.2.7"},
		{nil, []string{"wlan0", "fe80::1"}, "192.0.2.7"},                        // the cable is out: nothing is better
		{errors.New("for a test"), nil, "192.0.2.7"},                            //
		{nil, []string{"eth0", "192.0.2.9"}, "192.0.2.7"},                       // wlan0 is gone, and is no name either
		{nil, []string{"wlan0", "192.0.2.8"}, "192.0.2.8"},                      // DHCP
		{nil, []string{"wlan0", "192.0.2.8", "wlan0", "10.0.0.1"}, "192.0.2.8"}, // one more
	} {
		nics.set(step.err, step.addrs...)
		if err := n.checkPlace(); !errors.Is(err, step.err) {
			t.Fatal(err)
		}
		all(step.want)
	}
	if p := n.describeSelf().Problems; len(p) != 0 {
		t.Errorf("problems: %q", p)
	}
	var told []string
	for _, e := range n.awaitEvents(within(t), wire.EventsRequest{}) {
		if e.Kind == eventNetwork {
			told = append(told, e.Text)
		}
	}
	if len(told) != 2 || !strings.Contains(told[0], "at 192.0.2.7 now (address of the interface wlan0), before at 127.0.0.1") || !strings.Contains(told[1], "at 192.0.2.8 now") {
		t.Errorf("events: %q", told)
	}
}

// An address that is still on an interface is kept although the default route leaves from another one now: a
// cable that is plugged in and out must not make the node move each time.
func TestPlace_anAddressThatIsThereIsKept(t *testing.T) {
	a := func(pairs ...string) (all []ifaceAddr) {
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, ifaceAddr{pairs[i], netip.MustParseAddr(pairs[i+1])})
		}
		return all
	}
	for name, tc := range map[string]struct {
		now  place
		next string
		have []ifaceAddr
		want bool
	}{
		"the same":                {at(netip.MustParseAddr("192.0.2.7"), ""), "192.0.2.7", nil, true},
		"another and still there": {at(netip.MustParseAddr("192.0.2.7"), ""), "10.0.0.1", a("wlan0", "192.0.2.7", "eth0", "10.0.0.1"), true},
		"another and gone":        {at(netip.MustParseAddr("192.0.2.7"), ""), "10.0.0.1", a("eth0", "10.0.0.1"), false},
		"the first":               {nowhere(""), "10.0.0.1", a("lo", "127.0.0.1", "eth0", "10.0.0.1"), false},
	} {
		n := &Node{opts: Options{network: network{addrs: func() ([]ifaceAddr, error) { return tc.have, nil }}}}
		if got := n.stays(&tc.now, at(netip.MustParseAddr(tc.next), "")); got != tc.want {
			t.Errorf("%s: stays %v", name, got)
		}
	}
}
