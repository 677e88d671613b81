package wire

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"edged/record"
)

// apis names every API and the versions that this package speaks.
var apis = map[API]struct {
	name     string
	min, max int16
}{
	APIHello:          {"hello", Version, Version},
	APIMetadata:       {"metadata", Version, Version},
	APIProduce:        {"produce", Version, Version},
	APIFetch:          {"fetch", Version, Version},
	APIOffsets:        {"offsets", Version, Version},
	APIProducerID:     {"producer_id", Version, Version},
	APICreateTopic:    {"create_topic", Version, Version},
	APIDeleteTopic:    {"delete_topic", Version, Version},
	APIAlterTopic:     {"alter_topic", Version, Version},
	APITransferLeader: {"transfer_leader", Version, Version},
	APILeaderHistory:  {"leader_history", Version, Version},
	APIStatus:         {"status", Version, Version},
	APIDescribeNode:   {"describe_node", Version, Version},
	APIRemoveNode:     {"remove_node", Version, Version},
	APIEvents:         {"events", Version, Version},
	APINetwork:        {"network", Version, Version},
	APIListGroups:     {"list_groups", Version, Version},
	APIDescribeGroup:  {"describe_group", Version, Version},
	APIDeleteGroup:    {"delete_group", Version, Version},
	APICommitGroup:    {"commit_group", Version, Version},
}

func (a API) String() string {
	if d, ok := apis[a]; ok {
		return d.name
	}
	return "api " + strconv.Itoa(int(a))
}

// request is one request that has been read. It is answered exactly once.
type request struct {
	c    *conn
	head requestHeader
	body *walker
	held int64 // of the connection's requestMem
	call bool  // has a place in the connection's calls
}

// dispatch starts the request of a frame. An error ends the connection.
func (c *conn) dispatch(frame []byte, held int64) error {
	head, body, err := parseRequest(frame)
	q := &request{c: c, head: head, body: body, held: held}
	if err != nil {
		c.requestMem.Release(held)
		return &protocolError{reason: BadHeader, correlation: head.correlation,
			err: fmt.Errorf("%w: not a request: %w", record.ErrInvalidRequest, err)}
	}
	if !c.greeted && head.api != APIHello {
		c.requestMem.Release(held)
		return &protocolError{reason: BadHello, correlation: head.correlation,
			err: fmt.Errorf("%w: a connection begins with hello (api 0), not with %s", record.ErrInvalidRequest, head.api)}
	}
	known, ok := apis[head.api]
	switch {
	case !ok:
		c.s.metrics.bad(BadAPI)
		q.answer(fmt.Errorf("%w: there is no api %d", record.ErrUnsupported, head.api), nil)
	case head.version < known.min || head.version > known.max:
		c.s.metrics.bad(BadVersion)
		q.answer(fmt.Errorf("%w: %s version %d; this node speaks %d to %d", record.ErrUnsupported, head.api, head.version, known.min, known.max), nil)
	default:
		c.s.metrics.request(head.api)
		q.start()
	}
	return nil
}

func (q *request) start() {
	b := q.c.s.cfg.Broker
	switch q.head.api {
	case APIHello:
		q.hello(b)
	case APIProduce:
		q.produce(b)
	case APIFetch:
		q.fetch(b)
	case APIMetadata:
		unary(q, func(ctx context.Context, r MetadataRequest) (Metadata, error) { return b.Metadata(ctx, r.Topics) })
	case APIOffsets:
		unary(q, b.Offsets)
	case APIProducerID:
		unary(q, func(ctx context.Context, _ ProducerIDRequest) (a ProducerIDResponse, err error) {
			a.ID, a.Epoch, err = b.ProducerID(ctx)
			return a, err
		})
	case APICreateTopic:
		unary(q, b.CreateTopic)
	case APIDeleteTopic:
		unary(q, func(ctx context.Context, r DeleteTopicRequest) (Empty, error) { return Empty{}, b.DeleteTopic(ctx, r) })
	case APIAlterTopic:
		unary(q, func(ctx context.Context, r AlterTopicRequest) (Empty, error) { return Empty{}, b.AlterTopic(ctx, r) })
	case APITransferLeader:
		unary(q, b.TransferLeader)
	case APILeaderHistory:
		unary(q, func(ctx context.Context, r LeaderHistoryRequest) (a LeaderHistoryResponse, err error) {
			a.Node = b.Hello().Node
			a.Changes, err = b.LeaderHistory(ctx, r)
			return a, err
		})
	case APIStatus:
		unary(q, func(ctx context.Context, _ StatusRequest) (Status, error) { return b.Status(ctx) })
	case APIDescribeNode:
		unary(q, func(ctx context.Context, r DescribeNodeRequest) (NodeDescription, error) {
			return b.DescribeNode(ctx, r.Node)
		})
	case APIRemoveNode:
		unary(q, b.RemoveNode)
	case APIEvents:
		unary(q, func(ctx context.Context, r EventsRequest) (a EventsResponse, err error) {
			a.Events, err = b.Events(ctx, r)
			return a, err
		})
	case APINetwork:
		unary(q, func(ctx context.Context, r NetworkRequest) (a NetworkResponse, err error) {
			a.Reaches, err = b.Network(ctx, r)
			return a, err
		})
	case APIListGroups, APIDescribeGroup, APIDeleteGroup, APICommitGroup:
		q.groups()
	}
}

