package node

import (
	"context"
	"errors"
	"fmt"
	"math"

	"edged/metadata"
	"edged/partition"
	"edged/record"
	"edged/transport/kafka"
)

// AwaitLeaders waits about an election while a partition of one of the topics has no leader.
func (b kafkaBroker) AwaitLeaders(ctx context.Context, topics []string) {
	n := b.n
	if n.notReady() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, electionPatience)
	defer cancel()
	_ = n.awaitPicture(ctx, func(p *metadata.Picture) bool {
		for _, name := range topics {
			t := p.Topic(name)
			if t == nil {
				continue
			}
			for _, part := range t.Partitions {
				if leader, _ := n.leaderOf(part.Group, n.host.Load().Lookup(part.Group)); leader == record.NoNode {
					return false
				}
			}
		}
		return true
	})
}

// lead finds a partition that this node leads, in Kafka's order: does it exist, is the client's
// epoch this one, who leads.
func (n *Node) lead(topic string, number int32, epoch record.Epoch) (metadata.Location, *partition.Partition, error) {
	at, part, err := n.locateRecords(topic, "", number)
	if err != nil {
		return at, nil, err
	}
	g := at.Partition.Group
	leader, now := n.leaderOf(g, part)
	switch {
	case part != nil && part.View().Role == partition.RoleDamaged:
		return at, nil, fmt.Errorf("%w: %v", record.ErrDamaged, part.View().Err)
	case epoch != record.NoEpoch && epoch < now:
		return at, nil, &kafka.FencedError{Leader: leader, Epoch: now}
	case epoch != record.NoEpoch && epoch > now:
		return at, nil, fmt.Errorf("the request names epoch %d, this node knows of %d: %w", epoch, now, record.ErrUnknownEpoch)
	case part == nil || leader != n.ident.Get().Node || part.View().Role != partition.RoleLeader:
		return at, nil, n.redirect(&record.NotLeaderError{Leader: record.NoNode, Epoch: now}, g, part)
	}
	return at, part, nil
}

// Leads says why a batch for the partition would be refused before anyone looks at it.
func (b kafkaBroker) Leads(topic string, number int32) error {
	_, _, err := b.n.lead(topic, number, record.NoEpoch)
	return err
}

// Produce appends one batch.
func (b kafkaBroker) Produce(req kafka.ProduceRequest, done func(kafka.ProduceResult)) {
	b.n.append(appending{topic: req.Topic, partition: req.Partition, acks: req.Acks, epoch: record.NoEpoch, timeoutMs: req.TimeoutMs, batch: req.Batch, mayJoin: req.MayJoin},
		func(r appended) {
			done(kafka.ProduceResult{BaseOffset: r.BaseOffset, LogStart: r.LogStart, AppendTime: r.time, Err: r.Err})
		})
}

// kafkaReader reads a partition while this node leads it in one epoch.
type kafkaReader struct {
	n     *Node
	part  *partition.Partition
	epoch record.Epoch
}

// Reader finds a partition to read.
func (b kafkaBroker) Reader(topic string, number int32, epoch record.Epoch) (kafka.Reader, error) {
	_, part, err := b.n.lead(topic, number, epoch)
	if err != nil {
		return nil, err
	}
	return &kafkaReader{b.n, part, part.View().Epoch}, nil
}

// Changed is closed when the state is another.
func (r *kafkaReader) Changed() <-chan struct{} { return r.part.Changed() }

// State is what can be read now.
func (r *kafkaReader) State() (kafka.ReadState, error) {
	v := r.part.View()
	if v.Role != partition.RoleLeader || v.Epoch != r.epoch {
		return kafka.ReadState{}, r.n.redirect(&record.NotLeaderError{Leader: v.Leader, Epoch: v.Epoch}, r.part.Group, r.part)
	}
	// In this order: each is at most the next, however they move meanwhile.
	s := kafka.ReadState{Serving: v.Serving, LogStart: r.part.LogStart(), Readable: r.part.Readable(), HighWatermark: r.part.HighWatermark()}
	s.End = max(s.HighWatermark, r.n.logEnd(r.part))
	return s, nil
}

// Confirm asks a majority whether this node still leads.
func (r *kafkaReader) Confirm(ctx context.Context) error {
	return r.n.awaitConfirm(ctx, r.part, r.epoch)
}

// Read gives whole batches.
func (r *kafkaReader) Read(from record.Offset, maxBytes int32) ([]byte, record.Offset, error) {
	out, next, err := r.n.store.ReadFrom(r.part.Group, from, r.part.Readable(), int64(maxBytes), nil)
	if err != nil && !errors.Is(err, record.ErrOffsetOutOfRange) {
		err = fmt.Errorf("%w: %v", record.ErrDamaged, err)
	}
	return out, next, err
}

