package kafka

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

func TestFindCoordinator(t *testing.T) {
	b := start(t)
	for version := range int16(6) {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKey, req.CoordinatorKeys = "g", []string{"g", "h"}
		got := ask[*kmsg.FindCoordinatorResponse](b.dial(), req, version)
		if version < 4 {
			if got.ErrorCode != 0 || got.NodeID != 7 || got.Host != "127.0.0.1" || got.Port == 0 {
				t.Errorf("v%d: %+v", version, got)
			}
			continue
		}
		if len(got.Coordinators) != 2 || got.Coordinators[1].Key != "h" || got.Coordinators[1].NodeID != 7 || got.Coordinators[1].ErrorCode != 0 {
			t.Errorf("v%d: %+v", version, got)
		}
	}
	for _, x := range []struct {
		kind int8
		err  error
		want *kerr.Error
	}{
		{0, record.ErrNoCoordinator, kerr.CoordinatorNotAvailable}, {0, record.ErrNotReady, kerr.CoordinatorNotAvailable},
		{0, record.ErrNoLeader, kerr.CoordinatorNotAvailable}, {0, record.ErrInvalidGroup, kerr.InvalidGroupID},
		{1, nil, kerr.TransactionalIDAuthorizationFailed}, {2, nil, kerr.InvalidRequest},
	} {
		b.groups.err = x.err
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorType, req.CoordinatorKey = x.kind, "k"
		got := ask[*kmsg.FindCoordinatorResponse](b.dial(), req, 2)
		if got.ErrorCode != x.want.Code || got.NodeID != -1 || got.Host != "" || got.Port != -1 {
			t.Errorf("%+v: %+v", x, got)
		}
	}
	// A coordinator that clients of this listener cannot reach is none.
	b.groups.err = nil
	b.broker.nodes[0].ID = 8
	if got := ask[*kmsg.FindCoordinatorResponse](b.dial(), kmsg.NewPtrFindCoordinatorRequest(), 0); got.ErrorCode != kerr.CoordinatorNotAvailable.Code {
		t.Errorf("without an address: %+v", got)
	}
}

func TestJoinGroup_everyVersion(t *testing.T) {
	instance, reason := "i", "because"
	for version := range int16(10) {
		b := start(t)
		req := kmsg.NewPtrJoinGroupRequest()
		req.Group, req.MemberID, req.InstanceID, req.Reason, req.ProtocolType = "g", "m", &instance, &reason, "consumer"
		req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 10_000, 60_000
		req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte("meta")}}
		got := ask[*kmsg.JoinGroupResponse](b.dial(), req, version)
		want := JoinGroupRequest{
			Group: "g", Member: "m", ClientID: "test", ClientHost: "/127.0.0.1", ProtocolType: "consumer", SessionTimeout: 10 * time.Second, RebalanceTimeout: time.Minute,
			Protocols: []GroupProtocol{{"range", []byte("meta")}}, NeedsMemberID: version >= 4, CanSkipAssignment: version >= 9,
		}
		if version >= 5 {
			want.Instance = "i"
		}
		if version >= 8 {
			want.Reason = "because"
		}
		if version == 0 {
			want.RebalanceTimeout = want.SessionTimeout
		}
		if !reflect.DeepEqual(b.groups.joined[0], want) {
			t.Errorf("v%d: asked %+v", version, b.groups.joined[0])
		}
		if got.ErrorCode != 0 || got.Generation != 3 || *got.Protocol != "range" || got.LeaderID != "m" || got.MemberID != "m" || len(got.Members) != 1 || string(got.Members[0].ProtocolMetadata) != "meta" {
			t.Errorf("v%d: %+v", version, got)
		}
		if version >= 5 && *got.Members[0].InstanceID != "i" || version >= 7 && *got.ProtocolType != "consumer" {
			t.Errorf("v%d: %+v", version, got)
		}
	}
}

func TestJoinGroup_errors(t *testing.T) {
	for _, version := range []int16{3, 6, 7} {
		b := start(t)
		b.groups.join = func(_ context.Context, _ JoinGroupRequest) JoinGroupResponse {
			return JoinGroupResponse{Err: record.ErrMemberIDRequired, Member: "given"}
		}
		req := kmsg.NewPtrJoinGroupRequest()
		req.MemberID = "mine"
		if got := ask[*kmsg.JoinGroupResponse](b.dial(), req, version); got.ErrorCode != kerr.MemberIDRequired.Code || got.MemberID != "given" || got.Generation != -1 {
			t.Errorf("v%d: %+v", version, got)
		}
		b.groups.join = func(_ context.Context, _ JoinGroupRequest) JoinGroupResponse {
			return JoinGroupResponse{Err: record.ErrGroupProtocol}
		}
		got := ask[*kmsg.JoinGroupResponse](b.dial(), req, version)
		if got.ErrorCode != kerr.InconsistentGroupProtocol.Code || got.MemberID != "mine" || (got.Protocol == nil) != (version >= 7) {
			t.Errorf("v%d: %+v", version, got)
		}
	}
}

