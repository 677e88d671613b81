package partition

import (
	"slices"
	"testing"
	"time"

	"edged/record"
)

// single makes a group of one voter on node 1, of which the other nodes know nothing yet.
func (s *sim) single(g record.GroupID) {
	rs := s.replicas(g, 0)
	s.assign(&Assignment{Group: g, Voters: rs, Initial: rs, MaxBatch: 1 << 20})
}

// writing keeps some records of an idempotent producer on their way while steps are made.
func (s *sim) writing(g record.GroupID, pid int64) func() {
	c := &simClient{group: g, acks: AcksAll, pid: pid, window: 3}
	return func() {
		lose([]*simClient{c}, s)
		c.turn(s)
	}
}

func (s *sim) awaitWhile(what string, limit Time, each func(), ok func() bool) {
	s.t.Helper()
	for end := s.now + limit; !ok(); s.run(5 * time.Millisecond) {
		each()
		if s.now >= end {
			s.fail("after %v still not: %s", limit, what)
		}
	}
}

func TestMember_growsFromOneToThreeUnderWrites(t *testing.T) {
	s := newSim(t, 3, 3)
	s.single(1)
	s.await("a leader", time.Second, s.led(1))
	s.put(1, 30)
	write := s.writing(1, 100)
	voters := s.replicas(1, 0, 1, 2)
	s.reassign(1, voters...)
	s.awaitWhile("three voters", 5*time.Second, write, s.has(1, voters...))
	s.await("all equal", 3*time.Second, s.settled(1))
	s.check(1)
	if n := len(s.contents(2, 1)); n < 30 {
		t.Fatalf("the new replica has %d records", n)
	}
	s.crash(0, true)
	s.awaitWhile("a new leader", time.Second, write, s.led(1))
	s.put(1, 5)
	s.finish([]record.GroupID{1})
}

func TestMember_growthSurvivesCrashesAtAnyStep(t *testing.T) {
	eachSeed(t, 12, func(t *testing.T, seed uint64) { growth(t, seed) })
}

// growth takes a group from one voter to three and replaces each of them, with writes, crashes,
// transfers and moving log starts in between.
func growth(t testing.TB, seed uint64) {
	s := newSim(t, seed, 4, func(s *sim) {
		if seed%2 == 1 { // the configuration is not written down just by the way
			s.limits.CheckpointEntries = 1 << 20
		}
	})
	s.single(1)
	s.await("a leader", time.Second, s.led(1))
	s.put(1, 10)
	write := s.writing(1, 100)
	for round := range 3 {
		nodes := [][]int{{0, 1, 2}, {1, 2, 3}, {0, 3, 1}}[round]
		voters := s.nextVoters(1, uint32(100+round), nodes...)
		s.reassign(1, voters...)
		reached := s.has(1, voters...)
		for n := 0; n < 60 && !reached(); n++ {
			write()
			i := s.rng.IntN(4)
			switch s.rng.IntN(12) {
			case 0:
				if s.nodes[i].up {
					s.crash(i, s.rng.IntN(2) == 0)
				}
			case 1, 2, 3:
				if !s.nodes[i].up {
					s.boot(i)
				}
			case 4:
				s.transfer(1)
			case 5:
				s.truncate(1)
			}
			s.run(Time(s.rng.Int64N(int64(30 * time.Millisecond))))
		}
		s.heal()
		s.awaitWhile("the assigned voters", 30*time.Second, func() { write(); s.retireOld(1, voters) }, reached)
		s.comeBackAlone(voters[s.rng.IntN(len(voters))].Node(), write)
		s.retireOld(1, voters)
	}
	s.finish([]record.GroupID{1})
}

// comeBackAlone restarts a node, at first cut off from the others: it must not go by a
// configuration from before.
func (s *sim) comeBackAlone(n record.NodeID, each func()) {
	i := int(n) - 1
	s.crash(i, true)
	s.run(60 * time.Millisecond)
	for j := range s.nodes {
		s.cut[[2]int{i, j}], s.cut[[2]int{j, i}] = true, true
	}
	s.boot(i)
	for range 20 {
		each()
		s.run(5 * time.Millisecond)
	}
	clear(s.cut)
}

