package metadata

import (
	"math/rand/v2"
	"slices"
	"testing"

	"edged/record"
)

func TestDesiredVoters(t *testing.T) {
	for _, x := range []struct {
		name    string
		nodes   int
		leaving nodes
		removed nodes
		current nodes
		dead    nodes
		replace bool
		want    nodes
	}{
		{name: "alone", nodes: 1, current: nodes{1}, want: nodes{1}},
		{name: "two stay at one", nodes: 2, current: nodes{1}, want: nodes{1}},
		{name: "three", nodes: 3, current: nodes{1}, want: nodes{1, 2, 3}},
		{name: "the leader stays first", nodes: 3, current: nodes{3}, want: nodes{3, 1, 2}},
		{name: "three, one of them away", nodes: 3, current: nodes{1}, dead: nodes{2}, want: nodes{1}},
		{name: "six have three", nodes: 6, current: nodes{4, 5, 6}, want: nodes{4, 5, 6}},
		{name: "seven have five", nodes: 7, current: nodes{4, 5, 6}, want: nodes{4, 5, 6, 1, 2}},
		{name: "seven, few alive: stay odd", nodes: 7, current: nodes{1, 2, 3}, dead: nodes{4, 5, 6}, want: nodes{1, 2, 3}},
		{name: "a dead voter stays", nodes: 4, current: nodes{1, 2, 3}, dead: nodes{2}, want: nodes{1, 2, 3}},
		{name: "a dead voter is replaced", nodes: 4, current: nodes{1, 2, 3}, dead: nodes{2}, replace: true, want: nodes{1, 3, 4}},
		{name: "nobody to replace it", nodes: 4, current: nodes{1, 2, 3}, dead: nodes{2, 4}, replace: true, want: nodes{1, 2, 3}},
		{name: "one dead at a time", nodes: 7, current: nodes{1, 2, 3, 4, 5}, dead: nodes{2, 3}, replace: true, want: nodes{1, 3, 4, 5, 6}},
		{name: "first grow, then replace", nodes: 7, current: nodes{1, 2, 3}, dead: nodes{2}, replace: true, want: nodes{1, 2, 3, 4, 5}},
		{name: "first the leaving, then replace", nodes: 6, current: nodes{1, 2, 3}, leaving: nodes{3}, dead: nodes{2}, replace: true, want: nodes{1, 2, 4}},
		{name: "all dead: none taken away", nodes: 3, current: nodes{1, 2, 3}, dead: nodes{1, 2, 3}, want: nodes{1, 2, 3}},
		{name: "a leaving voter goes", nodes: 4, current: nodes{1, 2, 3}, leaving: nodes{2}, want: nodes{1, 3, 4}},
		{name: "a leaving leader goes", nodes: 4, current: nodes{1, 2, 3}, leaving: nodes{1}, want: nodes{2, 3, 4}},
		{name: "two are left", nodes: 3, current: nodes{1, 2, 3}, leaving: nodes{3}, want: nodes{1}},
		{name: "two are left, the first one is dead", nodes: 3, current: nodes{1, 2, 3}, leaving: nodes{3}, dead: nodes{1}, want: nodes{2}},
		{name: "two are left, and both are dead", nodes: 4, current: nodes{1, 2, 3}, leaving: nodes{3, 4}, dead: nodes{1, 2}, want: nodes{1, 2, 3}},
		{name: "a removed voter, and nobody new", nodes: 4, current: nodes{1, 2, 3}, removed: nodes{3}, dead: nodes{4}, want: nodes{1, 2, 3}},
		{name: "a removed voter is replaced", nodes: 4, current: nodes{1, 2, 3}, removed: nodes{3}, want: nodes{1, 2, 4}},
		{name: "from five to three", nodes: 7, current: nodes{1, 2, 3, 4, 5}, removed: nodes{5}, want: nodes{1, 2, 3}},
		{name: "from five to three, the alive ones", nodes: 7, current: nodes{1, 2, 3, 4, 5}, removed: nodes{5}, dead: nodes{2}, want: nodes{1, 3, 4}},
		{name: "an even number grows odd", nodes: 3, current: nodes{1, 2}, want: nodes{1, 2, 3}},
		{name: "an even number shrinks odd", nodes: 2, current: nodes{2, 1}, want: nodes{2}},
	} {
		c := cluster(t, x.nodes)
		for _, n := range x.leaving {
			must[any](t, c, &NodeLeft{ID: n})
		}
		for _, n := range x.removed {
			must[any](t, c, &RemoveNode{ID: n})
		}
		alive := allAlive(c.Picture())
		for _, n := range x.dead {
			alive[n] = false
		}
		was := slices.Clone(x.current)
		if got := DesiredVoters(c.Picture(), x.current, alive, x.replace); !slices.Equal(got, x.want) {
			t.Errorf("%s: got %v, want %v", x.name, got, x.want)
		}
		if !slices.Equal(was, x.current) {
			t.Errorf("%s: the list of voters was written to", x.name)
		}
	}
}

func TestDesiredVoters_zones(t *testing.T) {
	c := cluster(t, 6, "a", "a", "b", "b", "c", "c")
	got := DesiredVoters(c.Picture(), nodes{2}, allAlive(c.Picture()), false)
	if !slices.Equal(got, nodes{2, 3, 5}) {
		t.Fatalf("voters %v, one from each zone was wanted", got)
	}
}

// TestDesiredVoters_random: never even, never a dead or unknown new voter, never a smaller
// majority of live voters without an order, and it comes to rest.
func TestDesiredVoters_random(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		n := 1 + r.IntN(9)
		c := cluster(t, n)
		current := nodes{1}
		for range 12 {
			switch id := record.NodeID(1 + r.IntN(n)); r.IntN(6) {
			case 0:
				data, _ := Encode(&NodeLeft{ID: id, Cancel: r.IntN(2) == 0})
				c.Apply(1, data)
			case 1:
				data, _ := Encode(&RemoveNode{ID: id})
				c.Apply(1, data)
			}
			p, alive := c.Picture(), map[record.NodeID]bool{}
			for _, node := range p.NodesSorted() {
				alive[node.ID] = r.IntN(4) > 0
			}
			replace := r.IntN(3) == 0
			next := DesiredVoters(p, current, alive, replace)
			checkVoters(t, p, current, next, alive, replace)
			if again := DesiredVoters(p, next, alive, false); !slices.Equal(again, next) {
				t.Fatalf("voters %v, then %v, then %v", current, next, again)
			}
			current = next
		}
	}
}

func checkVoters(t *testing.T, p *Picture, current, next nodes, alive map[record.NodeID]bool, replace bool) {
	t.Helper()
	if len(next)%2 == 0 || len(next) > 5 {
		t.Fatalf("%d voters: %v after %v", len(next), next, current)
	}
	sorted := slices.Sorted(slices.Values(next))
	if len(slices.Compact(sorted)) != len(next) {
		t.Fatalf("a voter twice: %v", next)
	}
	for _, n := range next {
		if !slices.Contains(current, n) && (p.Node(n) == nil || p.Node(n).Leaving || !alive[n]) {
			t.Fatalf("new voter %d is dead, leaving or not there", n)
		}
	}
	taken := 0 // votes taken from nodes that are only away
	for _, n := range current {
		if node := p.Node(n); !slices.Contains(next, n) && node != nil && !node.Leaving && !alive[n] {
			taken++
		}
	}
	if allowed := 0; taken > allowed && len(next) >= len(current) && (!replace || taken > 1) {
		t.Fatalf("voters %v became %v though nodes were only away", current, next)
	}
}