func TestSyncHeartbeatLeave(t *testing.T) {
	b := start(t)
	instance, kind, protocol := "i", "consumer", "range"
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.Generation, sync.MemberID, sync.InstanceID, sync.ProtocolType, sync.Protocol = "g", 3, "m", &instance, &kind, &protocol
	sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: "m", MemberAssignment: []byte("a")}}
	for version := range int16(6) {
		got := ask[*kmsg.SyncGroupResponse](b.dial(), sync, version)
		if got.ErrorCode != 0 || string(got.MemberAssignment) != "mine" || version >= 5 && (*got.ProtocolType != "consumer" || *got.Protocol != "range") {
			t.Errorf("sync v%d: %+v", version, got)
		}
		asked := b.groups.synced[version]
		if asked.Member != "m" || asked.Generation != 3 || (asked.Instance == "i") != (version >= 3) || (asked.Protocol == "range") != (version >= 5) || string(asked.Assignments[0].Assignment) != "a" {
			t.Errorf("sync v%d: asked %+v", version, asked)
		}
	}
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Group, beat.Generation, beat.MemberID, beat.InstanceID = "g", 3, "m", &instance
	for version := range int16(5) {
		if got := ask[*kmsg.HeartbeatResponse](b.dial(), beat, version); got.ErrorCode != 0 {
			t.Errorf("heartbeat v%d: %+v", version, got)
		}
		if asked := b.groups.beaten[version]; asked.Group != "g" || asked.Generation != 3 || (asked.Instance == "i") != (version >= 3) {
			t.Errorf("heartbeat v%d: asked %+v", version, asked)
		}
	}
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group, leave.MemberID = "g", "m"
	leave.Members = []kmsg.LeaveGroupRequestMember{{MemberID: "m"}, {InstanceID: &instance}}
	b.groups.errs = []error{record.ErrUnknownMember}
	for version := range int16(6) {
		got := ask[*kmsg.LeaveGroupResponse](b.dial(), leave, version)
		if version < 3 {
			if got.ErrorCode != kerr.UnknownMemberID.Code {
				t.Errorf("leave v%d: %+v", version, got)
			}
			continue
		}
		if got.ErrorCode != 0 || len(got.Members) != 2 || got.Members[0].ErrorCode != kerr.UnknownMemberID.Code || got.Members[1].ErrorCode != 0 || *got.Members[1].InstanceID != "i" {
			t.Errorf("leave v%d: %+v", version, got)
		}
	}
}

func heartbeatOf(group string) *kmsg.HeartbeatRequest {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group = group
	return req
}

func syncOf(group string) *kmsg.SyncGroupRequest {
	req := kmsg.NewPtrSyncGroupRequest()
	kind, protocol := "consumer", "range"
	req.Group, req.ProtocolType, req.Protocol = group, &kind, &protocol
	return req
}

// Members of a group without a name hear that from Kafka, not that they are unknown.
func TestGroups_withoutAName(t *testing.T) {
	c := start(t).dial()
	want := kerr.InvalidGroupID.Code
	if got := ask[*kmsg.HeartbeatResponse](c, heartbeatOf(""), 4).ErrorCode; got != want {
		t.Errorf("heartbeat: %d", got)
	}
	if got := ask[*kmsg.SyncGroupResponse](c, syncOf(""), 5).ErrorCode; got != want {
		t.Errorf("sync: %d", got)
	}
	for _, version := range []int16{2, 5} {
		if got := ask[*kmsg.LeaveGroupResponse](c, kmsg.NewPtrLeaveGroupRequest(), version).ErrorCode; got != want {
			t.Errorf("leave v%d: %d", version, got)
		}
	}
	if got := ask[*kmsg.OffsetDeleteResponse](c, kmsg.NewPtrOffsetDeleteRequest(), 0).ErrorCode; got != want {
		t.Errorf("offset delete: %d", got)
	}
}

// From version 5 on a member that syncs says what it takes the group's protocol for.
func TestSyncGroup_withoutAProtocol(t *testing.T) {
	c := start(t).dial()
	for version, want := range map[int16]int16{4: 0, 5: kerr.InconsistentGroupProtocol.Code} {
		req := syncOf("g")
		req.ProtocolType = nil
		if got := ask[*kmsg.SyncGroupResponse](c, req, version).ErrorCode; got != want {
			t.Errorf("v%d: %d", version, got)
		}
	}
}

