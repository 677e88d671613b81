package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"edged/metadata"
	"edged/record"
	"edged/transport/peer"
	"edged/transport/wire"
)

// gatherPatience is how long a new topic waits for nodes that are known to be on their way in.
const gatherPatience = 3 * time.Second

// CreateTopic makes a topic, from any node. It answers when this node's own copy of the metadata
// shows the topic and every partition has a leader, or the request's time is over.
func (b broker) CreateTopic(ctx context.Context, req wire.CreateTopicRequest) (wire.CreateTopicResponse, error) {
	n := b.n
	if err := n.notReady(); err != nil {
		return wire.CreateTopicResponse{}, err
	}
	cmd := &metadata.CreateTopic{
		Name: req.Name, ID: record.NewTopicID(), Partitions: max(req.Partitions, 1), Replication: req.Replication,
		Configs: req.Configs, Created: n.opts.Wall().UnixMilli(),
	}
	if req.Partitions < 0 {
		return wire.CreateTopicResponse{}, fmt.Errorf("%d partitions: %w", req.Partitions, record.ErrInvalidRequest)
	}
	if err := errors.Join(metadata.ValidTopicName(req.Name), ownTopic(req.Name)); err != nil {
		return wire.CreateTopicResponse{}, err
	}
	configs, err := metadata.ParseConfigs(req.Configs)
	if err != nil {
		return wire.CreateTopicResponse{}, err
	}
	rf := req.Replication
	if rf == metadata.AutoReplication {
		rf = configs.Replication
	}
	n.awaitNodes(ctx, int(rf))
	if cmd.Assignments, err = metadata.Place(n.machine.Picture(), n.up(), cmd.Partitions, rf); err != nil {
		return wire.CreateTopicResponse{}, err
	}
	t, err := n.makeTopic(ctx, cmd)
	if err != nil {
		return wire.CreateTopicResponse{}, err
	}
	return wire.CreateTopicResponse{Name: t.Name, ID: t.ID.String(), Partitions: int32(len(t.Partitions)), Replication: int16(len(t.Partitions[0].Replicas))}, nil
}

// makeTopic proposes a topic and waits until it can be used.
func (n *Node) makeTopic(ctx context.Context, cmd *metadata.CreateTopic) (*metadata.Topic, error) {
	if _, err := n.propose(ctx, cmd); err != nil {
		return nil, err
	}
	err := n.awaitPicture(ctx, func(p *metadata.Picture) bool { return p.TopicByID(cmd.ID) != nil })
	if err != nil {
		return nil, err
	}
	n.awaitLeaders(ctx, cmd.ID)
	t := n.machine.Picture().TopicByID(cmd.ID)
	if t == nil {
		return nil, fmt.Errorf("topic %q was deleted meanwhile: %w", cmd.Name, record.ErrUnknownTopic)
	}
	return t, nil
}

