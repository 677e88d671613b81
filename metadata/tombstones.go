package metadata

import (
	"cmp"
	"fmt"
	"slices"

	"edged/record"
)

// TombstoneDone is what a node reports when the data of these replicas is gone from its
// disk for good. Naming one again does no harm. The result is nil.
type TombstoneDone struct {
	Node record.NodeID
	Done []Tombstone
}

func (*TombstoneDone) kind() kind { return kindTombstoneDone }

func (c *TombstoneDone) fields(x *codec) {
	x.node("node id", &c.Node)
	list(x, "tombstones", &c.Done, MaxChanged, x.tombstone)
}

func (x *codec) tombstone(t *Tombstone) {
	x.group("group", &t.Group)
	x.replica("replica id", &t.Replica)
}

func (c *TombstoneDone) apply(p *Picture) (*Picture, any, error) {
	i, ok := findTombs(p.tombs, c.Node)
	if !ok {
		return p, nil, nil
	}
	done := make(map[Tombstone]bool, len(c.Done))
	for _, t := range c.Done {
		done[t] = true
	}
	old := p.tombs[i].list
	left := slices.DeleteFunc(slices.Clone(old), func(t Tombstone) bool { return done[t] })
	if len(left) == len(old) {
		return p, nil, nil
	}
	next := *p
	next.tombstones -= len(old) - len(left)
	if len(left) == 0 {
		next.tombs = removed(p.tombs, i)
	} else {
		next.tombs = replaced(p.tombs, i, nodeTombs{c.Node, slices.Clip(left)})
	}
	return &next, nil, nil
}

// withTombstones gives a picture with these replicas to be deleted. Those of removed
// nodes are left out, because nobody will come to delete them.
func (p *Picture) withTombstones(dead []Tombstone) (*Picture, error) {
	byNode := map[record.NodeID][]Tombstone{}
	for _, t := range dead {
		if n := t.Replica.Node(); p.Node(n) != nil {
			byNode[n] = append(byNode[n], t)
		}
	}
	next := *p
	next.tombs = slices.Clone(p.tombs)
	for node, list := range byNode {
		next.tombstones += len(list)
		i, ok := findTombs(next.tombs, node)
		if ok {
			list = slices.Concat(next.tombs[i].list, list)
		}
		slices.SortFunc(list, func(a, b Tombstone) int { return cmp.Compare(a.Group, b.Group) })
		if ok {
			next.tombs[i].list = list
		} else {
			next.tombs = slices.Insert(next.tombs, i, nodeTombs{node, list})
		}
	}
	if next.tombstones > MaxTombstones && len(byNode) > 0 {
		worst := slices.MaxFunc(next.tombs, func(a, b nodeTombs) int { return cmp.Compare(len(a.list), len(b.list)) })
		return nil, fmt.Errorf("nodes have yet to delete %d replicas, more than %d; node %d has the most: start it, or remove it if it is lost: %w",
			next.tombstones, MaxTombstones, worst.node, record.ErrLimit)
	}
	return &next, nil
}
