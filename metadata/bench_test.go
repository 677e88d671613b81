package metadata

import (
	"fmt"
	"testing"
	"time"

	"edged/record"
)

// large gives a cluster of n nodes with some topics.
func large(t testing.TB, n, topics int, partitions int32) *Cluster {
	c := cluster(t, n)
	for i := range topics {
		placed, err := Place(c.Picture(), allAlive(c.Picture()), partitions, AutoReplication)
		if err != nil {
			t.Fatal(err)
		}
		data, err := Encode(newTopic(fmt.Sprintf("topic-%d", i), placed...))
		if err != nil {
			t.Fatal(err)
		}
		if err, failed := c.Apply(1, data).(error); failed {
			t.Fatal(err)
		}
	}
	return c
}

func encoded(b testing.TB, cmd Command) []byte {
	data, err := Encode(cmd)
	if err != nil {
		b.Fatal(err)
	}
	return data
}

// again is node 1 at its n-th start.
func again(n int) *RegisterNode {
	node := info(1)
	node.BootCounter, node.Boot = uint64(n), record.BootID(n)
	return &RegisterNode{node}
}

// TestRegisterNode_isCheap: a change beside a topic of 1,000 partitions copies none of them.
func TestRegisterNode_isCheap(t *testing.T) {
	c := large(t, 3, 1, 1000)
	const runs = 1000
	var commands [][]byte
	for i := range runs {
		commands = append(commands, encoded(t, again(i+2)))
	}
	i := 0
	if n := testing.AllocsPerRun(runs-1, func() { c.Apply(1, commands[i]); i++ }); n > 40 {
		t.Errorf("%v allocations", n)
	}
	best := time.Hour
	for i := range 100 {
		data := encoded(t, again(runs+i+2))
		start := time.Now()
		if err, failed := c.Apply(1, data).(error); failed {
			t.Fatal(err)
		}
		best = min(best, time.Since(start))
	}
	if best > 50*time.Microsecond {
		t.Errorf("the fastest of 100 took %v", best)
	}
}

func BenchmarkRegisterNode(b *testing.B) {
	c := large(b, 3, 1, 1000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Apply(1, encoded(b, again(i+2)))
	}
}

func BenchmarkSetReplicas(b *testing.B) {
	c := large(b, 3, 1, 1000)
	orders := [][]byte{encoded(b, &SetReplicas{Group: 500, Nodes: nodes{1, 2, 3}}), encoded(b, &SetReplicas{Group: 500, Nodes: nodes{3, 2, 1}})}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Apply(1, orders[i%2])
	}
}

func BenchmarkCreateTopic1000(b *testing.B) {
	c := cluster(b, 3)
	placed, err := Place(c.Picture(), allAlive(c.Picture()), 1000, AutoReplication)
	if err != nil {
		b.Fatal(err)
	}
	data, start := encoded(b, newTopic("t", placed...)), c.Snapshot()
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		if err := c.Restore(start); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		c.Apply(1, data)
	}
}

func BenchmarkPlace1000(b *testing.B) {
	p := cluster(b, 5).Picture()
	alive := allAlive(p)
	for b.Loop() {
		_, _ = Place(p, alive, 1000, 3)
	}
}

func BenchmarkPlanAtRest4000(b *testing.B) {
	p := large(b, 5, 4, 1000).Picture()
	alive := allAlive(p)
	if cmds := Plan(p, alive, alive, nil); len(cmds) > 0 {
		b.Fatalf("not at rest: %+v", cmds[0])
	}
	for b.Loop() {
		Plan(p, alive, alive, nil)
	}
}

func BenchmarkGroup(b *testing.B) {
	p := large(b, 3, 100, 10).Picture()
	for i := 0; b.Loop(); i++ {
		p.Group(record.GroupID(1 + i%1000))
	}
}

func BenchmarkReplicasOn1000(b *testing.B) {
	p := large(b, 3, 1, 1000).Picture()
	for b.Loop() {
		p.ReplicasOn(2)
	}
}

func BenchmarkSnapshot1000(b *testing.B) {
	c := large(b, 3, 1, 1000)
	b.SetBytes(int64(len(c.Snapshot())))
	for b.Loop() {
		c.Snapshot()
	}
}

func BenchmarkRestore1000(b *testing.B) {
	c := large(b, 3, 1, 1000)
	data := c.Snapshot()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if err := c.Restore(data); err != nil {
			b.Fatal(err)
		}
	}
}
