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

// runSeed makes one run of a profile and gives the hash of what happened in it.
func runSeed(t *testing.T, p profile, seed uint64) (hash uint64, broken *violation) {
	cryptotest.SetGlobalRandom(t, seed)
	var w *world
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(t, seed)
		w.run(p)
	})
	if !w.over() {
		w.checkLinear()
	}
	t.Logf("%d records acknowledged, %d read, linear: %d partitions, %d undecided", w.hist.acked, w.hist.read, w.decided, w.undecided)
	return w.hist.hash, w.broken.Load()
}

func seeds(t *testing.T, name string, otherwise int) int {
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		t.Fatalf("%s=%q: want a number of seeds", name, s)
	}
	return n
}

func TestSim(t *testing.T) {
	from := seeds(t, "EDGED_SIM_FROM", 0)
	n := seeds(t, "EDGED_SIM_SEEDS", 3)
	began := time.Now()
	for i := range n {
		seed := uint64(from + i)
		p := profiles[int(seed)%len(profiles)]
		if only := os.Getenv("EDGED_SIM_PROFILE"); only != "" {
			p = profileNamed(t, only)
		}
		t.Run(fmt.Sprintf("%s/%d", p.name, seed), func(t *testing.T) {
			at := time.Now()
			_, broken := runSeed(t, p, seed)
			if broken != nil {
				t.Fatalf("seed %d, profile %s, broke the law %q: %s", seed, p.name, broken.law, broken.text)
			}
			t.Logf("%v", time.Since(at))
		})
		if t.Failed() {
			break
		}
	}
	t.Logf("%d seeds in %v", n, time.Since(began).Round(time.Millisecond))
}

func profileNamed(t *testing.T, name string) profile {
	k := slices.IndexFunc(profiles, func(p profile) bool { return p.name == name })
	if k < 0 {
		t.Fatalf("there is no profile %q", name)
	}
	return profiles[k]
}
