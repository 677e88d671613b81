package node

import (
	"slices"
	"testing"
	"time"

	"edged/partition"
	"edged/record"
	"edged/storage"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A node that starts alone has an old copy of the metadata. It may name a replica that this node has
// removed since: made again, empty, it would be a voter that has forgotten everything. The replica is
// made once the copy is as recent as the cluster was.
func TestReconcile_oldMetadataMakesNoReplica(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	at := nodes[0].machine.Picture().Topic("t").Partitions[0]
	await(t, "all replicas of t", func() bool {
		for _, n := range nodes {
			if p := n.host.Load().Lookup(at.Group); p == nil || p.View().Role == partition.RoleNone {
				return false
			}
		}
		return true
	})
	dirs := make([]string, len(nodes))
	for i, n := range nodes {
		dirs[i] = n.cfg.DataDir
		n.stop()
	}
	forgetReplica(t, dirs[2], at.Group)

	join := nodes[0].cfg.Join
	alone := startNodeIn(t, dirs[2], 3, join...)
	await(t, "the old copy of the metadata", func() bool {
		return alone.host.Load() != nil && alone.machine.Picture().Topic("t") != nil
	})
	made := func() bool {
		p := alone.host.Load().Lookup(at.Group)
		return p != nil && p.View().Role != partition.RoleNone
	}
	others := alone.machine.Picture().Topic("t").Partitions[1].Group
	await(t, "its other replicas", func() bool {
		p := alone.host.Load().Lookup(others)
		return p != nil && p.View().Role != partition.RoleNone
	})
	select { // long enough for it to be told more than once
	case <-time.After(2 * hurry):
	case <-t.Context().Done():
	}
	alone.host.Load().Inspect(func(*partition.Core) {})
	if made() {
		t.Fatal("a replica was made by an old copy of the metadata")
	}
	for _, dir := range dirs[:2] {
		startNodeIn(t, dir, 3, alone.Addrs().Gossip)
	}
	await(t, "the replica, by a current copy", made)
}

// What a node held that has been away for replace-after is made anew on another node.
func TestAutopilot_replacesWhatAGoneNodeHeld(t *testing.T) {
	t.Parallel()
	nodes := startClusterWith(t, 3, func(c *Config, _ *Options) { c.ReplaceAfter = "1s" })
	fourth := startNodeIn(t, t.TempDir(), 0, nodes[0].Addrs().Gossip)
	await(t, "four nodes", func() bool { return len(nodes[0].machine.Picture().NodesSorted()) == 4 })
	lost := nodes[2].ident.Get().Node
	nodes[2].stop()
	nodes = append(nodes[:2], fourth)
	await(t, "t is on the three that are left", func() bool {
		for _, n := range nodes {
			n.wake()
		}
		for _, p := range nodes[0].machine.Picture().Topic("t").Partitions {
			on := nodesOf(p.Replicas)
			if len(on) != 3 || slices.Contains(on, lost) || len(p.Adding)+len(p.Removing) > 0 {
				return false
			}
		}
		return true
	})
}

// forgetReplica removes a replica from a stopped node's disk.
func forgetReplica(t *testing.T, dir string, g record.GroupID) {
	t.Helper()
	s, err := storage.Open(dir, vfs.Default, storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	st, ok := s.State(g)
	if !ok {
		t.Fatalf("group %d is not on the disk", g)
	}
	if err := s.Commit([]storage.Update{{Group: g, Replica: st.Replica, Remove: true}}, true); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A peer that was given up, because neither gossip nor the registry knew it for a moment, is connected again also when it
// comes back as it was.
func TestReconcile_peerThatComesBackAsItWasIsConnectedAgain(t *testing.T) {
	var a addresses
	if !a.changed(7, "10.0.0.7:7400", 1) || a.changed(7, "10.0.0.7:7400", 1) {
		t.Error("an address is news once")
	}
	if a.forget(7); !a.changed(7, "10.0.0.7:7400", 1) {
		t.Error("the peer was given up and its address is no news")
	}
}
