package metadata

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"edged/record"
)

// laws watches one cluster from command to command and knows what was ever given out.
type laws struct {
	t        *testing.T
	c        *Cluster
	groups   map[record.GroupID]record.TopicID // every group ever seen, and whose it was
	replicas map[record.ReplicaID]record.GroupID
	boots    map[record.NodeID]uint64
	banned   map[record.NodeID]bool
	kept     []keptPicture
}

// keptPicture is a picture that a slow reader still holds.
type keptPicture struct {
	p     *Picture
	bytes []byte
}

func newLaws(t *testing.T) *laws {
	return &laws{t: t, c: New(), groups: map[record.GroupID]record.TopicID{}, replicas: map[record.ReplicaID]record.GroupID{},
		boots: map[record.NodeID]uint64{}, banned: map[record.NodeID]bool{}}
}

// apply carries out one command and checks every law.
func (l *laws) apply(index uint64, cmd Command) any {
	l.t.Helper()
	data, err := Encode(cmd)
	if err != nil {
		l.t.Fatalf("command %d cannot be encoded: %v", index, err)
	}
	before := l.c.Picture()
	was := before.snapshot()
	result := l.c.Apply(index, data)
	after := l.c.Picture()
	if _, failed := result.(error); failed && after != before {
		l.t.Fatalf("command %d %+v failed and changed the state: %v", index, cmd, result)
	}
	if !bytes.Equal(before.snapshot(), was) {
		l.t.Fatalf("command %d %+v wrote to a published picture", index, cmd)
	}
	if err := after.verify(); err != nil {
		l.t.Fatalf("command %d %+v: %v", index, cmd, err)
	}
	l.checkOnce(before, after)
	l.checkTombstones(before, after, cmd)
	if index%50 == 0 {
		l.kept = append(l.kept, keptPicture{after, after.snapshot()})
	}
	return result
}

// checkOnce checks that ids are given once and counters and bans never go back.
func (l *laws) checkOnce(before, after *Picture) {
	l.t.Helper()
	for _, topic := range after.Topics() {
		for _, part := range topic.Partitions {
			if owner, ok := l.groups[part.Group]; ok && owner != topic.ID {
				l.t.Fatalf("group %d belonged to topic %v and now to %v", part.Group, owner, topic.ID)
			} else if !ok && part.Group < before.nextGroup {
				l.t.Fatalf("group %d is new, but the next one was %d", part.Group, before.nextGroup)
			}
			l.groups[part.Group] = topic.ID
			for _, r := range part.Replicas {
				if g, ok := l.replicas[r]; ok && g != part.Group {
					l.t.Fatalf("replica %v was of group %d and now of %d", r, g, part.Group)
				}
				l.replicas[r] = part.Group
				if old, ok := before.Group(part.Group); ok && !slices.Contains(old.Partition.Replicas, r) && r.Attempt() < before.nextAttempt {
					l.t.Fatalf("replica %v came back to group %d", r, part.Group)
				}
			}
		}
	}
	for _, n := range after.NodesSorted() {
		if n.BootCounter < l.boots[n.ID] || l.banned[n.ID] {
			l.t.Fatalf("node %d went back to boot %d or is not banned any more", n.ID, n.BootCounter)
		}
		l.boots[n.ID] = n.BootCounter
	}
	for _, b := range after.banned {
		l.banned[b.ID] = true
	}
	for id := range l.banned {
		if !after.Banned(id) {
			l.t.Fatalf("node %d is not banned any more", id)
		}
	}
}

// checkTombstones checks law 4: new tombstones come from the two commands that may make
// them, and what was held and is not held any more has one, if its node is still there.
func (l *laws) checkTombstones(before, after *Picture, cmd Command) {
	l.t.Helper()
	_, deleted := cmd.(*DeleteTopic)
	report, reported := cmd.(*ReplicasChanged)
	for _, n := range after.NodesSorted() {
		old := before.Tombstones(n.ID)
		for _, tomb := range after.Tombstones(n.ID) {
			if !slices.Contains(old, tomb) && !deleted && (!reported || !slices.Contains(report.Removed, tomb.Replica)) {
				l.t.Fatalf("%T made a tombstone of %v", cmd, tomb)
			}
		}
		now := map[Tombstone]bool{}
		for _, h := range after.ReplicasOn(n.ID) {
			now[Tombstone{h.Partition.Group, h.Replica}] = true
		}
		for _, h := range before.ReplicasOn(n.ID) {
			r := Tombstone{h.Partition.Group, h.Replica}
			if !now[r] && !slices.Contains(after.Tombstones(n.ID), r) {
				l.t.Fatalf("%T let go of %v without a tombstone", cmd, r)
			}
		}
	}
}