// Offset answers where a partition begins or ends, or which offset a time has.
func (b kafkaBroker) Offset(ctx context.Context, req kafka.OffsetRequest) (kafka.OffsetResult, error) {
	n := b.n
	none := kafka.OffsetResult{Offset: -1, Timestamp: record.NoTimestamp, Epoch: record.NoEpoch}
	at, part, err := n.lead(req.Topic, req.Partition, req.Epoch)
	if err != nil {
		return none, err
	}
	v := part.View()
	res := kafka.OffsetResult{Offset: part.LogStart(), Timestamp: record.NoTimestamp, Epoch: v.Epoch}
	switch {
	case req.At == kafka.AtStart || req.At == kafka.AtEarliestLocal:
		return res, nil
	case !v.Serving:
		if err := n.awaitServing(ctx, part, v.Epoch); err != nil {
			return none, err
		}
	}
	high := part.HighWatermark()
	if req.At == kafka.AtEnd {
		res.Offset = high
		return res, nil
	}
	found, err := n.findTime(at.Partition.Group, req.At, part.LogStart(), part.Readable())
	if err != nil || found.Offset < 0 {
		return none, err
	}
	found.Epoch = v.Epoch
	return found, nil
}

// awaitServing waits about an election for a new leader to learn how much is committed.
func (n *Node) awaitServing(ctx context.Context, part *partition.Partition, epoch record.Epoch) error {
	ctx, cancel := context.WithTimeout(ctx, electionPatience)
	defer cancel()
	for {
		changed := part.Changed()
		switch v := part.View(); {
		case v.Role != partition.RoleLeader || v.Epoch != epoch:
			return n.redirect(&record.NotLeaderError{Leader: v.Leader, Epoch: v.Epoch}, part.Group, part)
		case v.Serving:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return record.ErrOffsetUnavailable
		}
	}
}

// findTime finds the first record at or after a time, or the one with the largest of all. The store
// knows the batch, the batch the record.
func (n *Node) findTime(g record.GroupID, at int64, start, end record.Offset) (kafka.OffsetResult, error) {
	found := kafka.OffsetResult{Offset: -1, Timestamp: record.NoTimestamp}
	ms := at
	if at == kafka.AtMaxTimestamp {
		var err error
		if ms, err = n.latestTime(g, end); err != nil || ms == record.NoTimestamp {
			return found, err
		}
	}
	base, _, ok, err := n.store.OffsetForTime(g, ms, end)
	if err != nil || !ok {
		return found, err
	}
	out, _, err := n.store.ReadFrom(g, base, end, 1, nil)
	if err != nil {
		return found, err
	}
	for batch, err := range record.SplitBatches(out) {
		if err != nil {
			return found, err
		}
		for r, err := range batch.Records() {
			if err != nil {
				return found, err
			}
			if r.Timestamp >= ms && r.Offset >= start {
				found.Offset, found.Timestamp = r.Offset, r.Timestamp
				return found, nil
			}
		}
	}
	return found, nil
}

// latestTime is the largest timestamp of a partition, NoTimestamp if it is empty. The store answers
// whether there is one that is as large, so it is found by halving.
func (n *Node) latestTime(g record.GroupID, end record.Offset) (int64, error) {
	has, lacks := record.NoTimestamp, int64(math.MaxInt64)-1 // their difference has to fit
	for lacks-has > 1 {
		ask := has + (lacks-has)/2
		_, ts, ok, err := n.store.OffsetForTime(g, ask, end)
		if err != nil {
			return 0, err
		}
		if ok {
			has = ts
		} else {
			lacks = ask
		}
	}
	return has, nil
}

// EpochEnd tells where an epoch ended.
func (b kafkaBroker) EpochEnd(topic string, number int32, epoch, of record.Epoch) (record.Epoch, record.Offset, error) {
	n := b.n
	at, part, err := n.lead(topic, number, epoch)
	if err != nil || of < 0 {
		return record.NoEpoch, -1, err
	}
	end := part.HighWatermark()
	if _, _, next, ok := n.store.Bounds(at.Partition.Group); ok {
		end = max(end, next)
	}
	e, o := n.store.EpochEnd(at.Partition.Group, of, end)
	return e, o, nil
}

// ProducerID gives an identity that no producer had before.
func (b kafkaBroker) ProducerID(ctx context.Context) (int64, error) {
	if err := b.n.notReady(); err != nil {
		return 0, err
	}
	return b.n.producerID(ctx)
}
