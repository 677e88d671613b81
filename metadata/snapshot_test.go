package metadata

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"edged/record"
)

// lived gives a machine with something of everything in it.
func lived(t testing.TB) *Cluster {
	c := cluster(t, 5, "a", "b", "")
	first := newTopic("first", nodes{1, 2, 3}, nodes{2, 3, 1})
	first.Configs = map[string]string{RetentionMs: "1000", DurabilityKey: "relaxed"}
	must[any](t, c, first)
	must[any](t, c, newTopic("second", nodes{4}))
	must[any](t, c, newTopic("third", nodes{1, 5}))
	must[any](t, c, &AlterTopic{Name: "first", Partitions: 4, Assignments: [][]record.NodeID{{1}, {2}}})
	must[any](t, c, &SetReplicas{Group: 1, Nodes: nodes{1, 2, 4}})
	must[any](t, c, &DeleteTopic{Name: "third"})
	must[any](t, c, &NodeLeft{ID: 3})
	must[any](t, c, &RegisterNode{info(6)})
	must[any](t, c, &RemoveNode{ID: 6})
	must[any](t, c, &AllocProducerIDs{Node: 1, Count: 1000})
	return c
}

func TestSnapshot_holdsEverything(t *testing.T) {
	c := lived(t)
	d := New()
	if err := d.Restore(c.Snapshot()); err != nil {
		t.Fatal(err)
	}
	a, b := c.Picture(), d.Picture()
	if !bytes.Equal(a.snapshot(), b.snapshot()) {
		t.Fatal("the snapshot of a restored state differs")
	}
	if len(b.Topics()) != 2 || b.PartitionCount() != 5 || len(b.NodesSorted()) != 5 || !b.Banned(6) || !b.Node(3).Leaving ||
		b.Topic("first").Configs != a.Topic("first").Configs || b.Topic("first").Class != 1 || b.tombstones != 2 ||
		b.ClusterID() != a.ClusterID() || b.Name() != "edge" || b.Created() != 1 {
		t.Fatalf("restored is %+v", b)
	}
	for _, topic := range a.Topics() {
		for n, part := range topic.Partitions {
			at, ok := b.Group(part.Group)
			if !ok || at.Topic.Name != topic.Name || at.Number != int32(n) || fmt.Sprint(*at.Partition) != fmt.Sprint(*part) {
				t.Errorf("%s/%d became %+v", topic.Name, n, at)
			}
		}
	}
	empty := New()
	if err := c.Restore(empty.Snapshot()); err != nil || !c.Picture().Virgin() {
		t.Fatalf("restored from an empty one: %v", err)
	}
}

// TestRestore_damage flips every bit and cuts at every byte: always an error, and never
// another state.
func TestRestore_damage(t *testing.T) {
	good := lived(t).Snapshot()
	c := cluster(t, 1)
	before := c.Picture()
	try := func(data []byte, what string, args ...any) {
		t.Helper()
		err := c.Restore(data)
		if err == nil || c.Picture() != before {
			t.Fatalf("%s: taken, or the state is another: %v", fmt.Sprintf(what, args...), err)
		}
		if !errors.Is(err, record.ErrDamaged) && !errors.Is(err, record.ErrUnsupported) || strings.Contains(err.Error(), "\n") {
			t.Fatalf("%s: %v", fmt.Sprintf(what, args...), err)
		}
	}
	for i := range good {
		for bit := range 8 {
			bad := slices.Clone(good)
			bad[i] ^= 1 << bit
			try(bad, "bit %d of byte %d", bit, i)
		}
		try(good[:i], "%d of %d bytes", i, len(good))
	}
	try(append(slices.Clone(good), 0), "a byte too much")
	newer := slices.Clone(good)
	newer[0]++
	if err := c.Restore(newer); !errors.Is(err, record.ErrUnsupported) {
		t.Errorf("newer format: %v", err)
	}
	if err := c.Restore(make([]byte, MaxSnapshotBytes+1)); !errors.Is(err, record.ErrLimit) {
		t.Errorf("too long: %v", err)
	}
}

