package gossip

import (
	"net"
	"strings"
	"testing"
	"time"

	"edged/record"
)

// A node that waits in vain knows for each address of its join list why, and the text says what to do.
func TestTroubles_eachAddressSaysWhyAndWhatToDo(t *testing.T) {
	open := func(m Meta, change ...func(*Config)) *Gossip {
		t.Helper()
		cfg := Config{Meta: m, ClusterName: "edge", BindAddr: "127.0.0.1:0", Logger: quiet}
		for _, f := range change {
			f(&cfg)
		}
		g, err := Start(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = g.Close() })
		return g
	}
	named := func(c *Config) { c.ClusterName = "other" }
	keyed := func(b byte) func(*Config) {
		return func(c *Config) { c.Key = make([]byte, 32); c.Key[0] = b }
	}
	deaf, err := net.Listen("tcp", "127.0.0.1:0") // hangs up on whoever comes, as a port of another protocol does
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	go func() {
		for {
			c, err := deaf.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	plain := open(meta(1, 1)).Addr()
	secret := open(meta(2, 1), keyed(1)).Addr()

	for what, c := range map[string]struct {
		join   string
		change func(*Config)
		want   string
	}{
		"refused":                   {closed.Addr().String(), nil, "refuses connections"},
		"no such name":              {"nosuch.invalid:7946", nil, "does not resolve"},
		"another cluster":           {plain, named, "check that cluster and cluster-secret-file are the same"},
		"another secret":            {secret, keyed(2), "the same secret"},
		"a secret there, none here": {secret, nil, "the same secret"},
		"none there, a secret here": {plain, keyed(1), "the same secret"},
		"another protocol":          {deaf.Addr().String(), nil, "this is its gossip port"},
	} {
		t.Run(what, func(t *testing.T) {
			g := open(meta(record.NodeID(9), 1), func(c2 *Config) {
				c2.Join = []string{c.join}
				if c.change != nil {
					c.change(c2)
				}
			})
			var got []string
			for deadline := time.After(20 * time.Second); len(got) == 0; got = g.Troubles() {
				select {
				case <-deadline:
					t.Fatal("no word of it")
				case <-time.After(10 * time.Millisecond):
				}
			}
			if len(got) != 1 || !strings.HasPrefix(got[0], c.join+" ") || !strings.Contains(got[0], c.want) {
				t.Errorf("got %q, want %s … %s", got, c.join, c.want)
			}
		})
	}
}

// The trouble goes when the address leads to somebody.
func TestTroubles_endWithThem(t *testing.T) {
	ln, err := listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	_ = ln.Shutdown()
	joiner, err := Start(Config{Meta: meta(1, 1), ClusterName: "edge", BindAddr: "127.0.0.1:0", Logger: quiet, Join: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer joiner.Close()
	until := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.After(20 * time.Second); !ok(); {
			select {
			case <-deadline:
				t.Fatalf("%s: %q", what, joiner.Troubles())
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	until("no trouble", func() bool { return len(joiner.Troubles()) == 1 })
	other, err := Start(Config{Meta: meta(2, 1), ClusterName: "edge", BindAddr: addr, Logger: quiet})
	if err != nil {
		t.Skipf("somebody else took the port: %v", err)
	}
	defer other.Close()
	until("trouble stays", func() bool { return len(joiner.Troubles()) == 0 })
}
