package metadata

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"edged/record"
)

// must applies a command that has to succeed.
func must[R any](t testing.TB, c *Cluster, cmd Command) R {
	t.Helper()
	data, err := Encode(cmd)
	if err != nil {
		t.Fatal(err)
	}
	result := c.Apply(1, data)
	if err, failed := result.(error); failed {
		t.Fatalf("%T: %v", cmd, err)
	}
	if err := c.Picture().verify(); err != nil {
		t.Fatal(err)
	}
	r, _ := result.(R)
	return r
}

// refused applies a command that has to fail with the error and change nothing.
func refused(t testing.TB, c *Cluster, cmd Command, want error) {
	t.Helper()
	data, err := Encode(cmd)
	if err != nil {
		t.Fatal(err)
	}
	before := c.Picture()
	err, _ = c.Apply(1, data).(error)
	if !errors.Is(err, want) {
		t.Errorf("%T: got %v, want %v", cmd, err, want)
	} else if strings.Contains(err.Error(), "\n") {
		t.Errorf("%T: the error has more than one line: %v", cmd, err)
	}
	if c.Picture() != before {
		t.Errorf("%T: failed and changed the state", cmd)
	}
}

func info(id record.NodeID) NodeInfo {
	return NodeInfo{ID: id, Instance: record.InstanceID{byte(id), byte(id >> 8)}, Name: fmt.Sprintf("node-%d", id),
		NativeAddr: "10.0.0.1:7400", BootCounter: 1, Boot: record.BootID(id)}
}

// cluster gives a machine with nodes 1 to n, in the given zones in turn.
func cluster(t testing.TB, n int, zones ...string) *Cluster {
	t.Helper()
	c := New()
	must[any](t, c, &InitCluster{Cluster: record.ClusterID{1}, Name: "edge", Created: 1})
	for i := range n {
		node := info(record.NodeID(i + 1))
		if len(zones) > 0 {
			node.Zone = zones[i%len(zones)]
		}
		must[RegisterNodeResult](t, c, &RegisterNode{node})
	}
	return c
}

func allAlive(p *Picture) map[record.NodeID]bool {
	alive := map[record.NodeID]bool{}
	for _, n := range p.NodesSorted() {
		alive[n.ID] = true
	}
	return alive
}

var topicIDs int

func newTopic(name string, assignments ...[]record.NodeID) *CreateTopic {
	topicIDs++
	return &CreateTopic{Name: name, ID: record.TopicID{1, byte(topicIDs), byte(topicIDs >> 8), byte(topicIDs >> 16)},
		Partitions: int32(len(assignments)), Assignments: assignments, Created: 1}
}

type nodes = []record.NodeID

func TestInitCluster_once(t *testing.T) {
	c := New()
	if p := c.Picture(); !p.ClusterID().IsZero() || !p.Virgin() {
		t.Fatal("a new state has a cluster id or is no virgin")
	}
	refused(t, c, &InitCluster{}, record.ErrInvalidRequest)
	must[any](t, c, &InitCluster{Cluster: record.ClusterID{1}, Name: "edge", Created: 5})
	must[any](t, c, &InitCluster{Cluster: record.ClusterID{1}, Name: "other"})
	refused(t, c, &InitCluster{Cluster: record.ClusterID{2}}, record.ErrRefused)
	if p := c.Picture(); p.ClusterID() != (record.ClusterID{1}) || p.Name() != "edge" || p.Created() != 5 {
		t.Fatalf("got %v %q %d", p.ClusterID(), p.Name(), p.Created())
	}
}