// nextVoters names the replicas that a group is to have on these nodes: the one that is there, or
// one of another attempt, because no replica comes back.
func (s *sim) nextVoters(g record.GroupID, attempt uint32, nodes ...int) []record.ReplicaID {
	var out []record.ReplicaID
	now := s.assigned[slices.IndexFunc(s.assigned, func(a *Assignment) bool { return a.Group == g })].Voters
	for _, i := range nodes {
		r := record.MakeReplicaID(s.nodes[i].id, attempt)
		if at := slices.IndexFunc(now, func(r record.ReplicaID) bool { return r.Node() == s.nodes[i].id }); at >= 0 {
			r = now[at]
		}
		out = append(out, r)
	}
	return out
}

// retireOld removes the replicas of a group that are in no configuration any more and not among keep.
func (s *sim) retireOld(g record.GroupID, keep []record.ReplicaID) {
	l := s.leader(g)
	if l < 0 {
		return
	}
	members := s.group(l, g).members()
	for i := range s.nodes {
		if cg := s.group(i, g); cg != nil && s.nodes[i].up && !slices.Contains(members, cg.replica) && !slices.Contains(keep, cg.replica) {
			s.step(i, &RemoveReplica{Group: g, Replica: cg.replica, Done: func(error) {}})
			s.flush(i)
		}
	}
}

func TestMember_replicaIsReplacedAndTheOldOneRemoved(t *testing.T) {
	s := newSim(t, 4, 4)
	s.create(1, 3)
	s.await("a leader", time.Second, s.led(1))
	s.put(1, 50)
	s.crash(2, true)
	voters := s.replicas(1, 0, 1, 3)
	s.reassign(1, voters...)
	s.await("the dead node is replaced", 5*time.Second, s.has(1, voters...))
	s.put(1, 5)
	s.boot(2)
	s.run(3 * time.Second)
	if g := s.group(2, 1); g == nil {
		t.Fatal("a replica that is not in the configuration any more went by itself")
	}
	s.retireOld(1, voters)
	s.run(time.Second)
	if g, left := s.group(2, 1), s.nodes[2].store.groups[1]; g != nil || left != nil {
		t.Fatal("the removed replica is still there")
	}
	s.finish([]record.GroupID{1})
}

func TestMember_leaderThatIsToLeaveHandsOver(t *testing.T) {
	s := newSim(t, 5, 4)
	s.create(1, 3)
	s.await("a leader", time.Second, s.led(1))
	s.put(1, 20)
	l := s.leader(1)
	var rest []int
	for i := range 4 {
		if i != l {
			rest = append(rest, i)
		}
	}
	voters := s.replicas(1, rest...)
	s.reassign(1, voters...)
	write := s.writing(1, 100)
	gap, last := Time(0), s.now
	s.awaitWhile("the new voters", 5*time.Second, func() {
		write()
		if r := s.produced[len(s.produced)-1]; s.leader(1) >= 0 {
			last = s.now
			_ = r
		}
		gap = max(gap, s.now-last)
	}, s.has(1, voters...))
	if gap > 200*time.Millisecond {
		t.Errorf("without a leader for %v", gap)
	}
	s.retireOld(1, voters)
	s.finish([]record.GroupID{1})
}

func TestMember_targetThatIsDownHoldsNothingUp(t *testing.T) {
	s := newSim(t, 6, 4)
	s.single(1)
	s.await("a leader", time.Second, s.led(1))
	s.crash(3, true)
	voters := s.replicas(1, 0, 1, 3)
	s.reassign(1, voters...)
	s.put(1, 20)
	s.run(10 * time.Second)
	l := s.leader(1)
	if g := s.group(l, 1); len(g.conf.Voters) != 1 || len(g.conf.Learners) != 2 {
		t.Fatalf("voters %v learners %v while one of the new ones is down", g.conf.Voters, g.conf.Learners)
	}
	if st := s.nodes[l].core.Status(); st.Awake != 0 {
		t.Error("the group is kept awake by a node that is down")
	}
	s.boot(3)
	s.await("three voters", 5*time.Second, s.has(1, voters...))
	s.finish([]record.GroupID{1})
}

