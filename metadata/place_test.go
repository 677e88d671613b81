package metadata

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"edged/record"
)

// spread is the difference between the most and the least that nodes have.
func spread(loads map[record.NodeID]Load, nodes []*Node, what func(Load) int) int {
	var counts []int
	for _, n := range nodes {
		counts = append(counts, what(loads[n.ID]))
	}
	return slices.Max(counts) - slices.Min(counts)
}

func replicas(l Load) int { return l.Replicas }
func leaders(l Load) int  { return l.Leaders }

// checkPlaced asserts what always holds for a placement.
func checkPlaced(t *testing.T, p *Picture, placed [][]record.NodeID, partitions, rf int) {
	t.Helper()
	if len(placed) != partitions {
		t.Fatalf("%d placements for %d partitions", len(placed), partitions)
	}
	for i, on := range placed {
		if len(on) != rf {
			t.Fatalf("partition %d is on %v, wanted are %d replicas", i, on, rf)
		}
		if err := p.checkTargets(on, nil); err != nil {
			t.Fatalf("partition %d on %v: %v", i, on, err)
		}
	}
}

// TestPlace_even: on an empty cluster replicas and leaders differ by one at most between
// nodes, whatever the numbers, and still do after more topics.
func TestPlace_even(t *testing.T) {
	for n := 1; n <= 9; n++ {
		for rf := 1; rf <= min(n, MaxReplication); rf++ {
			for partitions := int32(1); partitions <= 40; partitions++ {
				c := cluster(t, n)
				for topic := range 3 {
					p := c.Picture()
					placed, err := Place(p, allAlive(p), partitions, int16(rf))
					if err != nil {
						t.Fatal(err)
					}
					checkPlaced(t, p, placed, int(partitions), rf)
					must[any](t, c, newTopic(fmt.Sprint("t", topic), placed...))
				}
				p := c.Picture()
				loads := p.Loads()
				if r, l := spread(loads, p.NodesSorted(), replicas), spread(loads, p.NodesSorted(), leaders); r > 1 || l > 1 {
					t.Errorf("%d nodes, 3x%d partitions of %d: replicas differ by %d, leaders by %d", n, partitions, rf, r, l)
				}
			}
		}
	}
}

// TestPlace_fillsUp: new partitions go where least is, until nodes are even.
func TestPlace_fillsUp(t *testing.T) {
	c := cluster(t, 2)
	place := func(name string, partitions int32, rf int16) {
		placed, err := Place(c.Picture(), allAlive(c.Picture()), partitions, rf)
		if err != nil {
			t.Fatal(err)
		}
		must[any](t, c, newTopic(name, placed...))
	}
	place("old", 30, 1)
	must[any](t, c, &RegisterNode{info(3)})
	place("new", 30, 1)
	p := c.Picture()
	if l := p.Loads(); spread(l, p.NodesSorted(), replicas) > 1 || spread(l, p.NodesSorted(), leaders) > 1 {
		t.Fatalf("loads are %v", l)
	}
}

// TestPlace_zones: replicas of a partition share a zone only if there are fewer zones
// than replicas, and load stays even where zones are of equal size.
func TestPlace_zones(t *testing.T) {
	for _, x := range []struct {
		nodes, rf int
		even      bool // zones are of equal size
		zones     []string
	}{
		{4, 2, true, []string{"a", "b"}},
		{6, 3, true, []string{"a", "b", "c"}},
		{6, 2, true, []string{"a", "b", "c"}},
		{9, 3, true, []string{"a", "b", "c"}},
		{5, 3, false, []string{"a", "a", "a", "b", "c"}},
		{6, 3, true, []string{"a", "b"}},
		{4, 3, false, []string{"a", "a", "", ""}},
		{5, 2, true, []string{"a"}},
	} {
		c := cluster(t, x.nodes, x.zones...)
		p := c.Picture()
		placed, err := Place(p, allAlive(p), 60, int16(x.rf))
		if err != nil {
			t.Fatal(err)
		}
		checkPlaced(t, p, placed, 60, x.rf)
		distinct := map[string]bool{}
		for i := range x.nodes {
			z := x.zones[i%len(x.zones)]
			if z == "" {
				z = fmt.Sprint("own", i)
			}
			distinct[z] = true
		}
		for i, on := range placed {
			used := map[string]int{}
			for _, n := range on {
				z := p.Node(n).Zone
				if z == "" {
					z = fmt.Sprint("own", n)
				}
				used[z]++
			}
			if len(used) < min(x.rf, len(distinct)) {
				t.Errorf("%+v: partition %d on %v uses %d zones", x, i, on, len(used))
			}
		}
		must[any](t, c, newTopic("t", placed...))
		p = c.Picture()
		r, l := spread(p.Loads(), p.NodesSorted(), replicas), spread(p.Loads(), p.NodesSorted(), leaders)
		if x.even && (r > 1 || l > 1) {
			t.Errorf("%+v: replicas differ by %d, leaders by %d", x, r, l)
		}
	}
}

