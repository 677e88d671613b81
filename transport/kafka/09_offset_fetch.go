package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

// OffsetFetch, key 9, versions 1 to 9.
//
// Every partition that was asked for is answered, with offset -1 if nothing was committed, also
// for a group that does not exist. An error stands in every partition up to v1, because an
// empty answer would mean that there are no offsets; from v2 on it stands at the top.
//
//	v2: null topics are all that the group has
//	v5: leader epoch
//	v6: flexible
//	v7: require stable: all that is committed is stable
//	v8: many groups
//	v9: member epoch of another group protocol, not looked at
func init() { register(1, 9, (*call).offsetFetch, ofGroups) }

func (q *call) offsetFetch(req *kmsg.OffsetFetchRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	ctx, cancel := q.context(0)
	defer cancel()
	if q.version >= 8 {
		for _, g := range req.Groups {
			resp.Groups = append(resp.Groups, q.fetchGroup(ctx, g))
		}
		return resp
	}
	// One group is answered as the only one of many, in the older fields.
	one := kmsg.NewOffsetFetchRequestGroup()
	one.Group = req.Group
	if req.Topics != nil {
		one.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for _, t := range req.Topics {
		one.Topics = append(one.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: t.Topic, Partitions: t.Partitions})
	}
	a := q.fetchGroup(ctx, one)
	resp.ErrorCode = a.ErrorCode
	if a.ErrorCode != 0 && q.version < 2 {
		a.Topics = everyPartition(one, a.ErrorCode)
	}
	for _, t := range a.Topics {
		out := kmsg.NewOffsetFetchResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			out.Partitions = append(out.Partitions, kmsg.OffsetFetchResponseTopicPartition{
				Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, ErrorCode: p.ErrorCode,
			})
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func everyPartition(g kmsg.OffsetFetchRequestGroup, code int16) (topics []kmsg.OffsetFetchResponseGroupTopic) {
	for _, t := range g.Topics {
		out := kmsg.NewOffsetFetchResponseGroupTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			out.Partitions = append(out.Partitions, kmsg.OffsetFetchResponseGroupTopicPartition{
				Partition: p, Offset: int64(NoCommit), LeaderEpoch: int32(record.NoEpoch), Metadata: new(string), ErrorCode: code,
			})
		}
		topics = append(topics, out)
	}
	return topics
}

func (q *call) fetchGroup(ctx context.Context, g kmsg.OffsetFetchRequestGroup) kmsg.OffsetFetchResponseGroup {
	out := kmsg.NewOffsetFetchResponseGroup()
	out.Group = g.Group
	var asked []record.TopicPartition
	if g.Topics != nil {
		asked = []record.TopicPartition{}
	}
	for _, t := range g.Topics {
		for _, p := range t.Partitions {
			asked = append(asked, record.TopicPartition{Topic: t.Topic, Partition: p})
		}
	}
	offsets, err := q.conn.s.cfg.Groups.FetchOffsets(ctx, g.Group, asked)
	if out.ErrorCode = q.code(q.forMember(err)); err != nil {
		return out
	}
	place := map[string]int{}
	for i := range offsets {
		o := &offsets[i]
		at, ok := place[o.Topic]
		if !ok {
			at = len(out.Topics)
			place[o.Topic] = at
			out.Topics = append(out.Topics, kmsg.OffsetFetchResponseGroupTopic{Topic: o.Topic})
		}
		t := &out.Topics[at]
		t.Partitions = append(t.Partitions, kmsg.OffsetFetchResponseGroupTopicPartition{
			Partition: o.Partition, Offset: int64(o.Offset), LeaderEpoch: int32(o.Epoch), Metadata: &o.Metadata,
		})
	}
	return out
}
