package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

// InitProducerId, key 22, versions 0 to 5.
//
// Without a transactional id every call gives an identity that nobody had before, whatever the client
// brings along: producers raise their epoch by themselves. With one it is refused in the way that ends
// clients at once, instead of having them try for minutes: there are no transactions here.
//
//	v2: flexible
//	v3: the client's current identity, which is not looked at
func init() { register(0, 5, (*call).initProducerID) }

func (q *call) initProducerID(req *kmsg.InitProducerIDRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = record.NoProducerID, record.NoProducerEpoch
	ctx, cancel := q.context(0)
	defer cancel()
	id, err := int64(0), error(nil)
	switch {
	case req.TransactionalID != nil && *req.TransactionalID == "":
		err = kerr.InvalidRequest
	case req.TransactionalID != nil:
		err = fmt.Errorf("%w: this cluster has no transactions", kerr.TransactionalIDAuthorizationFailed)
	case q.version >= 3 && (req.ProducerID < 0) != (req.ProducerEpoch < 0):
		err = kerr.InvalidRequest
	default:
		id, err = q.conn.s.cfg.Broker.ProducerID(ctx)
	}
	if err != nil {
		resp.ErrorCode = q.code(q.forCoordinator(err))
		return resp
	}
	resp.ProducerID, resp.ProducerEpoch = id, 0
	return resp
}
