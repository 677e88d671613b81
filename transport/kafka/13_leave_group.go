package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// LeaveGroup, key 13, versions 0 to 5.
//
//	v3: many members, each with an error of its own
//	v4: flexible
//	v5: reason
func init() { register(0, 5, (*call).leaveGroup, ofGroups) }

func (q *call) leaveGroup(req *kmsg.LeaveGroupRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
	ctx, cancel := q.context(0)
	defer cancel()
	leave := LeaveGroupRequest{Group: req.Group}
	if q.version < 3 {
		leave.Members = []LeavingMember{{Member: req.MemberID}}
	}
	for _, m := range req.Members {
		leave.Members = append(leave.Members, LeavingMember{Member: m.MemberID, Instance: deref(m.InstanceID), Reason: deref(m.Reason)})
	}
	errs, err := []error(nil), checkGroup(req.Group)
	if err == nil {
		errs, err = q.conn.s.cfg.Groups.LeaveGroup(ctx, leave)
	}
	if err == nil && q.version < 3 {
		err = errs[0]
	}
	if resp.ErrorCode = q.code(q.forMember(err)); err != nil || q.version < 3 {
		return resp
	}
	for i, m := range req.Members {
		out := kmsg.NewLeaveGroupResponseMember()
		out.MemberID, out.InstanceID, out.ErrorCode = m.MemberID, m.InstanceID, q.code(q.forMember(errs[i]))
		resp.Members = append(resp.Members, out)
	}
	return resp
}
