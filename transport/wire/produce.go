package wire

import (
	"fmt"

	"edged/record"
)

// produce hands one batch to the broker. The batch aliases the frame, which nobody else
// holds: it is the broker's from here on.
func (q *request) produce(b Broker) {
	var req ProduceRequest
	if !q.decode(&req) {
		return
	}
	tp := record.TopicPartition{Topic: req.Topic, Partition: req.Partition}
	place := q.c.enter(tp)
	if err := checkProduce(&req); err != nil {
		q.c.settle(tp, place, q.toAnswer(err, nil))
		return
	}
	b.Produce(req, func(resp ProduceResponse) {
		body := Message(&resp)
		if resp.Err != nil {
			body = nil // an offset beside an error could be taken for one
		}
		q.c.settle(tp, place, q.toAnswer(resp.Err, body))
	})
}

// checkProduce finds what no broker could do with the request, and the batch that was
// damaged on its way.
func checkProduce(req *ProduceRequest) error {
	if req.Acks != AcksAll && req.Acks != AcksLeader && req.Acks != AcksNone {
		return fmt.Errorf("%w: acks is %d; it is -1 (all), 1 (leader) or 0 (none)", record.ErrInvalidRequest, req.Acks)
	}
	req.TimeoutMs = int32(timeout(req.TimeoutMs).Milliseconds())
	return req.Batch.VerifyProduced()
}
