package kafka

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

// Produce, key 0, versions 0 to 11; 0 to 2 are advertised and answered with UNSUPPORTED_VERSION.
//
// Some old clients compress only if version 0 is advertised, and never use it. What they would send
// in it is refused: only record batches of format v2 are taken, one for each partition.
//
// Errors come in Kafka's order: does the partition exist, is it one batch of format v2, who
// leads, then what is in the batch. A proposal that was in flight when leadership was lost is
// REQUEST_TIMED_OUT and not NOT_LEADER_OR_FOLLOWER, which clients take for "surely not kept".
//
// acks=0 has no answer at all; if it fails the connection is closed, or the client would never know.
//
//	v3:  format v2, transactional id
//	v5:  log start offset in the answer
//	v7:  zstd may be used
//	v8:  error message
//	v9:  flexible
//	v10: the answer names the new leader (KIP-951)
func init() {
	register(0, 11, func(*call, *kmsg.ProduceRequest) kmsg.Response { return nil }, servedFrom(3))
}

// checkProduce walks through a produce request before it is decoded: its counts are only bounded by
// its bytes, and those are mostly records.
func (q *call) checkProduce(body []byte) error {
	r := kbin.Reader{Src: body}
	flexible := q.version >= 9
	length := func() int32 {
		if flexible {
			return r.CompactArrayLen()
		}
		return r.ArrayLen()
	}
	tags := func() {
		if flexible {
			kmsg.SkipTags(&r)
		}
	}
	if flexible {
		r.CompactNullableBytes()
	} else if q.version >= 3 {
		r.Span(int(max(r.Int16(), 0)))
	}
	r.Span(2 + 4) // acks, timeout
	elements := int64(0)
	for topics := length(); topics > 0 && r.Ok(); topics-- {
		if flexible {
			r.CompactNullableBytes()
		} else {
			r.Span(int(r.Int16()))
		}
		elements++
		for partitions := length(); partitions > 0 && r.Ok(); partitions-- {
			r.Int32()
			if flexible {
				r.CompactNullableBytes()
			} else {
				r.NullableBytes()
			}
			tags()
			elements++
		}
		tags()
		if elements > maxElements {
			return broken(BadBody, "a produce names more than %d topics and partitions", maxElements)
		}
	}
	if !r.Ok() {
		return broken(BadBody, "Produce version %d: its lengths do not fit its %d bytes", q.version, q.size)
	}
	return nil
}

// producing is a produce request that waits for its partitions.
type producing struct {
	*call
	resp *kmsg.ProduceResponse
	acks int16
	left atomic.Int32
	err  atomic.Pointer[error] // one of them, for acks=0
	cut  bool                  // the request broke off: it gets no answer
}

// produce hands the batches to the broker, in the order of the request. It is called by the
// reader and does not wait.
func (q *call) produce(req *kmsg.ProduceRequest) {
	p := &producing{call: q, resp: req.ResponseKind().(*kmsg.ProduceResponse), acks: req.Acks}
	count := int32(1) // until all are handed over
	p.resp.Topics = make([]kmsg.ProduceResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t, out := &req.Topics[i], &p.resp.Topics[i]
		out.Topic = t.Topic
		out.Partitions = make([]kmsg.ProduceResponseTopicPartition, len(t.Partitions))
		count += int32(len(t.Partitions))
	}
	p.left.Store(count)
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			in := &t.Partitions[j]
			// A batch that is a small part of the request would keep all of it in memory for as long as it is kept.
			if len(in.Records) < int(p.size)/2 {
				in.Records = slices.Clone(in.Records)
			}
			p.start(req, t, in, &p.resp.Topics[i].Partitions[j], func() {})
		}
	}
	p.finish()
}

