package node

import (
	"context"
	"errors"
	"time"

	"edged/metadata"
	"edged/partition"
	"edged/record"
	"edged/transport/peer"
)

// proposeRetry is the pause before a proposal is tried again while the metadata has no leader.
const proposeRetry = 50 * time.Millisecond

// hopeless is how long a proposal waits for a leader that cannot be elected by those that are connected.
const hopeless = time.Second

// propose changes the metadata: here if this node leads it, else through the leader. It tries
// until ctx ends; all commands may be repeated. The result is what the command's Apply returned, or a
// proposeAnswer that the leader sent.
func (n *Node) propose(ctx context.Context, cmd metadata.Command) (any, error) {
	data, err := metadata.Encode(cmd)
	if err != nil {
		return nil, err
	}
	return n.proposeBytes(ctx, data, true)
}

func (n *Node) proposeBytes(ctx context.Context, data []byte, forward bool) (any, error) {
	var last error = record.ErrNotReady
	began := time.Now()
	for {
		if h := n.host.Load(); h != nil {
			v := h.Partition(record.MetadataGroup).View()
			var result any
			switch {
			case v.Role == partition.RoleLeader:
				result, last = proposeHere(ctx, h, data)
			case v.Leader != record.NoNode && forward:
				result, last = n.proposeThere(ctx, v.Leader, data)
			case v.Leader != record.NoNode:
				return nil, &record.NotLeaderError{Leader: v.Leader, Epoch: v.Epoch}
			default:
				last = n.noLeader(record.MetadataGroup)
				if time.Since(began) > hopeless && !n.mayElect(record.MetadataGroup) {
					return nil, last
				}
			}
			if last == nil || !mayRetry(last) {
				return result, last
			}
		}
		select {
		case <-time.After(proposeRetry):
		case <-ctx.Done():
			return nil, errors.Join(last, ctx.Err())
		case <-n.ctx.Done():
			return nil, record.ErrShuttingDown
		}
	}
}

// mayRetry tells whether a failed proposal is worth another try.
func mayRetry(err error) bool {
	return record.Retriable(err) || errors.Is(err, peer.ErrNotConnected) || errors.Is(err, peer.ErrConnectionLost)
}

func proposeHere(ctx context.Context, h *partition.Host, data []byte) (any, error) {
	type outcome struct {
		result any
		err    error
	}
	c := make(chan outcome, 1)
	h.Propose(record.MetadataGroup, data, func(result any, err error) { c <- outcome{result, err} })
	select {
	case o := <-c:
		return o.result, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (n *Node) proposeThere(ctx context.Context, leader record.NodeID, data []byte) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	b, err := n.peers.Call(ctx, leader, append([]byte{opPropose}, data...))
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = record.ErrTimeout
		}
		return nil, err
	}
	var a proposeAnswer
	return a, decodeBody(b, &a)
}

// proposeFor proposes what another node could not. It does not pass it on: who leads may have
// changed, and the asker will see that too.
func (n *Node) proposeFor(ctx context.Context, _ peer.Identity, data []byte) (proposeAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	result, err := n.proposeBytes(ctx, data, false)
	a := proposeAnswer{Index: n.machine.applied.Load()}
	if b, ok := result.(metadata.ProducerIDBlock); ok {
		a.First, a.Count = b.First, b.Count
	}
	return a, err
}

// awaitPicture waits until this node's own copy of the metadata shows something.
func (n *Node) awaitPicture(ctx context.Context, ok func(*metadata.Picture) bool) error {
	for !ok(n.machine.Picture()) {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return record.ErrTimeout
		case <-n.ctx.Done():
			return record.ErrShuttingDown
		}
	}
	return nil
}

// producerIDs is a block of producer ids that the metadata gave to this node.
type producerIDs struct {
	lock chan struct{} // full while somebody takes from the block; a channel so that waiters can give up
	next int64
	left int32
}

// producerBlock is how many producer ids are fetched at a time.
const producerBlock = 1000

// producerID gives an identity that no producer had before.
func (n *Node) producerID(ctx context.Context) (int64, error) {
	p := &n.producers
	select {
	case p.lock <- struct{}{}:
		defer func() { <-p.lock }()
	case <-ctx.Done():
		return 0, record.ErrTimeout
	}
	if p.left == 0 {
		result, err := n.propose(ctx, &metadata.AllocProducerIDs{Node: n.ident.Get().Node, Count: producerBlock})
		if err != nil {
			return 0, err
		}
		switch r := result.(type) {
		case metadata.ProducerIDBlock:
			p.next, p.left = r.First, r.Count
		case proposeAnswer:
			p.next, p.left = r.First, r.Count
		}
		if p.left <= 0 {
			return 0, record.ErrInternal
		}
	}
	id := p.next
	p.next++
	p.left--
	return id, nil
}
