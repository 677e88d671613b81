package node

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"edged/record"
	"edged/transport/kafka"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func itoa(n int32) string { return strconv.Itoa(int(n)) }

func TestKafkaSettings_faults(t *testing.T) {
	for _, x := range []struct {
		change func(*Config)
		want   string // "" is no fault
	}{
		{func(c *Config) { c.KafkaAdvertise = "pi1.local" }, ""},
		{func(c *Config) { c.KafkaAdvertise = "pi1.local:19092" }, ""},
		{func(c *Config) { c.KafkaAdvertise = "[fd00::5]:9092" }, ""},
		{func(c *Config) { c.KafkaAdvertise = "fd00::5" }, ""},
		{func(c *Config) { c.KafkaAdvertise = "127.0.0.1" }, ""},
		{func(c *Config) { c.KafkaAdvertise = "0.0.0.0" }, "kafka-advertise advertises 0.0.0.0, which nobody can connect to"},
		{func(c *Config) { c.KafkaAdvertise = "[::]:9092" }, "kafka-advertise advertises ::, which nobody can connect to"},
		{func(c *Config) { c.KafkaAdvertise = ":9092" }, "names no host"},
		{func(c *Config) { c.KafkaAdvertise = "pi1:99999" }, "the port is a number from 0 to 65535"},
		{func(c *Config) { c.KafkaAdvertise = "a,b" }, "the host is an address or a name"},
		{func(c *Config) { c.KafkaAdvertise = strings.Repeat("x", 200) }, "at most 128"},
		{func(c *Config) { c.KafkaListeners = []string{"vpn=10.8.0.5:9093/pi1.vpn:9093"} }, ""},
		{func(c *Config) { c.KafkaListeners = []string{"vpn=10.8.0.5:9093"} }, "it needs the form NAME=HOST:PORT/HOST:PORT"},
		{func(c *Config) { c.KafkaListeners = []string{"10.8.0.5:9093/pi1:9093"} }, "it needs the form NAME=HOST:PORT/HOST:PORT"},
		{func(c *Config) { c.KafkaListeners = []string{"v p=10.8.0.5:9093/pi1:9093"} }, `has the name "v p"`},
		{func(c *Config) { c.KafkaListeners = []string{"vpn=10.8.0.5/pi1:9093"} }, "needs the form HOST:PORT"},
		{func(c *Config) { c.KafkaListeners = []string{"vpn=10.8.0.5:9093/0.0.0.0:9093"} }, "which nobody can connect to"},
		{func(c *Config) { c.KafkaListeners = []string{"a=:9093/x", "a=:9094/x"} }, `has the name "a" twice`},
		{func(c *Config) { c.KafkaListeners = []string{"a=:9092/x"} }, "port 9092 is already taken by kafka-addr"},
		{func(c *Config) { c.KafkaListeners = []string{"a=:1/x", "b=:2/x", "c=:3/x", "d=:4/x"} }, "is given 4 times; at most 3"},
		{func(c *Config) { c.KafkaAutoCreate = 4 }, ""},
		{func(c *Config) { c.KafkaAutoCreate = -1 }, "kafka-auto-create is -1"},
		{func(c *Config) { c.KafkaAutoCreate = 1 << 20 }, "it is 1 to 2048"},
	} {
		c := DefaultConfig()
		x.change(&c)
		err := c.Validate()
		if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%v %v %d: %v, want %q", c.KafkaAdvertise, c.KafkaListeners, c.KafkaAutoCreate, err, x.want)
		}
	}
}

// A client is told addresses of the listener that it came in by, never loopback if it comes from elsewhere.
func TestEndpointFor(t *testing.T) {
	at := func(name, local, remote string) kafka.Listener {
		return kafka.Listener{Name: name, Local: local, Remote: remote}
	}
	for _, x := range []struct {
		at        kafka.Listener
		listeners string
		want      string // "" is none
	}{
		{at("", "192.168.1.5:9092", "192.168.1.9:5000"), "192.168.1.6:9092", "192.168.1.6:9092"},
		{at("", "192.168.1.5:9092", "192.168.1.9:5000"), "pi6.local:9092,vpn=10.8.0.6:9093", "pi6.local:9092"},
		{at("vpn", "10.8.0.5:9093", "10.8.0.9:5000"), "pi6.local:9092,vpn=10.8.0.6:9093", "10.8.0.6:9093"},
		{at("lte", "10.9.0.5:9094", "10.9.0.9:5000"), "pi6.local:9092,vpn=10.8.0.6:9093", ""},
		{at("", "192.168.1.5:9092", "192.168.1.9:5000"), "", ""},
		{at("", "192.168.1.5:9092", "192.168.1.9:5000"), "rubbish", ""},
		{at("", "127.0.0.1:9092", "127.0.0.1:5000"), "127.0.0.1:9092", "127.0.0.1:9092"},
		{at("", "192.168.1.5:9092", "192.168.1.9:5000"), "127.0.0.1:9092", "192.168.1.5:9092"},
		{at("", "192.168.1.5:9092", "192.168.1.9:5000"), "localhost:9092", "192.168.1.5:9092"},
		{at("", "[fd00::5%eth0]:9092", "[fd00::9]:5000"), "[::1]:9092", "fd00::5:9092"},
		{at("", "[::ffff:192.168.1.5]:9092", "[::ffff:192.168.1.9]:5000"), "127.0.0.1:9092", "192.168.1.5:9092"},
	} {
		e, ok := endpointFor(x.at, 7, x.listeners)
		got := ""
		if ok {
			got = e.Host + ":" + itoa(e.Port)
		}
		if got != x.want || ok && e.ID != 7 {
			t.Errorf("%+v of %q: %q, want %q", x.at, x.listeners, got, x.want)
		}
	}
}

// Two listeners of one node, each of which tells its own address.
func TestKafka_listenersTellTheirOwnAddress(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := DefaultConfig()
	cfg.DataDir, cfg.Advertise, cfg.KafkaAdvertise = dir, "127.0.0.1", "pi1.lan"
	cfg.NativeAddr, cfg.GossipAddr, cfg.KafkaAddr, cfg.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.KafkaListeners = []string{"vpn=127.0.0.1:0/pi1.vpn:19093"}
	n, err := New(cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	await(t, "a cluster", func() bool { return n.notReady() == nil && n.caughtUp() })
	for i, want := range []string{"pi1.lan:" + itoa(int32(portOf(n.kafka.listeners[0].ln.Addr()))), "pi1.vpn:19093"} {
		addr := n.kafka.listeners[i].ln.Addr().String()
		got := rawAt[*kmsg.MetadataResponse](t, addr, kmsg.NewPtrMetadataRequest()).Brokers
		if len(got) != 1 || got[0].Host+":"+itoa(got[0].Port) != want {
			t.Errorf("listener %d: %+v, want %s", i, got, want)
		}
	}
	if known := n.machine.Picture().Node(record.NodeID(n.Identity().Node)).KafkaAddr; !strings.Contains(known, "pi1.lan:") || !strings.Contains(known, ",vpn=pi1.vpn:19093") {
		t.Errorf("the registry has %q", known)
	}
}