func TestRegisterNode_whoIsRefused(t *testing.T) {
	c := New()
	n := info(5)
	n.BootCounter, n.Boot = 3, 30
	if r := must[RegisterNodeResult](t, c, &RegisterNode{n}); !r.New || !r.Changed {
		t.Fatalf("first time: %+v", r)
	}
	before := c.Picture()
	if r := must[RegisterNodeResult](t, c, &RegisterNode{n}); r.New || r.Changed || c.Picture() != before {
		t.Fatalf("nothing changed, and still: %+v", r)
	}
	if got := c.Picture().Node(5); got.NodeInfo != n {
		t.Fatalf("registered as %+v", got)
	}
	with := func(change func(*NodeInfo)) *RegisterNode {
		m := n
		change(&m)
		return &RegisterNode{m}
	}
	refused(t, c, with(func(n *NodeInfo) { n.Instance[0]++ }), ErrNodeIDTaken)
	refused(t, c, with(func(n *NodeInfo) { n.BootCounter-- }), ErrNodeStale)
	refused(t, c, with(func(n *NodeInfo) { n.Boot++ }), ErrNodeStale) // a clone, started as often
	if r := must[RegisterNodeResult](t, c, with(func(n *NodeInfo) { n.NativeAddr = "10.9.9.9:1" })); r.New || !r.Changed {
		t.Fatalf("a new address: %+v", r)
	}
	must[any](t, c, with(func(n *NodeInfo) { n.BootCounter, n.Boot = 4, 40 }))
	refused(t, c, &RegisterNode{n}, ErrNodeStale)

	must[any](t, c, &RegisterNode{info(6)})
	must[any](t, c, &RemoveNode{ID: 5})
	refused(t, c, with(func(n *NodeInfo) { n.BootCounter = 9 }), ErrNodeBanned)
	refused(t, c, with(func(n *NodeInfo) { n.ID = 77 }), ErrNodeBanned) // under another id
	if p := c.Picture(); p.Node(5) != nil || !p.Banned(5) || p.Banned(6) {
		t.Fatal("node 5 is not removed")
	}
}

func TestRegisterNode_keepsLeaving(t *testing.T) {
	c := cluster(t, 2)
	must[any](t, c, &NodeLeft{ID: 2})
	again := info(2)
	again.BootCounter, again.Boot = 2, 99
	must[any](t, c, &RegisterNode{again})
	if !c.Picture().Node(2).Leaving {
		t.Fatal("a restart took back that the node is leaving")
	}
	must[any](t, c, &NodeLeft{ID: 2, Cancel: true})
	if c.Picture().Node(2).Leaving {
		t.Fatal("still leaving")
	}
}

func TestRemoveNode_holdsOrIsLast(t *testing.T) {
	c := cluster(t, 2)
	refused(t, c, &RemoveNode{ID: 9}, record.ErrUnknownNode)
	refused(t, c, &NodeLeft{ID: 9}, record.ErrUnknownNode)
	must[any](t, c, newTopic("only-on-2", nodes{2}))
	refused(t, c, &RemoveNode{ID: 2}, record.ErrRefused)
	must[any](t, c, &NodeLeft{ID: 2})
	refused(t, c, &NodeLeft{ID: 1}, record.ErrRefused) // the last one that could hold anything
	refused(t, c, &RemoveNode{ID: 1, Force: true}, record.ErrRefused)
	must[any](t, c, &RemoveNode{ID: 2, Force: true})
	must[any](t, c, &RemoveNode{ID: 2, Force: true}) // once more: done already
	refused(t, c, &RemoveNode{ID: 1, Force: true}, record.ErrRefused)
	if p := c.Picture(); len(p.Topic("only-on-2").Partitions[0].Replicas) != 1 {
		t.Fatal("the partition lost its last replica")
	}
	must[any](t, c, &DeleteTopic{Name: "only-on-2"}) // nobody is left to delete anything
	if n := c.Picture().tombstones; n != 0 {
		t.Fatalf("%d tombstones for a removed node", n)
	}
}

