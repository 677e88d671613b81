package node

import "testing"

// Quiet is told once in each time without writes, after quietAfter of it.
func TestQuiet_isToldOnce(t *testing.T) {
	const turns = int(quietAfter / janitorEvery)
	var q quiet
	for spell := range 3 {
		told := 0
		for i := range 4 * turns {
			if q.turn(false) {
				if told++; i != turns-1 {
					t.Errorf("quiet time %d: told in turn %d, want %d", spell, i, turns-1)
				}
			}
		}
		if told != 1 {
			t.Errorf("quiet time %d: told %d times", spell, told)
		}
		for range 2 * turns { // now and then something is stored
			if q.turn(false) || q.turn(true) {
				t.Fatalf("after quiet time %d: told though something was stored", spell)
			}
		}
	}
}
