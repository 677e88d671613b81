package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"edged/record"
	"edged/transport/wire"
)

// Defaults and bounds of ProducerConfig.
const (
	DefaultBatchBytes      = 128 << 10
	DefaultBufferBytes     = 16 << 20
	DefaultDeliveryTimeout = 30 * time.Second
	// MaxRecordBytes bounds one record; the topic's max.message.bytes is usually lower.
	MaxRecordBytes = 32 << 20

	// recordCost is what a record takes of the buffer beside its bytes.
	recordCost = 128
)

// Acks is what has to have happened before a record counts as produced.
type Acks int8

// The zero value is the safe one.
const (
	AcksAll    Acks = iota // a majority of the voters has it, on disk unless the topic is relaxed
	AcksLeader             // the leader has it on disk; lost if that node dies before others have it
	AcksNone               // the leader has taken it; lost with the next failure of the leader
)

func (a Acks) wire() int16 {
	switch a {
	case AcksLeader:
		return wire.AcksLeader
	case AcksNone:
		return wire.AcksNone
	}
	return wire.AcksAll
}

// ProducerConfig says how records are collected and sent. Zero fields get the defaults.
type ProducerConfig struct {
	Acks  Acks
	Codec record.Codec
	// BatchBytes is how large a batch grows, in bytes before compression, if the topic takes
	// as large ones. A larger record gets a batch of its own.
	BatchBytes int
	// Linger is how long a record waits for others to share its batch. 0: not at all, but
	// records that come while five batches are under way still share one.
	Linger time.Duration
	// BufferBytes bounds what has been taken and not been answered. Produce waits at the bound.
	BufferBytes int64
	// DeliveryTimeout is how long after Produce a record is given up.
	DeliveryTimeout time.Duration
	// StopAtError ends the producer with the first record that fails: nothing that was not on its way by
	// then is sent, of the record's own partition nothing at all that came after it.
	StopAtError bool
}

// ErrStopped is what became of records that were not sent because one before them failed.
var ErrStopped = errors.New("not sent: a record before it failed")

func (c ProducerConfig) withDefaults() ProducerConfig {
	if c.BatchBytes <= 0 {
		c.BatchBytes = DefaultBatchBytes
	}
	if c.BufferBytes <= 0 {
		c.BufferBytes = DefaultBufferBytes
	}
	if c.DeliveryTimeout <= 0 {
		c.DeliveryTimeout = DefaultDeliveryTimeout
	}
	return c
}

// Record is what is produced. Key and Value may be nil, which is null. They are copied.
type Record struct {
	Topic     string
	Key       []byte
	Value     []byte
	Headers   []record.Header
	Timestamp int64 // ms since 1970; 0: now
}

// Ack tells what became of a record.
type Ack struct {
	Topic      string
	Partition  int32
	Offset     record.Offset // -1: it is in the log, but where is no longer known
	Epoch      record.Epoch
	Durability string // what was bought, in the cluster's words
	Err        error  // see the package's comment for what an error means
}

// Producer sends records, each partition's in the order of Produce, each once. It is
// safe for concurrent use.
//
// Goroutines: one per partition that was produced to, until Close.
type Producer struct {
	c        *Client
	cfg      ProducerConfig
	ctx      context.Context
	cancel   context.CancelFunc
	buffer   *semaphore.Weighted
	flushing atomic.Int32 // Flush calls under way: nothing lingers
	stopped  atomic.Bool  // a record has failed, with StopAtError

	// mu may be held when a sender's is taken, never the other way round.
	mu struct {
		sync.Mutex
		closed  bool
		senders map[record.TopicPartition]*sender
		sticky  map[string]int32 // where records without a key go, by topic
		open    int              // records that have not been answered
		idle    chan struct{}    // closed when open is 0; nil when nobody waits
	}
	running sync.WaitGroup
}

// NewProducer makes a producer. It asks nothing of the cluster until the first Produce.
func (c *Client) NewProducer(cfg ProducerConfig) *Producer {
	cfg = cfg.withDefaults()
	p := &Producer{c: c, cfg: cfg, buffer: semaphore.NewWeighted(cfg.BufferBytes)}
	p.ctx, p.cancel = context.WithCancel(c.ctx)
	p.mu.senders = map[record.TopicPartition]*sender{}
	p.mu.sticky = map[string]int32{}
	return p
}

// Produce takes a record for the partition that its key belongs to, or any if it has none.
// It waits, until ctx ends, for room in the buffer and for the topic to be known. done is
// called once if and only if the error is nil, in the order of the partition; it must not
// block, nor call Produce and wait for room. done may be nil.
func (p *Producer) Produce(ctx context.Context, r Record, done func(Ack)) error {
	n, err := p.c.PartitionCount(ctx, r.Topic)
	if err != nil {
		return err
	}
	partition := int32(0)
	switch {
	case r.Key != nil:
		partition = PartitionForKey(r.Key, n)
	default:
		partition = p.stickyPartition(r.Topic, n)
	}
	return p.ProduceTo(ctx, partition, r, done)
}

