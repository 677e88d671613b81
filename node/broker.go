package node

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"edged/metadata"
	"edged/partition"
	"edged/record"
	"edged/transport/wire"
)

// broker serves the data requests of every protocol.
type broker struct{ n *Node }

var _ wire.Broker = broker{}

// What an acknowledgement bought, for answers.
const (
	boughtMajority = "fsync-majority"
	boughtLeader   = "fsync-leader"
	boughtRelaxed  = "relaxed"
	boughtNothing  = "none"
)

// Hello is what a client hears first.
func (b broker) Hello() wire.HelloInfo {
	id := b.n.identity()
	h := wire.HelloInfo{Node: id.Node, Version: b.n.opts.Version, Ready: b.n.notReady() == nil}
	if !id.Cluster.IsZero() {
		h.ClusterID = id.Cluster.String()
	}
	return h
}

// locate finds a partition, and this node's view of it; the view is nil if no replica is here.
func (n *Node) locate(topic string, number int32) (metadata.Location, *partition.Partition, error) {
	p := n.machine.Picture()
	t := p.Topic(topic)
	switch {
	case n.host.Load() == nil || p.ClusterID().IsZero():
		return metadata.Location{}, nil, record.ErrNotReady
	case t == nil:
		return metadata.Location{}, nil, n.unknownTopic(topic)
	case number < 0 || int(number) >= len(t.Partitions):
		return metadata.Location{}, nil, fmt.Errorf("topic %q has the partitions 0 to %d, not %d: %w", topic, len(t.Partitions)-1, number, record.ErrUnknownPartition)
	}
	at := metadata.Location{Topic: t, Number: number, Partition: t.Partitions[number]}
	part := n.host.Load().Lookup(at.Partition.Group)
	if part != nil && part.View().Role == partition.RoleNone {
		part = nil
	}
	return at, part, nil
}

// locateRecords is locate for who reads or writes records. id is that of the topic, empty for any.
func (n *Node) locateRecords(topic, id string, number int32) (metadata.Location, *partition.Partition, error) {
	if err := ownTopic(topic); err != nil {
		return metadata.Location{}, nil, err
	}
	at, part, err := n.locate(topic, number)
	if id == "" || at.Topic == nil || isTopic(at.Topic.ID, id) {
		return at, part, err
	}
	if !n.caughtUp() {
		return metadata.Location{}, nil, n.unknownTopic(topic)
	}
	return metadata.Location{}, nil, fmt.Errorf("topic %q has the id %v, not %s: %w", topic, at.Topic.ID, id, record.ErrUnknownTopicID)
}

// isTopic compares an id with its text.
func isTopic(id record.TopicID, text string) bool {
	var other record.TopicID
	n, err := hex.Decode(other[:], []byte(text[:min(len(text), 2*len(other))]))
	return err == nil && n == len(other) && len(text) == 2*n && other == id
}

// unknownTopic is the answer for a topic that this node's copy of the metadata does not have.
func (n *Node) unknownTopic(name string) error {
	if !n.caughtUp() {
		return fmt.Errorf("topic %q is not known here, but this node has not caught up with the cluster since its start: %w", name, record.ErrNotReady)
	}
	return fmt.Errorf("topic %q: %w", name, record.ErrUnknownTopic)
}

// caughtUp tells whether this node's copy of the metadata is of this life. After a start it is old
// until this life's own record is seen in it: then it holds all that was decided before the start, and
// not earlier does it say anything that something does not exist.
func (n *Node) caughtUp() bool {
	self := n.machine.Picture().Node(n.ident.Get().Node)
	return self != nil && self.Boot == n.boot
}

// leaderOf is who leads a group as far as this node knows: from its own replica, else from gossip.
func (n *Node) leaderOf(g record.GroupID, part *partition.Partition) (record.NodeID, record.Epoch) {
	leader, epoch := record.NoNode, record.NoEpoch
	if part != nil {
		v := part.View()
		leader, epoch = v.Leader, v.Epoch
		if leader != record.NoNode {
			return leader, epoch
		}
	}
	if l, ok := n.gossip.Leader(g); ok && l.Epoch >= epoch && n.plausible(l.Leader) {
		return l.Leader, l.Epoch
	}
	return leader, epoch
}

// plausible keeps a client from being sent to a node that is known to be away.
func (n *Node) plausible(id record.NodeID) bool {
	for _, s := range n.peers.Peers() {
		if s.Node == id {
			return s.Up
		}
	}
	return false
}

