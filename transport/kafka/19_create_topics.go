package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

// CreateTopics, key 19, versions 0 to 7. Any node takes it. It is answered when the topic can be used.
// -1 partitions or replicas are the node's defaults; clients count on that from v4 on.
//
//	v1: validate only
//	v5: flexible; the answer has the settings
//	v7: topic id
func init() { register(0, 7, (*call).createTopics) }

func (q *call) createTopics(req *kmsg.CreateTopicsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	ctx, cancel := q.context(req.TimeoutMillis)
	defer cancel()
	times := map[string]int{}
	for _, t := range req.Topics {
		times[t.Topic]++
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		n := times[t.Topic]
		if n == 0 {
			continue // answered at its first place
		}
		times[t.Topic] = 0
		made, err := Topic{}, fmt.Errorf("%w: the topic is named %d times", kerr.InvalidRequest, n)
		if n == 1 {
			made, err = q.createTopic(ctx, req, t)
		}
		resp.Topics = append(resp.Topics, q.createdTopic(t.Topic, made, err))
	}
	return resp
}

func (q *call) createTopic(ctx context.Context, req *kmsg.CreateTopicsRequest, t *kmsg.CreateTopicsRequestTopic) (Topic, error) {
	c := CreateTopic{Name: t.Topic, Partitions: t.NumPartitions, Replication: t.ReplicationFactor, ValidateOnly: req.ValidateOnly}
	if err := validTopicName(t.Topic); err != nil {
		return Topic{}, err
	}
	var err error
	if c.Configs, err = settingsOf(t.Configs); err != nil {
		return Topic{}, err
	}
	manual := len(t.ReplicaAssignment) > 0
	switch {
	case manual && (t.NumPartitions != -1 || t.ReplicationFactor != -1):
		return Topic{}, fmt.Errorf("%w: with an assignment the counts of partitions and replicas are -1", kerr.InvalidRequest)
	case t.NumPartitions < -1 || t.NumPartitions == 0:
		return Topic{}, fmt.Errorf("%w: %d partitions", kerr.InvalidPartitions, t.NumPartitions)
	case t.ReplicationFactor < -1 || t.ReplicationFactor == 0:
		return Topic{}, fmt.Errorf("%w: %d replicas", kerr.InvalidReplicationFactor, t.ReplicationFactor)
	case manual:
		if c.Assignments, err = assignmentOf(t.ReplicaAssignment); err != nil {
			return Topic{}, err
		}
		c.Partitions, c.Replication = int32(len(c.Assignments)), int16(len(c.Assignments[0]))
	}
	made, err := q.conn.s.cfg.Broker.CreateTopic(ctx, c)
	if errors.Is(err, record.ErrLimit) {
		err = fmt.Errorf("%w: %w", kerr.InvalidPartitions, err)
	}
	return made, forAdmin(err)
}

// settingsOf reads settings that are given by name.
func settingsOf(given []kmsg.CreateTopicsRequestTopicConfig) (map[string]string, error) {
	out := make(map[string]string, len(given))
	for _, c := range given {
		if c.Value == nil {
			return nil, fmt.Errorf("%w: %.80s is null", kerr.InvalidConfig, c.Name)
		}
		out[c.Name] = *c.Value
	}
	return out, nil
}

// assignmentOf reads which nodes hold each partition: all from 0 on, each with as many.
func assignmentOf(given []kmsg.CreateTopicsRequestTopicReplicaAssignment) ([][]record.NodeID, error) {
	out := make([][]record.NodeID, len(given))
	for _, a := range given {
		if a.Partition < 0 || int(a.Partition) >= len(given) || out[a.Partition] != nil {
			return nil, fmt.Errorf("%w: partition %d of %d is named twice or leaves a hole", kerr.InvalidReplicaAssignment, a.Partition, len(given))
		}
		if len(a.Replicas) == 0 || len(a.Replicas) != len(given[0].Replicas) {
			return nil, fmt.Errorf("%w: partition %d has %d replicas, others have %d", kerr.InvalidReplicaAssignment, a.Partition, len(a.Replicas), len(given[0].Replicas))
		}
		var err error
		if out[a.Partition], err = nodesOf(a.Replicas); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// nodesOf reads which nodes hold a partition.
func nodesOf(ids []int32) ([]record.NodeID, error) {
	nodes := make([]record.NodeID, 0, len(ids))
	for _, id := range ids {
		if slices.Contains(nodes, record.NodeID(id)) {
			return nil, fmt.Errorf("%w: node %d is named twice for one partition", kerr.InvalidReplicaAssignment, id)
		}
		nodes = append(nodes, record.NodeID(id))
	}
	return nodes, nil
}

func (q *call) createdTopic(name string, made Topic, err error) kmsg.CreateTopicsResponseTopic {
	out := kmsg.NewCreateTopicsResponseTopic()
	out.Topic, out.NumPartitions, out.ReplicationFactor = name, -1, -1
	out.ErrorCode, out.ErrorMessage = q.code(err), message(err)
	out.Configs = []kmsg.CreateTopicsResponseTopicConfig{} // null would mean that they may not be seen
	if err != nil {
		return out
	}
	out.TopicID, out.NumPartitions = made.ID, int32(len(made.Partitions))
	for _, p := range made.Partitions {
		out.ReplicationFactor = max(out.ReplicationFactor, int16(len(p.Replicas)))
	}
	if q.version < 5 {
		return out
	}
	for _, s := range made.Settings {
		out.Configs = append(out.Configs, kmsg.CreateTopicsResponseTopicConfig{Name: s.Name, Value: &s.Value, ReadOnly: s.ReadOnly, Source: int8(s.source(kmsg.ConfigSourceDynamicTopicConfig))})
	}
	return out
}

// forAdmin is for what any node takes for the whole cluster: while that cannot decide, time is over.
func forAdmin(err error) error {
	if err == nil {
		return nil
	}
	if e := kafkaError(err); e == kerr.NotLeaderForPartition || e == kerr.NotEnoughReplicas {
		return fmt.Errorf("%w: %w", kerr.RequestTimedOut, err)
	}
	return err
}
