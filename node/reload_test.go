package node

import (
	"errors"
	"strings"
	"testing"
)

// What can change while the node runs does; if anything else has changed nothing does, and it is named.
func TestReload_allOrNothing(t *testing.T) {
	t.Parallel()
	n := startCluster(t, 1)[0]
	cfg := *n.live.Load()
	cfg.RetentionPercent, cfg.CardTBW, cfg.ClockTrust, cfg.ReplaceAfter, cfg.LogLevel = 70, "1TB", clockAlways, "1h", "debug"
	if err := n.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	if n.live.Load().RetentionPercent != 70 || !n.clock.always || n.wear.tbw != 1e12 {
		t.Error("a reload has changed nothing")
	}
	bad := cfg
	bad.RetentionPercent, bad.KafkaAddr, bad.MemoryLimit = 10, ":1", "64MiB"
	var ce *ConfigError
	if err := n.Reload(bad); !errors.As(err, &ce) || len(ce.Faults) != 2 || !strings.Contains(ce.Faults[0], "kafka-addr") || !strings.Contains(ce.Faults[1], "memory-limit") {
		t.Errorf("%v", err)
	}
	if n.live.Load().RetentionPercent != 70 {
		t.Error("a refused reload has changed something")
	}
}