func (l *laws) checkKept() {
	l.t.Helper()
	for _, k := range l.kept {
		if !bytes.Equal(k.p.snapshot(), k.bytes) {
			l.t.Fatal("a picture changed after it was published")
		}
	}
}

// generator makes random commands, most of them sensible.
type generator struct {
	*rand.Rand
	drawn uint64
}

func (g *generator) id() (id [16]byte) {
	g.drawn++
	binary.BigEndian.PutUint64(id[:], g.Uint64())
	binary.BigEndian.PutUint64(id[8:], g.drawn)
	return id
}

func (g *generator) node() record.NodeID { return record.NodeID(1 + g.IntN(9)) }

func (g *generator) group(p *Picture) record.GroupID {
	if topics := p.Topics(); len(topics) > 0 && g.IntN(5) > 0 {
		t := topics[g.IntN(len(topics))]
		return t.Partitions[g.IntN(len(t.Partitions))].Group
	}
	return firstGroup + record.GroupID(g.Uint64N(uint64(p.nextGroup)+2))
}

func (g *generator) topic() string { return fmt.Sprintf("topic-%d", g.IntN(6)) }

func (g *generator) alive(p *Picture) map[record.NodeID]bool {
	alive := map[record.NodeID]bool{}
	for _, n := range p.NodesSorted() {
		alive[n.ID] = g.IntN(5) > 0
	}
	return alive
}

func (g *generator) register() *RegisterNode {
	n := NodeInfo{ID: g.node(), Name: "node", BootCounter: 1 + g.Uint64N(4), NativeAddr: fmt.Sprintf("10.0.0.%d:7400", g.IntN(3)), Zone: []string{"", "a", "b"}[g.IntN(3)]}
	n.Instance = record.InstanceID{byte(n.ID)}
	n.Boot = record.BootID(n.BootCounter * 100)
	switch g.IntN(12) {
	case 0:
		n.Instance[1] = 1
	case 1:
		n.Boot++
	}
	return &RegisterNode{n}
}

func (g *generator) create(p *Picture) Command {
	partitions, rf := 1+g.Int32N(5), int16(g.IntN(4))
	nodes, err := Place(p, g.alive(p), partitions, rf)
	if err != nil || g.IntN(20) == 0 {
		nodes = [][]record.NodeID{{g.node(), g.node()}}
	}
	c := &CreateTopic{Name: g.topic(), ID: g.id(), Partitions: partitions, Replication: rf, Assignments: nodes, Created: g.Int64N(1e12)}
	if g.IntN(3) == 0 {
		c.Configs = map[string]string{RetentionMs: fmt.Sprint(g.IntN(3) - 1), DurabilityKey: "relaxed"}
	}
	return c
}

func (g *generator) alter(p *Picture) Command {
	c := &AlterTopic{Name: g.topic()}
	if g.IntN(2) == 0 {
		c.Set = map[string]string{ReplicationKey: []string{"auto", "1", "2", "3", "4"}[g.IntN(5)]}
	} else {
		c.Unset = []string{RetentionMs, ReplicationKey}
	}
	if t := p.Topic(c.Name); t != nil && g.IntN(2) == 0 {
		c.ID = t.ID
		c.Partitions = int32(len(t.Partitions)) + g.Int32N(3)
		if more := c.Partitions - int32(len(t.Partitions)); more > 0 {
			c.Assignments, _ = Place(p, g.alive(p), more, t.Configs.Replication)
		}
	}
	return c
}

// changed reports truly or not what happened to the replicas of some group.
func (g *generator) changed(p *Picture) Command {
	c := &ReplicasChanged{Group: g.group(p)}
	for _, t := range p.Topics() {
		for _, part := range t.Partitions {
			if len(part.Adding)+len(part.Removing) > 0 && g.IntN(2) == 0 {
				return &ReplicasChanged{part.Group, part.Adding, part.Removing}
			}
		}
	}
	if at, ok := p.Group(c.Group); ok {
		c.Removed = at.Partition.Replicas // not on the way out: must not be believed
	}
	return c
}