func TestMember_reassignmentCanBeTakenBack(t *testing.T) {
	s := newSim(t, 7, 4)
	s.create(1, 3)
	s.await("a leader", time.Second, s.led(1))
	s.crash(3, true)
	s.reassign(1, s.replicas(1, 0, 1, 3)...)
	s.run(3 * time.Second)
	s.reassign(1, s.replicas(1, 0, 1, 2)...)
	s.await("the old voters alone", 3*time.Second, s.has(1, s.replicas(1, 0, 1, 2)...))
	s.finish([]record.GroupID{1})
}

func TestMember_learnerBehindTheLogsBeginningGetsABaseRecord(t *testing.T) {
	s := newSim(t, 8, 3)
	s.single(1)
	s.await("a leader", time.Second, s.led(1))
	write := s.writing(1, 100)
	for range 100 {
		write()
		s.run(10 * time.Millisecond)
	}
	for s.group(0, 1).log.base.Index == 10 {
		s.truncate(1)
		s.run(20 * time.Millisecond)
	}
	voters := s.replicas(1, 0, 1, 2)
	s.reassign(1, voters...)
	s.awaitWhile("three voters", 5*time.Second, write, s.has(1, voters...))
	s.await("all equal", 3*time.Second, s.settled(1))
	if a, b := s.group(0, 1).log.base, s.group(1, 1).log.base; a != b {
		t.Errorf("bases differ: %+v and %+v", a, b)
	}
	// The producer goes on where it was, led by a replica that saw only the base record.
	s.crash(0, true)
	s.awaitWhile("the next leader takes the producer's records", 2*time.Second, write, func() bool {
		return s.produced[len(s.produced)-1].acked && s.leader(1) > 0
	})
	s.finish([]record.GroupID{1})
}

// A joint configuration whose leave was dropped by a transfer that came to nothing is left all the same.
func TestMember_jointConfigurationIsLeftAfterAFailedTransfer(t *testing.T) {
	s := newSim(t, 9, 3)
	s.single(1)
	s.await("a leader", time.Second, s.led(1))
	voters := s.replicas(1, 0, 1, 2)
	s.reassign(1, voters...)
	s.await("a joint configuration", 5*time.Second, func() bool {
		g := s.group(0, 1)
		if g.confPending > g.applied && len(g.conf.Learners) == 2 { // the joint change is on its way
			s.cut[[2]int{0, 1}], s.cut[[2]int{0, 2}] = false, false
			g.rn.TransferLeader(uint64(voters[0])) // aborted at once, yet
		}
		return len(g.conf.VotersOutgoing) > 0 || len(g.conf.Voters) == 3
	})
	s.await("three voters", 5*time.Second, s.has(1, voters...))
}

func TestMember_newReplicaOfTheSameNodeComesAfterTheOldIsGone(t *testing.T) {
	s := newSim(t, 10, 3)
	s.create(1, 3)
	s.await("a leader", time.Second, s.led(1))
	s.put(1, 30)
	old := s.replica(2, 1)
	again := record.MakeReplicaID(s.nodes[2].id, 77)
	s.reassign(1, s.replica(0, 1), s.replica(1, 1), again)
	s.run(time.Second)
	if s.group(2, 1).replica != old {
		t.Fatal("the old replica was replaced without a command")
	}
	s.maxDisk = 500 * time.Millisecond // its saves are still in flight when it goes
	for range 10 {
		s.produce(s.leader(1), s.newRecord(1, AcksAll))
		s.run(2 * time.Millisecond)
	}
	removed := false
	s.step(2, &RemoveReplica{Group: 1, Replica: old, Done: func(err error) { removed = err == nil }})
	s.flush(2)
	if g := s.group(2, 1); g == nil || g.replica != again {
		t.Fatal("the assigned replica was not made")
	}
	s.maxDisk = 5 * time.Millisecond
	s.await("the new replica is a voter", 10*time.Second, s.has(1, s.replica(0, 1), s.replica(1, 1), again))
	if !removed {
		t.Error("nobody was told of the removal")
	}
	s.crash(2, true)
	s.boot(2)
	s.finish([]record.GroupID{1})
	if g := s.group(2, 1); g.replica != again {
		t.Errorf("replica %v after a restart", g.replica)
	}
}
