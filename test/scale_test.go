//go:build linux

package test

import (
	"fmt"
	"testing"
	"time"
)

// A thousand partitions on three nodes: made by one command, listed, all led, and back within
// seconds after a restart.
func TestThousandPartitions(t *testing.T) {
	const partitions = 1000
	c := startCluster(t, 3)
	all := ctl{nodes: c.nodes}
	began := time.Now()
	all.must(t, "--timeout", "60s", "topic", "create", "big", "--partitions", fmt.Sprint(partitions))
	created := time.Since(began)
	c.awaitLed("big")
	led := time.Since(began)
	var rows []partitionJSON
	all.json(t, &rows, "partition", "list")
	if len(rows) != partitions {
		t.Errorf("partition list has %d rows", len(rows))
	}
	began = time.Now()
	for _, n := range c.nodes {
		n.stop()
	}
	stopped := time.Since(began)
	began = time.Now()
	restart(c.nodes...)
	c.awaitWhole()
	c.awaitLed("big")
	back := time.Since(began)
	t.Logf("created in %v, all led after %v; three stops one after the other %v; all led again %v after the restart; RSS %d, %d, %d MiB",
		created.Round(time.Millisecond), led.Round(time.Millisecond), stopped.Round(time.Millisecond), back.Round(time.Millisecond),
		c.nodes[0].rss()>>20, c.nodes[1].rss()>>20, c.nodes[2].rss()>>20)
	victim := c.nodes[0]
	began = time.Now()
	victim.kill()
	c.awaitLed("big")
	t.Logf("all led again %v after one node was killed", time.Since(began).Round(time.Millisecond))
	victim.start()
	c.awaitWhole()
	if back > 10*time.Second*slack {
		t.Errorf("all were led %v after the restart, it should be under 10 s", back)
	}
	ctl{nodes: c.nodes, stdin: "x\n"}.must(t, "produce", "big", "--partition", fmt.Sprint(partitions-1))
}

// What an idle node takes of memory, processor and disk.
func TestIdle_costsLittle(t *testing.T) {
	one := newNode(t, "one")
	one.start()
	eventually(t, "ready", one.ready)
	c := startCluster(t, 3)
	c.works()
	pass(t, time.Duration(pick(3, 30))*time.Second)
	syncs, cpu := c.nodes[0].metric("edged_storage_syncs_total"), c.nodes[0].cpu()
	watched := time.Duration(pick(3, 60)) * time.Second
	pass(t, watched)
	t.Logf("RSS of one node %.1f MiB; of each of three %.1f, %.1f, %.1f MiB", mib(one), mib(c.nodes[0]), mib(c.nodes[1]), mib(c.nodes[2]))
	if now := c.nodes[0].metric("edged_storage_syncs_total"); now != syncs {
		t.Errorf("an idle node has synced %v times in %v", now-syncs, watched)
	}
	share := float64(c.nodes[0].cpu()-cpu) / float64(watched)
	t.Logf("an idle node of three takes %.2f %% of a core", 100*share)
	if share > 0.05 {
		t.Errorf("an idle node takes %.1f %% of a core", 100*share)
	}
}

func mib(n *node) float64 { return float64(n.rss()) / (1 << 20) }
