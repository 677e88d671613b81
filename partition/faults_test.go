//go:build edged_faults

package partition

import (
	"fmt"
	"testing"
)

// hunted is a test that fails by panicking, so that a hunt can go on after it.
type hunted struct{ testing.TB }

type found string

func (hunted) Helper()             {}
func (hunted) Log(...any)          {}
func (hunted) Logf(string, ...any) {}
func (hunted) Fatalf(f string, args ...any) {
	panic(found(fmt.Sprintf(f, args...)))
}

// hunt runs a test with faults planted and says what it found.
func hunt(t *testing.T, run func(testing.TB), faults ...string) (what string) {
	for _, f := range faults {
		if err := PlantFault(f, true); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = PlantFault(f, false) }()
	}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case found:
			what = string(p)
		default:
			panic(p)
		}
	}()
	run(hunted{t})
	return ""
}

// Every fault of faults_off.go is found by a run within so many seeds.
func TestFaults_areFoundWithinTheirSeeds(t *testing.T) {
	random := func(seed uint64) func(testing.TB) { return func(t testing.TB) { randomRun(t, seed) } }
	for _, f := range []struct {
		name   string
		within uint64
		run    func(seed uint64) func(testing.TB)
	}{
		{"early-answer", 10, random},
		{"early-vote", 10, random},
		{"no-boot-id", 10, random},
		{"keep-next-offset", 10, random},
		{"lose-producers", 3, func(seed uint64) func(testing.TB) { return func(t testing.TB) { behindBase(t, seed) } }},
		{"offset-at-apply", 10, random},
		{"stale-reads", 10, random},
		{"high-too-early", 10, random},
		{"no-sequences", 10, random},
		{"no-base-record", 1, func(seed uint64) func(testing.TB) { return func(t testing.TB) { behindBase(t, seed) } }},
		{"ignore-claims", 1, func(uint64) func(testing.TB) { return deafLeader }},
		{"forget-conf", 30, func(seed uint64) func(testing.TB) { return func(t testing.TB) { growth(t, seed) } }},
	} {
		t.Run(f.name, func(t *testing.T) {
			for seed := range f.within {
				if what := hunt(t, f.run(seed), f.name); what != "" {
					t.Logf("seed %d: %s", seed, what)
					return
				}
			}
			t.Errorf("not found within %d seeds", f.within)
		})
	}
}

// The two guards against a vote that outlives its reason hold each alone, and nothing does
// without both.
func TestFaults_staleVoteNeedsBothGuardsGone(t *testing.T) {
	for _, faults := range [][]string{nil, {"early-vote"}, {"no-boot-id"}} {
		if what := hunt(t, staleVote, faults...); what != "" {
			t.Errorf("with %v planted: %s", faults, what)
		}
	}
	if hunt(t, lateAnswer, "no-boot-id") == "" {
		t.Error("an answer to an earlier life was sent and not found")
	}
	what := hunt(t, staleVote, "early-vote", "no-boot-id")
	if what == "" {
		t.Error("with both planted nothing was found")
	}
	t.Log(what)
}
