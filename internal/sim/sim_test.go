package sim

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"edged/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// defaultRounds is how many seeds of each profile a plain test runs, and progressEvery how often a long one
// says how far it is.
const (
	defaultRounds = 1
	progressEvery = 10 * time.Second
)

// hangsAfter is how much real time a run may take: seconds are usual, on a busy machine.
const hangsAfter = 5 * time.Minute

// runSeed makes one run of a profile.
func runSeed(t *testing.T, p profile, seed uint64) *world {
	cryptotest.SetGlobalRandom(t, seed)
	var w *world
	hung := time.AfterFunc(hangsAfter, func() { // outside the bubble, whose time may stand still
		fmt.Fprintf(os.Stderr, "%s\n--- seed %d of profile %s has not ended after %v\n", w.story, seed, p.name, hangsAfter)
		panic("a run hangs: some goroutine waits for a lock that is held across a wait")
	})
	defer hung.Stop()
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(t, seed)
		w.run(p)
	})
	if !w.over() {
		w.checkLinear()
	}
	if os.Getenv("EDGED_SIM_STORY") != "" {
		t.Logf("the story of seed %d:\n%s", seed, w.story)
	}
	t.Logf("%d records acknowledged, %d read, linear: %d partitions, %d undecided", w.hist.acked, w.hist.read, w.decided, w.undecided)
	return w
}

func number(t *testing.T, name string, otherwise int) int {
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		t.Fatalf("%s=%q: want a number", name, s)
	}
	return n
}

func profileNamed(t *testing.T, name string) profile {
	k := slices.IndexFunc(profiles, func(p profile) bool { return p.name == name })
	if k < 0 {
		t.Fatalf("there is no profile %q", name)
	}
	return profiles[k]
}

// TestSim runs seeds from EDGED_SIM_FROM on, EDGED_SIM_SEEDS of them, of all profiles in turn or of
// EDGED_SIM_PROFILE. It ends at the first that breaks a law.
func TestSim(t *testing.T) {
	from, n := number(t, "EDGED_SIM_FROM", 0), number(t, "EDGED_SIM_SEEDS", defaultRounds*len(profiles))
	only := os.Getenv("EDGED_SIM_PROFILE")
	began, told := time.Now(), time.Now()
	var records, read, undecided int
	for i := range n {
		seed := uint64(from + i)
		p := profiles[int(seed)%len(profiles)]
		if only != "" {
			p = profileNamed(t, only)
		}
		t.Run(fmt.Sprintf("%s/%d", p.name, seed), func(t *testing.T) {
			w := runSeed(t, p, seed)
			records, read, undecided = records+w.hist.acked, read+w.hist.read, undecided+w.undecided
			if broken := w.broken.Load(); broken != nil {
				t.Fatalf("seed %d, profile %s, broke the law %q: %s\nagain: EDGED_SIM_PROFILE=%s EDGED_SIM_FROM=%d EDGED_SIM_SEEDS=1 go test ./internal/sim -run 'TestSim$'",
					seed, p.name, broken.law, broken.text, p.name, seed)
			}
		})
		if t.Failed() {
			break
		}
		if time.Since(told) > progressEvery {
			told = time.Now()
			fmt.Fprintf(os.Stderr, "sim: %d of %d seeds, %.1f a second, %d records acknowledged, %d read\n", i+1, n, float64(i+1)/time.Since(began).Seconds(), records, read)
		}
	}
	t.Logf("%d seeds in %v, %d records acknowledged, %d read, %d partitions undecided by porcupine", n, time.Since(began).Round(time.Millisecond), records, read, undecided)
}

// TestSim_sameSeedAgain measures how far a seed reproduces a run; README.md says what to expect.
// EDGED_SIM_TWICE is how many seeds are run twice.
func TestSim_sameSeedAgain(t *testing.T) {
	n, same := number(t, "EDGED_SIM_TWICE", 0), 0
	for seed := range n {
		p := profiles[seed%len(profiles)]
		var hashes [2]uint64
		for k := range hashes {
			t.Run(fmt.Sprintf("%s/%d", p.name, seed), func(t *testing.T) { hashes[k] = runSeed(t, p, uint64(seed)).hist.hash })
		}
		if hashes[0] == hashes[1] {
			same++
		}
	}
	t.Logf("of %d seeds, %d gave the same acknowledgements at the same times twice", n, same)
}
