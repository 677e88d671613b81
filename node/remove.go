package node

import (
	"context"
	"fmt"
	"slices"
	"time"

	"edged/metadata"
	"edged/record"
	"edged/transport/wire"
)

// Of the time that a request to remove a node has, answerEarly is kept for the answer; it looks every
// lookEvery. What nobody can take for settleTime is taken to have nowhere to go.
const (
	answerEarly = 500 * time.Millisecond
	lookEvery   = 50 * time.Millisecond
	settleTime  = 2 * time.Second
)

// RemoveNode empties a node and takes it out of the cluster for good, in steps that may be repeated:
// the node is marked as leaving, the autopilot gives what it holds to others, and then it is removed.
// One that is away is removed with what no other node can take: that is made anew when there is one.
func (b broker) RemoveNode(ctx context.Context, req wire.RemoveNodeRequest) (wire.RemoveNodeResponse, error) {
	n := b.n
	if err := n.notReady(); err != nil {
		return wire.RemoveNodeResponse{}, err
	}
	p := n.machine.Picture()
	switch {
	case p.Banned(req.Node):
		return wire.RemoveNodeResponse{Removed: true}, nil
	case p.Node(req.Node) == nil:
		return wire.RemoveNodeResponse{}, fmt.Errorf("node %d: %w", req.Node, record.ErrUnknownNode)
	case req.Cancel:
		_, err := n.propose(ctx, &metadata.NodeLeft{ID: req.Node, Cancel: true})
		return wire.RemoveNodeResponse{}, err
	}
	if err := n.mayRemove(p, req); err != nil {
		return wire.RemoveNodeResponse{}, err
	}
	if _, err := n.propose(ctx, &metadata.NodeLeft{ID: req.Node}); err != nil {
		return wire.RemoveNodeResponse{}, err
	}
	left, err := n.emptied(ctx, req)
	if err != nil || left.Moving > 0 {
		return left, err
	}
	if _, err := n.propose(ctx, &metadata.RemoveNode{ID: req.Node, Force: left.Missing > 0}); err != nil {
		return left, err
	}
	left.Removed = true
	return left, n.awaitPicture(ctx, func(p *metadata.Picture) bool { return p.Banned(req.Node) })
}

// mayRemove says why a node is not removed without force.
func (n *Node) mayRemove(p *metadata.Picture, req wire.RemoveNodeRequest) error {
	switch lost, first := n.needing(p, req.Node); {
	case req.Force:
		return nil
	case n.up()[req.Node]:
		return refused("node %d is alive; stop it first, or use --force: it is then removed when the others have what it holds", req.Node)
	case lost > 0:
		return refused("without node %d there is no majority of %s, such as %s; start it again. With --force they cannot be read or written any more, whatever the other replicas hold, until their topics are deleted and made anew: only if its card is gone for good", req.Node, countText(lost, "partition"), first)
	}
	return nil
}

// refused is record.ErrRefused with a text that says all.
func refused(format string, args ...any) error {
	return &record.Error{Code: record.ErrRefused.Code, Message: fmt.Sprintf(format, args...)}
}

// needing counts the partitions that could decide nothing without a node.
func (n *Node) needing(p *metadata.Picture, id record.NodeID) (count int, first string) {
	up := n.up()
	for _, held := range p.ReplicasOn(id) {
		voters := n.describePartition(held.Number, held.Partition).Voters
		others := 0
		for _, v := range voters {
			if v != id && up[v] {
				others++
			}
		}
		if slices.Contains(voters, id) && others <= len(voters)/2 {
			if count++; first == "" {
				first = fmt.Sprintf("%s/%d", held.Topic.Name, held.Number)
			}
		}
	}
	return count, first
}

// emptied waits until a leaving node holds nothing more that others can take, or ctx is about to end.
// Of a node that is alive everything has to go, its vote on the metadata as well.
func (n *Node) emptied(ctx context.Context, req wire.RemoveNodeRequest) (left wire.RemoveNodeResponse, err error) {
	end := time.Now().Add(time.Minute)
	if deadline, ok := ctx.Deadline(); ok {
		end = deadline.Add(-answerEarly)
	}
	moved := time.Now()
	for {
		p, up := n.machine.Picture(), n.up()
		alive := up[req.Node]
		held := int32(len(p.ReplicasOn(req.Node)))
		left.Moving = int32(metadata.Movable(p, req.Node, n.forgiven(p, up), up))
		left.Missing = held - left.Moving
		if left.Moving > 0 {
			moved = time.Now()
		}
		stuck := left.Moving == 0 && time.Since(moved) > settleTime
		switch {
		case held == 0 && !(alive && n.votesOnMetadata(req.Node)):
			return left, nil
		case stuck && held > 0 && alive:
			return left, refused("node %d is leaving and not removed: others have taken what they could, and what no other node can take is left (%s); it moves when a node joins or its topics' replication is lowered, run this again then; or stop the node and run it again; --cancel takes the leaving back", req.Node, countText(held, "replica"))
		case stuck && held > 0:
			return left, nil
		case time.Now().After(end):
			left.Moving = max(left.Moving, 1) // it is under way, be it only the vote
			return left, nil
		}
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return left, record.ErrTimeout
		case <-n.ctx.Done():
			return left, record.ErrShuttingDown
		}
	}
}

func (n *Node) votesOnMetadata(id record.NodeID) bool {
	v := n.host.Load().Partition(record.MetadataGroup).View()
	return slices.Contains(v.Voters, metadata.MetadataReplica(id))
}

// removedError tells whoever started a node that it was taken out of its cluster.
func (n *Node) removedError() error {
	return &ConfigError{Faults: []string{fmt.Sprintf("node %d was removed from its cluster for good; move %s away to join as a new node", n.ident.Get().Node, n.cfg.DataDir)}}
}

// wasRemoved ends a node that is not of its cluster any more: going on it would answer from a past
// that the others do not share.
func (n *Node) wasRemoved() {
	n.fail(n.removedError())
	n.cancel()
}
