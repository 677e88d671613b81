package metadata

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"edged/record"
)

// raftGroups plays the leaders of partitions. It knows which replicas really vote in each group.
type raftGroups map[record.GroupID][]record.ReplicaID

// lead does what the leaders of partitions do, for every group with a majority alive:
// they bring in and take out replicas and report it; then nodes delete what they may.
func (voters raftGroups) lead(t *testing.T, c *Cluster, alive map[record.NodeID]bool) {
	t.Helper()
	for _, topic := range c.Picture().Topics() {
		for _, part := range topic.Partitions {
			if voters[part.Group] == nil { // seen for the first time: what is reported, or what it began with
				learners := without(part.Removing, part.Initial)
				voters[part.Group] = slices.Concat(without(part.Replicas, part.Adding), without(part.Removing, learners))
			}
			now := voters[part.Group]
			up := slices.DeleteFunc(slices.Clone(now), func(r record.ReplicaID) bool { return !alive[r.Node()] })
			if len(up) <= len(now)/2 || len(part.Adding)+len(part.Removing) == 0 {
				continue
			}
			report := &ReplicasChanged{Group: part.Group}
			for _, r := range part.Adding {
				if alive[r.Node()] {
					report.Added = append(report.Added, r)
				}
			}
			for _, r := range part.Removing { // a voter only when the new ones are in
				if len(report.Added) == len(part.Adding) || !slices.Contains(now, r) {
					report.Removed = append(report.Removed, r)
				}
			}
			voters[part.Group] = append(without(now, report.Removed), report.Added...)
			must[any](t, c, report)
		}
	}
	for _, n := range c.Picture().NodesSorted() {
		if tombs := c.Picture().Tombstones(n.ID); alive[n.ID] && len(tombs) > 0 {
			must[any](t, c, &TombstoneDone{Node: n.ID, Done: tombs})
		}
	}
}

// settle plans and leads until nothing is left to do.
func settle(t *testing.T, c *Cluster, groups raftGroups, alive map[record.NodeID]bool) {
	t.Helper()
	for range 2000 {
		cmds := Plan(c.Picture(), alive, alive, nil)
		if len(cmds) == 0 {
			groups.lead(t, c, alive)
			if len(Plan(c.Picture(), alive, alive, nil)) == 0 {
				return
			}
		}
		for _, cmd := range cmds {
			checkStep(t, c.Picture(), cmd.(*SetReplicas), alive)
			must[any](t, c, cmd)
		}
		if n := moving(c.Picture(), alive); n > MaxMovesInFlight {
			t.Fatalf("%d partitions are moving", n)
		}
		groups.lead(t, c, alive)
	}
	t.Fatalf("the plan never comes to an end: now it is %+v", Plan(c.Picture(), alive, alive, nil)[0])
}

// checkStep asserts that one replica at most comes, and one at most goes.
func checkStep(t *testing.T, p *Picture, cmd *SetReplicas, alive map[record.NodeID]bool) {
	t.Helper()
	at, _ := p.Group(cmd.Group)
	part := at.Partition
	old := nodesOf(part.Replicas)
	waits := slices.ContainsFunc(part.Adding, func(r record.ReplicaID) bool { return !alive[r.Node()] })
	if len(part.Adding)+len(part.Removing) > 0 && !waits {
		t.Fatalf("%+v is changing and gets another step: %v", part, cmd.Nodes)
	}
	for _, pair := range [][2][]record.NodeID{{cmd.Nodes, old}, {old, cmd.Nodes}} {
		differs := 0
		for _, n := range pair[0] {
			if !slices.Contains(pair[1], n) {
				differs++
			}
		}
		if differs > 1 {
			t.Fatalf("from %v to %v in one step", old, cmd.Nodes)
		}
	}
	for _, n := range cmd.Nodes {
		if !slices.Contains(old, n) && (!alive[n] || p.Node(n).Leaving) {
			t.Fatalf("node %d is to be added and is dead or leaving", n)
		}
	}
}

func moving(p *Picture, alive map[record.NodeID]bool) int {
	pl := planner{p: p, alive: alive}
	return pl.inFlight()
}

