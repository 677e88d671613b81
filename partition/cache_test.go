package partition

import (
	"testing"
	"time"
)

// Groups that were removed are not kept in memory by the notes on what the entry cache holds.
func TestCache_forgetsRemovedGroups(t *testing.T) {
	s := newSim(t, 1, 1)
	s.create(1, 1) // one that stays, and has entries in the cache
	s.await("a leader", time.Second, s.led(1))
	s.put(1, 5)
	for g := range groupIDs(20) {
		id := groupIDs(21)[g+1]
		s.create(id, 1)
		s.await("a leader", time.Second, s.led(id))
		s.put(id, 5)
		s.step(0, &RemoveReplica{Group: id, Replica: s.replica(0, id), Done: func(error) {}})
		s.flush(0)
	}
	for _, o := range s.nodes[0].core.cacheOrder {
		if o.g.id != 1 {
			t.Fatalf("there is a note of group %d, which was removed", o.g.id)
		}
	}
}
