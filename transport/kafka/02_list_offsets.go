package kafka

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

// ListOffsets, key 2, versions 1 to 8.
//
// A time that no record has is answered with offset -1 and no error. A new leader that has not
// committed in its epoch does not know the end yet: OFFSET_NOT_AVAILABLE, LEADER_NOT_AVAILABLE before v5.
//
//	v2: isolation level: what is committed is stable here
//	v4: leader epoch
//	v6: flexible
//	v7: -3, the record with the largest timestamp
//	v8: -4, the earliest local offset: there is no other storage, so it is the earliest
func init() { register(1, 8, (*call).listOffsets) }

func (q *call) listOffsets(req *kmsg.ListOffsetsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	ctx, cancel := q.context(0)
	defer cancel()
	seen := map[record.TopicPartition]int{}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			seen[record.TopicPartition{Topic: t.Topic, Partition: p.Partition}]++
		}
	}
	for _, t := range req.Topics {
		out := kmsg.NewListOffsetsResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			op := kmsg.NewListOffsetsResponseTopicPartition()
			op.Partition, op.Timestamp, op.Offset, op.LeaderEpoch = p.Partition, -1, -1, -1
			var at OffsetResult
			err := q.checkPosition(p.Timestamp, seen[record.TopicPartition{Topic: t.Topic, Partition: p.Partition}])
			if err == nil {
				at, err = q.conn.s.cfg.Broker.Offset(ctx, OffsetRequest{
					Topic: t.Topic, Partition: p.Partition, Epoch: record.Epoch(p.CurrentLeaderEpoch), At: p.Timestamp,
				})
			}
			if err == nil {
				op.Offset, op.Timestamp, op.LeaderEpoch = int64(at.Offset), at.Timestamp, int32(at.Epoch)
			} else if errors.Is(err, record.ErrOffsetUnavailable) && q.version < 5 {
				err = kerr.LeaderNotAvailable
			}
			op.ErrorCode = q.code(err)
			out.Partitions = append(out.Partitions, op)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// checkPosition refuses positions that this version does not have, and partitions named twice.
func (q *call) checkPosition(at int64, times int) error {
	switch {
	case times > 1:
		return kerr.InvalidRequest
	case at >= AtStart, at == AtMaxTimestamp && q.version >= 7, at == AtEarliestLocal && q.version >= 8:
		return nil
	}
	return kerr.UnsupportedVersion
}