// checkSettled asserts where a plan ends when every node is alive.
func checkSettled(t *testing.T, c *Cluster) {
	t.Helper()
	p := c.Picture()
	usable := len(p.usable())
	for _, topic := range p.Topics() {
		want := int(topic.Configs.Replication)
		if want == AutoReplication {
			want = AutoReplicas(usable)
		}
		for n, part := range topic.Partitions {
			if len(part.Adding)+len(part.Removing) > 0 {
				t.Errorf("%s/%d is still changing: %+v", topic.Name, n, part)
			}
			if want <= usable && len(part.Replicas) != want {
				t.Errorf("%s/%d has %d replicas of %d", topic.Name, n, len(part.Replicas), want)
			}
			for _, r := range part.Replicas {
				if node := p.Node(r.Node()); want <= usable && (node == nil || node.Leaving) {
					t.Errorf("%s/%d is still on node %d", topic.Name, n, r.Node())
				}
			}
		}
	}
}

func TestPlan_growsWithTheCluster(t *testing.T) {
	c, groups := cluster(t, 1), raftGroups{}
	for i := range 4 {
		placed, err := Place(c.Picture(), allAlive(c.Picture()), 6, AutoReplication)
		if err != nil {
			t.Fatal(err)
		}
		must[any](t, c, newTopic(fmt.Sprint("auto", i), placed...))
	}
	fixed := newTopic("fixed", nodes{1})
	fixed.Replication = 1
	must[any](t, c, fixed)
	for id := record.NodeID(2); id <= 5; id++ {
		must[any](t, c, &RegisterNode{info(id)})
		alive := allAlive(c.Picture())
		settle(t, c, groups, alive)
		checkSettled(t, c)
	}
	p := c.Picture()
	if n := len(p.Topic("fixed").Partitions[0].Replicas); n != 1 {
		t.Fatalf("a topic of replication 1 has %d replicas", n)
	}
	for n, load := range p.Loads() { // the first three hold everything: nothing is moved to even out
		if n <= 3 && (load.Leaders < 8 || load.Leaders > 9) {
			t.Errorf("node %d leads %d of 25", n, load.Leaders)
		}
	}
}

func TestPlan_emptiesALeavingNode(t *testing.T) {
	for _, n := range []int{2, 3, 4, 6} {
		c, groups := cluster(t, n), raftGroups{}
		placed, err := Place(c.Picture(), allAlive(c.Picture()), 30, AutoReplication)
		if err != nil {
			t.Fatal(err)
		}
		must[any](t, c, newTopic("t", placed...))
		must[any](t, c, &NodeLeft{ID: 1})
		settle(t, c, groups, allAlive(c.Picture()))
		checkSettled(t, c)
		must[any](t, c, &RemoveNode{ID: 1}) // without force: it is empty
	}
}

// TestPlan_leavingWaits: a topic that asks for three replicas keeps the leaving node
// until there is another.
func TestPlan_leavingWaits(t *testing.T) {
	c, groups := cluster(t, 3), raftGroups{}
	topic := newTopic("t", nodes{1, 2, 3})
	topic.Replication = 3
	must[any](t, c, topic)
	must[any](t, c, &NodeLeft{ID: 1})
	if cmds := Plan(c.Picture(), allAlive(c.Picture()), allAlive(c.Picture()), nil); len(cmds) != 0 {
		t.Fatalf("planned %+v", cmds[0])
	}
	must[any](t, c, &RegisterNode{info(4)})
	settle(t, c, groups, allAlive(c.Picture()))
	checkSettled(t, c)
}

// TestPlan_deadIsNotGone: a node that is away loses nothing, and nothing is shrunk.
func TestPlan_deadIsNotGone(t *testing.T) {
	c := cluster(t, 5)
	placed, err := Place(c.Picture(), allAlive(c.Picture()), 20, 3)
	if err != nil {
		t.Fatal(err)
	}
	must[any](t, c, newTopic("t", placed...))
	for dead := 1; dead <= 4; dead++ {
		alive := allAlive(c.Picture())
		for n := 1; n <= dead; n++ {
			alive[record.NodeID(n)] = false
		}
		for _, cmd := range Plan(c.Picture(), alive, alive, nil) {
			at, _ := c.Picture().Group(cmd.(*SetReplicas).Group)
			was, now := nodesOf(at.Partition.Replicas), slices.Clone(cmd.(*SetReplicas).Nodes)
			slices.Sort(was)
			slices.Sort(now)
			if !slices.Equal(was, now) {
				t.Fatalf("%d nodes are away, and %v becomes %v", dead, was, now)
			}
		}
	}
}

