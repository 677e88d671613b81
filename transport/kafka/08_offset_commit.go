package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

// OffsetCommit, key 8, versions 2 to 9.
//
// The retention time of v2 to v4 is not looked at.
//
//	v6: leader epoch
//	v7: static members
//	v8: flexible
func init() { register(2, 9, (*call).offsetCommit, ofGroups) }

func (q *call) offsetCommit(req *kmsg.OffsetCommitRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	ctx, cancel := q.context(0)
	defer cancel()
	commit := CommitOffsetsRequest{MemberIdentity: MemberIdentity{
		Group: req.Group, Member: req.MemberID, Instance: deref(req.InstanceID), Generation: req.Generation,
	}}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			epoch := record.NoEpoch
			if q.version >= 6 {
				epoch = record.Epoch(max(p.LeaderEpoch, int32(record.NoEpoch)))
			}
			commit.Offsets = append(commit.Offsets, CommittedOffset{
				TopicPartition: record.TopicPartition{Topic: t.Topic, Partition: p.Partition},
				Offset:         record.Offset(p.Offset), Epoch: epoch, Metadata: deref(p.Metadata),
			})
		}
	}
	errs, err := q.conn.s.cfg.Groups.CommitOffsets(ctx, commit)
	if err == nil && len(errs) != len(commit.Offsets) {
		err = fmt.Errorf("%w: %d answers for %d offsets", kerr.UnknownServerError, len(errs), len(commit.Offsets))
	}
	i := 0
	for _, t := range req.Topics {
		out := kmsg.NewOffsetCommitResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			op := kmsg.NewOffsetCommitResponseTopicPartition()
			each := err
			if each == nil {
				each = errs[i]
			}
			op.Partition, op.ErrorCode = p.Partition, q.code(q.forMember(each))
			out.Partitions = append(out.Partitions, op)
			i++
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}
