package partition

import (
	"errors"
	"testing"
	"time"

	"edged/record"
)

// room tells a node about its disk.
func (s *sim) room(i int, full bool) {
	s.step(i, DiskRoom{full, full})
	s.flush(i)
}

func TestDisk_fullLeaderHandsOverAndComesBack(t *testing.T) {
	s := newSim(t, 1, 3)
	groups := groupIDs(20)
	for _, g := range groups {
		s.create(g, 3)
	}
	s.await("all led", 2*time.Second, s.led(groups...))
	s.room(0, true)
	s.await("the full node leads nothing", 2*time.Second, func() bool {
		for _, g := range groups {
			if l := s.leader(g); l <= 0 {
				return false
			}
		}
		return true
	})
	at := s.group(0, 1).log.last
	for _, g := range groups {
		s.put(g, 20)
	}
	if grown := s.group(0, 1).log.last - at; grown > 2 { // the new leader's own entry may have been faster
		t.Errorf("the node with a full disk has taken %d entries", grown)
	}
	s.room(0, false)
	s.await("all equal", 5*time.Second, s.settled(groups...))
	s.check(groups...)
}

func TestDisk_fullAndAloneRefusesRecordsAndGoesOnReading(t *testing.T) {
	s := newSim(t, 1, 1)
	s.create(1, 1)
	s.await("a leader", time.Second, s.led(1))
	s.put(1, 5)
	s.room(0, true)
	r := s.newRecord(1, AcksAll)
	s.produce(0, r)
	if !r.done || !errors.Is(r.err, record.ErrDiskFull) {
		t.Errorf("a produce to a full disk: done %v, %v", r.done, r.err)
	}
	s.run(time.Second)
	if s.leader(1) != 0 {
		t.Error("the only replica does not lead any more")
	}
	s.room(0, false)
	s.put(1, 5)
	s.check(1)
}

// One node of three is gone and the disk of another is full: the leader says so instead of filling the log with what nobody
// can commit, what was on its way is committed, and so the log start moves and makes room.
func TestDisk_fullMajorityTakesNoRecordsAndStillMakesRoom(t *testing.T) {
	s := newSim(t, 31, 3)
	s.create(1, 3)
	s.await("a leader", time.Second, s.led(1))
	s.put(1, 20)
	s.await("all equal", 3*time.Second, s.settled(1))
	leader := s.leader(1)
	full, gone := (leader+1)%3, (leader+2)%3
	s.step(full, DiskRoom{Full: true})
	s.crash(gone, true)
	s.await("the leader knows", 2*time.Second, func() bool { return s.nodes[leader].core.needsFull(s.group(leader, 1)) })
	var got error
	r := s.newRecord(1, AcksAll)
	s.step(leader, &ProduceRequest{Group: 1, Batch: s.batch(r), Acks: AcksAll, Epoch: record.NoEpoch, Done: func(p ProduceResult) { got = p.Err }})
	if s.run(time.Millisecond); !errors.Is(got, record.ErrDiskFull) {
		t.Fatalf("a record: %v", got)
	}
	before := s.group(full, 1).logStart
	s.await("the full node's log starts later", 3*time.Second, func() bool { s.truncate(1); return s.group(full, 1).logStart > before })
	s.step(full, DiskRoom{})
	s.boot(gone)
	s.await("records are taken", 3*time.Second, func() bool { return !s.nodes[leader].core.needsFull(s.group(leader, 1)) })
	s.put(1, 3)
	s.finish([]record.GroupID{1})
}
