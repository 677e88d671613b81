package node

import (
	"testing"
	"testing/synctest"
	"time"
)

// A node is away from when it was lost on, however long it was connected before: else one whose connection of an
// hour breaks would at once be taken for gone for an hour, and its replicas be made anew elsewhere.
func TestAliveness_countsFromTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a aliveness
		if d := a.since(2); d < 1<<62 || a.awayMs(2) != -1 {
			t.Errorf("never seen: away for %v, %d ms", d, a.awayMs(2))
		}
		a.connected(2)
		time.Sleep(time.Hour)
		if d := a.since(2); d != 0 { // also in the moments between a broken connection and its loss
			t.Errorf("connected: away for %v", d)
		}
		a.lost(2)
		time.Sleep(time.Minute)
		if d := a.since(2); d != time.Minute || a.awayMs(2) != 60_000 {
			t.Errorf("lost a minute ago: away for %v, %d ms", d, a.awayMs(2))
		}
		a.connected(2)
		if d := a.since(2); d != 0 {
			t.Errorf("connected again: away for %v", d)
		}
	})
}
