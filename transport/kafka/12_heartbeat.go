package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Heartbeat, key 12, versions 0 to 4.
//
//	v3: static members
//	v4: flexible
func init() { register(0, 4, (*call).heartbeat, ofGroups) }

func (q *call) heartbeat(req *kmsg.HeartbeatRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
	ctx, cancel := q.context(0)
	defer cancel()
	err := checkGroup(req.Group)
	if err == nil {
		err = q.conn.s.cfg.Groups.Heartbeat(ctx, HeartbeatRequest{MemberIdentity{
			Group: req.Group, Member: req.MemberID, Instance: deref(req.InstanceID), Generation: req.Generation,
		}})
	}
	resp.ErrorCode = q.code(q.forMember(err))
	return resp
}