func (g *generator) command(p *Picture) Command {
	switch g.IntN(16) {
	case 0, 1, 2:
		return g.register()
	case 3, 4:
		return g.create(p)
	case 5:
		if g.IntN(2) == 0 {
			return &DeleteTopic{Name: g.topic()}
		}
		return g.alter(p)
	case 6:
		return g.alter(p)
	case 7, 8:
		c := &SetReplicas{Group: g.group(p)}
		for range 1 + g.IntN(4) {
			c.Nodes = append(c.Nodes, g.node())
		}
		return c
	case 9, 10:
		return g.changed(p)
	case 11, 12:
		node := g.node()
		c := &TombstoneDone{Node: node, Done: p.Tombstones(node)}
		if g.IntN(2) == 0 {
			c.Done = append([]Tombstone{{g.group(p), record.MakeReplicaID(node, 3)}}, c.Done[:len(c.Done)/2]...)
		}
		return c
	case 13:
		return &AllocProducerIDs{Node: g.node(), Count: 1 + g.Int32N(1000)}
	case 14:
		switch g.IntN(10) {
		case 0:
			return &RemoveNode{ID: g.node(), Force: g.IntN(3) == 0}
		case 1:
			return &InitCluster{Cluster: record.ClusterID{byte(1 + g.IntN(2))}, Name: "edge"}
		}
		return &NodeLeft{ID: g.node(), Cancel: g.IntN(3) > 0}
	}
	if cmds := Plan(p, g.alive(p), g.alive(p), nil); len(cmds) > 0 {
		return cmds[g.IntN(len(cmds))]
	}
	return g.register()
}

// TestLaws runs random commands and checks every law after each; a second machine that is
// fed the same bytes, and one that is restored from a snapshot on the way, end up equal.
func TestLaws(t *testing.T) {
	outcomes := map[string]int{}
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runLaws(t, seed, outcomes) })
	}
	// What the runs have to have met to prove anything.
	for _, want := range []string{
		"InitCluster:", "InitCluster:refused",
		"RegisterNode:", "RegisterNode:node_banned", "RegisterNode:node_id_taken", "RegisterNode:node_stale",
		"NodeLeft:", "NodeLeft:unknown_node",
		"RemoveNode:", "RemoveNode:refused",
		"CreateTopic:", "CreateTopic:topic_exists", "CreateTopic:invalid_config", "CreateTopic:unknown_node",
		"DeleteTopic:", "DeleteTopic:unknown_topic",
		"AlterTopic:", "AlterTopic:unknown_topic", "AlterTopic:not_enough_nodes", "AlterTopic:invalid_request",
		"SetReplicas:", "SetReplicas:busy", "SetReplicas:refused", "SetReplicas:unknown_partition",
		"ReplicasChanged:", "ReplicasChanged:unknown_partition",
		"TombstoneDone:", "AllocProducerIDs:", "AllocProducerIDs:unknown_node",
	} {
		if outcomes["*metadata."+want] == 0 {
			t.Errorf("no run came to %s; there were %v", want, outcomes)
		}
	}
}

func runLaws(t *testing.T, seed uint64, outcomes map[string]int) {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1))}
	l := newLaws(t)
	twin, restored := New(), New()
	const steps = 400
	restoreAt := 1 + g.Uint64N(steps)
	for i := uint64(1); i <= steps; i++ {
		cmd := g.command(l.c.Picture())
		data, err := Encode(cmd)
		if err != nil {
			t.Fatal(err)
		}
		result := l.apply(i, cmd)
		same(t, result, twin.Apply(i, data))
		if i == restoreAt {
			if err := restored.Restore(l.c.Snapshot()); err != nil {
				t.Fatal(err)
			}
		} else if i > restoreAt {
			same(t, result, restored.Apply(i, data))
		}
		err, _ = result.(error)
		outcomes[fmt.Sprintf("%T:%s", cmd, record.Code(err))]++
	}
	l.checkKept()
	if want := l.c.Snapshot(); !bytes.Equal(want, twin.Snapshot()) || !bytes.Equal(want, restored.Snapshot()) {
		t.Fatal("machines that were fed the same differ")
	}
}

// same compares two results of one command. What topics look like in them is left to the
// comparison of snapshots.
func same(t *testing.T, a, b any) {
	t.Helper()
	equal := fmt.Sprintf("%T", a) == fmt.Sprintf("%T", b)
	switch a := a.(type) {
	case error:
		err, ok := b.(error)
		equal = ok && a.Error() == err.Error() && record.Code(a) == record.Code(err)
	case RegisterNodeResult, ProducerIDBlock:
		equal = a == b
	}
	if !equal {
		t.Fatalf("one machine answered %v, the other %v", a, b)
	}
}
