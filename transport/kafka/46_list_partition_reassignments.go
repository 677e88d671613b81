package kafka

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListPartitionReassignments, key 46, version 0: replicas that are on their way in or out.
func init() { register(0, 0, (*call).listPartitionReassignments) }

func (q *call) listPartitionReassignments(req *kmsg.ListPartitionReassignmentsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
	ctx, cancel := q.context(req.TimeoutMillis)
	defer cancel()
	for _, t := range q.conn.s.cfg.Broker.Topics(ctx) {
		i := slices.IndexFunc(req.Topics, func(rt kmsg.ListPartitionReassignmentsRequestTopic) bool { return rt.Topic == t.Name })
		if req.Topics != nil && i < 0 {
			continue
		}
		out := kmsg.NewListPartitionReassignmentsResponseTopic()
		out.Topic = t.Name
		for number, p := range t.Partitions {
			if len(p.Adding)+len(p.Removing) == 0 || i >= 0 && !slices.Contains(req.Topics[i].Partitions, int32(number)) {
				continue
			}
			out.Partitions = append(out.Partitions, kmsg.ListPartitionReassignmentsResponseTopicPartition{
				Partition: int32(number), Replicas: nodeIDs(slices.Concat(p.Replicas, p.Removing)),
				AddingReplicas: nodeIDs(p.Adding), RemovingReplicas: nodeIDs(p.Removing),
			})
		}
		if len(out.Partitions) > 0 {
			resp.Topics = append(resp.Topics, out)
		}
	}
	return resp
}