func TestCreateTopic_refusals(t *testing.T) {
	c := cluster(t, 3)
	must[any](t, c, &NodeLeft{ID: 3})
	make := func(change func(*CreateTopic)) *CreateTopic {
		cmd := newTopic("orders", nodes{1, 2}, nodes{2, 1})
		change(cmd)
		return cmd
	}
	for name, x := range map[string]struct {
		cmd  *CreateTopic
		want error
	}{
		"bad name":          {make(func(c *CreateTopic) { c.Name = "a b" }), record.ErrInvalidTopic},
		"dots":              {make(func(c *CreateTopic) { c.Name = ".." }), record.ErrInvalidTopic},
		"no id":             {make(func(c *CreateTopic) { c.ID = record.TopicID{} }), record.ErrInvalidRequest},
		"too few lists":     {make(func(c *CreateTopic) { c.Partitions = 3 }), record.ErrInvalidRequest},
		"too many lists":    {make(func(c *CreateTopic) { c.Partitions = 1 }), record.ErrInvalidRequest},
		"no nodes":          {make(func(c *CreateTopic) { c.Assignments[1] = nil }), record.ErrInvalidRequest},
		"node twice":        {make(func(c *CreateTopic) { c.Assignments[1] = nodes{1, 1} }), record.ErrInvalidRequest},
		"unknown node":      {make(func(c *CreateTopic) { c.Assignments[1] = nodes{1, 8} }), record.ErrUnknownNode},
		"leaving node":      {make(func(c *CreateTopic) { c.Assignments[1] = nodes{1, 3} }), record.ErrRefused},
		"other replication": {make(func(c *CreateTopic) { c.Replication = 3 }), record.ErrInvalidRequest},
		"two replications":  {make(func(c *CreateTopic) { c.Replication = 2; c.Configs = map[string]string{ReplicationKey: "3"} }), record.ErrInvalidConfig},
		"bad setting":       {make(func(c *CreateTopic) { c.Configs = map[string]string{"cleanup": "compact"} }), record.ErrInvalidConfig},
	} {
		t.Run(name, func(t *testing.T) { refused(t, c, x.cmd, x.want) })
	}
	cmd := make(func(*CreateTopic) {})
	first := must[CreateTopicResult](t, c, cmd)
	if again := must[CreateTopicResult](t, c, cmd); again.Topic != first.Topic {
		t.Fatal("repeating the very same creation made another topic")
	}
	refused(t, c, make(func(*CreateTopic) {}), record.ErrTopicExists)
	refused(t, c, make(func(c *CreateTopic) { c.Name = "other"; c.ID = cmd.ID }), record.ErrInvalidRequest)
}

func TestCreateTopic_whatItMakes(t *testing.T) {
	c := cluster(t, 3)
	cmd := newTopic("orders", nodes{1, 2}, nodes{2, 3}, nodes{3, 1})
	cmd.Replication = 2
	cmd.Configs = map[string]string{RetentionMs: "60000"}
	topic := must[CreateTopicResult](t, c, cmd).Topic
	p := c.Picture()
	if p.Topic("orders") != topic || p.TopicByID(cmd.ID) != topic || p.Topic("order") != nil || p.Virgin() || p.PartitionCount() != 3 {
		t.Fatal("the topic is not found, or another is")
	}
	if topic.Configs.RetentionMs != 60000 || topic.Configs.Replication != 2 || topic.Configs.MaxMessageBytes != MessageBytesLimit || topic.Class != 1 {
		t.Fatalf("configs %+v, class %d", topic.Configs, topic.Class)
	}
	for i, part := range topic.Partitions {
		at, ok := p.Group(part.Group)
		if !ok || at.Topic != topic || at.Number != int32(i) || at.Partition != part {
			t.Errorf("group %d is found at %+v", part.Group, at)
		}
		if got := nodesOf(part.Replicas); !slices.Equal(got, cmd.Assignments[i]) || !slices.Equal(part.Initial, part.Replicas) {
			t.Errorf("partition %d on %v, begins with %v", i, got, part.Initial)
		}
	}
	for _, g := range []record.GroupID{record.MetadataGroup, 4, math.MaxUint64} {
		if _, ok := p.Group(g); ok {
			t.Errorf("group %d is found", g)
		}
	}
	if held := p.ReplicasOn(1); len(held) != 2 || held[0].Number != 0 || held[1].Number != 2 || held[0].Removing {
		t.Fatalf("node 1 holds %+v", held)
	}
	if l := p.Loads()[3]; l != (Load{Replicas: 2, Leaders: 1}) {
		t.Fatalf("load of node 3 is %+v", l)
	}
}