// TestPlan_goneIsReplaced: what a node held that is gone is made anew on another, if there is one and
// the partition can decide on it.
func TestPlan_goneIsReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		nodes int
		away  nodes
		on    nodes
		want  nodes
	}{
		"there is another node":        {4, nodes{2}, nodes{1, 2, 3}, nodes{1, 3, 4}},
		"the preferred leader is gone": {4, nodes{1}, nodes{1, 2, 3}, nodes{2, 3, 4}},
		"there is none":                {3, nodes{2}, nodes{1, 2, 3}, nodes{1, 2, 3}},
		"without a majority":           {5, nodes{2, 3}, nodes{1, 2, 3}, nodes{1, 2, 3}},
		"two of five, one by one":      {7, nodes{2, 3}, nodes{1, 2, 3, 4, 5}, nodes{1, 4, 5, 6, 7}},
		"the only replica":             {3, nodes{2}, nodes{2}, nodes{2}},
	} {
		c, groups := cluster(t, tc.nodes), raftGroups{}
		topic := newTopic("t", tc.on)
		topic.Replication = int16(len(tc.on))
		must[any](t, c, topic)
		alive, gone := allAlive(c.Picture()), map[record.NodeID]bool{}
		for _, n := range tc.away {
			alive[n] = false
		}
		if cmds := Plan(c.Picture(), alive, alive, gone); len(cmds) != 0 {
			t.Errorf("%s: away is not gone, and the plan is %+v", name, cmds[0])
		}
		for _, n := range tc.away {
			gone[n] = true
		}
		for range 10 {
			for _, cmd := range Plan(c.Picture(), alive, alive, gone) {
				must[any](t, c, cmd)
			}
			groups.lead(t, c, alive)
		}
		got := nodesOf(c.Picture().Topic("t").Partitions[0].Replicas)
		slices.Sort(got)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: the replicas are on %v", name, got)
		}
	}
}

// TestPlan_leavingKeepsAMajority: a partition does not give up a live replica on a leaving node while
// most of the others are away, and a move that nobody could decide on is not begun.
func TestPlan_leavingKeepsAMajority(t *testing.T) {
	c := cluster(t, 4)
	must[any](t, c, newTopic("t", nodes{1, 2, 3}))
	must[any](t, c, &NodeLeft{ID: 1})
	must[any](t, c, &AlterTopic{Name: "t", Set: map[string]string{ReplicationKey: "2"}})
	alive := allAlive(c.Picture())
	alive[2] = false
	if cmds := Plan(c.Picture(), alive, alive, nil); len(cmds) != 0 {
		t.Errorf("one of the two others is away, and the plan is %+v", cmds[0])
	}
	if n := Movable(c.Picture(), 1, alive, alive); n != 0 {
		t.Errorf("%d replicas can be moved", n)
	}
	alive[2] = true
	if n := Movable(c.Picture(), 1, alive, alive); n != 1 {
		t.Errorf("%d replicas can be moved when all are there", n)
	}
}

func TestPlan_targetDiesOnTheWay(t *testing.T) {
	c, groups := cluster(t, 1), raftGroups{}
	must[any](t, c, newTopic("t", nodes{1}))
	must[any](t, c, &RegisterNode{info(2)})
	alive := allAlive(c.Picture())
	must[any](t, c, Plan(c.Picture(), alive, alive, nil)[0])
	alive[2] = false
	if cmds := Plan(c.Picture(), alive, alive, nil); len(cmds) != 0 {
		t.Fatalf("there is nobody else, and the plan is %+v", cmds[0])
	}
	must[any](t, c, &RegisterNode{info(3)})
	alive[3] = true
	must[any](t, c, Plan(c.Picture(), alive, alive, nil)[0])
	part := c.Picture().Topic("t").Partitions[0]
	if !slices.Equal(nodesOf(part.Replicas), nodes{1, 3}) || len(part.Removing) != 1 || part.Removing[0].Node() != 2 {
		t.Fatalf("%+v", part)
	}
	alive[2] = true
	settle(t, c, groups, alive)
	checkSettled(t, c)
}

// TestPlan_deadMovesDoNotBlock: partitions that wait for a dead node leave room for others.
func TestPlan_deadMovesDoNotBlock(t *testing.T) {
	c, groups := cluster(t, 1), raftGroups{}
	var all [][]record.NodeID
	for range 2 * MaxMovesInFlight {
		all = append(all, nodes{1})
	}
	must[any](t, c, newTopic("auto", all...))
	must[any](t, c, &RegisterNode{info(2)})
	alive := allAlive(c.Picture())
	first := Plan(c.Picture(), alive, alive, nil)
	if len(first) != MaxMovesInFlight {
		t.Fatalf("%d moves at a time", len(first))
	}
	for _, cmd := range first {
		must[any](t, c, cmd)
	}
	if cmds := Plan(c.Picture(), alive, alive, nil); len(cmds) != 0 {
		t.Fatalf("%d more moves", len(cmds))
	}
	alive[2] = false
	must[any](t, c, &RegisterNode{info(3)})
	alive[3] = true
	settle(t, c, groups, alive)
	for n, part := range c.Picture().Topic("auto").Partitions {
		if !slices.Equal(nodesOf(part.Replicas), nodes{1, 3}) && !slices.Equal(nodesOf(part.Replicas), nodes{3, 1}) {
			t.Errorf("partition %d is on %v", n, nodesOf(part.Replicas))
		}
	}
}