// redirect completes a not-leader error with addresses, or makes one of what this node knows.
func (n *Node) redirect(err error, g record.GroupID, part *partition.Partition) error {
	var nl *record.NotLeaderError
	if !errors.As(err, &nl) {
		return err
	}
	out := *nl
	if out.Leader == record.NoNode {
		leader, epoch := n.leaderOf(g, part)
		if leader != n.ident.Get().Node && epoch >= out.Epoch {
			out.Leader, out.Epoch = leader, epoch
		}
	}
	if node := n.machine.Picture().Node(out.Leader); node != nil {
		out.Addr, out.KafkaAddr = node.NativeAddr, node.KafkaAddr
	}
	if out.Leader == record.NoNode {
		return n.noLeader(g)
	}
	n.metrics.redirects.Add(1)
	return &out
}

// appending is one batch on its way into the log, whatever protocol it came by.
type appending struct {
	topic     string
	id        string // of the topic, empty: any
	partition int32
	acks      int16
	epoch     record.Epoch
	timeoutMs int32 // 0: none
	batch     record.Batch
	mayJoin   func() bool // see partition.ProduceRequest; may be nil
}

// appended tells what came of it.
type appended struct {
	partition.ProduceResult
	topic *metadata.Topic // nil if there is none
	time  int64           // of the append, NoTimestamp if the records keep their own
}

// append puts one batch into the log. done is called exactly once, from any goroutine.
func (n *Node) append(req appending, done func(appended)) {
	refuse := func(err error) {
		done(appended{ProduceResult: partition.ProduceResult{BaseOffset: -1, LogStart: -1, Epoch: record.NoEpoch, Err: err}, time: record.NoTimestamp})
	}
	if f := n.failure(); f != nil {
		refuse(fmt.Errorf("%w: %v", record.ErrStorage, f))
		return
	}
	at, part, err := n.locateRecords(req.topic, req.id, req.partition)
	if err != nil {
		refuse(err)
		return
	}
	g := at.Partition.Group
	if part == nil {
		refuse(n.redirect(&record.NotLeaderError{Leader: record.NoNode, Epoch: record.NoEpoch}, g, nil))
		return
	}
	stamped, err := n.stamp(at.Topic, req.batch)
	if err == nil {
		err = checkKeys(at.Topic, req.batch)
	}
	if err != nil {
		refuse(err)
		return
	}
	var answered atomic.Bool
	var timeout *time.Timer
	finish := func(r partition.ProduceResult, stamped int64) {
		if answered.CompareAndSwap(false, true) {
			done(appended{ProduceResult: r, topic: at.Topic, time: stamped})
		}
	}
	if req.acks != wire.AcksNone && req.timeoutMs > 0 {
		timeout = time.AfterFunc(time.Duration(req.timeoutMs)*time.Millisecond, func() {
			finish(partition.ProduceResult{BaseOffset: -1, LogStart: -1, Epoch: record.NoEpoch, Err: record.ErrTimeout}, record.NoTimestamp)
		})
	}
	n.host.Load().Produce(&partition.ProduceRequest{
		Group: g, Batch: req.batch, Acks: partition.Acks(req.acks), Epoch: req.epoch, MayJoin: req.mayJoin,
		Done: func(r partition.ProduceResult) {
			if timeout != nil {
				timeout.Stop()
			}
			switch {
			case errors.Is(r.Err, record.ErrOutOfOrder), errors.Is(r.Err, record.ErrUnknownProducer):
				// Some producers end for good when they are told so: it is said by who leads without doubt.
				n.confirm(part, r.Epoch, func(err error) {
					if err != nil {
						r.Err = err
					}
					r.BaseOffset = -1
					finish(r, record.NoTimestamp)
				})
			case r.Err != nil:
				r.BaseOffset, r.Err = -1, n.redirect(r.Err, g, part)
				finish(r, record.NoTimestamp)
			case r.Duplicate && stamped != record.NoTimestamp:
				go func() { finish(r, n.stampOf(g, r.BaseOffset)) }() // it reads the disk: not here in the Core
			default:
				finish(r, stamped)
			}
		},
	})
}

