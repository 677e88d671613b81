package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteGroups, key 42, versions 0 to 2.
//
//	v2: flexible
func init() { register(0, 2, (*call).deleteGroups, ofGroups) }

func (q *call) deleteGroups(req *kmsg.DeleteGroupsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	ctx, cancel := q.context(0)
	defer cancel()
	for _, group := range once(req.Groups) {
		out := kmsg.NewDeleteGroupsResponseGroup()
		out.Group, out.ErrorCode = group, q.code(q.forMember(q.conn.s.cfg.Groups.DeleteGroup(ctx, group)))
		resp.Groups = append(resp.Groups, out)
	}
	return resp
}
