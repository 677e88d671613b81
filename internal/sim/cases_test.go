package sim

import (
	"fmt"
	"testing"
	"time"
)

// runCase runs a script of its own over a few seeds and fails by the first law that is broken.
func runCase(t *testing.T, seeds int, p profile) {
	p.name = "case"
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			if broken := runSeed(t, p, uint64(seed)).broken.Load(); broken != nil {
				t.Errorf("%s: %s", broken.law, broken.text)
			}
		})
	}
}

// A copied data directory is started at the same moment as a node that has never met the true one: with
// that node's vote it could lead with an old log.
func TestClone_metFirstByANodeThatHasJustStartedEnds(t *testing.T) {
	runCase(t, 4, profile{nodes: []int{3}, steps: 4, pause: time.Second, actions: []action{
		{1, func(w *world) { cloneMet(w, true) }},
	}})
}
