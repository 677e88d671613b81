package metadata

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"edged/record"
)

// samples has every kind of command with every field filled in.
func samples() []Command {
	n := info(5)
	n.Host, n.KafkaAddr, n.HTTPAddr, n.Version, n.Zone = "host", "[::1]:9092", "h:1", "1.2.3", "zone"
	r := record.MakeReplicaID(7, 9)
	return []Command{
		&InitCluster{record.ClusterID{1}, "edge", 12},
		&RegisterNode{n},
		&NodeLeft{7, true},
		&RemoveNode{7, true},
		&CreateTopic{"t", record.TopicID{2}, 2, 3, map[string]string{"a": "1", "b": "2", "c": ""}, [][]record.NodeID{{1, 2}, {3}}, 77},
		&DeleteTopic{"t", record.TopicID{2}},
		&AlterTopic{"t", record.TopicID{2}, map[string]string{"a": "1"}, []string{"b"}, 3, [][]record.NodeID{{1}}},
		&SetReplicas{4, nodes{1, 2}, []record.ReplicaID{r}},
		&ReplicasChanged{4, []record.ReplicaID{r}, []record.ReplicaID{r, r + 1}},
		&TombstoneDone{7, []Tombstone{{4, r}}},
		&AllocProducerIDs{7, 1000},
	}
}

func TestCommands_comeBackAsTheyWere(t *testing.T) {
	seen := map[kind]bool{}
	for _, cmd := range samples() {
		data, err := Encode(cmd)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(data)
		if err != nil || !reflect.DeepEqual(cmd, again) {
			t.Errorf("%+v came back as %+v, %v", cmd, again, err)
		}
		for n := range data {
			if _, err := Decode(data[:n]); !errors.Is(err, record.ErrInvalidRequest) {
				t.Errorf("%T: %d of %d bytes: %v", cmd, n, len(data), err)
			}
		}
		if _, err := Decode(append(data, 0)); !errors.Is(err, record.ErrInvalidRequest) {
			t.Errorf("%T: a byte too much: %v", cmd, err)
		}
		if newCommand(cmd.kind()) == nil || seen[cmd.kind()] {
			t.Errorf("%T: its kind %d is not known or taken", cmd, cmd.kind())
		}
		seen[cmd.kind()] = true
	}
	if newCommand(kind(len(seen)+1)) != nil {
		t.Error("there is a command without a sample")
	}
}

// TestEncode_bounds: what is out of bounds is refused where it is made, by name.
func TestEncode_bounds(t *testing.T) {
	long := strings.Repeat("x", 300)
	many := map[string]string{}
	for i := range maxSettings + 1 {
		many[fmt.Sprint(i)] = ""
	}
	node := func(change func(*NodeInfo)) Command {
		n := info(1)
		change(&n)
		return &RegisterNode{n}
	}
	for _, x := range []struct {
		cmd  Command
		want string
	}{
		{&InitCluster{Name: long}, "cluster name"},
		{&InitCluster{Created: -1}, "created"},
		{node(func(n *NodeInfo) { n.ID = 0 }), "node id"},
		{node(func(n *NodeInfo) { n.ID = -5 }), "node id"},
		{node(func(n *NodeInfo) { n.Name = "" }), "node name"},
		{node(func(n *NodeInfo) { n.Name = "a\nb" }), "node name"},
		{node(func(n *NodeInfo) { n.Name = "\xff" }), "node name"},
		{node(func(n *NodeInfo) { n.Host = long }), "host"},
		{node(func(n *NodeInfo) { n.NativeAddr = long }), "native address"},
		{node(func(n *NodeInfo) { n.Zone = long }), "zone"},
		{&CreateTopic{Name: long, Partitions: 1}, "topic name"},
		{&CreateTopic{Name: "t", Partitions: 0}, "partitions"},
		{&CreateTopic{Name: "t", Partitions: MaxPartitionsPerTopic + 1}, "partitions"},
		{&CreateTopic{Name: "t", Partitions: 1, Replication: MaxReplication + 1}, "replication"},
		{&CreateTopic{Name: "t", Partitions: 1, Configs: many}, "configs"},
		{&CreateTopic{Name: "t", Partitions: 1, Configs: map[string]string{"a": long}}, "configs"},
		{&CreateTopic{Name: "t", Partitions: 1, Assignments: make([][]record.NodeID, MaxPartitionsPerTopic+1)}, "assignments"},
		{&CreateTopic{Name: "t", Partitions: 1, Assignments: [][]record.NodeID{make(nodes, MaxReplication+1)}}, "assignment"},
		{&SetReplicas{Group: 0, Nodes: nodes{1}}, "group"},
		{&SetReplicas{Group: 1, Nodes: nodes{0}}, "node id"},
		{&ReplicasChanged{Group: 1, Removed: []record.ReplicaID{0}}, "replica id"},
		{&TombstoneDone{Node: 1, Done: make([]Tombstone, MaxChanged+1)}, "tombstones"},
		{&AllocProducerIDs{Node: 1, Count: 0}, "count"},
		{&AllocProducerIDs{Node: 1, Count: MaxProducerBlock + 1}, "count"},
	} {
		_, err := Encode(x.cmd)
		if !errors.Is(err, record.ErrInvalidRequest) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%T: want a fault of %q, got %v", x.cmd, x.want, err)
		}
	}
}

