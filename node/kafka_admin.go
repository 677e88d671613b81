package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"edged/metadata"
	"edged/partition"
	"edged/record"
	"edged/transport/kafka"
	"edged/transport/wire"
)

// CreateTopic makes a topic.
func (b kafkaBroker) CreateTopic(ctx context.Context, req kafka.CreateTopic) (kafka.Topic, error) {
	n := b.n
	if err := n.notReady(); err != nil {
		return kafka.Topic{}, err
	}
	if err := ownTopic(req.Name); err != nil {
		return kafka.Topic{}, err
	}
	if err := ownTopic(req.Name); err != nil {
		return kafka.Topic{}, err
	}
	if n.machine.Picture().Topic(req.Name) != nil {
		return kafka.Topic{}, fmt.Errorf("topic %s: %w", req.Name, record.ErrTopicExists)
	}
	configs, err := metadata.ParseConfigs(req.Configs)
	if err != nil {
		return kafka.Topic{}, err
	}
	cmd := &metadata.CreateTopic{
		Name: req.Name, ID: record.NewTopicID(), Partitions: req.Partitions, Replication: max(req.Replication, metadata.AutoReplication),
		Configs: req.Configs, Created: n.opts.Wall().UnixMilli(), Assignments: req.Assignments,
	}
	if req.Partitions < 0 {
		cmd.Partitions = int32(n.defaultPartitions())
	}
	if cmd.Partitions > metadata.MaxPartitionsPerTopic {
		return kafka.Topic{}, fmt.Errorf("%d partitions, a topic can have %d: %w", cmd.Partitions, metadata.MaxPartitionsPerTopic, record.ErrLimit)
	}
	if cmd.Assignments == nil {
		rf := cmd.Replication
		if rf == metadata.AutoReplication {
			rf = configs.Replication
		}
		if rf > metadata.MaxReplication {
			return kafka.Topic{}, fmt.Errorf("%d replicas, the most is %d: %w", rf, metadata.MaxReplication, record.ErrNoNodes)
		}
		n.awaitNodes(ctx, int(rf))
		if cmd.Assignments, err = metadata.Place(n.machine.Picture(), n.up(), cmd.Partitions, rf); err != nil {
			return kafka.Topic{}, err
		}
	}
	if req.ValidateOnly {
		return plannedTopic(cmd, configs), nil
	}
	t, err := n.makeTopic(ctx, cmd)
	if err != nil {
		return kafka.Topic{}, err
	}
	return n.describedTopic(t), nil
}

// plannedTopic is what a topic would be.
func plannedTopic(cmd *metadata.CreateTopic, configs metadata.Configs) kafka.Topic {
	out := kafka.Topic{Name: cmd.Name, Partitions: make([]kafka.Partition, len(cmd.Assignments)), Settings: topicSettings(cmd.Configs, configs)}
	for i, nodes := range cmd.Assignments {
		out.Partitions[i] = kafka.Partition{Leader: record.NoNode, Epoch: record.NoEpoch, Replicas: nodes}
	}
	return out
}

// DescribeTopic finds a topic with its settings.
func (b kafkaBroker) DescribeTopic(name string) (kafka.Topic, error) {
	if err := b.n.notReady(); err != nil {
		return kafka.Topic{}, err
	}
	t := b.n.machine.Picture().Topic(name)
	if t == nil {
		return kafka.Topic{}, b.n.unknownTopic(name)
	}
	return b.n.describedTopic(t), nil
}

func (n *Node) describedTopic(t *metadata.Topic) kafka.Topic {
	out := n.kafkaTopic(t, n.up())
	out.Settings = topicSettings(t.Settings, t.Configs)
	return out
}

// DeleteTopic removes a topic.
func (b kafkaBroker) DeleteTopic(ctx context.Context, name string) error {
	return broker(b).DeleteTopic(ctx, wire.DeleteTopicRequest{Name: name})
}

// AddPartitions makes a topic longer. It answers when the new partitions have leaders.
func (b kafkaBroker) AddPartitions(ctx context.Context, req kafka.AddPartitions) error {
	n := b.n
	p := n.machine.Picture()
	t := p.Topic(req.Topic)
	if t == nil {
		return n.unknownTopic(req.Topic)
	}
	if req.Count > metadata.MaxPartitionsPerTopic {
		return fmt.Errorf("%d partitions, a topic can have %d: %w", req.Count, metadata.MaxPartitionsPerTopic, record.ErrLimit)
	}
	cmd := &metadata.AlterTopic{Name: t.Name, ID: t.ID, Partitions: req.Count, Assignments: req.Assignments}
	if cmd.Assignments == nil {
		var err error
		if cmd.Assignments, err = metadata.Place(p, n.up(), req.Count-int32(len(t.Partitions)), t.Configs.Replication); err != nil {
			return err
		}
	}
	if req.ValidateOnly {
		return nil
	}
	if _, err := n.propose(ctx, cmd); err != nil {
		return err
	}
	err := n.awaitPicture(ctx, func(p *metadata.Picture) bool {
		now := p.TopicByID(t.ID)
		return now == nil || int32(len(now.Partitions)) >= req.Count
	})
	n.awaitLeaders(ctx, t.ID)
	return err
}

