package node

import (
	"context"

	"edged/record"
	"edged/transport/kafka"
	"edged/transport/wire"
)

// CreateTopic makes a topic.
func (b kafkaBroker) CreateTopic(ctx context.Context, req kafka.CreateTopic) (kafka.Topic, error) {
	a, err := broker{b.n}.CreateTopic(ctx, wire.CreateTopicRequest{Name: req.Name, Partitions: req.Partitions, Replication: req.Replication, Configs: req.Configs})
	if err != nil {
		return kafka.Topic{}, err
	}
	return b.Topic(a.Name)
}
func (b kafkaBroker) DeleteTopic(ctx context.Context, name string) error               { return nil }
func (b kafkaBroker) AddPartitions(ctx context.Context, req kafka.AddPartitions) error { return nil }
func (b kafkaBroker) TopicConfigs(name string) ([]kafka.Setting, error)                { return nil, nil }
func (b kafkaBroker) NodeConfigs(node record.NodeID) ([]kafka.Setting, error)          { return nil, nil }
func (b kafkaBroker) AlterTopic(ctx context.Context, req kafka.AlterTopic) error       { return nil }
func (b kafkaBroker) DeleteRecords(ctx context.Context, topic string, partition int32, before record.Offset) (logStart record.Offset, err error) {
	return 0, nil
}
func (b kafkaBroker) TransferLeader(ctx context.Context, topic string, partition int32) error {
	return nil
}
func (b kafkaBroker) LogDir() (kafka.LogDir, error) { return kafka.LogDir{}, nil }