// confirm asks a majority whether this node leads a partition in an epoch at a moment after the call, and gives nil
// or what a client is to be told. done is called once and must not block.
func (n *Node) confirm(part *partition.Partition, epoch record.Epoch, done func(error)) {
	n.host.Load().Confirm(&partition.ConfirmRequest{Group: part.Group, Epoch: epoch, Done: func(err error) {
		if errors.Is(err, record.ErrInterrupted) { // it leads no more
			err = &record.NotLeaderError{Leader: record.NoNode, Epoch: epoch}
		}
		done(n.redirect(err, part.Group, part))
	}})
}

// awaitConfirm is confirm for who can wait.
func (n *Node) awaitConfirm(ctx context.Context, part *partition.Partition, epoch record.Epoch) error {
	answer := make(chan error, 1)
	n.confirm(part, epoch, func(err error) { answer <- err })
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return record.ErrOffsetUnavailable
	case <-n.ctx.Done():
		return record.ErrShuttingDown
	}
}

// Produce appends one batch; see wire.Broker.
func (b broker) Produce(req wire.ProduceRequest, done func(wire.ProduceResponse)) {
	b.n.append(appending{topic: req.Topic, id: req.TopicID, partition: req.Partition, acks: req.Acks, epoch: req.Epoch, timeoutMs: req.TimeoutMs, batch: req.Batch},
		func(r appended) {
			res := wire.ProduceResponse{BaseOffset: r.BaseOffset, LogStart: r.LogStart, Epoch: r.Epoch, Err: r.Err}
			if r.Err == nil {
				res.Durability = boughtFor(r.topic.Configs.Durability, req.Acks)
			}
			done(res)
		})
}

func boughtFor(d metadata.Durability, acks int16) string {
	switch {
	case acks == wire.AcksNone:
		return boughtNothing
	case d == metadata.Relaxed:
		return boughtRelaxed
	case acks == wire.AcksLeader:
		return boughtLeader
	}
	return boughtMajority
}

// serving finds a partition that this node leads and may read, waiting a moment for a leader that
// has not committed in its epoch yet.
func (n *Node) serving(ctx context.Context, topic, id string, number int32, epoch record.Epoch) (metadata.Location, *partition.Partition, error) {
	at, part, err := n.locateRecords(topic, id, number)
	if err != nil {
		return at, nil, err
	}
	g := at.Partition.Group
	if part == nil {
		return at, nil, n.redirect(&record.NotLeaderError{Leader: record.NoNode, Epoch: record.NoEpoch}, g, nil)
	}
	for {
		changed := part.Changed()
		v := part.View()
		switch {
		case v.Role == partition.RoleDamaged:
			return at, nil, fmt.Errorf("%w: %v", record.ErrDamaged, v.Err)
		case v.Role != partition.RoleLeader:
			return at, nil, n.redirect(&record.NotLeaderError{Leader: v.Leader, Epoch: v.Epoch}, g, part)
		case epoch != record.NoEpoch && epoch < v.Epoch:
			return at, nil, fmt.Errorf("the request names epoch %d, the partition is in %d: %w", epoch, v.Epoch, record.ErrFencedEpoch)
		case epoch != record.NoEpoch && epoch > v.Epoch:
			return at, nil, fmt.Errorf("the request names epoch %d, this leader is in %d: %w", epoch, v.Epoch, record.ErrUnknownEpoch)
		case v.Serving:
			return at, part, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return at, nil, record.ErrOffsetUnavailable
		}
	}
}

// logEnd is where a partition ends here, what is not committed yet included.
func (n *Node) logEnd(part *partition.Partition) record.Offset {
	end := part.HighWatermark()
	if _, _, next, ok := n.store.Bounds(part.Group); ok {
		end = max(end, next)
	}
	return end
}

