package partition

import (
	"errors"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
)

// A leader tells a follower in each heartbeat how far it knows it to be on disk. Who is not that far has lost
// what it had reported, which is said in plain words instead of by a panic of Raft.
func TestContradicts_aHeartbeatThatKnowsOfMoreThanIsHere(t *testing.T) {
	g := &group{term: 3, log: &groupLog{last: 76}}
	for _, c := range []struct {
		term, commit uint64
		lost         bool
	}{{3, 76, false}, {3, 77, true}, {4, 78, true}, {2, 78, false}, {3, 0, false}} {
		err := (&Core{}).contradicts(g, &pb.Message{
			Type: pb.MsgHeartbeat.Enum(), From: new(uint64(1)), To: new(uint64(2)), Term: new(c.term), Commit: new(c.commit),
		})
		if (err != nil) != c.lost || err != nil && !errors.Is(err, ErrLostWrites) {
			t.Errorf("term %d, commit %d, with 76 entries of term 3: %v", c.term, c.commit, err)
		}
	}
}
