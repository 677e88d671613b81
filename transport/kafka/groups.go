package kafka

import (
	"context"
	"fmt"
	"time"

	"edged/record"
)

// Groups is what the protocol needs from consumer groups.
//
// All methods may be called from many goroutines at once. Errors are those of package
// record; the group errors stand in a block of their own there. JoinGroup and SyncGroup wait for
// the other members as long as the context lives; it ends with the connection and with the server.
// Byte slices in requests are the callee's to keep; those in answers are not written to.
//
// Everything but FindCoordinator and ListGroups is answered with record.ErrNotCoordinator, quickly,
// by a node that does not coordinate the group, and with record.ErrCoordinatorLoading by one that
// has not read the group's log after about an election's time.
type Groups interface {
	// FindCoordinator gives the node that coordinates the group now; record.ErrNoCoordinator
	// while there is none.
	FindCoordinator(ctx context.Context, group string) (record.NodeID, error)

	JoinGroup(ctx context.Context, req JoinGroupRequest) JoinGroupResponse
	SyncGroup(ctx context.Context, req SyncGroupRequest) SyncGroupResponse
	Heartbeat(ctx context.Context, req HeartbeatRequest) error
	// LeaveGroup gives one error for each of req.Members, or one for the whole request.
	LeaveGroup(ctx context.Context, req LeaveGroupRequest) ([]error, error)

	// CommitOffsets gives one error for each of req.Offsets, or one for the whole request. A topic or
	// partition that does not exist is record.ErrUnknownTopic or record.ErrUnknownPartition.
	CommitOffsets(ctx context.Context, req CommitOffsetsRequest) ([]error, error)
	// FetchOffsets answers every partition that was asked for, in that order; one without a committed
	// offset, and every one of an unknown group, with NoCommit. nil partitions are all that have one.
	FetchOffsets(ctx context.Context, group string, partitions []record.TopicPartition) ([]CommittedOffset, error)

	// DescribeGroup answers an unknown group with State "Dead" and no error.
	DescribeGroup(ctx context.Context, group string) (GroupDescription, error)
	// ListGroups lists the groups that this node coordinates.
	ListGroups(ctx context.Context) ([]GroupListing, error)
	DeleteGroup(ctx context.Context, group string) error
	// DeleteOffsets gives one error for each partition, or one for the whole request.
	DeleteOffsets(ctx context.Context, group string, partitions []record.TopicPartition) ([]error, error)
}

// checkGroup refuses the group without a name, which only Kafka's oldest clients had.
func checkGroup(name string) error {
	if name == "" {
		return fmt.Errorf("%w: a group has a name", record.ErrInvalidGroup)
	}
	return nil
}

// MemberIdentity is who speaks for a member. Instance is the name of a static member
// (group.instance.id), empty for a dynamic one.
type MemberIdentity struct {
	Group, Member, Instance string
	Generation              int32 // NoGeneration from who is no member
}

// NoGeneration stands in a commit that comes from no member of the group.
const NoGeneration int32 = -1

// JoinGroupRequest enters a group, or its next generation.
type JoinGroupRequest struct {
	Group, Member, Instance string // Member is empty at the first time
	ClientID, ClientHost    string
	ProtocolType            string // "consumer", "connect", ...: not looked into
	Protocols               []GroupProtocol
	SessionTimeout          time.Duration
	RebalanceTimeout        time.Duration
	// NeedsMemberID: a dynamic member without an id is told one with record.ErrMemberIDRequired
	// and joins again with it. Older clients do not know that step.
	NeedsMemberID bool
	// CanSkipAssignment: a static leader that comes back may be told that the assignment still holds.
	CanSkipAssignment bool
	Reason            string // why it joins, for logs
}

// GroupProtocol is one way of assigning partitions that a member knows.
type GroupProtocol struct {
	Name     string
	Metadata []byte
}

// JoinGroupResponse tells the member its place. Member is set with record.ErrMemberIDRequired too.
type JoinGroupResponse struct {
	Err            error
	Generation     int32
	ProtocolType   string
	Protocol       string // the one that was chosen
	Leader, Member string
	SkipAssignment bool
	Members        []JoinedMember // only for the leader
}

// JoinedMember is a member as the group's leader sees it.
type JoinedMember struct {
	Member, Instance string
	Metadata         []byte // of the protocol that was chosen
}

// SyncGroupRequest asks for the member's assignment; the leader brings all of them.
type SyncGroupRequest struct {
	MemberIdentity
	ProtocolType, Protocol string // empty from clients that do not say
	Assignments            []GroupAssignment
}

// GroupAssignment is what one member shall read.
type GroupAssignment struct {
	Member     string
	Assignment []byte
}

// SyncGroupResponse is the member's assignment.
type SyncGroupResponse struct {
	Err                    error
	ProtocolType, Protocol string
	Assignment             []byte
}

// HeartbeatRequest keeps a member alive.
type HeartbeatRequest struct {
	MemberIdentity
}

// LeaveGroupRequest takes members out of a group.
type LeaveGroupRequest struct {
	Group   string
	Members []LeavingMember
}

// LeavingMember is named by its id, by its instance, or by both.
type LeavingMember struct {
	Member, Instance string
	Reason           string
}

// CommitOffsetsRequest keeps offsets for a group.
type CommitOffsetsRequest struct {
	MemberIdentity
	Offsets []CommittedOffset
}

// CommittedOffset is where a group has read a partition up to.
type CommittedOffset struct {
	record.TopicPartition
	Offset   record.Offset // of the next record to read; NoCommit: none is kept
	Epoch    record.Epoch  // of the record before it, NoEpoch if the client did not say
	Metadata string        // kept as it is
}

// NoCommit is the offset of a partition that a group has not committed.
const NoCommit record.Offset = -1

// GroupListing is one group of a list.
type GroupListing struct {
	Group, ProtocolType, State string
}

// GroupDescription is a group from inside. States are Kafka's: Empty, PreparingRebalance,
// CompletingRebalance, Stable, Dead.
type GroupDescription struct {
	Group, State           string
	ProtocolType, Protocol string
	Members                []MemberDescription
}

// MemberDescription is one member of a GroupDescription.
type MemberDescription struct {
	Member, Instance     string
	ClientID, ClientHost string
	Metadata, Assignment []byte
}