// start hands over the batch of one partition. through is called when the broker has answered.
func (p *producing) start(req *kmsg.ProduceRequest, t *kmsg.ProduceRequestTopic, in *kmsg.ProduceRequestTopicPartition, out *kmsg.ProduceResponseTopicPartition, through func()) {
	out.Default()
	out.Partition, out.BaseOffset, out.LogStartOffset = in.Partition, -1, -1
	batch, err := p.check(req, t.Topic, in)
	if err != nil {
		if len(batch) > 0 {
			p.conn.sequenceOf(t.Topic, in.Partition, batch).answered(err)
		}
		through()
		p.answerPartition(out, ProduceResult{BaseOffset: -1, LogStart: -1, AppendTime: record.NoTimestamp, Err: err})
		return
	}
	timeout := req.TimeoutMillis
	if timeout <= 0 || int64(timeout) > MaxTimeout.Milliseconds() {
		timeout = int32(defaultTimeout.Milliseconds())
	}
	seq := p.conn.sequenceOf(t.Topic, in.Partition, batch)
	p.conn.s.cfg.Broker.Produce(ProduceRequest{
		Topic: t.Topic, Partition: in.Partition, Acks: req.Acks, TimeoutMs: timeout, Batch: batch, MayJoin: seq.mayJoin,
	}, func(r ProduceResult) {
		seq.answered(r.Err)
		through()
		p.answerPartition(out, r)
	})
}

// sequence is what one connection brings of one producer for one partition. It remembers whether the last
// batch was refused: what the client sent behind it must not be where the partition begins to know the
// producer, or it would come before that batch, which the client sends again. A nil one always says so.
type sequence struct{ refused atomic.Bool }

func (s *sequence) mayJoin() bool { return s != nil && !s.refused.Load() }

func (s *sequence) answered(err error) {
	if s != nil {
		s.refused.Store(err != nil)
	}
}

// sequenceOf finds the sequence of a batch, nil if it has none or if the connection has too many. It is called
// by the reader only.
func (c *conn) sequenceOf(topic string, partition int32, batch record.Batch) *sequence {
	if batch.ProducerID() < 0 {
		return nil
	}
	var h maphash.Hash
	h.SetSeed(sequenceSeed)
	_, _ = h.WriteString(topic) // it never fails
	key := [2]uint64{h.Sum64() + uint64(partition), uint64(batch.ProducerID())}
	s := c.sequences[key]
	if s == nil && len(c.sequences) < maxSequences {
		if c.sequences == nil {
			c.sequences = map[[2]uint64]*sequence{}
		}
		s = &sequence{}
		c.sequences[key] = s
	}
	return s
}

var sequenceSeed = maphash.MakeSeed()

// check judges what came for a partition, in Kafka's order.
func (p *producing) check(req *kmsg.ProduceRequest, topic string, in *kmsg.ProduceRequestTopicPartition) (record.Batch, error) {
	if p.version < p.api.served {
		return nil, kerr.UnsupportedVersion
	}
	batch, err := p.frame(in.Records)
	if err == nil {
		if err = checkProduced(batch); req.Acks != -1 && req.Acks != 0 && req.Acks != 1 {
			err = kerr.InvalidRequiredAcks
		}
	}
	if err != nil {
		// Who does not exist or does not lead says that first.
		if lookup := p.conn.s.cfg.Broker.Leads(topic, in.Partition); lookup != nil {
			return batch, lookup
		}
	}
	return batch, err
}

// magicAt is where a batch says its format, as did the message sets before there were batches.
const magicAt = 16

// frame makes sure that the records are one whole batch of format v2.
func (p *producing) frame(records []byte) (record.Batch, error) {
	if len(records) == 0 {
		return nil, fmt.Errorf("%w: no batch for the partition", kerr.InvalidRecord)
	}
	batch, rest, err := record.ParseBatch(records)
	switch {
	case errors.Is(err, record.ErrUnsupportedMagic) && (records[magicAt] == 0 || records[magicAt] == 1):
		return nil, fmt.Errorf("%w: %w", kerr.InvalidRecord, err)
	case errors.Is(err, record.ErrUnsupportedMagic): // no such format: damaged on its way
		return nil, fmt.Errorf("%w: %w", kerr.CorruptMessage, err)
	case err != nil && (len(records) < record.BatchHeaderSize || record.Batch(records).Length() > len(records)):
		return nil, fmt.Errorf("%w: %w", kerr.InvalidRecord, err) // cut off: as good as no batch
	case err != nil:
		return nil, err
	case len(rest) > 0:
		return nil, fmt.Errorf("%w: more than one batch for a partition, %d bytes follow the first", kerr.InvalidRecord, len(rest))
	case batch.Codec() > record.Zstd:
		return nil, fmt.Errorf("%w: codec %d", kerr.UnsupportedCompressionType, batch.Codec())
	case batch.Codec() == record.Zstd && p.version < 7:
		return nil, fmt.Errorf("%w: zstd needs version 7 of Produce", kerr.UnsupportedCompressionType)
	}
	return batch, nil
}

