package kafka

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeLogDirs, key 35, versions 0 to 4: what this node holds. It has one directory.
//
//	v2: flexible
//	v4: size of the disk
func init() { register(0, 4, (*call).describeLogDirs) }

func (q *call) describeLogDirs(req *kmsg.DescribeLogDirsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	dir, err := q.conn.s.cfg.Broker.LogDir()
	out := kmsg.NewDescribeLogDirsResponseDir()
	out.ErrorCode, out.Dir, out.TotalBytes, out.UsableBytes = q.code(err), dir.Path, dir.Total, dir.Free
	place := map[string]int{}
	for _, r := range dir.Replicas {
		if req.Topics != nil && !slices.ContainsFunc(req.Topics, func(t kmsg.DescribeLogDirsRequestTopic) bool {
			return t.Topic == r.Topic && slices.Contains(t.Partitions, r.Partition)
		}) {
			continue
		}
		at, ok := place[r.Topic]
		if !ok {
			at = len(out.Topics)
			place[r.Topic] = at
			out.Topics = append(out.Topics, kmsg.DescribeLogDirsResponseDirTopic{Topic: r.Topic})
		}
		out.Topics[at].Partitions = append(out.Topics[at].Partitions, kmsg.DescribeLogDirsResponseDirTopicPartition{Partition: r.Partition, Size: r.Bytes})
	}
	resp.Dirs = []kmsg.DescribeLogDirsResponseDir{out}
	return resp
}
