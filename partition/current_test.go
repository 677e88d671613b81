package partition

import (
	"errors"
	"testing"
	"time"

	"edged/record"
)

// metadataSim has a metadata group on all nodes.
func metadataSim(t testing.TB, seed uint64) *sim {
	s := machineSim(t, seed, 3)
	s.createMachine(record.MetadataGroup, 0, 1, 2)
	s.await("a leader", time.Second, s.led(record.MetadataGroup))
	return s
}

// configured tells a node of a group and returns what it said.
func (s *sim) configured(i int, a Assignment) (err error) {
	err = errors.New("no answer")
	a.Done = func(e error) { err = e }
	s.step(i, &a)
	s.flush(i)
	s.run(50 * time.Millisecond)
	return err
}

func TestCurrent_removedReplicaIsNotMadeAgainByOldMetadata(t *testing.T) {
	s := metadataSim(t, 1)
	for range 20 {
		s.propose(s.leader(0), 0, "x")
	}
	s.await("all equal", time.Second, s.settled(0))
	s.await("the metadata is current", 5*time.Second, func() bool { return s.nodes[2].core.current.known })
	applied := s.group(2, 0).applied
	rs := s.replicas(1, 2)
	old := Assignment{Group: 1, Voters: rs, Initial: rs, MaxBatch: 1 << 20, AsOf: applied}
	if err := s.configured(2, old); err != nil {
		t.Fatal(err)
	}
	s.await("a leader", time.Second, s.led(1))
	for range 30 { // the group moves elsewhere: the tombstone is in here
		s.propose(s.leader(0), 0, "y")
	}
	s.await("all equal", time.Second, s.settled(0))
	s.step(2, &RemoveReplica{Group: 1, Replica: rs[0], Done: func(error) {}})
	s.flush(2)
	s.run(50 * time.Millisecond)

	s.crash(2, true)
	for i := range 2 { // and it comes back alone, with an old copy
		s.cut[[2]int{2, i}], s.cut[[2]int{i, 2}] = true, true
	}
	s.boot(2)
	for range 2 {
		if err := s.configured(2, old); !errors.Is(err, record.ErrNotReady) {
			t.Fatalf("the old assignment gave %v", err)
		}
		s.run(5 * time.Second)
		clear(s.cut)
		s.await("the metadata is current", 5*time.Second, func() bool { return s.nodes[2].core.current.known })
	}
	if s.group(2, 1) != nil {
		t.Fatal("the removed replica is back")
	}
	again := old
	again.AsOf, again.Voters = s.group(2, 0).applied, []record.ReplicaID{record.MakeReplicaID(3, 99)}
	again.Initial = again.Voters
	if err := s.configured(2, again); err != nil {
		t.Errorf("a current assignment gave %v", err)
	}
}

// A node that has just started makes no replica before it has asked: it asks as soon as there is a leader,
// or a topic that is made then is led by those that were quicker.
func TestCurrent_isLearnedAtOnce(t *testing.T) {
	s := metadataSim(t, 3)
	s.await("all nodes know how recent their metadata must be", 50*time.Millisecond, func() bool {
		for _, n := range s.nodes {
			if !n.core.current.known {
				return false
			}
		}
		return true
	})
}

func TestCurrent_allNodesLearnItAndSleep(t *testing.T) {
	s := metadataSim(t, 2)
	s.run(10 * time.Second)
	for i, n := range s.nodes {
		if !n.core.current.known {
			t.Errorf("node %d does not know how recent its metadata must be", i+1)
		}
	}
	if n := s.awake(); n != 0 {
		t.Errorf("%d groups awake", n)
	}
}
