//go:build linux

package test

import (
	"sync"
	"testing"
)

// With a budget of 64 MiB a node under load is slower and not dead: three producers, and consumers that ask
// for far more than they read, never bring it over 80 MB.
func TestMemory_theBudgetHoldsUnderLoad(t *testing.T) {
	t.Parallel()
	const most = 80_000_000
	c := startCluster(t, 1, "--memory-limit", "64MiB")
	c.createTopic("t", 3, nil)
	n := c.nodes[0]
	records := pick(20_000, 200_000)
	warm := 5_000
	for p := range int32(3) {
		fill(t, c.client(), "t", p, 0, warm, 1000)
	}
	for i := range pick(40, 100) {
		raw, err := dialRaw(n.addr.Native)
		if err != nil {
			t.Fatal(err)
		}
		defer raw.close()
		for range 16 {
			if _, err := raw.send(rawFetch, "t", i%3, -1, 0, 1<<20, 1, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	var producers sync.WaitGroup
	for p := range int32(3) {
		producers.Go(func() { fill(t, c.client(), "t", p, warm, records, 1000) })
	}
	producers.Wait()
	for p := range int32(3) {
		verifyFilled(t, c.client(), "t", p, warm+records)
	}
	t.Logf("%d records of 1 kB for each of three producers: RSS %d MB, at most %d MB", records, n.rss()/1_000_000, n.peakRSS()/1_000_000)
	if got := n.peakRSS(); got > most && !raced {
		t.Errorf("the node took up to %d MB with a budget of 64 MiB, want at most %d MB", got/1_000_000, most/1_000_000)
	}
}
