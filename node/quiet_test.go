package node

import (
	"testing"
	"time"
)

// Quiet is told after quietAfter without writes and each quietEvery from then on, and not at all as
// long as something is stored.
func TestQuiet_isToldNowAndThenWhileNothingIsStored(t *testing.T) {
	var q quiet
	for spell := range 3 {
		next := quietAfter
		for at := janitorEvery; at <= 5*quietEvery; at += janitorEvery {
			told := q.turn(false)
			if told != (at == next) {
				t.Fatalf("quiet time %d: after %v told %v", spell, at, told)
			}
			if told {
				next += quietEvery
			}
		}
		for at := time.Duration(0); at < 3*quietEvery; at += 2 * janitorEvery { // now and then something is stored
			if q.turn(false) || q.turn(true) {
				t.Fatalf("after quiet time %d: told though something was stored", spell)
			}
		}
	}
}
