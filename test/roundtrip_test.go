//go:build linux

package test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// The whole way in short: produce by way of every node, be sent to the leader, kill it with SIGKILL,
// go on with the next, start the killed one again, and read everything, each record once. It is what
// runs with binaries of other CPUs under an emulator (make test-arm), so it asks for no speed.
func TestRoundTrip_produceRedirectKillConsume(t *testing.T) {
	c := startCluster(t, 3)
	c.createTopic("t", 3, nil)
	var want []string
	produce := func(by *node, what string) {
		var lines []string
		for i := range 30 {
			lines = append(lines, fmt.Sprintf("%s %s %d", what, by.name, i))
		}
		var sum produceJSON
		ctl{nodes: []*node{by}, stdin: strings.Join(lines, "\n") + "\n"}.json(t, &sum, "--timeout", patience.String(), "produce", "t")
		if sum.Acked != int64(len(lines)) || sum.Failed != 0 {
			t.Errorf("by way of %s: %+v", by.name, sum)
		}
		want = append(want, lines...)
	}
	for _, n := range c.nodes {
		for p := range int32(3) {
			c.followOnce(n, p)
			want = append(want, "raw")
		}
		produce(n, "before")
	}
	victim, was := c.leader("t", 0)
	victim.kill()
	began := time.Now()
	for _, n := range c.others(victim) {
		produce(n, "without")
	}
	t.Logf("60 records after a SIGKILL of the leader took %v", time.Since(began).Round(time.Millisecond))
	if now, state := c.leader("t", 0); now == victim || state.epoch <= was.epoch {
		t.Errorf("partition 0 is led by %s in epoch %d, before the kill in %d", now.name, state.epoch, was.epoch)
	}
	victim.start()
	c.awaitWhole("t")
	produce(victim, "again")
	got := strings.Split(strings.TrimSpace(ctl{nodes: c.nodes}.must(t, "--timeout", patience.String(), "consume", "t")), "\n")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d records were read, %d acknowledged; they are not the same", len(got), len(want))
	}
	c.stopAndCompare()
}
