package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

// OffsetForLeaderEpoch, key 23, versions 0 to 4.
//
// Clients ask it after a change of leader whether what they have read is still there. What is
// committed is never truncated, so the answer never says that it is not.
//
//	v2: leader epoch of the client
//	v3: replica id
//	v4: flexible
func init() { register(0, 4, (*call).offsetForLeaderEpoch) }

func (q *call) offsetForLeaderEpoch(req *kmsg.OffsetForLeaderEpochRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for _, t := range req.Topics {
		out := kmsg.NewOffsetForLeaderEpochResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			op := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			current := record.NoEpoch
			if q.version >= 2 {
				current = record.Epoch(p.CurrentLeaderEpoch)
			}
			epoch, end, err := q.conn.s.cfg.Broker.EpochEnd(t.Topic, p.Partition, current, record.Epoch(p.LeaderEpoch))
			if err != nil {
				epoch, end = record.NoEpoch, -1
			}
			op.Partition, op.ErrorCode, op.LeaderEpoch, op.EndOffset = p.Partition, q.code(err), int32(epoch), int64(end)
			out.Partitions = append(out.Partitions, op)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}