// resummed puts the right checksum before a damaged body, as only a bug or an enemy can.
func resummed(body []byte) []byte {
	var out bytes.Buffer
	snapshotHead(encoder(&out), crc32.Checksum(body, castagnoli))
	return append(out.Bytes(), body...)
}

func snapshotBody(t testing.TB, data []byte) []byte {
	x := decoder(data)
	snapshotHead(x, 0)
	if x.err != nil {
		t.Fatal(x.err)
	}
	return data[len(data)-x.in.Len():]
}

// TestRestore_lawsAreChecked: a snapshot that is well formed and breaks a law is refused.
func TestRestore_lawsAreChecked(t *testing.T) {
	for name, change := range map[string]func(p *Picture){
		"no replicas":              func(p *Picture) { edit(p, "second").Replicas = nil },
		"node twice":               func(p *Picture) { q := edit(p, "first"); q.Removing = q.Replicas[:1] },
		"replica not given yet":    func(p *Picture) { p.nextAttempt-- },
		"group not given yet":      func(p *Picture) { p.nextGroup = 5 },
		"group twice":              func(p *Picture) { edit(p, "second").Group = 1 },
		"adding what is not there": func(p *Picture) { edit(p, "second").Adding = []record.ReplicaID{record.MakeReplicaID(4, 2)} },
		"topics out of order":      func(p *Picture) { p.byName = []*Topic{p.byName[1], p.byName[0]} },
		"nodes out of order":       func(p *Picture) { p.nodes = []*Node{p.nodes[1], p.nodes[0]} },
		"banned and registered":    func(p *Picture) { p.banned = []Banned{{1, record.InstanceID{}}} },
		"tombstone of what is held": func(p *Picture) {
			q := edit(p, "second")
			p.tombs = []nodeTombs{{4, []Tombstone{{q.Group, q.Replicas[0]}}}}
		},
		"tombstone of another node": func(p *Picture) { p.tombs = []nodeTombs{{1, []Tombstone{{9, record.MakeReplicaID(2, 2)}}}} },
		"no partitions":             func(p *Picture) { editTopic(p, "second").Partitions = nil },
		"topic id twice":            func(p *Picture) { editTopic(p, "second").ID = p.byName[0].ID },
		"unknown setting":           func(p *Picture) { editTopic(p, "second").Settings = map[string]string{"x": "y"} },
		"bad name":                  func(p *Picture) { editTopic(p, "second").Name = "z z" },
	} {
		p := *lived(t).Picture()
		p.byName = slices.Clone(p.byName)
		change(&p)
		var body bytes.Buffer
		x := encoder(&body)
		p.fields(x)
		if x.err != nil {
			t.Fatal(name, x.err)
		}
		c := New()
		before := c.Picture()
		if err := c.Restore(resummed(body.Bytes())); !errors.Is(err, record.ErrDamaged) || c.Picture() != before {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// editTopic puts a copy of a topic in a picture, to be changed.
func editTopic(p *Picture, name string) *Topic {
	i, _ := findTopicName(p.byName, name)
	t := *p.byName[i]
	t.Partitions = slices.Clone(t.Partitions)
	p.byName[i] = &t
	return &t
}

// edit does the same with the first partition of a topic.
func edit(p *Picture, name string) *Partition {
	t := editTopic(p, name)
	part := *t.Partitions[0]
	t.Partitions[0] = &part
	return &part
}

// TestSnapshot_fullClusterFits: a cluster at every limit stays within MaxSnapshotBytes,
// and so does each command that it takes to fill one.
func TestSnapshot_fullClusterFits(t *testing.T) {
	p := newPicture()
	p.name = strings.Repeat("n", maxClusterNameBytes)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range MaxNodes {
		p.nodes = append(p.nodes, &Node{NodeInfo{record.NodeID(1<<30 + i), record.InstanceID{byte(i)}, strings.Repeat("n", maxNodeNameBytes), strings.Repeat("h", maxHostBytes),
			strings.Repeat("a", maxAddrBytes), strings.Repeat("a", maxAddrBytes), strings.Repeat("a", maxAddrBytes), strings.Repeat("v", maxVersionBytes), 1 << 40, 1 << 60, strings.Repeat("z", maxZoneBytes)}, true})
		p.tombs = append(p.tombs, nodeTombs{node: p.nodes[i].ID})
	}
	for i := range MaxBanned {
		p.banned = append(p.banned, Banned{record.NodeID(1<<29 + i), record.InstanceID{1}})
	}
	p.nextAttempt, p.nextGroup = 1<<31, 1<<40
	some := func(n int) (rs []record.ReplicaID) {
		for _, i := range r.Perm(MaxNodes)[:n] {
			p.nextAttempt++
			rs = append(rs, record.MakeReplicaID(p.nodes[i].ID, p.nextAttempt-1))
		}
		return rs
	}
	// Every topic has its share of MaxSettingsBytes.
	settings := map[string]string{RetentionBytes: "9223372036854775807", RetentionMs: "9223372036854775807"}
	if left := MaxSettingsBytes/MaxTopics - 2*19 - len(RetentionBytes) - len(RetentionMs); left < 0 || left > 4 {
		t.Fatalf("%d bytes of the settings of each topic are not used", left)
	}
	for i := range MaxTopics {
		topic := &Topic{Name: fmt.Sprintf("%0249d", i), ID: record.TopicID{1, byte(i), byte(i >> 8)}, Created: 1 << 50, Class: 5, Settings: settings}
		for range MaxPartitions / MaxTopics {
			held := some(MaxNodes * MaxReplicasPerNode / MaxPartitions) // every node is full
			part := &Partition{Group: p.nextGroup, Replicas: held[:MaxReplication], Initial: some(MaxReplication), Removing: held[MaxReplication:]}
			part.Adding = part.Replicas
			p.nextGroup++
			topic.Partitions = append(topic.Partitions, part)
		}
		p.byName = append(p.byName, topic)
	}
	for i := range MaxTombstones {
		n := &p.tombs[i%MaxNodes]
		p.nextAttempt++
		n.list = append(n.list, Tombstone{1<<39 + record.GroupID(i), record.MakeReplicaID(n.node, p.nextAttempt-1)})
	}
	data := p.snapshot()
	t.Logf("a full cluster is a snapshot of %d bytes", len(data))
	if err := New().Restore(data); err != nil {
		t.Fatal(err)
	}
}

func FuzzRestore(f *testing.F) {
	f.Add(snapshotBody(f, New().Snapshot()))
	f.Add(snapshotBody(f, lived(f).Snapshot()))
	f.Fuzz(func(t *testing.T, body []byte) {
		c := New()
		if err := c.Restore(resummed(body)); err != nil {
			return
		}
		// What is taken can be worked with.
		p := c.Picture()
		again := New()
		if err := again.Restore(p.snapshot()); err != nil || !bytes.Equal(again.Snapshot(), p.snapshot()) {
			t.Fatalf("does not restore its own snapshot: %v", err)
		}
		alive := allAlive(p)
		_ = Plan(p, alive, alive, nil)
		_, _ = Place(p, alive, 3, AutoReplication)
		_ = DesiredVoters(p, nil, alive, true)
		for _, topic := range p.Topics() {
			for _, part := range topic.Partitions {
				if _, ok := p.Group(part.Group); !ok {
					t.Fatalf("group %d is not found", part.Group)
				}
			}
		}
		must[any](t, c, &InitCluster{Cluster: max16(p.cluster), Name: "x"})
	})
}

// max16 is an id that InitCluster takes in a cluster of this id.
func max16(id record.ClusterID) record.ClusterID {
	if id.IsZero() {
		return record.ClusterID{1}
	}
	return id
}