// Fetch reads batches up to the high watermark; see wire.Broker.
func (b broker) Fetch(ctx context.Context, req wire.FetchRequest) wire.FetchResponse {
	wait := max(time.Duration(req.MaxWaitMs)*time.Millisecond, 0)
	connection := ctx
	ctx, cancel := context.WithTimeout(ctx, wait+time.Millisecond)
	defer cancel()
	res := wire.FetchResponse{HighWatermark: -1, LogStart: -1, Epoch: record.NoEpoch}
	at, part, err := b.n.serving(ctx, req.Topic, req.TopicID, req.Partition, req.Epoch)
	if err != nil {
		res.Err = err
		return res
	}
	confirmed := false
	for {
		changed := part.Changed()
		v := part.View()
		if v.Role != partition.RoleLeader || !v.Serving {
			res.Err = b.n.redirect(&record.NotLeaderError{Leader: v.Leader, Epoch: v.Epoch}, at.Partition.Group, part)
			return res
		}
		res.HighWatermark, res.LogStart, res.Epoch = part.HighWatermark(), part.LogStart(), v.Epoch
		end := res.HighWatermark
		if req.Offset > end {
			end = b.n.logEnd(part)
		}
		if req.Offset > end && !confirmed {
			// A consumer that is told "out of range" begins its partition again.
			if res.Err = b.n.awaitConfirm(connection, part, v.Epoch); res.Err != nil {
				return res
			}
			confirmed = true
			continue
		}
		if req.Offset < res.LogStart || req.Offset > end {
			res.Err = fmt.Errorf("offset %d, the log has %d to %d: %w", req.Offset, res.LogStart, res.HighWatermark, record.ErrOffsetOutOfRange)
			return res
		}
		expired := ctx.Err() != nil
		if req.Offset < res.HighWatermark {
			if readable := min(part.Readable(), res.HighWatermark); req.Offset < readable {
				if res.Err = b.read(connection, at.Partition.Group, req, readable, &res); res.Err != nil || len(res.Batches) > 0 {
					return res
				}
			}
			// Committed by the others and not on this disk yet: it is on its way.
			changed = nil
		}
		if expired {
			return res
		}
		select {
		case <-changed:
		case <-ctx.Done():
		case <-b.n.ctx.Done():
			res.Err = record.ErrShuttingDown
			return res
		case <-afterIf(changed == nil, 2*time.Millisecond):
		}
	}
}

func afterIf(on bool, d time.Duration) <-chan time.Time {
	if !on {
		return nil
	}
	return time.After(d)
}

// read takes batches from the store. It asks first for room in the connection's share of memory, and
// waits for it as long as the connection lives.
func (b broker) read(ctx context.Context, g record.GroupID, req wire.FetchRequest, limit record.Offset, res *wire.FetchResponse) error {
	want := max(min(int64(req.MaxBytes), b.n.memory.fetch), 1)
	if req.Reserve != nil {
		ctx, cancel := context.WithTimeout(ctx, wire.MaxTimeout)
		defer cancel()
		if err := req.Reserve(ctx, want); err != nil {
			return err
		}
	}
	out, _, err := b.n.store.ReadFrom(g, req.Offset, limit, want, nil)
	if err != nil {
		return fmt.Errorf("%w: %v", record.ErrDamaged, err)
	}
	res.Batches = out
	return nil
}

// Offsets answers where a partition begins or ends, or which offset a time has.
func (b broker) Offsets(ctx context.Context, req wire.OffsetsRequest) (wire.OffsetsResponse, error) {
	at, part, err := b.n.serving(ctx, req.Topic, "", req.Partition, record.NoEpoch)
	if err != nil {
		return wire.OffsetsResponse{}, err
	}
	res := wire.OffsetsResponse{
		Offset: part.HighWatermark(), Timestamp: -1, Epoch: part.View().Epoch,
		LogStart: part.LogStart(), HighWatermark: part.HighWatermark(),
	}
	switch {
	case req.At == wire.AtStart:
		res.Offset = res.LogStart
	case req.At >= 0:
		err = b.n.offsetAt(at.Partition.Group, req.At, &res)
	case req.At != wire.AtEnd:
		err = fmt.Errorf("position %d is neither a time nor start or end: %w", req.At, record.ErrInvalidRequest)
	}
	return res, err
}

// offsetAt finds the first record at or after a time. The store knows the batch, the batch the record.
func (n *Node) offsetAt(g record.GroupID, ms int64, res *wire.OffsetsResponse) error {
	base, _, ok, err := n.store.OffsetForTime(g, ms, res.HighWatermark)
	if err != nil || !ok {
		return err
	}
	out, _, err := n.store.ReadFrom(g, base, res.HighWatermark, 1, nil)
	if err != nil {
		return err
	}
	for batch, err := range record.SplitBatches(out) {
		if err != nil {
			return err
		}
		for r, err := range batch.Records() {
			if err != nil {
				return err
			}
			if r.Timestamp >= ms && r.Offset >= res.LogStart {
				res.Offset, res.Timestamp = r.Offset, r.Timestamp
				return nil
			}
		}
	}
	return nil
}

// ProducerID gives an identity that no producer had before.
func (b broker) ProducerID(ctx context.Context) (int64, int16, error) {
	id, err := b.n.producerID(ctx)
	return id, 0, err
}
