package partition

import (
	"testing"
	"time"

	"edged/record"
)

func TestCore_threeNodesElectAndReplicate(t *testing.T) {
	s := newSim(t, 1, 3)
	s.create(1, 3)
	s.await("a leader", time.Second, s.led(1))
	rs := s.put(1, 100)
	s.await("all equal", 2*time.Second, s.settled(1))
	s.check(1)
	for i, r := range rs {
		if r.offset != record.Offset(i) {
			t.Fatalf("record %d got offset %d", i, r.offset)
		}
	}
}

func TestCore_deadLeaderIsReplacedWithinAFewTensOfMilliseconds(t *testing.T) {
	s := newSim(t, 2, 3)
	groups := groupIDs(50)
	for _, g := range groups {
		s.create(g, 3)
	}
	s.await("all led", 2*time.Second, s.led(groups...))
	s.run(5 * time.Second)
	for i, n := range s.nodes {
		if st := n.core.Status(); st.Awake != 0 {
			t.Errorf("node %d: %d groups awake after 5 s without traffic", i+1, st.Awake)
		}
	}
	s.crash(0, true)
	at := s.now
	s.await("all led again", 200*time.Millisecond, s.led(groups...))
	t.Logf("50 groups led again after %v", s.now-at)
	s.boot(0)
	s.await("all equal", 5*time.Second, s.settled(groups...))
}

// New groups are led by the first of their voters, so that leaders are spread as they were placed.
func TestCore_preferredVoterLeadsANewGroup(t *testing.T) {
	s := newSim(t, 4, 3)
	groups := groupIDs(30)
	for _, g := range groups {
		first := int(g) % 3
		rs := s.replicas(g, first, (first+1)%3, (first+2)%3)
		s.assign(&Assignment{Group: g, Voters: rs, Initial: rs, MaxBatch: 1 << 20})
	}
	s.await("all led", 2*time.Second, s.led(groups...))
	for _, g := range groups {
		if l := s.leader(g); l != int(g)%3 {
			t.Errorf("group %d is led by node %d", g, l)
		}
	}
}
