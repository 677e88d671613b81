package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

// DeleteRecords, key 21, versions 0 to 2. The partition's leader takes it. Offset -1 is the high watermark.
//
//	v2: flexible
func init() { register(0, 2, (*call).deleteRecords) }

func (q *call) deleteRecords(req *kmsg.DeleteRecordsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	ctx, cancel := q.context(req.TimeoutMillis)
	defer cancel()
	for _, t := range req.Topics {
		out := kmsg.NewDeleteRecordsResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			start, err := q.conn.s.cfg.Broker.DeleteRecords(ctx, t.Topic, p.Partition, record.Offset(p.Offset))
			if err != nil {
				start = -1
			}
			out.Partitions = append(out.Partitions, kmsg.DeleteRecordsResponseTopicPartition{Partition: p.Partition, LowWatermark: int64(start), ErrorCode: q.code(err)})
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}
