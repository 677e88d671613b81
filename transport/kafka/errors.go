package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"edged/record"
)

// codes gives Kafka's word for each of our errors. Where an API wants another word for one of them it
// says so itself, by codeOr.
var codes = map[string]*kerr.Error{
	record.CodeNotLeader:               kerr.NotLeaderForPartition,
	record.ErrNoLeader.Code:            kerr.NotLeaderForPartition, // LEADER_NOT_AVAILABLE belongs to Metadata
	record.ErrUnknownTopic.Code:        kerr.UnknownTopicOrPartition,
	record.ErrUnknownTopicID.Code:      kerr.UnknownTopicID,
	record.ErrUnknownPartition.Code:    kerr.UnknownTopicOrPartition,
	record.ErrTopicExists.Code:         kerr.TopicAlreadyExists,
	record.ErrInvalidTopic.Code:        kerr.InvalidTopicException,
	record.ErrInvalidConfig.Code:       kerr.InvalidConfig,
	record.ErrInvalidRequest.Code:      kerr.InvalidRequest,
	record.ErrUnsupported.Code:         kerr.UnsupportedVersion,
	record.ErrOffsetOutOfRange.Code:    kerr.OffsetOutOfRange,
	record.ErrOffsetUnavailable.Code:   kerr.OffsetNotAvailable,
	record.ErrFencedEpoch.Code:         kerr.FencedLeaderEpoch,
	record.ErrUnknownEpoch.Code:        kerr.UnknownLeaderEpoch,
	record.ErrTooLarge.Code:            kerr.MessageTooLarge,
	record.ErrCorrupt.Code:             kerr.CorruptMessage,
	record.ErrUnsupportedMagic.Code:    kerr.InvalidRecord,
	record.ErrInvalidTimestamp.Code:    kerr.InvalidTimestamp,
	record.ErrDuplicateSequence.Code:   kerr.DuplicateSequenceNumber,
	record.ErrOutOfOrder.Code:          kerr.OutOfOrderSequenceNumber,
	record.ErrUnknownProducer.Code:     kerr.UnknownProducerID,
	record.ErrFencedProducer.Code:      kerr.InvalidProducerEpoch,
	record.ErrBusy.Code:                kerr.NotEnoughReplicas, // to every client: not written, try again soon
	record.ErrTimeout.Code:             kerr.RequestTimedOut,
	record.ErrInterrupted.Code:         kerr.RequestTimedOut, // 6 would say that the batch is surely not kept
	record.ErrStorage.Code:             kerr.KafkaStorageError,
	record.ErrDiskFull.Code:            kerr.KafkaStorageError,
	record.ErrDamaged.Code:             kerr.KafkaStorageError,
	record.ErrNotReady.Code:            kerr.NotLeaderForPartition,
	record.ErrShuttingDown.Code:        kerr.NotLeaderForPartition,
	record.ErrNoNodes.Code:             kerr.InvalidReplicationFactor,
	record.ErrLimit.Code:               kerr.PolicyViolation,
	record.ErrUnknownNode.Code:         kerr.InvalidReplicaAssignment,
	record.ErrRefused.Code:             kerr.PolicyViolation,
	record.ErrInternal.Code:            kerr.UnknownServerError,
	record.ErrCoordinatorLoading.Code:  kerr.CoordinatorLoadInProgress,
	record.ErrNoCoordinator.Code:       kerr.CoordinatorNotAvailable,
	record.ErrNotCoordinator.Code:      kerr.NotCoordinator,
	record.ErrInvalidGroup.Code:        kerr.InvalidGroupID,
	record.ErrUnknownGroup.Code:        kerr.GroupIDNotFound,
	record.ErrGroupNotEmpty.Code:       kerr.NonEmptyGroup,
	record.ErrGroupFull.Code:           kerr.GroupMaxSizeReached,
	record.ErrGroupSubscribed.Code:     kerr.GroupSubscribedToTopic,
	record.ErrUnknownMember.Code:       kerr.UnknownMemberID,
	record.ErrMemberIDRequired.Code:    kerr.MemberIDRequired,
	record.ErrFencedInstance.Code:      kerr.FencedInstanceID,
	record.ErrIllegalGeneration.Code:   kerr.IllegalGeneration,
	record.ErrRebalance.Code:           kerr.RebalanceInProgress,
	record.ErrGroupProtocol.Code:       kerr.InconsistentGroupProtocol,
	record.ErrSessionTimeout.Code:      kerr.InvalidSessionTimeout,
	record.ErrOffsetMetadataLarge.Code: kerr.OffsetMetadataTooLarge,
}

// kafkaError gives Kafka's word for an error, nil for nil.
func kafkaError(err error) *kerr.Error {
	if err == nil {
		return nil
	}
	var known *kerr.Error
	if errors.As(err, &known) {
		return known
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) { // canceled: the client is gone
		return kerr.RequestTimedOut
	}
	if e := codes[record.Code(err)]; e != nil {
		return e
	}
	return kerr.UnknownServerError
}

// code turns an error into Kafka's number for it, 0 for nil, and counts it.
func (c *call) code(err error) int16 {
	e := kafkaError(err)
	if e == nil {
		return 0
	}
	c.conn.s.metrics.failed(e.Message)
	if e == kerr.UnknownServerError {
		c.conn.s.cfg.Logger.Error("kafka: a request failed by no fault of the client", "request", c.api.name, "err", err)
	}
	return e.Code
}

// maxMessage bounds in bytes the text of an error on the wire.
const maxMessage = 512

// message is the text beside a code, nil for no error.
func message(err error) *string {
	if err == nil {
		return nil
	}
	s := err.Error()
	s = s[:min(len(s), maxMessage)]
	return &s
}