// checkProduced gives the faults of a batch the codes that Kafka has for them.
func checkProduced(b record.Batch) error {
	if b.BaseOffset() != 0 {
		return fmt.Errorf("%w: base offset %d of a new batch", kerr.InvalidRecord, b.BaseOffset())
	}
	err := b.VerifyProduced()
	switch {
	case err == nil && b.IsTransactional():
		return fmt.Errorf("%w: this cluster has no transactions", kerr.TransactionalIDAuthorizationFailed)
	case errors.Is(err, record.ErrInvalidRequest):
		return fmt.Errorf("%w: %w", kerr.InvalidRecord, err)
	case errors.Is(err, record.ErrCorrupt) && b.CRCFits():
		// What was damaged on its way is worth another try; what the client made so is not.
		return fmt.Errorf("%w: %w", kerr.InvalidRecord, err)
	}
	return err
}

// answerPartition fills in what came of one partition. Partitions do not share memory, so no
// lock is needed; the last one settles the call.
func (p *producing) answerPartition(out *kmsg.ProduceResponseTopicPartition, r ProduceResult) {
	if r.Err != nil {
		if errors.Is(r.Err, record.ErrInvalidRequest) { // of a batch, once its topic's settings are known
			r.Err = fmt.Errorf("%w: %w", kerr.InvalidRecord, r.Err)
		}
		out.ErrorCode, out.ErrorMessage = p.code(r.Err), message(r.Err)
		var nl *record.NotLeaderError
		if errors.As(r.Err, &nl) && nl.Leader != record.NoNode {
			out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = int32(nl.Leader), int32(nl.Epoch)
		}
		p.err.CompareAndSwap(nil, &r.Err)
	} else {
		out.BaseOffset, out.LogAppendTime = int64(r.BaseOffset), r.AppendTime
	}
	out.LogStartOffset = int64(r.LogStart)
	p.finish()
}

// finish settles the call when all partitions and the reader are through.
func (p *producing) finish() {
	if p.left.Add(-1) > 0 {
		return
	}
	switch {
	case p.cut:
	case p.acks != 0:
		p.answer, p.prepare = p.resp, p.addHints
	case p.err.Load() != nil:
		p.conn.fail(BadAcksNone, *p.err.Load())
		p.conn.Abort()
	}
	p.conn.settle(p.call)
}

// addHints puts in the addresses of leaders that errors name. A hint that cannot be completed is taken
// out: clients that follow a wrong one do not refresh their metadata for minutes.
func (p *producing) addHints() {
	h := hints{call: p.call}
	for i := range p.resp.Topics {
		for j := range p.resp.Topics[i].Partitions {
			l := &p.resp.Topics[i].Partitions[j].CurrentLeader
			if l.LeaderID >= 0 && (p.version < 10 || !h.add(l.LeaderID)) {
				l.LeaderID, l.LeaderEpoch = -1, -1
			}
		}
	}
	for _, e := range h.found {
		p.resp.Brokers = append(p.resp.Brokers, kmsg.ProduceResponseBroker{NodeID: int32(e.ID), Host: e.Host, Port: e.Port, Rack: rackOf(e)})
	}
}

// hints gathers the addresses of the nodes that an answer names as leaders.
type hints struct {
	*call
	cluster *Cluster
	found   []Endpoint
}

// add tells whether the client can be sent to the node.
func (h *hints) add(leader int32) bool {
	if h.cluster == nil {
		c := h.conn.s.cfg.Broker.Cluster(h.conn.at)
		h.cluster = &c
	}
	e, ok := h.cluster.endpoint(record.NodeID(leader))
	if ok && !slices.ContainsFunc(h.found, func(f Endpoint) bool { return f.ID == e.ID }) {
		h.found = append(h.found, e)
	}
	return ok
}
