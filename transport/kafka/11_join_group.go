package kafka

import (
	"bytes"
	"errors"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

// JoinGroup, key 11, versions 0 to 9.
//
// The answer may take as long as a rebalance.
//
//	v1: rebalance timeout; before, it is the session timeout
//	v4: who has no member id is told one first
//	v5: static members
//	v6: flexible
//	v7: type of the protocol in the answer
//	v8: reason
//	v9: a leader may be told to skip the assignment
func init() { register(0, 9, (*call).joinGroup, ofGroups) }

func (q *call) joinGroup(req *kmsg.JoinGroupRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
	join := JoinGroupRequest{
		Group: req.Group, Member: req.MemberID, Instance: deref(req.InstanceID), ClientID: q.clientID, ClientHost: q.clientHost(),
		ProtocolType: req.ProtocolType, SessionTimeout: ms(req.SessionTimeoutMillis), RebalanceTimeout: ms(req.RebalanceTimeoutMillis),
		NeedsMemberID: q.version >= 4, CanSkipAssignment: q.version >= 9, Reason: deref(req.Reason),
	}
	if q.version < 1 {
		join.RebalanceTimeout = join.SessionTimeout
	}
	for _, p := range req.Protocols {
		join.Protocols = append(join.Protocols, GroupProtocol{p.Name, bytes.Clone(p.Metadata)})
	}
	a := q.conn.s.cfg.Groups.JoinGroup(q.conn.ctx, join)
	resp.ErrorCode, resp.MemberID = q.code(q.forMember(a.Err)), a.Member
	if a.Err != nil {
		resp.Generation = NoGeneration
		if !errors.Is(a.Err, record.ErrMemberIDRequired) {
			resp.MemberID = req.MemberID
		}
		if q.version < 7 {
			resp.Protocol = new(string)
		}
		return resp
	}
	resp.Generation, resp.LeaderID, resp.SkipAssignment = a.Generation, a.Leader, a.SkipAssignment
	resp.ProtocolType, resp.Protocol = &a.ProtocolType, &a.Protocol
	for _, m := range a.Members {
		out := kmsg.NewJoinGroupResponseMember()
		out.MemberID, out.InstanceID, out.ProtocolMetadata = m.Member, nonEmpty(m.Instance), m.Metadata
		resp.Members = append(resp.Members, out)
	}
	return resp
}

// forMember turns what only coordinators can say of themselves into what members understand: this node is
// not the one to ask.
func (q *call) forMember(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, record.ErrNotReady) || errors.Is(err, record.ErrShuttingDown) || errors.Is(err, record.ErrNoLeader) || isNotLeader(err) {
		return record.ErrNotCoordinator
	}
	return q.forCoordinator(err)
}

func isNotLeader(err error) bool {
	var nl *record.NotLeaderError
	return errors.As(err, &nl)
}

// clientHost is the client's address as Kafka shows it.
func (q *call) clientHost() string {
	host := q.conn.at.Remote
	if i := strings.LastIndexByte(host, ':'); i >= 0 {
		host = host[:i]
	}
	return "/" + strings.Trim(host, "[]")
}

func ms(n int32) time.Duration { return time.Duration(n) * time.Millisecond }

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func nonEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