// TestPlan_waitsForTheOldReplica: a node that has still to delete a replica of a group is
// not given another one.
func TestPlan_waitsForTheOldReplica(t *testing.T) {
	c, groups := cluster(t, 2), raftGroups{}
	must[any](t, c, newTopic("t", nodes{1, 2}))
	old := c.Picture().Topic("t").Partitions[0].Replicas
	must[any](t, c, &SetReplicas{Group: 1, Nodes: nodes{1}})
	must[any](t, c, &ReplicasChanged{Group: 1, Removed: old[1:]})
	if cmds := Plan(c.Picture(), allAlive(c.Picture()), allAlive(c.Picture()), nil); len(cmds) != 0 {
		t.Fatalf("planned %+v", cmds[0])
	}
	must[any](t, c, &TombstoneDone{Node: 2, Done: c.Picture().Tombstones(2)})
	settle(t, c, groups, allAlive(c.Picture()))
	checkSettled(t, c)
}

func TestPlan_newReplication(t *testing.T) {
	c, groups := cluster(t, 5), raftGroups{}
	placed, err := Place(c.Picture(), allAlive(c.Picture()), 10, 2)
	if err != nil {
		t.Fatal(err)
	}
	must[any](t, c, newTopic("t", placed...))
	for _, rf := range []string{"5", "1", "4", "auto", "2"} {
		must[any](t, c, &AlterTopic{Name: "t", Set: map[string]string{ReplicationKey: rf}})
		settle(t, c, groups, allAlive(c.Picture()))
		checkSettled(t, c)
	}
}

// TestPlan_givesUpTheDead: when a replica has to go, it is one that is not alive.
func TestPlan_givesUpTheDead(t *testing.T) {
	for dead := record.NodeID(1); dead <= 3; dead++ {
		c := cluster(t, 3)
		must[any](t, c, newTopic("t", nodes{1, 2, 3}))
		must[any](t, c, &AlterTopic{Name: "t", Set: map[string]string{ReplicationKey: "2"}})
		alive := allAlive(c.Picture())
		alive[dead] = false
		cmd := Plan(c.Picture(), alive, alive, nil)[0].(*SetReplicas)
		if slices.Contains(cmd.Nodes, dead) || len(cmd.Nodes) != 2 {
			t.Errorf("node %d is dead and the plan is %v", dead, cmd.Nodes)
		}
	}
}

// TestPlan_random: after any troubles a plan comes to rest, and with all nodes alive it
// comes to rest where it should. Only a forced removal is left out, because it can leave
// a partition without its data for good.
func TestPlan_random(t *testing.T) {
	for seed := range uint64(40) {
		g := &generator{Rand: rand.New(rand.NewPCG(seed, 3))}
		c, groups := cluster(t, 2), raftGroups{}
		for i := range uint64(150) {
			p := c.Picture()
			alive := g.alive(p)
			var cmds []Command
			switch g.IntN(10) {
			case 0:
				cmds = []Command{&RegisterNode{info(g.node())}}
			case 1:
				cmds = []Command{&NodeLeft{ID: g.node(), Cancel: g.IntN(2) == 0}, &RemoveNode{ID: g.node()}}
			case 2:
				cmds = []Command{g.create(p)}
			case 3:
				cmds = []Command{g.alter(p)}
			case 4:
				if g.IntN(4) == 0 {
					cmds = []Command{&DeleteTopic{Name: g.topic()}}
				}
			default:
				cmds = Plan(p, alive, alive, nil)
			}
			for _, cmd := range cmds {
				data, err := Encode(cmd)
				if err != nil {
					t.Fatal(err)
				}
				c.Apply(i, data)
			}
			if g.IntN(2) == 0 {
				groups.lead(t, c, g.alive(c.Picture()))
			}
		}
		settle(t, c, groups, g.alive(c.Picture()))
		settle(t, c, groups, allAlive(c.Picture()))
		checkSettled(t, c)
	}
}