// TestEncode_equalMapsAreEqualBytes: the order in which Go walks a map is not seen.
func TestEncode_equalMapsAreEqualBytes(t *testing.T) {
	keys := []string{"a", "b", "c", "d", "e", "f", "g"}
	var first []byte
	for i := range 50 {
		m := map[string]string{}
		rand.New(rand.NewPCG(uint64(i), 1)).Shuffle(len(keys), func(a, b int) { keys[a], keys[b] = keys[b], keys[a] })
		for _, k := range keys {
			m[k] = k
		}
		data, err := Encode(&CreateTopic{Name: "t", Partitions: 1, Configs: m})
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = data
		} else if !bytes.Equal(data, first) {
			t.Fatal("two encodings of one command")
		}
	}
}

func TestCommand_largestFit(t *testing.T) {
	c := cluster(t, 5)
	placed, err := Place(c.Picture(), allAlive(c.Picture()), MaxPartitionsPerTopic, MaxReplication)
	if err != nil {
		t.Fatal(err)
	}
	must[any](t, c, newTopic("large", placed...))
	var all []Tombstone
	for i := range MaxChanged {
		all = append(all, Tombstone{1 << 61, record.MakeReplicaID(1<<31-1, 1<<31+uint32(i))})
	}
	if _, err := Encode(&TombstoneDone{Node: 1, Done: all}); err != nil {
		t.Fatal(err)
	}
}

func FuzzApply(f *testing.F) {
	for _, cmd := range samples() {
		data, err := Encode(cmd)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	start := lived(f).Snapshot()
	f.Fuzz(func(t *testing.T, data []byte) {
		c, twin := New(), New()
		if c.Restore(start) != nil || twin.Restore(start) != nil {
			t.Fatal("the start cannot be restored")
		}
		before := c.Picture()
		err, failed := c.Apply(1, data).(error)
		if failed && (c.Picture() != before || strings.Contains(err.Error(), "\n")) {
			t.Fatalf("failed and changed the state, or has many lines: %v", err)
		}
		if err := c.Picture().verify(); err != nil {
			t.Fatal(err)
		}
		twin.Apply(1, data)
		if !bytes.Equal(c.Snapshot(), twin.Snapshot()) {
			t.Fatal("one command, two states")
		}
		if cmd, err := Decode(data); err == nil {
			again, err := Encode(cmd)
			if err != nil {
				t.Fatalf("%+v was read and cannot be written: %v", cmd, err)
			}
			if back, err := Decode(again); err != nil || !reflect.DeepEqual(cmd, back) {
				t.Fatalf("%+v came back as %+v, %v", cmd, back, err)
			}
		}
	})
}
