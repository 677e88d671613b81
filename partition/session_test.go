package partition

import (
	"testing"
	"time"

	"edged/record"
)

// ready makes groups on all nodes and waits until they are led.
func (s *sim) ready(n int) []record.GroupID {
	s.t.Helper()
	groups := groupIDs(n)
	for _, g := range groups {
		s.create(g, len(s.nodes))
	}
	s.await("all led", 3*time.Second, s.led(groups...))
	return groups
}

func (s *sim) awake() (n int) {
	for _, n1 := range s.nodes {
		if n1.up {
			n += n1.core.Status().Awake
		}
	}
	return n
}

func TestSession_idleClusterWritesNothingAndHardlySpeaks(t *testing.T) {
	s := newSim(t, 1, 3)
	groups := s.ready(200)
	s.put(1, 3)
	s.run(5 * time.Second)
	if n := s.awake(); n != 0 {
		t.Fatalf("%d groups awake", n)
	}
	sent, saved := s.sent, s.saved
	s.run(60 * time.Second)
	if s.saved != saved {
		t.Errorf("%d commits in an idle minute", s.saved-saved)
	}
	if rate := float64(s.sent-sent) / 60 / 6; rate > 2.5 {
		t.Errorf("%.1f frames a second to each peer", rate)
	}
	s.crash(s.leader(1), false)
	at := s.now
	s.await("all led again, though all slept and nobody refused a connection", 3*time.Second, s.led(groups...))
	t.Logf("200 sleeping groups led again after %v", s.now-at)
	s.put(7, 1)
}

func TestSession_replicaThatIsOutOfServiceDoesNotKeepTheClusterAwake(t *testing.T) {
	s := newSim(t, 2, 3)
	s.ready(20)
	s.put(1, 3)
	l := s.leader(1)
	out := (l + 1) % 3
	s.laws.damaged = true
	for _, g := range s.nodes[out].core.order {
		if s.leader(g.id) != out {
			s.nodes[out].core.damage(g, record.ErrCorrupt)
		}
	}
	s.flush(out)
	s.put(1, 3)
	s.run(30 * time.Second)
	if n := s.awake(); n != 0 {
		t.Fatalf("%d groups awake", n)
	}
	sent := s.sent
	s.run(120 * time.Second)
	if rate := float64(s.sent-sent) / 120 / 6; rate > 2.5 {
		t.Errorf("%.1f frames a second to each peer", rate)
	}
}

func TestSession_sleepingLeaderThatLostItsMajorityStepsDown(t *testing.T) {
	s := newSim(t, 3, 3)
	s.ready(5)
	s.run(5 * time.Second)
	l := s.leader(1)
	s.crash((l+1)%3, true)
	s.crash((l+2)%3, true)
	s.await("the leader steps down", 4*time.Second, func() bool { return s.leader(1) != l })
	r := s.newRecord(1, AcksAll)
	s.produce(l, r)
	if !r.done || r.err == nil {
		t.Errorf("a node without a majority took a record: done %v, %v", r.done, r.err)
	}
	s.run(10 * time.Second)
	if n := s.awake(); n != 0 {
		t.Errorf("%d groups awake while nobody can be elected", n)
	}
	s.boot((l + 1) % 3)
	s.await("led again", time.Second, s.led(groupIDs(5)...))
}

// A leader that everybody hears and that hears nobody steps down, and the others find out by its
// claims, though it cannot answer for them.
func TestSession_deafLeaderIsReplaced(t *testing.T) { deafLeader(t) }

func deafLeader(t testing.TB) {
	for _, asleep := range []bool{false, true} {
		s := newSim(t, 4, 3)
		s.ready(5)
		if asleep {
			s.run(5 * time.Second)
		}
		l := s.leader(1)
		s.cut[[2]int{(l + 1) % 3, l}], s.cut[[2]int{(l + 2) % 3, l}] = true, true
		s.await("another leader", 8*time.Second, func() bool { now := s.leader(1); return now >= 0 && now != l })
		s.put(1, 3)
		s.finish(groupIDs(5))
	}
}

func TestSession_leaderThatNobodyHearsIsReplaced(t *testing.T) {
	s := newSim(t, 5, 3)
	s.ready(5)
	l := s.leader(1)
	s.cut[[2]int{l, (l + 1) % 3}], s.cut[[2]int{l, (l + 2) % 3}] = true, true
	s.await("another leader", 3*time.Second, func() bool { now := s.leader(1); return now >= 0 && now != l })
	s.put(1, 3)
	s.finish(groupIDs(5))
}