func TestDeleteTopic_leavesTombstones(t *testing.T) {
	c := cluster(t, 3)
	old := newTopic("orders", nodes{1, 2}, nodes{2, 3})
	must[any](t, c, old)
	must[any](t, c, newTopic("other", nodes{1, 3}))
	refused(t, c, &DeleteTopic{Name: "nope"}, record.ErrUnknownTopic)
	refused(t, c, &DeleteTopic{Name: "orders", ID: record.TopicID{9}}, record.ErrUnknownTopic)
	was := c.Picture().Topic("orders")
	must[any](t, c, &DeleteTopic{Name: "orders", ID: old.ID})
	p := c.Picture()
	if p.Topic("orders") != nil || p.TopicByID(old.ID) != nil || p.PartitionCount() != 1 {
		t.Fatal("the topic is still there")
	}
	for _, part := range was.Partitions {
		if _, ok := p.Group(part.Group); ok {
			t.Errorf("group %d is still found", part.Group)
		}
		for _, r := range part.Replicas {
			if !slices.Contains(p.Tombstones(r.Node()), Tombstone{part.Group, r}) {
				t.Errorf("no tombstone for %v of group %d", r, part.Group)
			}
		}
	}
	must[any](t, c, newTopic("orders", nodes{1}))
	refused(t, c, &DeleteTopic{Name: "orders", ID: old.ID}, record.ErrUnknownTopic)
	if g := c.Picture().Topic("orders").Partitions[0].Group; g <= was.Partitions[1].Group {
		t.Fatalf("group %d was given again", g)
	}
	must[any](t, c, &TombstoneDone{Node: 2, Done: p.Tombstones(2)[:1]})
	must[any](t, c, &TombstoneDone{Node: 2, Done: p.Tombstones(2)[:1]})
	must[any](t, c, &TombstoneDone{Node: 9, Done: p.Tombstones(2)})
	if left := c.Picture().Tombstones(2); len(left) != 1 || left[0] != p.Tombstones(2)[1] {
		t.Fatalf("node 2 has %v left of %v", left, p.Tombstones(2))
	}
	must[any](t, c, &TombstoneDone{Node: 2, Done: p.Tombstones(2)})
	if left := c.Picture().Tombstones(2); left != nil {
		t.Fatalf("node 2 has %v left", left)
	}
}

