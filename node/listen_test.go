package node

import (
	"net"
	"strings"
	"testing"
)

// A port that is taken is said in one line that names the setting to change, and the address once.
func TestNew_takenPortNamesItsSetting(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	taken := ln.Addr().String()
	for setting, set := range map[string]func(*Config){
		"native-addr": func(c *Config) { c.NativeAddr = taken },
		"gossip-addr": func(c *Config) { c.GossipAddr = taken },
		"kafka-addr":  func(c *Config) { c.KafkaAddr = taken },
		"http-addr":   func(c *Config) { c.HTTPAddr = taken },
	} {
		cfg := DefaultConfig()
		cfg.DataDir, cfg.NodeName, cfg.Advertise = t.TempDir(), "test", "127.0.0.1"
		cfg.NativeAddr, cfg.GossipAddr, cfg.KafkaAddr, cfg.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
		set(&cfg)
		_, err := New(cfg, Options{})
		if err == nil || !strings.Contains(err.Error(), "choose another with --"+setting) || strings.Count(err.Error(), taken) != 1 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", setting, err)
		}
	}
}
