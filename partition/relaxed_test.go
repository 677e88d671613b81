package partition

import (
	"testing"
	"time"

	"edged/record"

	pb "go.etcd.io/raft/v3/raftpb"
)

// createRelaxed makes a group on all nodes that confirms before the fsync.
func (s *sim) createRelaxed(g record.GroupID) {
	a := *s.create(g, len(s.nodes))
	a.Relaxed = true
	s.laws.relaxed[g] = true
	s.assign(&a)
}

// What one node loses by a power cut the others still have, if each comes back before the next goes.
func TestRelaxed_onePowerCutAtATimeLosesNothing(t *testing.T) {
	eachSeed(t, 6, func(t *testing.T, seed uint64) {
		s := newSim(t, seed, 3)
		s.createRelaxed(1)
		s.await("a leader", time.Second, s.led(1))
		c := &simClient{group: 1, acks: AcksAll, pid: -1, window: 3}
		for range 12 {
			for range 1 + s.rng.IntN(30) {
				c.turn(s)
				s.run(Time(s.rng.Int64N(int64(10 * time.Millisecond))))
			}
			i := s.rng.IntN(3)
			s.crash(i, s.rng.IntN(2) == 0)
			s.run(Time(s.rng.Int64N(int64(2 * time.Second))))
			s.boot(i)
			s.await("all equal", 10*time.Second, s.settled(1))
		}
		s.finish(groupIDs(1))
	})
}

// Whatever is lost, replicas agree in the end, offsets are dense, and none is out of service.
func TestRelaxed_replicasAgreeAfterAnyLoss(t *testing.T) {
	eachSeed(t, 12, func(t *testing.T, seed uint64) {
		s := randomSim(t, seed)
		groups := groupIDs(2)
		for _, g := range groups {
			s.createRelaxed(g)
		}
		clients := []*simClient{{group: 1, acks: AcksAll, pid: -1, window: 2}, {group: 2, acks: AcksOne, pid: -1, window: 3}}
		for range 300 {
			s.disturb(groups)
			if s.rng.IntN(60) == 0 { // the whole site loses power
				for i, n := range s.nodes {
					if n.up {
						s.crash(i, true)
					}
				}
			}
			for _, c := range clients {
				c.turn(s)
			}
			s.run(Time(s.rng.Int64N(int64(40 * time.Millisecond))))
		}
		for _, r := range s.produced {
			r.acked = false // they may be lost
		}
		s.finish(groups)
	})
}

func TestRelaxed_settingIsOnDiskBeforeTheFirstUnsyncedEntry(t *testing.T) {
	s := newSim(t, 3, 1)
	a := *s.create(1, 1)
	s.await("a leader", time.Second, s.led(1))
	s.put(1, 3)
	a.Relaxed = true
	s.laws.relaxed[1] = true
	s.assign(&a)
	s.put(1, 3)
	if kept, err := decodeCheckpointState(s.nodes[0].store.groups[1].state.Checkpoint.State); err != nil || !kept.relaxed {
		t.Errorf("the checkpoint says relaxed %v, %v", kept.relaxed, err)
	}
	term := s.group(0, 1).term
	s.crash(0, true)
	s.assigned = nil // the metadata is not there yet
	s.boot(0)
	if g := s.group(0, 1); g.term <= term || !g.relaxed() {
		t.Errorf("epoch %d after %d, relaxed %v", g.term, term, g.relaxed())
	}
}

func TestRelaxed_newGroupOfANodeThatEndedUncleanlyIsMade(t *testing.T) {
	s := newSim(t, 4, 1)
	rs := s.replicas(1, 0)
	s.laws.relaxed[1] = true
	s.assign(&Assignment{Group: 1, Voters: rs, Initial: rs, Relaxed: true})
	s.await("a leader", time.Second, s.led(1))
	s.put(1, 1)
}

// One replica loses a record to a power cut and one never had it: whoever of them stands first, the
// third one, which has it, is heard.
func TestRelaxed_liveReplicaWithMoreWinsTheElection(t *testing.T) {
	s := newSim(t, 5, 3)
	groups := groupIDs(30)
	for _, g := range groups {
		s.createRelaxed(g)
	}
	s.await("all led", 2*time.Second, s.led(groups...))
	lead, loser, behind := s.replica(0, 1).Node(), 1, 2
	for _, g := range groups {
		if l := s.leader(g); l != 0 {
			s.step(l, &TransferRequest{Group: g, To: lead, Done: func(error) {}})
			s.flush(l)
		}
	}
	s.run(time.Second)
	s.tap = func(f simFrame) bool { return f.from == 0 && f.to == behind && raftIn(f, pb.MsgApp) != nil }
	for _, g := range groups {
		s.put(g, 3)
	}
	n := s.nodes[loser]
	if n.store.synced == len(n.store.wal) {
		t.Fatal("everything is synced")
	}
	n.store.wal, n.disk = n.store.wal[:n.store.synced], nil
	s.crash(loser, true)
	s.boot(loser)
	s.await("an election in every group", 5*time.Second, func() bool {
		for _, g := range groups {
			if l := s.leader(g); l < 0 || s.group(l, g).term <= 2 {
				return false
			}
		}
		return true
	})
	s.tap = nil
	s.finish(groups)
}