// ProduceTo is Produce with the partition chosen by the caller.
func (p *Producer) ProduceTo(ctx context.Context, partition int32, r Record, done func(Ack)) error {
	n, err := p.c.PartitionCount(ctx, r.Topic)
	if err != nil {
		return err
	}
	tp := record.TopicPartition{Topic: r.Topic, Partition: partition}
	if partition < 0 || partition >= n {
		return fmt.Errorf("%v: %w: the topic has %d", tp, record.ErrUnknownPartition, n)
	}
	size := recordSize(r)
	if size > MaxRecordBytes {
		return fmt.Errorf("%v: %w: a record of %d bytes, the most is %d", tp, record.ErrTooLarge, size, MaxRecordBytes)
	}
	size = min(size, p.cfg.BufferBytes)
	if err := p.reserve(ctx, size); err != nil {
		return err
	}
	p.count(1)
	s, err := p.sender(tp)
	if err == nil {
		err = s.append(r, size, done)
	}
	if err != nil {
		p.count(-1)
		p.buffer.Release(size)
	}
	return err
}

// ProduceSync produces a record and waits for its answer. If ctx ends first the record may
// or may not be in the log. The error is that of the Ack, too.
func (p *Producer) ProduceSync(ctx context.Context, r Record) (Ack, error) {
	got := make(chan Ack, 1)
	if err := p.Produce(ctx, r, func(a Ack) { got <- a }); err != nil {
		return Ack{Topic: r.Topic, Partition: -1, Offset: -1, Err: err}, err
	}
	select {
	case a := <-got:
		return a, a.Err
	case <-ctx.Done():
		err := fmt.Errorf("%w: %w", record.ErrTimeout, ctx.Err())
		return Ack{Topic: r.Topic, Partition: -1, Offset: -1, Err: err}, err
	}
}

// Flush sends what lingers and waits until every record taken so far has been answered,
// well or not.
func (p *Producer) Flush(ctx context.Context) error {
	p.flushing.Add(1)
	defer p.flushing.Add(-1)
	p.mu.Lock()
	if p.mu.open == 0 {
		p.mu.Unlock()
		return nil
	}
	if p.mu.idle == nil {
		p.mu.idle = make(chan struct{})
	}
	idle := p.mu.idle
	for _, s := range p.mu.senders {
		s.poke()
	}
	p.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("flush: %w", ctx.Err())
	}
}

// Close gives up what has not been answered, with ErrClosed, and waits for the last
// callback. Flush first. It may be called again.
func (p *Producer) Close() error {
	p.mu.Lock()
	p.mu.closed = true
	p.mu.Unlock()
	p.cancel()
	p.running.Wait()
	return nil
}

// failed is told of each record that failed, after its callback.
func (p *Producer) failed() {
	if !p.cfg.StopAtError || !p.stopped.CompareAndSwap(false, true) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.mu.senders {
		s.poke()
	}
}

func recordSize(r Record) int64 {
	n := int64(len(r.Key)) + int64(len(r.Value)) + recordCost
	for _, h := range r.Headers {
		n += int64(len(h.Key)) + int64(len(h.Value)) + recordCost
	}
	return n
}

// reserve waits for room in the buffer.
func (p *Producer) reserve(ctx context.Context, size int64) error {
	if p.buffer.TryAcquire(size) {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(p.ctx, cancel)
	defer stop()
	err := p.buffer.Acquire(ctx, size)
	switch {
	case err == nil:
		return nil
	case p.ctx.Err() != nil:
		return ErrClosed
	}
	return fmt.Errorf("%w: %d bytes wait to be sent already: %w", record.ErrBusy, p.cfg.BufferBytes, err)
}

// sender gives the partition's sender, started if there is none.
func (p *Producer) sender(tp record.TopicPartition) (*sender, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return nil, ErrClosed
	}
	s, ok := p.mu.senders[tp]
	if !ok {
		s = newSender(p, tp)
		p.running.Add(1)
		if !p.c.goFunc(func() { defer p.running.Done(); s.run() }) {
			p.running.Done()
			return nil, ErrClosed
		}
		p.mu.senders[tp] = s
	}
	return s, nil
}

// count adds records that were taken, or takes away those that were answered.
func (p *Producer) count(records int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.open += records
	if p.mu.open == 0 && p.mu.idle != nil {
		close(p.mu.idle)
		p.mu.idle = nil
	}
}

// stickyPartition is where records without a key go: they stay with a partition while it
// has a batch that is being filled, and go round from batch to batch.
func (p *Producer) stickyPartition(topic string, n int32) int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.mu.sticky[topic]
	if !ok {
		at = rand.Int32N(n)
	}
	s := p.mu.senders[record.TopicPartition{Topic: topic, Partition: at % n}]
	if s != nil && !s.filling() {
		at++
	}
	p.mu.sticky[topic] = at % n
	return at % n
}

// PartitionForKey is the partition, of n, that a key belongs to: the same as that of
// Kafka's own clients.
func PartitionForKey(key []byte, n int32) int32 {
	return int32(murmur2(key)&0x7fffffff) % n
}

// murmur2 is the hash of Kafka's default partitioner.
func murmur2(data []byte) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
		r    = 24
	)
	h := seed ^ uint32(len(data))
	for len(data) >= 4 {
		k := uint32(data[0]) | uint32(data[1])<<8 | uint32(data[2])<<16 | uint32(data[3])<<24
		k *= m
		k ^= k >> r
		h = h*m ^ k*m
		data = data[4:]
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(data[0])) * m
	}
	h ^= h >> 13
	h *= m
	return h ^ h>>15
}