func TestAlterTopic(t *testing.T) {
	c := cluster(t, 3)
	must[any](t, c, newTopic("a", nodes{1}))
	must[any](t, c, newTopic("b", nodes{2}))
	refused(t, c, &AlterTopic{Name: "c"}, record.ErrUnknownTopic)
	refused(t, c, &AlterTopic{Name: "a", ID: record.TopicID{9}}, record.ErrUnknownTopic)
	refused(t, c, &AlterTopic{Name: "a", Set: map[string]string{RetentionMs: "soon"}}, record.ErrInvalidConfig)
	refused(t, c, &AlterTopic{Name: "a", Set: map[string]string{ReplicationKey: "4"}}, record.ErrNoNodes)
	refused(t, c, &AlterTopic{Name: "a", Partitions: 3, Assignments: [][]record.NodeID{{1}}}, record.ErrInvalidRequest)
	before := c.Picture()
	if r := must[AlterTopicResult](t, c, &AlterTopic{Name: "a", Partitions: 1, Unset: []string{RetentionMs}}); c.Picture() != before || r.Topic != before.Topic("a") {
		t.Fatal("nothing to change, and still another state")
	}
	must[any](t, c, &AlterTopic{Name: "a", Set: map[string]string{RetentionMs: "1000"}, Partitions: 3, Assignments: [][]record.NodeID{{2}, {3}}})
	a := c.Picture().Topic("a")
	if len(a.Partitions) != 3 || a.Configs.RetentionMs != 1000 || a.Class != before.Topic("a").Class {
		t.Fatalf("now %+v", a)
	}
	if a.Partitions[0] != before.Topic("a").Partitions[0] {
		t.Fatal("a partition that was not changed was copied")
	}
	for i, part := range a.Partitions {
		if at, ok := c.Picture().Group(part.Group); !ok || at.Number != int32(i) || at.Topic != a {
			t.Fatalf("group %d is found at %+v", part.Group, at)
		}
	}
	refused(t, c, &AlterTopic{Name: "a", Partitions: 2}, record.ErrInvalidRequest)
	must[any](t, c, &AlterTopic{Name: "a", Unset: []string{RetentionMs}, Set: map[string]string{ReplicationKey: "3"}})
	a = c.Picture().Topic("a")
	if a.Configs.RetentionMs != DefaultConfigs().RetentionMs || a.Configs.Replication != 3 || len(a.Settings) != 1 {
		t.Fatalf("now %+v", a)
	}
}

func TestSetReplicas_lifeOfAReplica(t *testing.T) {
	c := cluster(t, 4)
	must[any](t, c, newTopic("a", nodes{1, 2, 3}))
	part := func() *Partition { return c.Picture().Topic("a").Partitions[0] }
	start := part()
	g := start.Group
	refused(t, c, &SetReplicas{Group: 99, Nodes: nodes{1}}, record.ErrUnknownPartition)
	refused(t, c, &SetReplicas{Group: g}, record.ErrInvalidRequest)
	refused(t, c, &SetReplicas{Group: g, Nodes: nodes{1, 1}}, record.ErrInvalidRequest)
	refused(t, c, &SetReplicas{Group: g, Nodes: nodes{1, 7}}, record.ErrUnknownNode)
	refused(t, c, &SetReplicas{Group: g, Nodes: nodes{1}, Was: start.Replicas[:1]}, record.ErrRefused)

	must[any](t, c, &SetReplicas{Group: g, Nodes: nodes{2, 4, 1}, Was: start.Replicas})
	p := part()
	if !slices.Equal(nodesOf(p.Replicas), nodes{2, 4, 1}) || p.Replicas[0] != start.Replicas[1] || p.Replicas[2] != start.Replicas[0] {
		t.Fatalf("target %v", p.Replicas)
	}
	if !slices.Equal(p.Removing, start.Replicas[2:]) || !slices.Equal(p.Adding, p.Replicas[1:2]) || !slices.Equal(p.Initial, start.Replicas) {
		t.Fatalf("%+v", p)
	}
	if held := c.Picture().ReplicasOn(3); len(held) != 1 || !held[0].Removing || len(c.Picture().Tombstones(3)) != 0 {
		t.Fatalf("node 3 holds %+v", held)
	}
	refused(t, c, &SetReplicas{Group: g, Nodes: nodes{3, 2}}, record.ErrBusy) // still on its way out

	// A report about replicas that are not on their way out is not believed.
	must[any](t, c, &ReplicasChanged{Group: g, Removed: p.Replicas, Added: []record.ReplicaID{start.Replicas[2]}})
	if part() != p || len(c.Picture().Tombstones(2)) != 0 {
		t.Fatal("a wanted replica was given up")
	}
	must[any](t, c, &SetReplicas{Group: g, Nodes: nodes{1, 2, 4}})
	if now := part(); !slices.Equal(now.Adding, p.Adding) || !slices.Equal(now.Removing, p.Removing) {
		t.Fatalf("another order, and %+v became %+v", p, now)
	}
	must[any](t, c, &ReplicasChanged{Group: g, Added: p.Replicas, Removed: slices.Concat(start.Replicas, p.Replicas)})
	if now := part(); len(now.Adding)+len(now.Removing) != 0 || len(now.Replicas) != 3 {
		t.Fatalf("%+v", now)
	}
	if tombs := c.Picture().Tombstones(3); len(tombs) != 1 || tombs[0] != (Tombstone{g, start.Replicas[2]}) {
		t.Fatalf("node 3 may delete %v", tombs)
	}
	refused(t, c, &SetReplicas{Group: g, Nodes: nodes{3, 2}}, record.ErrBusy) // not yet deleted
	must[any](t, c, &TombstoneDone{Node: 3, Done: c.Picture().Tombstones(3)})
	must[any](t, c, &SetReplicas{Group: g, Nodes: nodes{3, 2}})
	if r := part().Replicas[0]; r.Node() != 3 || r == start.Replicas[2] {
		t.Fatalf("node 3 came back as %v", r)
	}
	refused(t, c, &ReplicasChanged{Group: 99}, record.ErrUnknownPartition)
}

