package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"edged/record"
	"edged/transport/wire"
)

// Defaults and bounds of ConsumerConfig.
const (
	DefaultFetchBytes  = 1 << 20
	DefaultFetchBuffer = 16 << 20
	DefaultMaxWait     = 500 * time.Millisecond
	minFetchBytes      = 64 << 10
	maxCorruptInARow   = 3
)

// ErrSkipped is in the error of Poll when the log no longer has the offset that was next,
// and reading goes on elsewhere as ConsumerConfig.Reset asks.
var ErrSkipped = errors.New("records were skipped")

// Reset is where to go on when the log does not have the next offset.
type Reset int8

// The zero value loses nothing silently.
const (
	ResetNone  Reset = iota // the partition ends with an error
	ResetStart              // at the start of the log, which Poll tells
	ResetEnd                // at the end of the log, which Poll tells
)

// Start is a partition and where to begin: an offset, or At... of this package.
type Start struct {
	Topic     string
	Partition int32
	Offset    record.Offset // used if At is nil
	At        *int64        // wire.AtStart, wire.AtEnd, or ms since 1970
}

// From makes a Start at the start, the end, or a time: wire.AtStart, wire.AtEnd, ms.
func From(topic string, partition int32, at int64) Start {
	return Start{Topic: topic, Partition: partition, At: &at}
}

// ConsumerConfig says what to read. Zero fields but Partitions get the defaults.
type ConsumerConfig struct {
	Partitions []Start
	Reset      Reset
	// FetchBytes is what one fetch of a partition asks for, at most; a larger batch comes whole.
	FetchBytes int32
	// BufferBytes is shared by the partitions: each holds one answer of up to its share, but
	// at least 64 KiB, and one decompressed batch of it (record.MaxDecompressed at most).
	BufferBytes int64
	// MaxWait is how long a node may hold a fetch for which there is nothing yet.
	MaxWait time.Duration
}

func (c ConsumerConfig) withDefaults() ConsumerConfig {
	if c.FetchBytes <= 0 {
		c.FetchBytes = DefaultFetchBytes
	}
	if c.BufferBytes <= 0 {
		c.BufferBytes = DefaultFetchBuffer
	}
	if c.MaxWait <= 0 {
		c.MaxWait = DefaultMaxWait
	}
	c.MaxWait = min(c.MaxWait, wire.MaxTimeout)
	share := c.BufferBytes / int64(max(len(c.Partitions), 1))
	c.FetchBytes = int32(min(int64(c.FetchBytes), max(share, minFetchBytes)))
	return c
}

// Message is a record and where it came from.
type Message struct {
	Topic     string
	Partition int32
	Epoch     record.Epoch // leader epoch in which it was appended
	record.Record
}

// Consumer reads partitions, each in order and without gaps. It stops fetching while
// nobody polls: it then holds one answer per partition and no more.
//
// Goroutines: one per partition, until the partition has ended or Close.
type Consumer struct {
	c       *Client
	cfg     ConsumerConfig
	ctx     context.Context
	cancel  context.CancelFunc
	out     chan polled
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		trouble error // what went wrong last and is being retried; nil after a success
	}
}

// polled is what one Poll returns.
type polled struct {
	messages []Message
	err      error
}

// NewConsumer begins to read. A partition that does not exist shows in Poll.
func (c *Client) NewConsumer(cfg ConsumerConfig) (*Consumer, error) {
	if len(cfg.Partitions) == 0 {
		return nil, errors.New("no partition to read")
	}
	cfg = cfg.withDefaults()
	co := &Consumer{c: c, cfg: cfg, out: make(chan polled)}
	co.ctx, co.cancel = context.WithCancel(c.ctx)
	for _, start := range cfg.Partitions {
		r := &reader{
			co: co, start: start,
			tp: record.TopicPartition{Topic: start.Topic, Partition: start.Partition},
		}
		r.route = toLeader{c: c, tp: r.tp}
		co.running.Add(1)
		if !c.goFunc(func() { defer co.running.Done(); r.run() }) {
			co.running.Done()
			return nil, errors.Join(ErrClosed, co.Close())
		}
	}
	return co, nil
}

// Poll waits for messages: one batch of one partition, in the order of its offsets. An
// error with ErrSkipped tells that reading goes on at another offset; any other error of a
// partition ends it, the rest goes on. When ctx ends the error is ctx's, and says what is
// being retried, if something is.
func (co *Consumer) Poll(ctx context.Context) ([]Message, error) {
	select {
	case p := <-co.out:
		return p.messages, p.err
	case <-co.ctx.Done():
		return nil, ErrClosed
	case <-ctx.Done():
	}
	if err := co.trouble(); err != nil {
		return nil, fmt.Errorf("%w; last: %w", ctx.Err(), err)
	}
	return nil, ctx.Err()
}

// Close stops reading and waits. It may be called again.
func (co *Consumer) Close() error {
	co.cancel()
	co.running.Wait()
	return nil
}

func (co *Consumer) trouble() error {
	co.mu.Lock()
	defer co.mu.Unlock()
	return co.mu.trouble
}

func (co *Consumer) setTrouble(err error) {
	co.mu.Lock()
	co.mu.trouble = err
	co.mu.Unlock()
}

// reader reads one partition. Its goroutine owns it.
type reader struct {
	co      *Consumer
	tp      record.TopicPartition
	start   Start
	route   toLeader
	topic   string // its id, empty until the first fetch
	next    record.Offset
	epoch   record.Epoch // the newest that an answer was of
	corrupt int          // damaged answers in a row
}