// decode reads the body; one that cannot be read is answered here.
func (q *request) decode(m Message) bool {
	q.body.message(m)
	q.body.skip(q.head.extra, maxSkipDepth)
	if q.body.err == nil && q.body.src.Len() > 0 {
		q.body.fail(fmt.Errorf("%d bytes follow the request", q.body.src.Len()))
	}
	if q.body.err == nil {
		return true
	}
	q.c.s.metrics.bad(BadBody)
	q.answer(fmt.Errorf("%w: %s version %d: %w", record.ErrInvalidRequest, q.head.api, q.head.version, q.body.err), nil)
	return false
}

// answer sends what came of the request.
func (q *request) answer(err error, body Message) {
	q.c.send(q.toAnswer(err, body))
}

// toAnswer gives back the memory of the request but for its cost, which the answer
// holds until it is written: a client that sends and never reads is stopped by it.
func (q *request) toAnswer(err error, body Message) answer {
	if q.held > requestCost {
		q.c.requestMem.Release(q.held - requestCost)
		q.held = requestCost
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w (%s)", record.ErrTimeout, q.head.api)
	}
	return answer{correlation: q.head.correlation, err: err, body: body, requestMem: q.held, call: q.call}
}

// pointer is a pointer that is a message.
type pointer[T any] interface {
	*T
	Message
}

// unary answers a request by one call, in a goroutine of its own.
func unary[Q, A any, PQ pointer[Q], PA pointer[A]](q *request, do func(context.Context, Q) (A, error)) {
	var req Q
	if !q.decode(PQ(&req)) {
		return
	}
	ms := int32(0)
	if t, ok := any(req).(interface{ timeoutMs() int32 }); ok {
		ms = t.timeoutMs()
	}
	select {
	case q.c.calls <- struct{}{}:
		q.call = true
	case <-q.c.ctx.Done():
		q.answer(record.ErrShuttingDown, nil)
		return
	}
	q.c.handlers.Go(func() {
		ctx, cancel := context.WithTimeout(q.c.ctx, timeout(ms))
		defer cancel()
		a, err := do(ctx, req)
		if err != nil {
			q.answer(err, nil)
			return
		}
		q.answer(nil, PA(&a))
	})
}

// timeout makes sense of a timeout from the wire.
func timeout(ms int32) time.Duration {
	if ms <= 0 {
		return defaultTimeout
	}
	return min(time.Duration(ms)*time.Millisecond, MaxTimeout)
}

func (r CreateTopicRequest) timeoutMs() int32    { return r.TimeoutMs }
func (r DeleteTopicRequest) timeoutMs() int32    { return r.TimeoutMs }
func (r AlterTopicRequest) timeoutMs() int32     { return r.TimeoutMs }
func (r TransferLeaderRequest) timeoutMs() int32 { return r.TimeoutMs }
func (r LeaderHistoryRequest) timeoutMs() int32  { return r.TimeoutMs }
func (r StatusRequest) timeoutMs() int32         { return r.TimeoutMs }
func (r DescribeNodeRequest) timeoutMs() int32   { return r.TimeoutMs }
func (r EventsRequest) timeoutMs() int32         { return r.TimeoutMs }
func (r NetworkRequest) timeoutMs() int32        { return r.TimeoutMs }
func (r RemoveNodeRequest) timeoutMs() int32     { return r.TimeoutMs }

// hello is answered by the reader: it is small, and requests behind it are already meant
// for a connection that is open.
func (q *request) hello(b Broker) {
	var req HelloRequest
	if !q.decode(&req) {
		return
	}
	info := b.Hello()
	info.MaxFrame = q.c.s.cfg.MaxFrame
	info.APIs = supported()
	if !q.c.greeted {
		q.c.greeted = true
		_ = q.c.nc.SetReadDeadline(time.Time{}) // a connection that is gone shows at the next read
		q.c.s.cfg.Logger.Debug("native client connected", "from", q.c.nc.RemoteAddr(), "client", req.Client)
	}
	q.answer(nil, &info)
}

// supported lists the APIs in the order of their numbers.
func supported() []APIVersion {
	var out []APIVersion
	for api := range lastAPI + 1 {
		if d, ok := apis[api]; ok {
			out = append(out, APIVersion{API: api, Min: d.min, Max: d.max})
		}
	}
	return out
}
