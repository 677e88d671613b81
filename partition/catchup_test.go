package partition

import (
	"bytes"
	"testing"
	"time"

	"edged/record"
)

// behindCluster is a cluster of 60 groups of which node 3 has missed most of what was written, far more
// than the caches hold.
func behindCluster(t *testing.T) (*sim, []record.GroupID) {
	s := newSim(t, 1, 3, func(s *sim) {
		s.limits.EntryCache, s.limits.CheckpointTotal = 64<<10, 1<<20
		s.key = bytes.Repeat([]byte("k"), 20<<10)
	})
	groups := s.ready(60)
	s.crash(2, true)
	s.await("all led", time.Second, s.led(groups...))
	for range 5 {
		for _, g := range groups {
			s.produce(s.leader(g), s.newRecord(g, AcksAll))
		}
		s.run(50 * time.Millisecond)
	}
	s.run(time.Second)
	return s, groups
}

// A node that comes back far behind in all groups is caught up without a turn of the leaders that
// reads much, and nobody's leadership is lost over it.
func TestCatchUp_isSpreadOverTurns(t *testing.T) {
	s, groups := behindCluster(t)
	epochs := map[record.GroupID]uint64{}
	for _, g := range groups {
		epochs[g] = s.group(s.leader(g), g).term
	}
	most := int64(0)
	s.laws.each = func(i int) {
		if st := s.nodes[i].store; i != 2 {
			most = max(most, st.read)
			st.read = 0
		}
	}
	s.nodes[0].store.read, s.nodes[1].store.read = 0, 0
	s.boot(2)
	s.await("all equal", 20*time.Second, s.settled(groups...))
	if bound := turnReads + s.limits.Inflight + s.limits.Message; most > bound || most == 0 {
		t.Errorf("a turn read %d bytes, at most %d", most, bound)
	}
	for _, g := range groups {
		if now := s.group(s.leader(g), g).term; now != epochs[g] {
			t.Errorf("group %d: epoch %d became %d", g, epochs[g], now)
		}
	}
	s.finish(groups)
}

// A connection that takes little still brings everything over, and what is written meanwhile too.
func TestCatchUp_overAConnectionThatIsFull(t *testing.T) {
	s, groups := behindCluster(t)
	room, last, refused, began := 0, Time(0), 0, s.now
	s.full = func(_, to int, class Class, size int) bool { // 4 MB a second, a queue of 256 KiB
		if to != 2 || class == Control {
			return false
		}
		room = min(room+int((s.now-last)/time.Microsecond)*4, 256<<10)
		if last = s.now; size > room && room < 256<<10 {
			refused++
			return true
		}
		room -= size
		return false
	}
	s.boot(2)
	var slow []*simRecord
	s.awaitWhile("all equal", 60*time.Second, func() {
		if len(slow) < 40 {
			r := s.newRecord(groups[len(slow)], AcksAll)
			s.produce(s.leader(r.group), r)
			slow = append(slow, r)
		}
	}, s.settled(groups...))
	for _, r := range slow {
		if !r.acked || r.ackedAt-r.sentAt > 100*time.Millisecond {
			t.Errorf("a record of group %d took %v: %v", r.group, r.ackedAt-r.sentAt, r.err)
		}
	}
	s.full = nil
	if took := s.now - began; refused > 60 || took > 5*time.Second {
		t.Errorf("%d frames were made in vain in %v", refused, took)
	}
	s.finish(groups)
}

// What a restart has to apply again is bounded over all groups.
func TestCatchUp_restartHasLittleToApply(t *testing.T) {
	s, groups := behindCluster(t)
	tail := int64(0)
	for _, g := range groups {
		mg := s.nodes[0].store.groups[g]
		for _, e := range mg.entries {
			if e.Index > mg.state.Checkpoint.Applied {
				tail += int64(len(e.Data))
			}
		}
	}
	if tail > s.limits.CheckpointTotal*3/2 {
		t.Errorf("%d bytes are after the checkpoints", tail)
	}
}
