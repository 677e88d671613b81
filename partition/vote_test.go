package partition

import (
	"testing"
	"time"

	"edged/record"

	pb "go.etcd.io/raft/v3/raftpb"
)

// raftIn finds the first Raft message of a type in a frame.
func raftIn(f simFrame, t pb.MessageType) *pb.Message {
	_, items, err := decodeEnvelope(f.payload)
	if err != nil {
		return nil
	}
	for r := (frameReader{b: items}); len(r.b) > 0 && r.err == nil; {
		if r.u8() != itemRaft {
			return nil
		}
		if _, m := r.raft(); m.GetType() == t {
			return m
		}
	}
	return nil
}

// staleVote plays the schedule in which a vote outlives its reason. The leader and nodes 3 to 5
// commit an entry that node 1 has only in memory. Node 1 asks for votes with it, loses power
// and with it the entry and its term, comes back, stands in the same term again, and now the old
// answers of the others arrive. If they count, node 1 leads without the committed entry. (Of
// three nodes it could not: the second vote would be its own, and that waits for its disk.)
func staleVote(t testing.TB) {
	s := newSim(t, 1, 5, func(s *sim) { s.fifo, s.laws.harmOnly = true, true })
	s.create(1, 5)
	s.await("a leader", time.Second, s.led(1))
	for s.leader(1) != 1 {
		s.step(max(s.leader(1), 0), &TransferRequest{Group: 1, To: 2, Done: func(error) {}})
		s.run(50 * time.Millisecond)
	}
	s.put(1, 5)
	s.await("all equal", time.Second, s.settled(1))
	s.nodes[0].slow = 10 * time.Second
	s.put(1, 1)
	s.run(20 * time.Millisecond)

	for i := 2; i < 5; i++ {
		s.nodes[i].core.resigning = true // they vote and do not stand
	}
	var grants []simFrame
	s.tap = func(f simFrame) bool {
		for _, t := range []pb.MessageType{pb.MsgPreVoteResp, pb.MsgVoteResp} {
			if m := raftIn(f, t); m != nil && !m.GetReject() && f.to == 0 {
				grants = append(grants, f)
				return t == pb.MsgVoteResp // these wait in a queue while node 1 dies
			}
		}
		return false
	}
	s.crash(1, true)
	s.stand(0, 1)
	s.run(30 * time.Millisecond)

	s.nodes[0].disk = nil // nothing of the running commit is on the disk
	s.crash(0, true)
	s.tap = func(f simFrame) bool { // what they say now comes late
		return f.to == 0 && (raftIn(f, pb.MsgPreVoteResp) != nil || raftIn(f, pb.MsgVoteResp) != nil)
	}
	s.nodes[0].slow = 0
	s.boot(0)
	s.stand(0, 1)
	for _, f := range grants {
		s.run(10 * time.Millisecond)
		s.step(0, PeerFrame{s.nodes[f.from].id, f.boot, f.payload})
		s.flush(0)
	}
	s.run(20 * time.Millisecond)
	s.tap = nil
	for i := 2; i < 5; i++ {
		s.nodes[i].core.resigning = false
		s.nodes[i].core.stirred = true
	}
	s.finish(groupIDs(1))
}

// stand makes a node campaign at once.
func (s *sim) stand(i int, g record.GroupID) {
	s.nodes[i].core.campaign(s.group(i, g))
	s.flush(i)
}

func TestVote_grantToAnEarlierLifeElectsNobody(t *testing.T) { staleVote(t) }

// An answer that waits for the voter's own disk while the candidate is restarted is not sent to
// its next life: the frame would name that life and pass there.
func TestVote_answerThatWaitsForTheDiskDiesWithWhoAsked(t *testing.T) { lateAnswer(t) }

func lateAnswer(t testing.TB) {
	s := newSim(t, 1, 3, func(s *sim) { s.laws.harmOnly = true })
	s.create(1, 3)
	s.await("a leader", time.Second, s.led(1))
	s.put(1, 1)
	s.await("all equal", time.Second, s.settled(1))
	l := s.leader(1)
	a, b := (l+1)%3, (l+2)%3
	s.nodes[b].slow = time.Second
	s.crash(l, true)
	s.nodes[b].core.resigning = true
	s.stand(a, 1)
	s.await("the voter has the vote on its way to the disk", 100*time.Millisecond, func() bool {
		return s.group(b, 1).log.hs.Vote == s.replica(a, 1)
	})
	s.crash(a, true)
	s.boot(a)
	s.tap = func(f simFrame) bool {
		if m := raftIn(f, pb.MsgVoteResp); m != nil && f.from == b {
			s.fail("the vote of term %d was sent to the next life", m.GetTerm())
		}
		return false
	}
	s.pause(a)
	s.run(1500 * time.Millisecond)
	s.tap = nil
	s.nodes[b].slow, s.nodes[b].core.resigning = 0, false
	s.finish(groupIDs(1))
}
