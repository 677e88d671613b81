package record

import (
	"errors"
	"fmt"
	"time"
)

// Error is an error that crosses a protocol. Code is stable and goes on the wire;
// Message is for people and says what to do next. Retriable means that the same
// request may succeed later without a change.
type Error struct {
	Code      string
	Message   string
	Retriable bool
}

func (e *Error) Error() string { return e.Message }

// Is compares by code, so that an error read from the wire equals its sentinel.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Each error that clients can meet exists once, here. Wrap them with %w to add the subject.
var (
	ErrNoLeader          = &Error{"no_leader", "the partition has no leader right now; retry", true}
	ErrUnknownTopic      = &Error{"unknown_topic", "no such topic", false}
	ErrUnknownTopicID    = &Error{"unknown_topic_id", "the topic that was meant is gone; another one has its name now", false}
	ErrUnknownPartition  = &Error{"unknown_partition", "no such partition", false}
	ErrTopicExists       = &Error{"topic_exists", "a topic of this name exists", false}
	ErrInvalidTopic      = &Error{"invalid_topic", "a topic name has 1 to 249 of the characters a-z A-Z 0-9 . _ -, and is not . or ..", false}
	ErrInvalidConfig     = &Error{"invalid_config", "invalid topic setting", false}
	ErrInvalidRequest    = &Error{"invalid_request", "the request is not valid", false}
	ErrUnsupported       = &Error{"unsupported_version", "this node does not know the request or its version", false}
	ErrOffsetOutOfRange  = &Error{"offset_out_of_range", "the offset is outside the partition's log", false}
	ErrOffsetUnavailable = &Error{"offset_not_available", "the new leader has not committed in its epoch yet; retry", true}
	ErrFencedEpoch       = &Error{"fenced_leader_epoch", "the request names an older leader epoch; refresh metadata", true}
	ErrUnknownEpoch      = &Error{"unknown_leader_epoch", "the request names a newer leader epoch than this node knows; retry", true}
	ErrTooLarge          = &Error{"too_large", "the batch is larger than the topic's max.message.bytes", false}
	ErrCorrupt           = &Error{"corrupt_batch", "the record batch is damaged", false}
	ErrUnsupportedMagic  = &Error{"unsupported_format", "only record batches of format v2 are taken", false}
	ErrInvalidTimestamp  = &Error{"invalid_timestamp", "the record's timestamp is outside the topic's limits", false}
	ErrDuplicateSequence = &Error{"duplicate_sequence", "the batch was appended before and its offset is no longer known", false}
	ErrOutOfOrder        = &Error{"out_of_order_sequence", "the producer's sequence does not follow the last one", false}
	ErrUnknownProducer   = &Error{"unknown_producer", "the partition does not know this producer id", false}
	ErrFencedProducer    = &Error{"producer_fenced", "a newer epoch of this producer is active", false}
	ErrBusy              = &Error{"busy", "the node's queues are full; retry", true}
	ErrTimeout           = &Error{"timeout", "no answer in time; the request may or may not have taken effect", true}
	ErrInterrupted       = &Error{"interrupted", "leadership changed while the request was in flight; it may or may not have taken effect; retry", true}
	ErrStorage           = &Error{"storage_failed", "the node's storage failed; see its log", true}
	ErrDiskFull          = &Error{"disk_full", "the node's disk is nearly full; free space or lower retention", true}
	ErrNotReady          = &Error{"not_ready", "the node is not part of a cluster yet; retry", true}
	ErrShuttingDown      = &Error{"shutting_down", "the node is stopping; retry on another node", true}
	ErrNoNodes           = &Error{"not_enough_nodes", "the cluster has fewer nodes than the replication asks for", false}
	ErrLimit             = &Error{"limit", "a limit of the node or cluster is reached", false}
	ErrDamaged           = &Error{"damaged", "this replica's data is damaged and it is out of service", true}
	ErrUnknownNode       = &Error{"unknown_node", "no such node", false}
	ErrRefused           = &Error{"refused", "refused", false}
	ErrInternal          = &Error{"internal", "internal error; see the node's log", true}
)

// What consumer groups answer. Kafka clients know these by numbers that transport/kafka gives them.
var (
	ErrCoordinatorLoading  = &Error{"coordinator_loading", "the coordinator of the group is still reading its log; retry", true}
	ErrNoCoordinator       = &Error{"no_coordinator", "the group has no coordinator right now; retry", true}
	ErrNotCoordinator      = &Error{"not_coordinator", "this node does not coordinate the group; ask again who does", true}
	ErrInvalidGroup        = &Error{"invalid_group", "the group's name is empty or too long", false}
	ErrUnknownGroup        = &Error{"unknown_group", "no such group", false}
	ErrGroupNotEmpty       = &Error{"group_not_empty", "the group has members; stop them first", false}
	ErrGroupFull           = &Error{"group_full", "the group has as many members as it may have", false}
	ErrGroupSubscribed     = &Error{"group_subscribed", "the group's members read the topic; stop them first", false}
	ErrUnknownMember       = &Error{"unknown_member", "the group does not know the member; join again", false}
	ErrMemberIDRequired    = &Error{"member_id_required", "join again with the member id that this answer gives", false}
	ErrFencedInstance      = &Error{"fenced_instance", "another member has joined under this group.instance.id", false}
	ErrIllegalGeneration   = &Error{"illegal_generation", "the group is in another generation; join again", false}
	ErrRebalance           = &Error{"rebalance_in_progress", "the group is rebalancing; join again", false}
	ErrGroupProtocol       = &Error{"group_protocol", "the member has no assignment protocol that the others have too", false}
	ErrSessionTimeout      = &Error{"session_timeout", "the session timeout is outside of what the node allows", false}
	ErrOffsetMetadataLarge = &Error{"offset_metadata_large", "the text kept beside a committed offset is too long", false}
)

// Doubt is about how long a leader that was replaced may go on to answer before it knows: it stood still, or is cut off,
// and Raft's check of its majority comes round every second. What it says is weighed by its epoch.
const Doubt = 2 * time.Second

// NotLeaderError is the answer of a node that does not lead the partition it was asked for.
// It carries the next step. Leader is NoNode and Epoch the last one known while nobody leads.
type NotLeaderError struct {
	Leader    NodeID
	Addr      string // native protocol address of the leader, host:port, empty if unknown
	KafkaAddr string // Kafka protocol address of the leader, host:port, empty if unknown
	Epoch     Epoch
}

func (e *NotLeaderError) Error() string {
	if e.Leader == NoNode {
		return "this node is not the leader of the partition and knows of none; retry"
	}
	return fmt.Sprintf("this node is not the leader of the partition: node %d at %s is, epoch %d", e.Leader, e.Addr, e.Epoch)
}

// CodeNotLeader is the wire code of NotLeaderError.
const CodeNotLeader = "not_leader"

// Code gives the stable wire code of err: the code of the *Error or NotLeaderError
// that it wraps, and "internal" for anything else. It is empty for nil.
func Code(err error) string {
	var nl *NotLeaderError
	var e *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &nl):
		return CodeNotLeader
	case errors.As(err, &e):
		return e.Code
	}
	return ErrInternal.Code
}

// Retriable tells whether the same request may succeed later, here or elsewhere.
func Retriable(err error) bool {
	var nl *NotLeaderError
	var e *Error
	if errors.As(err, &nl) {
		return true
	}
	return errors.As(err, &e) && e.Retriable
}