func TestSession_followerThatIsCutOffDisturbsNobody(t *testing.T) {
	s := newSim(t, 6, 3)
	s.ready(1)
	s.put(1, 3)
	l := s.leader(1)
	f := (l + 1) % 3
	s.cut[[2]int{l, f}] = true // it hears the third node only, and all hear it
	epoch := s.group(l, 1).term
	for range 30 {
		s.put(1, 1)
		s.run(200 * time.Millisecond)
	}
	if now := s.group(s.leader(1), 1).term; now != epoch {
		t.Errorf("epoch %d became %d", epoch, now)
	}
	s.finish(groupIDs(1))
}

func TestSession_brokenConnectionCostsNoElection(t *testing.T) {
	s := newSim(t, 7, 3)
	groups := s.ready(20)
	epochs := map[record.GroupID]uint64{}
	for _, g := range groups {
		epochs[g] = s.group(0, g).term
	}
	for i := range 30 {
		s.sever(i%3, (i+1)%3)
		s.put(groups[i%20], 2)
		s.run(100 * time.Millisecond)
	}
	for _, g := range groups {
		if now := s.group(s.leader(g), g).term; now != epochs[g] {
			t.Errorf("group %d: epoch %d became %d", g, epochs[g], now)
		}
	}
	s.finish(groups)
}

// A process that was stopped for five seconds comes back: it believes that it leads, and its inbox
// is full of the past.
func TestSession_nodeThatStoodStillStepsDownAndAnswersNothingStale(t *testing.T) {
	eachSeed(t, 4, func(t *testing.T, seed uint64) {
		s := newSim(t, seed, 3)
		s.ready(3)
		s.put(1, 5)
		l := s.leader(1)
		var waiting []*simRecord
		for range 5 {
			r := s.newRecord(1, AcksAll)
			s.produce(l, r)
			waiting = append(waiting, r)
		}
		s.pause(l)
		s.await("another leader", 4*time.Second, func() bool { return s.leader(1) >= 0 })
		s.put(1, 10)
		s.run(5 * time.Second)
		s.resume(l)
		late := s.newRecord(1, AcksAll)
		s.produce(l, late)
		s.await("it has stepped down", time.Second, func() bool { return s.group(l, 1).role == RoleFollower })
		s.await("everybody is answered", 2*time.Second, func() bool {
			for _, r := range append(waiting, late) {
				if !r.done {
					return false
				}
			}
			return true
		})
		if s.nodes[l].core.stats.Campaigns > 10 {
			t.Errorf("%d campaigns by a node that only stood still", s.nodes[l].core.stats.Campaigns)
		}
		s.finish(groupIDs(3))
	})
}

// A node that stands still for less than others take for death does not think them dead either.
func TestSession_shortPauseIsNobodysDeath(t *testing.T) {
	s := newSim(t, 8, 3)
	s.ready(10)
	for i := range 12 {
		s.put(1, 1)
		s.pause(i % 3)
		s.run(700 * time.Millisecond)
		s.resume(i % 3)
		s.run(200 * time.Millisecond)
		for _, p := range s.nodes[i%3].core.peers {
			if p.dead {
				t.Fatalf("round %d: node %d thinks node %d dead", i, i%3+1, p.node)
			}
		}
	}
}

// What a follower missed of the last commit before its leader slept it asks for.
func TestSession_lostCommitIsAskedFor(t *testing.T) {
	s := newSim(t, 9, 3)
	s.ready(1)
	s.put(1, 2)
	l := s.leader(1)
	f := (l + 1) % 3
	g := s.group(l, 1)
	r := s.newRecord(1, AcksAll)
	s.produce(l, r)
	s.await("the follower has the record and does not know that it is committed", time.Second, func() bool {
		fg := s.group(f, 1)
		return r.acked && fg.log.last == g.log.last && fg.committed < g.log.last
	})
	s.cut[[2]int{l, f}] = true
	s.run(50 * time.Millisecond)
	s.nodes[l].core.setAwake(g, false) // as if all heartbeats had been lost
	clear(s.cut)
	s.await("the follower knows", 5*time.Second, func() bool { return s.group(f, 1).high == g.high })
}

func TestSession_leadershipGoesBackToThePreferredNodeAfterCalm(t *testing.T) {
	s := newSim(t, 11, 3)
	groups := s.ready(6)
	s.run(s.timing.CalmBeforeReturn + 10*time.Second)
	home := func() bool {
		for _, g := range groups {
			if s.leader(g) != 0 {
				return false
			}
		}
		return true
	}
	if !home() {
		t.Fatal("not led by the first of the voters after a minute of calm")
	}
	s.crash(0, true)
	s.await("led elsewhere", time.Second, s.led(groups...))
	s.boot(0)
	s.run(s.timing.CalmBeforeReturn / 2)
	if home() {
		t.Error("leadership went back at once")
	}
	s.await("led by the first again", s.timing.CalmBeforeReturn, home)
}