func (r *reader) run() {
	err := r.begin()
	for err == nil {
		err = r.round()
	}
	if r.co.ctx.Err() == nil {
		r.emit(polled{err: fmt.Errorf("%v: %w", r.tp, err)})
	}
}

// begin finds the first offset.
func (r *reader) begin() error {
	if r.start.At == nil {
		r.next = r.start.Offset
		return nil
	}
	offset, err := r.offsetAt(*r.start.At)
	r.next = offset
	return err
}

func (r *reader) offsetAt(at int64) (record.Offset, error) {
	resp, err := r.co.c.offsets(r.co.ctx, r.tp, at, r.epoch)
	return resp.Offset, err
}

// round fetches once and hands on what came. An error ends the partition.
func (r *reader) round() error {
	req := &wire.FetchRequest{
		Topic: r.tp.Topic, Partition: r.tp.Partition, Epoch: record.NoEpoch, Offset: r.next,
		MaxBytes: r.co.cfg.FetchBytes, MinBytes: 1, MaxWaitMs: int32(r.co.cfg.MaxWait.Milliseconds()),
	}
	var resp wire.FetchResponse
	began := time.Now()
	watch := fetchRoute{&r.route, r, req, &resp}
	err := r.co.c.do(r.co.ctx, watch, r.co.cfg.MaxWait+r.co.c.attemptTimeout(), wire.APIFetch, req, &resp)
	switch {
	case errors.Is(err, record.ErrOffsetOutOfRange):
		return r.reset(err)
	case err != nil:
		return err
	}
	r.co.setTrouble(nil)
	r.epoch = max(r.epoch, resp.Epoch)
	if len(resp.Batches) == 0 && time.Since(began) < minBackoff { // a node that does not hold fetches
		r.co.c.sleep(r.co.ctx, minBackoff)
	}
	return r.handOn(resp.Batches)
}

// reset goes on elsewhere, if it may.
func (r *reader) reset(cause error) error {
	at := wire.AtStart
	switch r.co.cfg.Reset {
	case ResetNone:
		return cause
	case ResetEnd:
		at = wire.AtEnd
	}
	from := r.next
	offset, err := r.offsetAt(at)
	if err != nil {
		return err
	}
	r.next = offset
	if !r.emit(polled{err: fmt.Errorf("%v: %w: offset %d is not in the log, reading goes on at %d", r.tp, ErrSkipped, from, offset)}) {
		return ErrClosed
	}
	return nil
}

// handOn decodes the batches one by one, each when the one before has been taken.
func (r *reader) handOn(batches []byte) error {
	for batch, err := range record.SplitBatches(batches) {
		var messages []Message
		if err == nil {
			err = batch.Verify()
		}
		if err == nil && batch.BaseOffset() > r.next { // offsets are dense
			err = fmt.Errorf("%w: the answer begins at offset %d", record.ErrCorrupt, batch.BaseOffset())
		}
		if err == nil {
			messages, err = r.messages(batch)
		}
		if err != nil {
			return r.damaged(err)
		}
		r.corrupt = 0
		if len(messages) > 0 && !r.emit(polled{messages: messages}) {
			return ErrClosed
		}
		r.next = max(r.next, batch.NextOffset())
	}
	return nil
}

// messages are the batch's records from the next offset on. Markers are for brokers.
func (r *reader) messages(batch record.Batch) ([]Message, error) {
	if batch.IsControl() || batch.NextOffset() <= r.next {
		return nil, nil
	}
	out := make([]Message, 0, min(batch.Count(), 1<<12))
	for rec, err := range batch.Records() {
		if err != nil {
			return nil, err
		}
		if rec.Offset >= r.next {
			out = append(out, Message{Topic: r.tp.Topic, Partition: r.tp.Partition, Epoch: batch.Epoch(), Record: rec})
		}
	}
	return out, nil
}

// damaged asks again for what came damaged; it may have happened on the way. The node that
// keeps sending it has it so.
func (r *reader) damaged(err error) error {
	r.corrupt++
	if r.corrupt >= maxCorruptInARow {
		return fmt.Errorf("offset %d: %w", r.next, err)
	}
	r.co.setTrouble(err)
	r.co.c.stats.retries.Add(1)
	if !r.co.c.sleep(r.co.ctx, maxBackoff) {
		return ErrClosed
	}
	return nil
}

// emit waits until somebody polls. False: the consumer is closed.
func (r *reader) emit(p polled) bool {
	select {
	case r.co.out <- p:
		return true
	case <-r.co.ctx.Done():
		return false
	}
}

// fetchRoute names the topic that the reader has begun to read, and remembers what is being retried,
// for whoever polls in vain.
type fetchRoute struct {
	*toLeader
	r    *reader
	req  *wire.FetchRequest
	resp *wire.FetchResponse
}

func (f fetchRoute) next(ctx context.Context) (string, error) {
	addr, err := f.toLeader.next(ctx)
	if f.r.topic == "" {
		f.r.topic = f.c.topicID(f.tp.Topic)
	}
	f.id, f.req.TopicID = f.r.topic, f.r.topic
	return addr, err
}

func (f fetchRoute) failed(ctx context.Context, addr string, err error) verdict {
	f.r.co.setTrouble(err)
	if !errors.Is(err, record.ErrOffsetOutOfRange) {
		return f.toLeader.failed(ctx, addr, err)
	}
	if f.resp.Epoch < f.c.newest(f.tp, f.r.epoch) {
		// It leads no more and does not know it yet: where its log ends says nothing.
		f.c.distrust(f.tp, addr)
		return later
	}
	f.r.epoch = f.resp.Epoch // the leader before this one has nothing to say any more
	return f.toLeader.failed(ctx, addr, err)
}