// A node that is no help says so in the words that make members look for the coordinator again.
func TestGroups_nodesThatAreNoHelp(t *testing.T) {
	b := start(t)
	for err, want := range map[error]*kerr.Error{
		record.ErrNotCoordinator: kerr.NotCoordinator, record.ErrCoordinatorLoading: kerr.CoordinatorLoadInProgress,
		record.ErrNotReady: kerr.NotCoordinator, record.ErrShuttingDown: kerr.NotCoordinator, record.ErrNoLeader: kerr.NotCoordinator,
		error(&record.NotLeaderError{Leader: 8}): kerr.NotCoordinator, record.ErrTimeout: kerr.CoordinatorNotAvailable, record.ErrInterrupted: kerr.CoordinatorNotAvailable,
		record.ErrBusy: kerr.CoordinatorNotAvailable, record.ErrUnknownMember: kerr.UnknownMemberID, record.ErrIllegalGeneration: kerr.IllegalGeneration,
		record.ErrRebalance: kerr.RebalanceInProgress, record.ErrFencedInstance: kerr.FencedInstanceID, errors.New("what?"): kerr.UnknownServerError,
	} {
		b.groups.err = err
		if got := ask[*kmsg.HeartbeatResponse](b.dial(), heartbeatOf("g"), 4); got.ErrorCode != want.Code {
			t.Errorf("%v: %v", err, kerr.ErrorForCode(got.ErrorCode))
		}
		if got := ask[*kmsg.SyncGroupResponse](b.dial(), syncOf("g"), 5); got.ErrorCode != want.Code || len(got.MemberAssignment) != 0 || got.MemberAssignment == nil {
			t.Errorf("sync %v: %+v", err, got)
		}
	}
}

func TestOffsetCommit_everyVersion(t *testing.T) {
	text := "text"
	for version := int16(2); version <= 9; version++ {
		b := start(t)
		b.groups.errs = []error{nil, record.ErrUnknownPartition}
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Group, req.Generation, req.MemberID = "g", -1, ""
		first := kmsg.NewOffsetCommitRequestTopicPartition()
		first.Partition, first.Offset, first.LeaderEpoch, first.Metadata = 1, 40, 2, &text
		second := kmsg.NewOffsetCommitRequestTopicPartition()
		second.Partition, second.Offset = 2, 50
		req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{first, second}}}
		got := ask[*kmsg.OffsetCommitResponse](b.dial(), req, version).Topics[0]
		if got.Topic != "t" || got.Partitions[0].ErrorCode != 0 || got.Partitions[1].ErrorCode != kerr.UnknownTopicOrPartition.Code || got.Partitions[1].Partition != 2 {
			t.Errorf("v%d: %+v", version, got)
		}
		want := CommitOffsetsRequest{MemberIdentity{Group: "g", Generation: -1}, []CommittedOffset{
			{record.TopicPartition{Topic: "t", Partition: 1}, 40, record.NoEpoch, "text"}, {record.TopicPartition{Topic: "t", Partition: 2}, 50, record.NoEpoch, ""},
		}}
		if version >= 6 {
			want.Offsets[0].Epoch = 2
		}
		if !reflect.DeepEqual(b.groups.commits[0], want) {
			t.Errorf("v%d: asked %+v", version, b.groups.commits[0])
		}
		// One error for all is one for each.
		b.groups.err = record.ErrIllegalGeneration
		for _, p := range ask[*kmsg.OffsetCommitResponse](b.dial(), req, version).Topics[0].Partitions {
			if p.ErrorCode != kerr.IllegalGeneration.Code {
				t.Errorf("v%d: %+v", version, p)
			}
		}
	}
}

