package node

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"edged/metadata"
	"edged/partition"
	"edged/record"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A replica whose disk is full and that has fallen behind is not in sync, though its node lives: every node says so, in
// status, in the topic's description and to Kafka clients, and the leader in its metrics; and no more when it has caught up.
func TestInSync_aFullDiskIsBehind(t *testing.T) {
	t.Parallel()
	var low atomic.Bool
	const full = 2
	started := 0
	nodes := startClusterWith(t, 3, func(_ *Config, o *Options) {
		o.Timing = partition.DefaultTiming()
		o.Timing.InSync = 200 * time.Millisecond
		if started == full {
			o.FS = lowFS{vfs.NewMem(), &low}
		} else {
			o.FS = vfs.NewMem()
		}
		started++
	})
	await(t, "all replicas", func() bool { return whole(nodes) })
	behind := nodes[full].ident.Get().Node
	look := func() {
		for _, n := range nodes {
			n.lookForLag()
		}
	}
	under := func(n *testNode) int32 {
		s, err := broker{n.Node}.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.UnderReplicated
	}
	// agree tells whether all nodes and all ways to ask say of partition 0 whether the replica is in sync.
	agree := func(synced bool) bool {
		look()
		var led int32
		for _, n := range nodes {
			topic := n.machine.Picture().Topic("t")
			kafka := n.kafkaTopic(topic, n.up()).Partitions[0].ISR
			if (under(n) == 0) != synced || slices.Contains(n.describeTopic(topic).Partitions[0].InSync, behind) != synced || slices.Contains(kafka, behind) != synced {
				return false
			}
			led += n.underReplicatedHere()
		}
		return (led == 0) == synced
	}
	await(t, "all are in sync", func() bool { return agree(true) })

	low.Store(true)
	nodes[full].host.Load().LookForRoom()
	await(t, "another node leads partition 0", func() bool {
		leader, _ := nodes[0].leaderOf(group0(nodes[0]), nodes[0].host.Load().Lookup(group0(nodes[0])))
		return leader != record.NoNode && leader != behind
	})
	for range 20 {
		produceTo(t, nodes, 0, "what a full disk does not take")
	}
	await(t, "it is said to be behind", func() bool { return agree(false) })

	low.Store(false)
	nodes[full].host.Load().LookForRoom()
	await(t, "it has caught up", func() bool { return agree(true) })
}

func group0(n *testNode) record.GroupID {
	var p *metadata.Partition = n.machine.Picture().Topic("t").Partitions[0]
	return p.Group
}

// What a leader told of lag ends when it has not been heard of for a while: it may lead no more.
func TestInSync_whatWasToldEnds(t *testing.T) {
	n := &Node{}
	n.lags.of = map[record.NodeID]toldLags{7: {time.Now(), map[record.GroupID][]record.ReplicaID{1: {9}}}}
	told := func() bool {
		n.lags.mu.Lock()
		defer n.lags.mu.Unlock()
		return len(n.lags.saidLocked(7, 1)) > 0
	}
	if !told() {
		t.Error("what was told just now is not known")
	}
	n.lags.of[7] = toldLags{time.Now().Add(-lagFor - time.Second), n.lags.of[7].by}
	if told() {
		t.Error("it is held to be true for ever")
	}
}
