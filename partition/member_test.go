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
		for range 3 { // all hear that it is committed: with the next entry, not by a message of its own
			write()
			s.run(10 * time.Millisecond)
		}
		s.comeBackAlone(voters[s.rng.IntN(len(voters))].Node(), write)
		s.awaitWhile("no old replica is left", 30*time.Second, func() { write(); s.retireOld(1, voters) }, func() bool {
			return s.holdNoOld(0, 1, 2, 3)
		})
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

// holdNoOld tells that none of the nodes has a replica that is still to be removed: the metadata gives
// a node no second one.
func (s *sim) holdNoOld(nodes ...int) bool {
	return !slices.ContainsFunc(nodes, func(i int) bool {
		return slices.ContainsFunc(s.removing, func(r record.ReplicaID) bool { return r.Node() == s.nodes[i].id })
	})
}

// retireOld does what the metadata does with replicas that are assigned no more: once the group's
// leader is where it was asked to be and they are in no configuration, their nodes are told to
// remove them, again and again until they have.
func (s *sim) retireOld(g record.GroupID, now []record.ReplicaID) {
	l := s.leader(g)
	settled := l >= 0 && s.has(g, now...)()
	for _, r := range slices.Clone(s.removing) {
		if settled && !slices.Contains(s.group(l, g).members(), r) && !slices.Contains(s.tombs, r) {
			s.tombs = append(s.tombs, r)
		}
		if i := int(r.Node()) - 1; slices.Contains(s.tombs, r) && s.nodes[i].up {
			s.step(i, &RemoveReplica{Group: g, Replica: r, Done: func(err error) {
				if err == nil {
					s.removing = slices.DeleteFunc(s.removing, func(o record.ReplicaID) bool { return o == r })
				}
			}})
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

// A change that would leave most of the votes with dead nodes waits: the group goes on with those it has.
func TestMember_voteIsNotTakenWhileMostOfTheRestAreDead(t *testing.T) {
	s := newSim(t, 6, 3)
	s.create(1, 3)
	s.await("a leader", time.Second, s.led(1))
	s.put(1, 20)
	s.crash(2, true)
	s.await("a leader", 3*time.Second, s.led(1))
	voters := s.replicas(1, 0, 2)
	s.reassign(1, voters...)
	s.run(5 * time.Second)
	s.put(1, 5)
	if l := s.leader(1); l < 0 || len(s.group(l, 1).conf.Voters) != 3 {
		t.Fatal("a live voter was given up")
	}
	s.boot(2)
	s.await("the assigned voters", 10*time.Second, s.has(1, voters...))
	s.retireOld(1, voters)
	s.finish([]record.GroupID{1})
}

// What the metadata group's voters should be is decided by its leader. A node that was made part of
// it when there was one voter, and leads later, must not bring that back: with one of three dead it
// would take the vote of the one that lives.
func TestMember_metadataIsNotChangedByWhatItsReplicasWereMadeWith(t *testing.T) {
	s := machineSim(t, 8, 3)
	first, others := s.replicas(1, 0), s.replicas(1, 1, 2)
	s.assign(&Assignment{Group: 1, Machine: MetadataLog, Voters: first, Learners: others, Initial: first})
	s.await("a leader", time.Second, s.led(1))
	grow := &Assignment{Group: 1, Machine: MetadataLog, Voters: s.replicas(1, 0, 1, 2), Epoch: record.Epoch(s.group(0, 1).term)}
	s.step(0, &Assignment{Group: 1, Machine: MetadataLog, Voters: first, Learners: others, Epoch: grow.Epoch})
	s.flush(0)
	s.run(time.Second)
	s.step(0, grow)
	s.flush(0)
	s.await("three voters", 5*time.Second, s.has(1, grow.Voters...))
	s.run(time.Second) // until all have left the joint configuration
	s.crash(0, true)
	s.await("another leader", 5*time.Second, s.led(1))
	s.run(5 * time.Second)
	s.boot(0) // now it could be brought back
	s.run(20 * time.Second)
	if g := s.group(s.leader(1), 1); len(g.conf.Voters) != 3 {
		t.Fatalf("voters %v", g.conf.Voters)
	}
}

// Founders that do not vote belong to the metadata group from its beginning: they learn of the cluster
// by its log, before they could register.
func TestMember_foundersThatDoNotVoteAreLearnersFromTheStart(t *testing.T) {
	s := machineSim(t, 9, 5)
	voters, learners := s.replicas(1, 0, 1, 2), s.replicas(1, 3, 4)
	s.assign(&Assignment{Group: 1, Machine: MetadataLog, Voters: voters, Learners: learners, Initial: voters, InitialLearners: learners})
	s.await("a leader", time.Second, s.led(1))
	s.await("all replicas filled", 5*time.Second, func() bool {
		for i := range 5 {
			if g := s.group(i, 1); g == nil || !sameSet(g.conf.Voters, voters) || !sameSet(g.conf.Learners, learners) {
				return false
			}
		}
		return true
	})
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

func TestMember_learnerBehindTheLogsBeginningGetsABaseRecord(t *testing.T) { behindBase(t, 8) }

func behindBase(t testing.TB, seed uint64) {
	s := newSim(t, seed, 3)
	s.single(1)
	s.await("a leader", time.Second, s.led(1))
	first := s.idempotent(1, 55, 0)
	s.produce(0, first)
	write := s.writing(1, 100)
	s.awaitWhile("the log begins later", 20*time.Second, func() { write(); s.truncate(1) }, func() bool { return s.group(0, 1).log.base.Index > 20 })
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
	// And a retry of what was before the base record is known for what it is.
	s.produce(s.leader(1), first)
	s.await("the retry is answered", time.Second, func() bool { return first.done })
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

// Any nodes are given the group, and given it again before that is done, while everything else goes
// wrong: nothing acknowledged is lost, and in the end it is where it was asked to be.
func TestMember_randomReconfiguration(t *testing.T) {
	eachSeed(t, 8, func(t *testing.T, seed uint64) { reconfigure(t, seed) })
}

func reconfigure(t testing.TB, seed uint64) {
	s := newSim(t, seed, 5, func(s *sim) {
		s.drop, s.dup, s.fifo = float64(seed%3)*0.02, float64(seed%2)*0.03, seed%2 == 0
		s.maxDisk = []Time{2 * time.Millisecond, 30 * time.Millisecond, time.Second}[seed%3]
		if seed%4 == 1 {
			s.limits.CheckpointEntries, s.limits.CheckpointTotal = 1<<20, 1<<30
		}
	})
	s.create(1, 3)
	s.await("a leader", 20*time.Second, s.led(1))
	clients := []*simClient{{group: 1, acks: AcksAll, pid: 100, window: 3}, {group: 1, acks: AcksAll, pid: -1, window: 1}}
	voters := s.replicas(1, 0, 1, 2)
	for round := range 300 {
		s.disturb(groupIDs(1))
		lose(clients, s)
		for _, c := range clients {
			c.turn(s)
		}
		if s.rng.IntN(25) == 0 {
			if nodes := s.rng.Perm(5)[:1+2*s.rng.IntN(2)]; s.holdNoOld(nodes...) {
				voters = s.nextVoters(1, uint32(100+round), nodes...)
				s.reassign(1, voters...)
			}
		}
		s.retireOld(1, voters)
		s.run(Time(s.rng.Int64N(int64(40 * time.Millisecond))))
	}
	s.heal()
	s.awaitWhile("the assigned voters", 30*time.Second, func() { s.retireOld(1, voters) }, s.has(1, voters...))
	s.finish(groupIDs(1))
}

// Of two voters one is to leave. The other one leads, commits that, and loses power before it has
// written down that it did. It comes back as one of two, and needs the vote of one that has left.
func TestMember_lastVoterComesBackAlone(t *testing.T) {
	s := newSim(t, 12, 2, func(s *sim) { s.limits.CheckpointEntries = 1 << 20 })
	s.create(1, 2)
	s.await("a leader", time.Second, s.led(1))
	for s.leader(1) != 0 {
		s.transfer(1)
		s.run(100 * time.Millisecond)
	}
	s.put(1, 5)
	s.nodes[0].slow = 200 * time.Millisecond
	s.reassign(1, s.replica(0, 1))
	s.await("the change is committed", 2*time.Second, func() bool { return s.group(0, 1).confHeard() > 0 })
	s.produce(0, s.newRecord(1, AcksAll)) // the other one has it first
	s.run(50 * time.Millisecond)
	s.nodes[0].disk = nil // nothing that runs is on disk
	s.crash(0, true)
	s.nodes[0].slow = 0
	s.boot(0)
	s.await("a leader again", 5*time.Second, s.led(1))
	s.await("one voter again", 5*time.Second, s.has(1, s.replica(0, 1)))
	s.finish(groupIDs(1))
}