// awaitNodes waits a moment for nodes that gossip knows and the registry does not: they are
// just being let in, and a topic should be spread over them.
func (n *Node) awaitNodes(ctx context.Context, rf int) {
	ctx, cancel := context.WithTimeout(ctx, gatherPatience)
	defer cancel()
	want := rf
	if want == metadata.AutoReplication {
		want = metadata.AutoReplicas(1 << 10)
	}
	for {
		coming := 0
		for _, m := range n.gossip.Members() {
			if m.Alive {
				coming++
			}
		}
		ready := 0
		up := n.up()
		for _, node := range n.machine.Picture().NodesSorted() {
			if up[node.ID] {
				ready++
			}
		}
		if ready >= want || ready >= max(coming, n.cfg.BootstrapExpect) || !n.mayElect(record.MetadataGroup) {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}

// awaitLeaders waits until every partition of a topic has a leader, so that whoever made the topic can
// use it at once. Not reaching it is no failure of the creation.
func (n *Node) awaitLeaders(ctx context.Context, id record.TopicID) {
	ctx, cancel := context.WithTimeout(ctx, gatherPatience)
	defer cancel()
	_ = n.awaitPicture(ctx, func(p *metadata.Picture) bool {
		t := p.TopicByID(id)
		if t == nil {
			return true
		}
		for _, part := range t.Partitions {
			if leader, _ := n.leaderOf(part.Group, n.host.Load().Lookup(part.Group)); leader == record.NoNode {
				return false
			}
		}
		return true
	})
}

// DeleteTopic removes a topic. Its data goes as soon as each node hears of it.
func (b broker) DeleteTopic(ctx context.Context, req wire.DeleteTopicRequest) error {
	if err := b.n.notReady(); err != nil {
		return err
	}
	t := b.n.machine.Picture().Topic(req.Name)
	if t == nil {
		return b.n.unknownTopic(req.Name)
	}
	if _, err := b.n.propose(ctx, &metadata.DeleteTopic{Name: t.Name, ID: t.ID}); err != nil && !errors.Is(err, record.ErrUnknownTopic) {
		return err
	}
	return b.n.awaitPicture(ctx, func(p *metadata.Picture) bool { return p.TopicByID(t.ID) == nil })
}

// AlterTopic changes settings or adds partitions.
func (b broker) AlterTopic(ctx context.Context, req wire.AlterTopicRequest) error {
	n := b.n
	if err := n.notReady(); err != nil {
		return err
	}
	p := n.machine.Picture()
	t := p.Topic(req.Name)
	if t == nil {
		return n.unknownTopic(req.Name)
	}
	cmd := &metadata.AlterTopic{Name: t.Name, ID: t.ID, Set: req.Set, Unset: req.Unset, Partitions: req.Partitions}
	if add := req.Partitions - int32(len(t.Partitions)); req.Partitions > 0 && add > 0 {
		var err error
		if cmd.Assignments, err = metadata.Place(p, n.up(), add, t.Configs.Replication); err != nil {
			return err
		}
	}
	if _, err := n.propose(ctx, cmd); err != nil {
		return err
	}
	return n.awaitPicture(ctx, func(now *metadata.Picture) bool {
		return now.TopicByID(t.ID) != t || now == p && cmd.Assignments == nil
	})
}

// TransferLeader moves the leadership of a partition: its leader is asked, wherever it is.
func (b broker) TransferLeader(ctx context.Context, req wire.TransferLeaderRequest) (wire.TransferLeaderResponse, error) {
	n := b.n
	at, part, err := n.locate(req.Topic, req.Partition)
	if err != nil {
		return wire.TransferLeaderResponse{}, err
	}
	if req.To != record.NoNode && n.machine.Picture().Node(req.To) == nil {
		return wire.TransferLeaderResponse{}, fmt.Errorf("node %d: %w", req.To, record.ErrUnknownNode)
	}
	leader, _ := n.leaderOf(at.Partition.Group, part)
	call := transferCall{Topic: req.Topic, Partition: req.Partition, To: req.To}
	var a transferAnswer
	switch leader {
	case record.NoNode:
		return wire.TransferLeaderResponse{}, n.noLeader(at.Partition.Group)
	case n.ident.Get().Node:
		a, err = n.transferHere(ctx, call)
	default:
		err = n.call(ctx, leader, opTransfer, call, &a)
	}
	return wire.TransferLeaderResponse{Leader: a.Leader, Epoch: a.Epoch}, err
}

func (n *Node) transferFor(ctx context.Context, _ peer.Identity, body []byte) (transferAnswer, error) {
	var call transferCall
	if err := decodeBody(body, &call); err != nil {
		return transferAnswer{}, err
	}
	return n.transferHere(ctx, call)
}

// transferHere hands over a partition that this node leads and waits until somebody else leads.
func (n *Node) transferHere(ctx context.Context, call transferCall) (transferAnswer, error) {
	at, part, err := n.locate(call.Topic, call.Partition)
	if err != nil {
		return transferAnswer{}, err
	}
	if part == nil {
		return transferAnswer{}, n.noLeader(at.Partition.Group)
	}
	began := part.View().Epoch
	started := make(chan error, 1)
	n.host.Load().Transfer(at.Partition.Group, call.To, func(err error) { started <- err })
	if err := <-started; err != nil {
		return transferAnswer{}, n.redirect(err, at.Partition.Group, part)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for {
		changed := part.Changed()
		if v := part.View(); v.Leader != record.NoNode && (v.Epoch > began || call.To == v.Leader) {
			return transferAnswer{Leader: v.Leader, Epoch: v.Epoch}, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return transferAnswer{}, fmt.Errorf("the target did not take over: %w", record.ErrTimeout)
		}
	}
}

// LeaderHistory is what this node remembers of leader changes, newest first.
func (b broker) LeaderHistory(_ context.Context, req wire.LeaderHistoryRequest) ([]wire.LeaderChange, error) {
	p := b.n.machine.Picture()
	if req.Topic != "" && p.Topic(req.Topic) == nil {
		return nil, b.n.unknownTopic(req.Topic)
	}
	if req.Topic != "" && int(req.Partition) >= len(p.Topic(req.Topic).Partitions) {
		return nil, fmt.Errorf("%s/%d: %w", req.Topic, req.Partition, record.ErrUnknownPartition)
	}
	limit := int(req.Limit)
	if limit <= 0 {
		limit = historyLength
	}
	changes := withoutEchoes(b.n.history.newest(historyLength, func(g record.GroupID) bool {
		at, ok := p.Group(g)
		return ok && (req.Topic == "" || at.Topic.Name == req.Topic) && (req.Partition < 0 || at.Number == req.Partition)
	}))
	out := make([]wire.LeaderChange, 0, len(changes))
	for _, c := range changes[:min(limit, len(changes))] {
		at, _ := p.Group(c.Group)
		out = append(out, wire.LeaderChange{
			Topic: at.Topic.Name, Partition: at.Number, Epoch: c.Epoch, Leader: c.Leader, At: c.at, Reason: c.Reason,
		})
	}
	return out, nil
}
