package partition

import (
	"errors"
	"testing"
	"time"

	"edged/record"
)

// asked is a question whether a node still leads.
type asked struct {
	done bool
	err  error
	at   Time
}

func (s *sim) ask(i int, g record.GroupID, epoch record.Epoch) *asked {
	a := &asked{}
	s.step(i, &ConfirmRequest{Group: g, Epoch: epoch, Done: func(err error) {
		if a.done {
			s.fail("answered twice")
		}
		*a = asked{true, err, s.now}
	}})
	s.flush(i)
	return a
}

func (s *sim) epoch(i int, g record.GroupID) record.Epoch { return record.Epoch(s.group(i, g).term) }

// A leader that a majority can hear is told so within a round trip, asleep or not, alone or not; more questions at once cost
// no more messages.
func TestConfirm_aLeaderHearsItFromAMajority(t *testing.T) {
	for _, nodes := range []int{1, 3, 5} {
		s := newSim(t, 1, nodes)
		s.ready(1)
		s.put(1, 1)
		for _, asleep := range []bool{false, true} {
			if asleep {
				s.await("it sleeps", 10*time.Second, func() bool { return s.awake() == 0 })
			}
			l := s.leader(1)
			began, frames := s.now, s.sent
			var all []*asked
			for range maxConfirms + 1 {
				all = append(all, s.ask(l, 1, s.epoch(l, 1)))
			}
			s.await("all are answered", 100*time.Millisecond, func() bool {
				for _, a := range all {
					if !a.done {
						return false
					}
				}
				return true
			})
			for i, a := range all {
				if over := i == maxConfirms && nodes > 1; over != errors.Is(a.err, record.ErrBusy) || !over && a.err != nil {
					t.Errorf("%d nodes, question %d: %v", nodes, i, a.err)
				}
			}
			if took, sent := s.now-began, s.sent-frames; took > 50*time.Millisecond || sent > 60 {
				t.Errorf("%d nodes: %v, %d frames", nodes, took, sent)
			}
			if a := s.ask(l, 1, s.epoch(l, 1)-1); !a.done || a.err == nil {
				t.Errorf("an epoch of the past: %+v", a)
			}
			if a := s.ask(l, 2, 1); !a.done || a.err == nil {
				t.Errorf("a group that is not here: %+v", a)
			}
			if nodes > 1 {
				if a := s.ask((l+1)%nodes, 1, s.epoch(l, 1)); !a.done || a.err == nil {
					t.Errorf("a follower: %+v", a)
				}
			}
		}
	}
}

// A leader that is cut off, or stood still while another was elected, is never told that it leads: it hears
// that it does not, as soon as it steps down.
func TestConfirm_whoIsCutOffIsNeverToldThatItLeads(t *testing.T) {
	eachSeed(t, 8, func(t *testing.T, seed uint64) {
		s := newSim(t, seed, 3)
		s.ready(1)
		s.put(1, 3)
		l := s.leader(1)
		epoch := s.epoch(l, 1)
		if seed%2 == 0 {
			s.pause(l)
			s.await("another leader", 4*time.Second, func() bool { return s.leader(1) >= 0 })
			s.put(1, 3)
		}
		cut := func() {
			for o := range s.nodes {
				if o != l {
					s.cut[[2]int{o, l}], s.cut[[2]int{l, o}] = true, true
				}
			}
		}
		cut()
		s.net = nil // nothing is on its way
		if s.nodes[l].paused {
			s.nodes[l].inbox = nil // and nothing waits
			s.resume(l)
		}
		if s.group(l, 1).role != RoleLeader {
			t.Skip("it knows already")
		}
		a := s.ask(l, 1, epoch)
		s.await("it is answered", 4*time.Second, func() bool { return a.done })
		if a.err == nil {
			t.Errorf("it was told that it leads, after %v", a.at)
		}
		if s.group(l, 1).role == RoleLeader {
			t.Errorf("it was told that it does not lead, and leads: %v", a.err)
		}
		s.heal()
		s.finish(groupIDs(1))
	})
}

// A question that is lost is repeated.
func TestConfirm_aLostQuestionIsRepeated(t *testing.T) {
	s := newSim(t, 3, 3)
	s.ready(1)
	s.put(1, 1)
	l := s.leader(1)
	a := s.ask(l, 1, s.epoch(l, 1))
	s.net = nil
	s.await("it is answered", time.Second, func() bool { return a.done })
	if a.err != nil {
		t.Error(a.err)
	}
}
