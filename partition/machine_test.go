package partition

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"testing"
	"time"

	"edged/record"
)

// testMachine keeps the number of commands and a hash over them in order: any that is lost,
// repeated or out of order shows.
type testMachine struct {
	count uint64
	hash  uint64
}

func (m *testMachine) Apply(_ uint64, data []byte) any {
	if string(data) == "refuse" {
		return errors.New("refused by the machine")
	}
	h := fnv.New64a()
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, m.hash))
	_, _ = h.Write(data)
	m.hash = h.Sum64()
	m.count++
	return m.count
}

func (m *testMachine) Snapshot() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, m.count), m.hash)
}

func (m *testMachine) Restore(b []byte) error {
	if *m = (testMachine{}); len(b) == 0 {
		return nil
	}
	if len(b) != 16 {
		return errors.New("damaged state")
	}
	m.count, m.hash = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	return nil
}

func machineSim(t testing.TB, seed uint64, n int) *sim {
	return newSim(t, seed, n, func(s *sim) {
		s.machine = func(int, record.GroupID) StateMachine { return &testMachine{} }
	})
}

// createMachine makes a group with a state machine on some nodes.
func (s *sim) createMachine(g record.GroupID, nodes ...int) {
	rs := s.replicas(g, nodes...)
	s.assign(&Assignment{Group: g, Voters: rs, Initial: rs, Machine: GroupsLog})
}

type proposed struct {
	done   bool
	result any
	err    error
}

func (s *sim) propose(i int, g record.GroupID, data string) *proposed {
	p := &proposed{}
	s.step(i, &ProposeRequest{Group: g, Data: []byte(data), Done: func(result any, err error) {
		if p.done {
			s.fail("a command was answered twice")
		}
		*p = proposed{true, result, err}
	}})
	s.flush(i)
	return p
}

func TestMachine_resultGoesToTheProposer(t *testing.T) {
	s := machineSim(t, 1, 3)
	s.createMachine(1, 0, 1, 2)
	s.await("a leader", time.Second, s.led(1))
	l := s.leader(1)
	var ps []*proposed
	for i := range 20 {
		ps = append(ps, s.propose(l, 1, fmt.Sprint(i)))
	}
	bad := s.propose(l, 1, "refuse")
	s.await("all answered", time.Second, func() bool { return bad.done })
	for i, p := range ps {
		if p.err != nil || p.result != uint64(i+1) {
			t.Errorf("command %d gave %v, %v", i, p.result, p.err)
		}
	}
	if bad.err == nil {
		t.Error("the machine's refusal was not passed on")
	}
	if p := s.propose((l+1)%3, 1, "x"); record.Code(p.err) != record.CodeNotLeader {
		t.Errorf("a follower answered %v", p.err)
	}
	if p := s.propose(l, 1, ""); !errors.Is(p.err, record.ErrInvalidRequest) {
		t.Errorf("an empty command gave %v", p.err)
	}
}

// A state machine's log is cut by each replica for itself; who is behind that gets the state.
func TestMachine_logIsTrimmedAndLaggardsGetTheState(t *testing.T) {
	s := machineSim(t, 2, 4)
	s.createMachine(1, 0, 1, 2)
	s.await("a leader", time.Second, s.led(1))
	s.crash((s.leader(1)+1)%3, true)
	for i := range 100 {
		s.propose(s.leader(1), 1, fmt.Sprint(i))
		s.run(20 * time.Millisecond)
	}
	l := s.leader(1)
	if g := s.group(l, 1); g.log.base.Index < 80 || g.log.last-g.log.base.Index > 3*s.limits.MachineLog {
		t.Fatalf("the log goes from %d to %d", g.log.base.Index, g.log.last)
	}
	s.heal()
	s.reassign(1, s.replicas(1, 0, 1, 2, 3)...)
	s.await("a fourth voter", 5*time.Second, s.has(1, s.replicas(1, 0, 1, 2, 3)...))
	s.await("all equal", 3*time.Second, s.settled(1))
	s.check(1)
	for i := range 4 {
		if m := s.group(i, 1).machine.(*testMachine); m.count != 100 {
			t.Errorf("node %d has applied %d commands", i+1, m.count)
		}
	}
}

// A command that was answered is in the state of every replica, in the order of the answers.
func TestMachine_randomFaults(t *testing.T) {
	eachSeed(t, 8, func(t *testing.T, seed uint64) {
		s := randomSim(t, seed, func(s *sim) {
			s.machine = func(int, record.GroupID) StateMachine { return &testMachine{} }
		})
		var all []int
		for i := range s.nodes {
			all = append(all, i)
		}
		s.createMachine(1, all...)
		var ps []*proposed
		for i := range 300 {
			s.disturb(groupIDs(1))
			if l := s.leader(1); l >= 0 {
				ps = append(ps, s.propose(l, 1, fmt.Sprint(i)))
			}
			s.run(Time(s.rng.Int64N(int64(40 * time.Millisecond))))
		}
		s.heal()
		s.await("all equal", 20*time.Second, s.settled(1))
		s.check(1)
		last := uint64(0)
		for _, p := range ps {
			if p.done && p.err == nil {
				if n := p.result.(uint64); n > last {
					last = n
				} else {
					s.fail("a command was answered as the %d. after the %d.", n, last)
				}
			}
		}
		if m := s.group(0, 1).machine.(*testMachine); m.count < last {
			s.fail("%d commands in the state, the %d. was answered", m.count, last)
		}
	})
}
