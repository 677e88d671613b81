package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

// CreatePartitions, key 37, versions 0 to 3. Any node takes it. Every topic of the request is answered.
//
//	v2: flexible
func init() { register(0, 3, (*call).createPartitions) }

func (q *call) createPartitions(req *kmsg.CreatePartitionsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
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
		err := fmt.Errorf("%w: the topic is named %d times", kerr.InvalidRequest, n)
		if n == 1 {
			err = q.addPartitions(ctx, req, t)
		}
		out := kmsg.NewCreatePartitionsResponseTopic()
		out.Topic, out.ErrorCode, out.ErrorMessage = t.Topic, q.code(err), message(err)
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (q *call) addPartitions(ctx context.Context, req *kmsg.CreatePartitionsRequest, t *kmsg.CreatePartitionsRequestTopic) error {
	found, err := q.conn.s.cfg.Broker.Topic(t.Topic)
	if err != nil {
		return forAdmin(err)
	}
	add := AddPartitions{Topic: t.Topic, Count: t.Count, ValidateOnly: req.ValidateOnly}
	more := t.Count - int32(len(found.Partitions))
	if more <= 0 {
		return fmt.Errorf("%w: the topic has %d partitions already, it cannot get %d", kerr.InvalidPartitions, len(found.Partitions), t.Count)
	}
	if t.Assignment != nil && int64(len(t.Assignment)) != int64(more) {
		return fmt.Errorf("%w: nodes for %d partitions are given, %d are added", kerr.InvalidReplicaAssignment, len(t.Assignment), more)
	}
	for i, a := range t.Assignment {
		if len(a.Replicas) == 0 {
			return fmt.Errorf("%w: new partition %d has no replicas", kerr.InvalidReplicaAssignment, i)
		}
		nodes, err := nodesOf(a.Replicas)
		if err != nil {
			return err
		}
		add.Assignments = append(add.Assignments, nodes)
	}
	err = q.conn.s.cfg.Broker.AddPartitions(ctx, add)
	if errors.Is(err, record.ErrLimit) {
		err = fmt.Errorf("%w: %w", kerr.InvalidPartitions, err)
	}
	return forAdmin(err)
}
