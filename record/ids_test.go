package record

import (
	"math"
	"testing"
)

func TestReplicaID_keepsNodeAndAttemptApart(t *testing.T) {
	for _, node := range []NodeID{1, 77, math.MaxInt32} {
		for _, attempt := range []uint32{0, 1, math.MaxUint32} {
			r := MakeReplicaID(node, attempt)
			if r.Node() != node || r.Attempt() != attempt {
				t.Errorf("%d and %d became %d and %d", node, attempt, r.Node(), r.Attempt())
			}
		}
	}
	if got := MakeReplicaID(5, 2).String(); got != "5/2" {
		t.Errorf("printed as %q", got)
	}
}

func TestNewIDs_areValidAndDiffer(t *testing.T) {
	nodes, boots := map[NodeID]bool{}, map[BootID]bool{}
	clusters, topics, instances := map[ClusterID]bool{}, map[TopicID]bool{}, map[InstanceID]bool{}
	const n = 100
	for range n {
		node, boot := NewNodeID(), NewBootID()
		if node <= 0 || boot == 0 {
			t.Fatalf("node %d, boot %d", node, boot)
		}
		nodes[node], boots[boot] = true, true
		clusters[NewClusterID()], topics[NewTopicID()], instances[NewInstanceID()] = true, true, true
	}
	// Node ids have 30 random bits: two equal ones in a hundred are 1 in 200,000.
	if len(nodes) < n-1 || len(boots) < n || len(clusters) < n || len(topics) < n || len(instances) < n {
		t.Errorf("%d nodes, %d boots, %d clusters, %d topics, %d instances of %d", len(nodes), len(boots), len(clusters), len(topics), len(instances), n)
	}
	if !(ClusterID{}).IsZero() || NewClusterID().IsZero() {
		t.Error("IsZero does not tell a formed cluster from none")
	}
}