func TestSetReplicas_onlyTheOrder(t *testing.T) {
	c := cluster(t, 3)
	must[any](t, c, newTopic("a", nodes{1, 2, 3}))
	p := c.Picture().Topic("a").Partitions[0]
	before := c.Picture()
	must[any](t, c, &SetReplicas{Group: p.Group, Nodes: nodes{1, 2, 3}})
	if c.Picture() != before {
		t.Fatal("no change, and still another state")
	}
	must[any](t, c, &SetReplicas{Group: p.Group, Nodes: nodes{3, 1, 2}})
	now := c.Picture().Topic("a").Partitions[0]
	if now.Replicas[0] != p.Replicas[2] || len(now.Adding)+len(now.Removing) > 0 {
		t.Fatalf("%+v", now)
	}
}

func TestAllocProducerIDs(t *testing.T) {
	c := cluster(t, 2)
	refused(t, c, &AllocProducerIDs{Node: 9, Count: 1}, record.ErrUnknownNode)
	next := int64(firstProducerID)
	for i := range 20 {
		b := must[ProducerIDBlock](t, c, &AllocProducerIDs{Node: record.NodeID(1 + i%2), Count: int32(1 + 100*i)})
		if b.First != next || b.Count != int32(1+100*i) {
			t.Fatalf("block %+v, the next id was %d", b, next)
		}
		next += int64(b.Count)
	}
	if c.Picture().Virgin() {
		t.Fatal("a cluster that has given out producer ids calls itself a virgin")
	}
	end := *c.Picture()
	end.nextProducer = math.MaxInt64 - 10
	c.picture.Store(&end)
	refused(t, c, &AllocProducerIDs{Node: 1, Count: 11}, record.ErrLimit)
}

func TestIDsUsedUp(t *testing.T) {
	c := cluster(t, 3)
	must[any](t, c, newTopic("a", nodes{1}))
	end := *c.Picture()
	end.nextAttempt = math.MaxUint32 - 1
	c.picture.Store(&end)
	refused(t, c, newTopic("b", nodes{1, 2}), record.ErrLimit)
	refused(t, c, &SetReplicas{Group: 1, Nodes: nodes{2, 3}}, record.ErrLimit)
	must[any](t, c, newTopic("b", nodes{1}))
}

