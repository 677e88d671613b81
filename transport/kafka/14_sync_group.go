package kafka

import (
	"bytes"

	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

// SyncGroup, key 14, versions 0 to 5.
//
// Members wait for the assignment that the leader brings.
//
//	v3: static members
//	v4: flexible
//	v5: type and name of the protocol, to be compared
func init() { register(0, 5, (*call).syncGroup, ofGroups) }

func (q *call) syncGroup(req *kmsg.SyncGroupRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.SyncGroupResponse)
	sync := SyncGroupRequest{
		MemberIdentity: MemberIdentity{Group: req.Group, Member: req.MemberID, Instance: deref(req.InstanceID), Generation: req.Generation},
		ProtocolType:   deref(req.ProtocolType), Protocol: deref(req.Protocol),
	}
	for _, a := range req.GroupAssignment {
		sync.Assignments = append(sync.Assignments, GroupAssignment{a.MemberID, bytes.Clone(a.MemberAssignment)})
	}
	a := SyncGroupResponse{Err: checkGroup(req.Group)}
	if a.Err == nil && q.version >= 5 && (req.ProtocolType == nil || req.Protocol == nil) {
		a.Err = record.ErrGroupProtocol
	}
	if a.Err == nil {
		a = q.conn.s.cfg.Groups.SyncGroup(q.conn.ctx, sync)
	}
	resp.ErrorCode, resp.MemberAssignment = q.code(q.forMember(a.Err)), a.Assignment
	if resp.MemberAssignment == nil || a.Err != nil {
		resp.MemberAssignment = []byte{}
	}
	if a.Err == nil {
		resp.ProtocolType, resp.Protocol = &a.ProtocolType, &a.Protocol
	}
	return resp
}
