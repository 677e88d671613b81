package partition

import (
	"slices"
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

// keepUpTo ends what a node's disk kept with an entry: what came after it was never synced.
func (s *sim) keepUpTo(i int, g record.GroupID, index uint64) {
	s.t.Helper()
	n := s.nodes[i].store
	for len(n.wal) > n.synced && n.groups[g].last() > index {
		wal := slices.Clone(n.wal[:len(n.wal)-1])
		if u := n.wal[len(wal)]; len(u.Entries) > 0 && u.Entries[0].Index <= index { // a large commit keeps some first entries
			u.Entries, u.Base, u.Checkpoint = u.Entries[:index+1-u.Entries[0].Index], nil, nil
			wal = append(wal, u)
		}
		kept := newMemStore()
		if err := kept.Commit(wal, false); err != nil {
			s.fail("node %d: %v", i+1, err)
		}
		kept.synced = n.synced
		*n = *kept
	}
	if last := n.groups[g].last(); last != index {
		s.fail("node %d keeps entry %d, want %d", i+1, last, index)
	}
	n.synced = len(n.wal)
}

// A base record carries what entries say that come after it: where the log starts and what producers
// sent. When a power cut takes these entries from all, the one replica that was given the record
// knows more than is so. As a follower it gives up its log; as a leader it says so to all.
func TestRelaxed_stateAheadOfItsLogIsNotKept(t *testing.T) {
	for _, leads := range []bool{false, true} {
		s := newSim(t, 6, 3, func(s *sim) { s.limits.CheckpointEntries = 1 << 20 })
		s.createRelaxed(1)
		s.await("a leader", time.Second, s.led(1))
		handTo := func(i int) {
			s.await("the leadership is handed over", 5*time.Second, func() bool {
				s.step(max(s.leader(1), 0), &TransferRequest{Group: 1, To: s.nodes[i].id, Done: func(error) {}})
				s.run(50 * time.Millisecond)
				return s.leader(1) == i
			})
		}
		handTo(0)
		s.await("all equal", time.Second, s.settled(1))
		s.crash(2, true)
		handTo(1) // in later epochs than node 3 comes back in, or its return would be an election, which syncs
		handTo(0)
		for range 5 {
			s.put(1, 3)
		}
		known := s.newRecord(1, AcksAll)
		known.pid = 77
		s.produce(0, known)
		s.await("acknowledged", time.Second, func() bool { return known.acked })
		before := s.group(0, 1).log.last - 1 // without what the producer sent
		e := s.nodes[0].store.groups[1].entries[4]
		s.step(0, &LogStartRequest{Group: 1, Index: e.Index, Base: e.BaseOffset, Offset: e.BaseOffset, Force: true, Done: func(err error) {
			if err != nil {
				t.Error(err)
			}
		}})
		s.run(200 * time.Millisecond)
		s.boot(2)
		s.await("the base record is taken", time.Second, func() bool { return s.group(2, 1).log.base.Index == e.Index-1 })
		s.await("all equal", time.Second, s.settled(1))
		for i := range s.nodes {
			s.keepUpTo(i, 1, before)
			s.nodes[i].disk = nil
			s.crash(i, true)
		}
		for i := range s.nodes {
			s.boot(i)
		}
		if g := s.group(2, 1); g.stateIndex <= before || s.group(0, 1).logStart != 0 || g.logStart != e.BaseOffset {
			t.Fatalf("the state is of entry %d, the log ends at %d; log start %d here and %d there", g.stateIndex, before, g.logStart, s.group(0, 1).logStart)
		}
		first, want := 0, record.Offset(0)
		if leads {
			first, want = 2, e.BaseOffset
		}
		s.stand(first, 1)
		s.await("a leader", time.Second, s.led(1))
		if got := s.leader(1) == 2; got != leads {
			t.Fatalf("node %d leads", s.leader(1)+1)
		}
		known.acked, known.done = false, false // it was lost
		s.produce(s.leader(1), known)
		s.await("acknowledged again", time.Second, func() bool { return known.done })
		s.finish(groupIDs(1))
		if got := s.group(s.leader(1), 1).logStart; got != want {
			t.Errorf("led by who was ahead %v: log start %d, want %d", leads, got, want)
		}
	}
}