func TestApply_unknownAndDamaged(t *testing.T) {
	c := cluster(t, 1)
	before, snapshot := c.Picture(), c.Snapshot()
	for i, x := range []struct {
		data []byte
		want error
	}{
		{nil, record.ErrInvalidRequest},
		{[]byte{1}, record.ErrInvalidRequest},
		{[]byte{0xc1, 0xc1}, record.ErrInvalidRequest},
		{bytes.Repeat([]byte{0x91}, 1000), record.ErrInvalidRequest},
		{[]byte{1, byte(kindCreateTopic), 0xdb, 0xff, 0xff, 0xff, 0xff}, record.ErrInvalidRequest}, // a name of 4 GiB
		{make([]byte, MaxCommandBytes+1), record.ErrInvalidRequest},
		{[]byte{CommandVersion, 99, 1, 2}, record.ErrUnsupported},
		{[]byte{CommandVersion, 0}, record.ErrUnsupported},
		{[]byte{CommandVersion + 1, byte(kindNodeLeft), 1}, record.ErrUnsupported},
	} {
		err, _ := c.Apply(uint64(100+i), x.data).(error)
		if !errors.Is(err, x.want) {
			t.Errorf("%.20x: got %v, want %v", x.data, err, x.want)
		}
		if c.Picture() != before || !bytes.Equal(c.Snapshot(), snapshot) {
			t.Fatalf("%.20x changed the state", x.data)
		}
	}
	if c.Unknown() != 106 {
		t.Errorf("the first unknown command was 106, said is %d", c.Unknown())
	}
	if err := c.Restore(snapshot); err != nil || c.Unknown() != 0 {
		t.Errorf("after a fresh snapshot: %v, %d", err, c.Unknown())
	}
}

// TestSetReplicas_boundOnTheWayOut: moves that are never finished do not pile up.
func TestSetReplicas_boundOnTheWayOut(t *testing.T) {
	c := cluster(t, MaxRemoving+3)
	must[any](t, c, newTopic("a", nodes{1}))
	for n := record.NodeID(2); n <= MaxRemoving+1; n++ {
		must[any](t, c, &SetReplicas{Group: 1, Nodes: nodes{n}})
	}
	refused(t, c, &SetReplicas{Group: 1, Nodes: nodes{MaxRemoving + 2}}, record.ErrBusy)
	must[any](t, c, &ReplicasChanged{Group: 1, Removed: c.Picture().Topic("a").Partitions[0].Removing})
	must[any](t, c, &SetReplicas{Group: 1, Nodes: nodes{MaxRemoving + 2}})
}

func TestLimits(t *testing.T) {
	c := cluster(t, MaxNodes)
	refused(t, c, &RegisterNode{info(MaxNodes + 1)}, record.ErrLimit)
	must[any](t, c, newTopic("t", nodes{1}))

	full := *c.Picture()
	full.partitions = MaxPartitions
	c.picture.Store(&full)
	data, err := Encode(newTopic("u", nodes{1}))
	if err != nil {
		t.Fatal(err)
	}
	if err, _ := c.Apply(1, data).(error); !errors.Is(err, record.ErrLimit) {
		t.Errorf("more partitions than a cluster can have: %v", err)
	}

	c = cluster(t, 2)
	full = *c.Picture()
	for i := range MaxTopics {
		full.byName = append(full.byName, &Topic{Name: fmt.Sprintf("t%05d", i)})
	}
	c.picture.Store(&full)
	refused(t, c, newTopic("u", nodes{1}), record.ErrLimit)

	c = cluster(t, 2)
	for range MaxTombstones / MaxPartitionsPerTopic {
		deleteLarge(t, c, MaxPartitionsPerTopic)
	}
	deleteLarge(t, c, MaxTombstones%MaxPartitionsPerTopic)
	must[any](t, c, newTopic("one", nodes{2}))
	refused(t, c, &DeleteTopic{Name: "one"}, record.ErrLimit) // node 1 is away and deletes nothing
	must[any](t, c, &TombstoneDone{Node: 1, Done: c.Picture().Tombstones(1)[:1]})
	must[any](t, c, &DeleteTopic{Name: "one"})
}

// deleteLarge makes a topic on node 1 and deletes it, which leaves n tombstones.
func deleteLarge(t *testing.T, c *Cluster, n int32) {
	t.Helper()
	all := make([][]record.NodeID, n)
	for i := range all {
		all[i] = nodes{1}
	}
	must[any](t, c, newTopic("large", all...))
	must[any](t, c, &DeleteTopic{Name: "large"})
}
