package partition

import (
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
)

// A follower that has not answered yet hears of a commit with the next entry: one append for each record.
func TestCommit_isNotToldByItself(t *testing.T) {
	s := newSim(t, 21, 3)
	s.ready(1)
	s.put(1, 1)
	appends := 0
	s.tap = func(f simFrame) bool {
		if raftIn(f, pb.MsgApp) != nil {
			appends++
		}
		return false
	}
	const records = 20
	for range records {
		s.put(1, 1)
	}
	if want := records * (len(s.nodes) - 1); appends != want {
		t.Errorf("%d appends for %d records on two followers, want %d", appends, records, want)
	}
}

// An append that was lost, with nothing sent behind it, is found out by the answer to a heartbeat.
func TestAppend_thatWasLostIsSentAgainWithoutAnother(t *testing.T) {
	s := newSim(t, 22, 3)
	s.ready(1)
	s.put(1, 1)
	l := s.leader(1)
	behind := (l + 1) % 3
	s.tap = func(f simFrame) bool { return f.to == behind && raftIn(f, pb.MsgApp) != nil }
	s.put(1, 1)
	s.tap = nil
	s.await("the follower has it", time.Second, func() bool { return s.group(behind, 1).log.durable == s.group(l, 1).log.last })
}
