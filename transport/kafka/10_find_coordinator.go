package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

// FindCoordinator, key 10, versions 0 to 5.
//
// A transactional id is refused in the way that ends clients at once: there are no transactions here,
// and "not available" would have them try for minutes.
//
//	v1: type of the key
//	v3: flexible
//	v4: many keys
func init() { register(0, 5, (*call).findCoordinator, ofGroups) }

// Types of keys.
const (
	groupKey       = 0
	transactionKey = 1
)

func (q *call) findCoordinator(req *kmsg.FindCoordinatorRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	ctx, cancel := q.context(0)
	defer cancel()
	cluster := q.conn.s.cfg.Broker.Cluster(q.conn.at)
	if q.version < 4 {
		e, err := q.coordinator(ctx, cluster, req.CoordinatorType, req.CoordinatorKey)
		resp.NodeID, resp.Host, resp.Port = int32(e.ID), e.Host, e.Port
		resp.ErrorCode, resp.ErrorMessage = q.code(err), message(err)
		return resp
	}
	for _, key := range req.CoordinatorKeys {
		out := kmsg.NewFindCoordinatorResponseCoordinator()
		e, err := q.coordinator(ctx, cluster, req.CoordinatorType, key)
		out.Key, out.NodeID, out.Host, out.Port = key, int32(e.ID), e.Host, e.Port
		out.ErrorCode, out.ErrorMessage = q.code(err), message(err)
		resp.Coordinators = append(resp.Coordinators, out)
	}
	return resp
}

func (q *call) coordinator(ctx context.Context, cluster Cluster, kind int8, key string) (Endpoint, error) {
	none := Endpoint{ID: record.NoNode, Port: -1}
	switch kind {
	case groupKey:
	case transactionKey:
		return none, fmt.Errorf("%w: this cluster has no transactions", kerr.TransactionalIDAuthorizationFailed)
	default:
		return none, fmt.Errorf("%w: keys of type %d are not known here", kerr.InvalidRequest, kind)
	}
	node, err := q.conn.s.cfg.Groups.FindCoordinator(ctx, key)
	if err != nil {
		return none, q.forCoordinator(err)
	}
	e, ok := cluster.endpoint(node)
	if !ok {
		return none, fmt.Errorf("%w: node %d has no address for clients of this listener", kerr.CoordinatorNotAvailable, node)
	}
	return e, nil
}

// forCoordinator says in the words of coordinators that the node is no help now.
func (q *call) forCoordinator(err error) error {
	switch kafkaError(err) {
	case kerr.NotLeaderForPartition, kerr.RequestTimedOut, kerr.NotEnoughReplicas, kerr.KafkaStorageError:
		return fmt.Errorf("%w: %w", kerr.CoordinatorNotAvailable, err)
	}
	return err
}