// TestPlace_pairs: the leaders that a lost node leaves behind have their replicas on all
// other nodes about equally.
func TestPlace_pairs(t *testing.T) {
	for _, x := range []struct{ n, rf int }{{4, 2}, {5, 3}, {6, 2}, {6, 3}, {8, 2}, {9, 3}} {
		c := cluster(t, x.n)
		placed, err := Place(c.Picture(), allAlive(c.Picture()), 100, int16(x.rf))
		if err != nil {
			t.Fatal(err)
		}
		shared := map[[2]record.NodeID]int{}
		for _, on := range placed {
			for i := range on {
				for j := range i {
					shared[pairKey(on[i], on[j])]++
				}
			}
		}
		equal := 100 * x.rf * (x.rf - 1) / (x.n * (x.n - 1)) // if all pairs were
		for a := record.NodeID(1); int(a) <= x.n; a++ {
			for b := record.NodeID(1); b < a; b++ {
				if n := shared[pairKey(a, b)]; n < equal/2 || n > 2*equal {
					t.Errorf("%+v: nodes %d and %d share %d of 100 partitions, %d is the mean", x, a, b, n, equal)
				}
			}
		}
	}
}

func TestPlace_failures(t *testing.T) {
	c := cluster(t, 3)
	must[any](t, c, &NodeLeft{ID: 3})
	p := c.Picture()
	alive := allAlive(p)
	for _, x := range []struct {
		partitions int32
		rf         int16
		want       error
	}{
		{1, 3, record.ErrNoNodes}, // node 3 is leaving
		{0, 1, record.ErrInvalidRequest},
		{-1, 1, record.ErrInvalidRequest},
		{MaxPartitionsPerTopic + 1, 1, record.ErrInvalidRequest},
		{1, MaxReplication + 1, record.ErrInvalidRequest},
		{1, -1, record.ErrInvalidRequest},
	} {
		if _, err := Place(p, alive, x.partitions, x.rf); !errors.Is(err, x.want) {
			t.Errorf("%d partitions of %d: %v", x.partitions, x.rf, err)
		}
	}
	if placed, err := Place(p, alive, 1, AutoReplication); err != nil || len(placed[0]) != 2 {
		t.Errorf("auto on two usable nodes: %v, %v", placed, err)
	}
	if placed, err := Place(p, map[record.NodeID]bool{2: true}, 1, AutoReplication); err != nil || !slices.Equal(placed[0], nodes{2}) {
		t.Errorf("auto with one node alive: %v, %v", placed, err)
	}
	if _, err := Place(p, nil, 1, AutoReplication); !errors.Is(err, record.ErrNoNodes) {
		t.Errorf("nobody alive: %v", err)
	}
	for range 2 {
		placed, err := Place(c.Picture(), alive, MaxReplicasPerNode/2, 1)
		if MaxReplicasPerNode/2 > MaxPartitionsPerTopic || err != nil {
			t.Fatal(err)
		}
		must[any](t, c, newTopic(fmt.Sprint("full", c.Picture().PartitionCount()), placed...))
		placed, err = Place(c.Picture(), alive, MaxReplicasPerNode/2, 1)
		if err != nil {
			t.Fatal(err)
		}
		must[any](t, c, newTopic(fmt.Sprint("full", c.Picture().PartitionCount()), placed...))
	}
	if _, err := Place(c.Picture(), alive, 1, 1); !errors.Is(err, record.ErrLimit) {
		t.Errorf("full nodes: %v", err)
	}
	refused(t, c, newTopic("more", nodes{1}), record.ErrLimit)
}

// TestPlace_random: what always holds, and that the answer depends on nothing else.
func TestPlace_random(t *testing.T) {
	g := &generator{Rand: rand.New(rand.NewPCG(7, 7))}
	c := New()
	for i := range uint64(2000) {
		data, err := Encode(g.command(c.Picture()))
		if err != nil {
			t.Fatal(err)
		}
		c.Apply(i, data)
		p := c.Picture()
		alive, partitions, rf := g.alive(p), 1+g.Int32N(20), int16(g.IntN(5))
		placed, err := Place(p, alive, partitions, rf)
		if err != nil {
			continue
		}
		again, _ := Place(p, alive, partitions, rf)
		if fmt.Sprint(placed) != fmt.Sprint(again) {
			t.Fatal("two answers to one question")
		}
		checkPlaced(t, p, placed, int(partitions), len(placed[0]))
		for _, on := range placed {
			if slices.ContainsFunc(on, func(n record.NodeID) bool { return !alive[n] }) {
				t.Fatalf("placed on a dead node: %v", on)
			}
		}
	}
}
