//go:build edged_faults

package sim

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"edged/partition"
	"edged/storage"
)

// planted is a fault that a run has to find: the profile that is likeliest to, within how many seeds, and
// what it breaks.
type planted struct {
	name    string
	plant   func(name string, on bool) error
	profile string
	within  int
}

var faults = []planted{
	{"early-answer", partition.PlantFault, "crashes", 24},
	{"offset-at-apply", partition.PlantFault, "crashes", 20},
	{"keep-next-offset", partition.PlantFault, "splits", 30},
	{"lose-producers", partition.PlantFault, "lagging", 20},
	{"stale-reads", partition.PlantFault, "splits", 45},
	{"high-too-early", partition.PlantFault, "disks", 30},
	{"ignore-claims", partition.PlantFault, "splits", 40},
	{"forget-conf", partition.PlantFault, "membership", 60},
	{"no-base-record", partition.PlantFault, "lagging", 20},
	{"no-sequences", partition.PlantFault, "crashes", 20},
	{"unsynced-rename", storage.PlantFault, "crashes", 30},
	{"late-directory", storage.PlantFault, "crashes", 40},
}

// EDGED_SIM_FAULT plants a fault for all tests, to hunt it with any profile.
func init() {
	if name := os.Getenv("EDGED_SIM_FAULT"); name != "" {
		if err := errors.Join(partition.PlantFault(name, true), storage.PlantFault(name, true)); err != nil && partition.PlantFault(name, true) != nil && storage.PlantFault(name, true) != nil {
			panic(err)
		}
	}
}

// Every planted fault breaks a law within its number of seeds, from EDGED_SIM_FROM on. early-vote and no-boot-id are found by the Core's own
// simulation, which sees what leaves a Core before a disk has it: no machine here could.
func TestFaults_areFoundWithinTheirSeeds(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			if err := f.plant(f.name, true); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.plant(f.name, false) }()
			p := profileNamed(t, f.profile)
			if f.profile == "lagging" {
				p.nodes = []int{3} // where nobody needs a base record to begin with
			}
			from := number(t, "EDGED_SIM_FROM", 0)
			for i := range f.within {
				seed := uint64(from + i)
				var broken *violation
				t.Run(fmt.Sprint(seed), func(t *testing.T) { broken = runSeed(t, p, seed).broken.Load() })
				if broken != nil {
					t.Logf("seed %d, profile %s: %s: %s", seed, f.profile, broken.law, broken.text)
					return
				}
			}
			t.Errorf("not found within %d seeds of profile %s", f.within, f.profile)
		})
	}
}
