package node

import (
	"strings"
	"testing"
	"time"

	"edged/partition"
)

// A link that pauses is told of once, with what to do; when it is over as well.
func TestOnPause_isToldOnce(t *testing.T) {
	t.Parallel()
	n := startNode(t, 0)
	for _, pause := range []time.Duration{1400, 1500, 1600, 0, 0} {
		n.onPause(partition.LinkPause{Node: 7, Pause: pause * time.Millisecond, Patience: 3 * time.Second})
		if got := n.pausing.of(7); got != pause*time.Millisecond {
			t.Errorf("the link pauses for %v, not %v", got, pause*time.Millisecond)
		}
	}
	found, _ := n.notes.after(0)
	all := texts(found)
	for text, want := range map[string]int{
		"the link from node 7 pauses again and again, for 1.4s just now": 1, "power_save off": 1, "borne for 3s": 1, "from node 7 pauses no longer": 1,
	} {
		if strings.Count(all, text) != want {
			t.Errorf("%q is there %d times:\n%s", text, strings.Count(all, text), all)
		}
	}
	if links := n.pausingLinks(); links != 0 {
		t.Errorf("%d links pause of a node that is connected with nobody", links)
	}
}
