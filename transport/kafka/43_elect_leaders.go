package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

// ElectLeaders, key 43, versions 0 to 2: leadership goes to the first replica. Any node takes it.
// An election that could lose records is not held.
//
//	v1: type of the election
//	v2: flexible
func init() { register(0, 2, (*call).electLeaders) }

const (
	preferredElection = 0
	uncleanElection   = 1
)

func (q *call) electLeaders(req *kmsg.ElectLeadersRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	ctx, cancel := q.context(req.TimeoutMillis)
	defer cancel()
	b := q.conn.s.cfg.Broker
	if req.ElectionType != preferredElection && req.ElectionType != uncleanElection {
		resp.ErrorCode = q.code(kerr.InvalidRequest)
		return resp
	}
	all := req.Topics == nil
	asked := req.Topics
	if all {
		for _, t := range b.Topics(ctx) {
			rt := kmsg.ElectLeadersRequestTopic{Topic: t.Name}
			for i := range t.Partitions {
				rt.Partitions = append(rt.Partitions, int32(i))
			}
			asked = append(asked, rt)
		}
	}
	for _, t := range asked {
		out := kmsg.NewElectLeadersResponseTopic()
		out.Topic = t.Topic
		for _, number := range t.Partitions {
			err := q.elect(ctx, req.ElectionType, t.Topic, number)
			if all && kafkaError(err) == kerr.ElectionNotNeeded {
				continue // who asks for all wants to hear of those that were moved
			}
			out.Partitions = append(out.Partitions, kmsg.ElectLeadersResponseTopicPartition{Partition: number, ErrorCode: q.code(err), ErrorMessage: message(err)})
		}
		if len(out.Partitions) > 0 {
			resp.Topics = append(resp.Topics, out)
		}
	}
	return resp
}

func (q *call) elect(ctx context.Context, kind int8, topic string, number int32) error {
	b := q.conn.s.cfg.Broker
	t, err := b.Topic(topic)
	if err != nil {
		return forAdmin(err)
	}
	if number < 0 || int(number) >= len(t.Partitions) {
		return record.ErrUnknownPartition
	}
	p := t.Partitions[number]
	switch {
	case kind != preferredElection && p.Leader != record.NoNode, kind == preferredElection && p.Leader == p.Replicas[0]:
		return kerr.ElectionNotNeeded
	case kind != preferredElection:
		return fmt.Errorf("%w: a majority of the replicas is needed", kerr.EligibleLeadersNotAvailable)
	}
	for _, n := range p.Offline {
		if n == p.Replicas[0] {
			return kerr.PreferredLeaderNotAvailable
		}
	}
	if err := b.TransferLeader(ctx, topic, number, p.Replicas[0]); err != nil {
		return fmt.Errorf("%w: %w", kerr.PreferredLeaderNotAvailable, err)
	}
	return nil
}
