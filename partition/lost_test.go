package partition

import (
	"errors"
	"testing"
	"time"

	"edged/record"

	pb "go.etcd.io/raft/v3/raftpb"
)

// A leader tells a follower in each heartbeat how far it knows it to be on disk. Who is not that far has lost
// what it had reported, which is said in plain words instead of by a panic of Raft.
func TestContradicts_aHeartbeatThatKnowsOfMoreThanIsHere(t *testing.T) {
	g := &group{term: 3, log: &groupLog{last: 76}}
	for _, c := range []struct {
		term, commit uint64
		lost         bool
	}{{3, 76, false}, {3, 77, true}, {4, 78, true}, {2, 78, false}, {3, 0, false}} {
		err := (&Core{}).contradicts(g, &pb.Message{
			Type: pb.MsgHeartbeat.Enum(), From: new(uint64(1)), To: new(uint64(2)), Term: new(c.term), Commit: new(c.commit),
		})
		if (err != nil) != c.lost || err != nil && !errors.Is(err, ErrLostWrites) {
			t.Errorf("term %d, commit %d, with 76 entries of term 3: %v", c.term, c.commit, err)
		}
	}
}

// A damaged replica hears who leads, is emptied only while it is damaged, and is filled by the leader. Its vote of the
// epoch that it knew is spent.
func TestRefill_aDamagedReplicaIsFilledAnew(t *testing.T) {
	s := newSim(t, 7, 3)
	s.create(1, 3)
	s.await("a leader", time.Second, s.led(1))
	s.put(1, 20)
	s.await("all equal", 3*time.Second, s.settled(1))
	lost := (s.leader(1) + 1) % 3
	refill := func() (err error) {
		s.step(lost, &RefillReplica{Group: 1, Replica: s.replica(lost, 1), Done: func(e error) { err = e }})
		return err
	}
	if err := refill(); !errors.Is(err, record.ErrRefused) {
		t.Fatalf("a sound replica was emptied: %v", err)
	}
	s.laws.damaged = true
	c := s.nodes[lost].core
	c.damage(s.group(lost, 1), errors.New("a test"))
	s.put(1, 5)
	g := s.group(lost, 1)
	if s.await("it hears who leads", time.Second, func() bool { return g.lead == s.replica(s.leader(1), 1) }); g.role != RoleDamaged {
		t.Fatalf("it is a %v", g.role)
	}
	if err := refill(); err != nil {
		t.Fatal(err)
	}
	g = s.group(lost, 1)
	if g.damaged != nil || g.log.last != 0 || g.log.hs.Vote == 0 {
		t.Fatalf("it begins with %d entries, votes for %v, damaged: %v", g.log.last, g.log.hs.Vote, g.damaged)
	}
}

// Of a replica whose key is spoiled nobody knows which one it was. It is removed all the same, by the tombstone of the one
// that was to be there.
func TestRemoveReplica_whoseKeyIsSpoiled(t *testing.T) {
	s := newSim(t, 8, 3)
	s.create(1, 3)
	s.await("a leader", time.Second, s.led(1))
	s.laws.damaged = true
	g := s.group(0, 1)
	was := g.replica
	s.nodes[0].core.damage(g, errors.New("a test"))
	g.replica = 0
	s.step(0, &RemoveReplica{Group: 1, Replica: was, Done: func(error) {}})
	if s.nodes[0].core.find(1) != nil {
		t.Error("it is still there")
	}
}
