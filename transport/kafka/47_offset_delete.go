package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

// OffsetDelete, key 47, version 0.
func init() { register(0, 0, (*call).offsetDelete, ofGroups) }

func (q *call) offsetDelete(req *kmsg.OffsetDeleteRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
	ctx, cancel := q.context(0)
	defer cancel()
	var partitions []record.TopicPartition
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			partitions = append(partitions, record.TopicPartition{Topic: t.Topic, Partition: p.Partition})
		}
	}
	errs, err := []error(nil), checkGroup(req.Group)
	if err == nil {
		errs, err = q.conn.s.cfg.Groups.DeleteOffsets(ctx, req.Group, partitions)
	}
	if resp.ErrorCode = q.code(q.forMember(err)); err != nil {
		return resp
	}
	i := 0
	for _, t := range req.Topics {
		out := kmsg.NewOffsetDeleteResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			out.Partitions = append(out.Partitions, kmsg.OffsetDeleteResponseTopicPartition{Partition: p.Partition, ErrorCode: q.code(q.forMember(errs[i]))})
			i++
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}
