package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeGroups, key 15, versions 0 to 5. A group that does not exist is in state Dead.
//
//	v3: authorized operations: all
//	v4: static members
//	v5: flexible
func init() { register(0, 5, (*call).describeGroups, ofGroups) }

func (q *call) describeGroups(req *kmsg.DescribeGroupsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
	ctx, cancel := q.context(0)
	defer cancel()
	for _, group := range once(req.Groups) {
		out := kmsg.NewDescribeGroupsResponseGroup()
		d, err := q.conn.s.cfg.Groups.DescribeGroup(ctx, group)
		out.Group, out.ErrorCode, out.AuthorizedOperations = group, q.code(q.forMember(err)), operations(req.IncludeAuthorizedOperations && err == nil, groupOperations)
		out.State, out.ProtocolType, out.Protocol = d.State, d.ProtocolType, d.Protocol
		for _, m := range d.Members {
			om := kmsg.NewDescribeGroupsResponseGroupMember()
			om.MemberID, om.InstanceID, om.ClientID, om.ClientHost = m.Member, nonEmpty(m.Instance), m.ClientID, m.ClientHost
			om.ProtocolMetadata, om.MemberAssignment = m.Metadata, m.Assignment
			out.Members = append(out.Members, om)
		}
		resp.Groups = append(resp.Groups, out)
	}
	return resp
}

// once gives each name once, in order: a name that is repeated must not make an answer grow.
func once[T comparable](names []T) []T {
	seen := make(map[T]bool, len(names))
	out := names[:0]
	for _, n := range names {
		if !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
	}
	return out
}