// AlterTopic changes settings. It answers when this node's own metadata shows them.
func (b kafkaBroker) AlterTopic(ctx context.Context, req kafka.AlterTopic) error {
	n := b.n
	t := n.machine.Picture().Topic(req.Topic)
	if t == nil {
		return n.unknownTopic(req.Topic)
	}
	if _, err := metadata.ParseConfigs(req.Set); err != nil || req.ValidateOnly {
		return err
	}
	// A name to unset that does not exist is unset already.
	_, err := n.propose(ctx, &metadata.AlterTopic{Name: t.Name, ID: t.ID, Set: req.Set, Unset: req.Unset})
	if err != nil {
		return err
	}
	return n.awaitPicture(ctx, func(p *metadata.Picture) bool {
		now := p.TopicByID(t.ID)
		if now == nil {
			return true
		}
		for k, v := range req.Set {
			if now.Settings[k] != v {
				return false
			}
		}
		for _, k := range req.Unset {
			if _, set := now.Settings[k]; set {
				return false
			}
		}
		return true
	})
}

// deleteRetry is the pause before a log start is proposed again that the log had moved away from.
const deleteRetry = 10 * time.Millisecond

// DeleteRecords moves the beginning of a partition up to an offset.
func (b kafkaBroker) DeleteRecords(ctx context.Context, topic string, number int32, before record.Offset) (record.Offset, error) {
	n := b.n
	at, part, err := n.lead(topic, number, record.NoEpoch)
	if err != nil {
		return -1, err
	}
	epoch := part.View().Epoch
	if at.Topic.Configs.Cleanup == metadata.CleanupCompact {
		return -1, fmt.Errorf("the topic is compacted, its records are not deleted by offset: %w", record.ErrRefused)
	}
	if err := n.awaitServing(ctx, part, epoch); err != nil {
		return -1, err
	}
	if before == -1 {
		before = part.HighWatermark()
	}
	if before < 0 || before > part.HighWatermark() {
		return -1, fmt.Errorf("offset %d, the partition has %d to %d: %w", before, part.LogStart(), part.HighWatermark(), record.ErrOffsetOutOfRange)
	}
	for part.LogStart() < before {
		err := n.tryLogStart(ctx, part, before)
		if err != nil && !errors.Is(err, record.ErrOffsetOutOfRange) && !errors.Is(err, record.ErrBusy) && !errors.Is(err, record.ErrInvalidRequest) {
			return -1, n.redirect(err, at.Partition.Group, part)
		}
		select {
		case <-part.Changed():
		case <-time.After(deleteRetry):
		case <-ctx.Done():
			return -1, record.ErrTimeout
		}
	}
	return part.LogStart(), nil
}

func (n *Node) tryLogStart(ctx context.Context, part *partition.Partition, to record.Offset) error {
	base, err := n.store.BaseAt(part.Group, to)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	n.host.Load().MoveLogStart(&partition.LogStartRequest{
		Group: part.Group, Index: base.Index + 1, Base: base.NextOffset, Offset: to, Force: true,
		Done: func(err error) { done <- err },
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return record.ErrTimeout
	}
}

// TransferLeader hands a partition's leadership to a node.
func (b kafkaBroker) TransferLeader(ctx context.Context, topic string, number int32, to record.NodeID) error {
	a, err := broker(b).TransferLeader(ctx, wire.TransferLeaderRequest{Topic: topic, Partition: number, To: to})
	if err == nil && a.Leader != to {
		err = fmt.Errorf("node %d leads now: %w", a.Leader, record.ErrInterrupted)
	}
	return err
}

// LogDir is this node's disk.
func (b kafkaBroker) LogDir() (kafka.LogDir, error) {
	n := b.n
	d := kafka.LogDir{Path: n.cfg.DataDir, Total: -1, Free: -1}
	if free, total, err := n.store.FreeSpace(); err == nil {
		d.Free, d.Total = free, total
	}
	if f := n.failure(); f != nil {
		return d, fmt.Errorf("%w: %v", record.ErrStorage, f)
	}
	for _, held := range n.machine.Picture().ReplicasOn(n.ident.Get().Node) {
		d.Replicas = append(d.Replicas, kafka.ReplicaSize{
			TopicPartition: record.TopicPartition{Topic: held.Topic.Name, Partition: held.Number}, Bytes: n.store.Size(held.Partition.Group),
		})
	}
	return d, nil
}
