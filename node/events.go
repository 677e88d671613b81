package node

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"edged/partition"
	"edged/record"
	"edged/transport/peer"
	"edged/transport/wire"
)

// Events gives what a node noted; see wire.Broker.
func (b broker) Events(ctx context.Context, req wire.EventsRequest) ([]wire.NodeEvent, error) {
	n := b.n
	if req.Node == record.NoNode || req.Node == n.ident.Get().Node {
		return n.awaitEvents(ctx, req), nil
	}
	if n.machine.Picture().Node(req.Node) == nil {
		return nil, fmt.Errorf("node %d: %w", req.Node, record.ErrUnknownNode)
	}
	var out []wire.NodeEvent
	return out, n.call(ctx, req.Node, opEvents, req, &out)
}

// maxEventWait bounds the wait for another node's events: a call between nodes takes a minute at most.
const maxEventWait = 30 * time.Second

func (n *Node) awaitEvents(ctx context.Context, req wire.EventsRequest) []wire.NodeEvent {
	wait := time.NewTimer(min(time.Duration(max(req.WaitMs, 0))*time.Millisecond, maxEventWait))
	defer wait.Stop()
	for over := false; ; {
		found, more := n.notes.after(req.After)
		if len(found) > 0 || over {
			found = found[:min(len(found), wire.MaxEvents)]
			out := make([]wire.NodeEvent, len(found))
			for i, e := range found {
				out[i] = wire.NodeEvent{Seq: e.Seq, At: e.Time, Kind: e.Kind, Text: e.Text, Count: e.Count}
			}
			return out
		}
		select {
		case <-more:
		case <-wait.C:
			over = true
		case <-ctx.Done():
			over = true
		case <-n.ctx.Done():
			over = true
		}
	}
}

func (n *Node) eventsFor(ctx context.Context, _ peer.Identity, body []byte) ([]wire.NodeEvent, error) {
	var req wire.EventsRequest
	if err := decodeBody(body, &req); err != nil {
		return nil, err
	}
	return n.awaitEvents(ctx, req), nil
}

// leadership counts what came and went since it was last told: one event for a node that dies, not one
// for each of its partitions.
type leadership struct {
	taken, lost, others atomic.Int64
	mine                map[record.GroupID]struct{} // led here; the Core's
}

func (l *leadership) count(c partition.LeaderChange, self record.NodeID) {
	_, mine := l.mine[c.Group]
	switch {
	case c.Leader == self && !mine:
		if l.mine == nil {
			l.mine = map[record.GroupID]struct{}{}
		}
		l.mine[c.Group] = struct{}{}
		l.taken.Add(1)
	case c.Leader != self && mine:
		delete(l.mine, c.Group)
		l.lost.Add(1)
	case c.Leader != self && c.Leader != record.NoNode:
		l.others.Add(1)
	}
}

// noteLeadership makes an event of the changes since the last one.
func (n *Node) noteLeadership() {
	l := &n.leadership
	if taken, lost, others := l.taken.Swap(0), l.lost.Swap(0), l.others.Swap(0); taken+lost+others > 0 {
		n.notes.add(eventLeader, fmt.Sprintf("leaders changed: this node took %s and gave up %d; %d have another leader elsewhere", countText(taken, "partition"), lost, others))
	}
}

// countText is a number of things: 1 partition, 2 partitions.
func countText[N ~int | ~int32 | ~int64](n N, thing string) string {
	switch {
	case n == 1:
		return "1 " + thing
	case strings.HasSuffix(thing, "ch"):
		thing += "e"
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// nodeText is a node for people.
func (n *Node) nodeText(id record.NodeID) string {
	if node := n.machine.Picture().Node(id); node != nil && node.Name != "" {
		return fmt.Sprintf("node %d (%s)", id, node.Name)
	}
	return fmt.Sprintf("node %d", id)
}