// Every partition that was asked for is answered; null topics are all; an error stands where the client
// of that version looks for it.
func TestOffsetFetch_everyVersion(t *testing.T) {
	for version := int16(1); version <= 9; version++ {
		b := start(t)
		get := func(group string, topics map[string][]int32) (code int16, offsets map[record.TopicPartition]int64, codes map[record.TopicPartition]int16) {
			req := kmsg.NewPtrOffsetFetchRequest()
			req.Group = group
			one := kmsg.NewOffsetFetchRequestGroup()
			one.Group = group
			for topic, ps := range topics {
				req.Topics = append(req.Topics, kmsg.OffsetFetchRequestTopic{Topic: topic, Partitions: ps})
				one.Topics = append(one.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: topic, Partitions: ps})
			}
			if topics != nil && len(topics) == 0 {
				req.Topics, one.Topics = []kmsg.OffsetFetchRequestTopic{}, []kmsg.OffsetFetchRequestGroupTopic{}
			}
			req.Groups = []kmsg.OffsetFetchRequestGroup{one}
			got := ask[*kmsg.OffsetFetchResponse](b.dial(), req, version)
			offsets, codes = map[record.TopicPartition]int64{}, map[record.TopicPartition]int16{}
			if version >= 8 {
				for _, t := range got.Groups[0].Topics {
					for _, p := range t.Partitions {
						tp := record.TopicPartition{Topic: t.Topic, Partition: p.Partition}
						offsets[tp], codes[tp] = p.Offset, p.ErrorCode
					}
				}
				return got.Groups[0].ErrorCode, offsets, codes
			}
			for _, t := range got.Topics {
				for _, p := range t.Partitions {
					tp := record.TopicPartition{Topic: t.Topic, Partition: p.Partition}
					offsets[tp], codes[tp] = p.Offset, p.ErrorCode
				}
			}
			return got.ErrorCode, offsets, codes
		}
		t1, u0 := record.TopicPartition{Topic: "t", Partition: 1}, record.TopicPartition{Topic: "u", Partition: 0}
		code, offsets, _ := get("g", map[string][]int32{"t": {1}, "u": {0}})
		if code != 0 || len(offsets) != 2 || offsets[t1] != 40 || offsets[u0] != -1 {
			t.Errorf("v%d: code %d, %v", version, code, offsets)
		}
		if _, offsets, _ = get("g", map[string][]int32{}); len(offsets) != 0 {
			t.Errorf("v%d: asked for none, got %v", version, offsets)
		}
		if version >= 2 {
			if _, offsets, _ = get("g", nil); len(offsets) != 1 || b.groups.fetched[len(b.groups.fetched)-1] != nil {
				t.Errorf("v%d: asked for all, got %v", version, offsets)
			}
		}
		b.groups.err = record.ErrNotCoordinator
		code, offsets, codes := get("g", map[string][]int32{"t": {1}})
		if version < 2 && (len(codes) != 1 || codes[t1] != kerr.NotCoordinator.Code) || version >= 2 && (code != kerr.NotCoordinator.Code || len(offsets) != 0) {
			t.Errorf("v%d: code %d, %v", version, code, codes)
		}
	}
}

func TestDescribeListDelete(t *testing.T) {
	b := start(t)
	for version := range int16(6) {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Groups = []string{"g", "g", "h"}
		got := ask[*kmsg.DescribeGroupsResponse](b.dial(), req, version).Groups
		if len(got) != 2 || got[0].Group != "g" || got[0].State != "Stable" || len(got[0].Members) != 1 || version >= 3 && got[0].AuthorizedOperations != unknownOperations {
			t.Errorf("describe v%d: %+v", version, got)
		}
	}
	for _, x := range []struct {
		version       int16
		states, types []string
		want          int
	}{{0, nil, nil, 2}, {3, nil, nil, 2}, {4, []string{"stable"}, nil, 1}, {4, []string{"Dead"}, nil, 0}, {5, nil, []string{"classic"}, 2}, {5, nil, []string{"consumer"}, 0}} {
		req := kmsg.NewPtrListGroupsRequest()
		req.StatesFilter, req.TypesFilter = x.states, x.types
		got := ask[*kmsg.ListGroupsResponse](b.dial(), req, x.version)
		if len(got.Groups) != x.want || got.ErrorCode != 0 || x.version >= 5 && x.want > 0 && got.Groups[0].GroupType != "classic" {
			t.Errorf("list %+v: %+v", x, got)
		}
	}
	for err, want := range map[error]int16{nil: 0, record.ErrGroupNotEmpty: 68, record.ErrUnknownGroup: 69, record.ErrNotCoordinator: 16} {
		b.groups.err = err
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Groups = []string{"g"}
		if got := ask[*kmsg.DeleteGroupsResponse](b.dial(), req, 2).Groups; len(got) != 1 || got[0].ErrorCode != want {
			t.Errorf("delete %v: %+v", err, got)
		}
	}
	b.groups.err, b.groups.errs = nil, []error{nil, record.ErrGroupSubscribed}
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = "g"
	req.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}, {Partition: 1}}}}
	if got := ask[*kmsg.OffsetDeleteResponse](b.dial(), req, 0); got.ErrorCode != 0 || got.Topics[0].Partitions[0].ErrorCode != 0 || got.Topics[0].Partitions[1].ErrorCode != kerr.GroupSubscribedToTopic.Code {
		t.Errorf("offset delete: %+v", got)
	}
	b.groups.err = record.ErrUnknownGroup
	if got := ask[*kmsg.OffsetDeleteResponse](b.dial(), req, 0); got.ErrorCode != kerr.GroupIDNotFound.Code || len(got.Topics) != 0 {
		t.Errorf("offset delete: %+v", got)
	}
}
