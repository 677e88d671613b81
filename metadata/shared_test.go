package metadata

import (
	"sync"
	"testing"

	"edged/record"
)

// What is encoded is shared: a proposal goes to all members at once, a snapshot is made while
// others read the picture. Encoding writes nothing, or the race detector finds it.
func TestEncoding_writesNothing(t *testing.T) {
	members := []record.NodeID{1, 2, 3}
	proposal := Proposal{Ballot: Ballot{Round: 1, Node: 1}, Cluster: record.ClusterID{1}, Members: members}
	replicas := []record.ReplicaID{record.MakeReplicaID(1, 1), record.MakeReplicaID(2, 2)}
	partition := &Partition{Group: firstGroup, Replicas: replicas, Initial: replicas}
	topic := &Topic{Name: "t", Settings: map[string]string{RetentionMs: "5"}, Partitions: []*Partition{partition}}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			m := Message{Kind: Propose, Proposal: proposal}
			m.Encode()
			formationEncode(func(x *codec) { topic.fields(x) })
		})
	}
	wg.Wait()
}
