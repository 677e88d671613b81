package client

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"edged/record"
	"edged/transport/wire"
)

// sender sends one partition's batches. Its goroutine owns everything but mu.
type sender struct {
	p      *Producer
	tp     record.TopicPartition
	window window
	route  toLeader
	wake   chan struct{} // capacity 1: there is something in mu, or a flush

	conn    *conn     // of this round; nil: to be chosen
	moved   time.Time // when something was last sent or answered in this round
	doubt   time.Duration
	retryAt time.Time // nothing is sent before; zero: nothing waits for it
	backoff backoff
	lastErr error // what went wrong last; nil after a success

	mu struct {
		sync.Mutex
		closed bool
		queue  []*batch // full ones, oldest first
		open   *batch   // being filled; nil: none
		events []event  // bounded by what is in flight
	}
}

func newSender(p *Producer, tp record.TopicPartition) *sender {
	return &sender{
		p: p, tp: tp, wake: make(chan struct{}, 1),
		window: window{acks: p.cfg.Acks.wire()},
		route:  toLeader{c: p.c, tp: tp},
		doubt:  p.c.cfg.Silence,
	}
}

// append puts a record into the batch that is being filled, or into a new one.
func (s *sender) append(r Record, size int64, done func(Ack)) error {
	if r.Timestamp == 0 {
		r.Timestamp = time.Now().UnixMilli()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.closed:
		return ErrClosed
	case s.p.stopped.Load():
		return ErrStopped
	}
	b := s.mu.open
	fits := func(b *batch) bool { return b.builder.Append(r.Timestamp, r.Key, r.Value, r.Headers) }
	if b == nil || !fits(b) {
		s.sealLocked()
		if b = s.newBatch(s.p.c.batchBytes(s.tp.Topic, s.p.cfg.BatchBytes)); fits(b) {
			s.mu.open = b
		} else if b = s.newBatch(record.MaxDecompressed); fits(b) {
			s.mu.queue = append(s.mu.queue, b) // nothing joins it
		} else {
			return fmt.Errorf("%v: %w", s.tp, record.ErrTooLarge)
		}
	}
	b.records = append(b.records, waiting{done})
	b.bytes += size
	s.poke()
	return nil
}

func (s *sender) newBatch(maxBytes int) *batch {
	now := time.Now()
	return &batch{
		builder: record.NewBuilder(s.p.cfg.Codec, maxBytes),
		opened:  now, deadline: now.Add(s.p.cfg.DeliveryTimeout),
		topic: s.p.c.topicID(s.tp.Topic),
	}
}

func (s *sender) sealLocked() {
	if s.mu.open != nil {
		s.mu.queue = append(s.mu.queue, s.mu.open)
		s.mu.open = nil
	}
}

// filling tells whether a record would join others in a batch.
func (s *sender) filling() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.open != nil
}

func (s *sender) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run serves the partition until the producer closes.
func (s *sender) run() {
	for s.p.ctx.Err() == nil {
		s.handleEvents()
		s.window.expire(time.Now(), s.lastErr)
		s.deliver()
		s.askOthers()
		s.pull()
		s.halt()
		s.push()
		if len(s.window.done) == 0 {
			s.wait()
		}
	}
	s.close()
}

// close answers everything that is left.
func (s *sender) close() {
	s.mu.Lock()
	s.mu.closed = true
	s.sealLocked()
	queue := s.mu.queue
	s.mu.queue = nil
	s.mu.Unlock()
	s.handleEvents()
	for _, b := range queue {
		s.window.add(b)
	}
	s.window.abandon(ErrClosed)
	s.deliver()
}

// pull moves batches into the window while it has room.
func (s *sender) pull() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.window.batches) < maxInFlight {
		if len(s.mu.queue) == 0 && s.mu.open != nil && s.lingeredLocked() <= 0 {
			s.sealLocked()
		}
		if len(s.mu.queue) == 0 {
			return
		}
		s.window.add(s.mu.queue[0])
		s.mu.queue = s.mu.queue[1:]
	}
}

// halt gives up what was never sent, if the producer has stopped. What was is decided first.
func (s *sender) halt() {
	if !s.p.stopped.Load() {
		return
	}
	s.mu.Lock()
	s.sealLocked()
	for _, b := range s.mu.queue {
		s.window.add(b)
	}
	s.mu.queue = nil
	s.mu.Unlock()
	s.window.halt(ErrStopped)
}

// lingeredLocked is how long the batch that is being filled may still wait.
func (s *sender) lingeredLocked() time.Duration {
	if s.p.flushing.Load() > 0 {
		return 0
	}
	return s.p.cfg.Linger - time.Since(s.mu.open.opened)
}

// push sends what the window allows.
func (s *sender) push() {
	if time.Now().Before(s.retryAt) {
		return
	}
	s.retryAt = time.Time{}
	for len(s.window.batches) > 0 {
		ctx, cancel := context.WithDeadline(s.p.ctx, s.window.batches[0].deadline)
		more := s.pushOne(ctx)
		cancel()
		if !more {
			return
		}
	}
}

// pushOne sends one batch. False: nothing more can be sent now.
func (s *sender) pushOne(ctx context.Context) bool {
	if !s.window.hasID {
		id, err := s.p.c.producerID(ctx)
		if err != nil {
			s.failed("", err, judge(err))
			return false
		}
		s.window.identify(id)
	}
	b := s.window.next()
	if b == nil {
		return !s.window.hasID && len(s.window.batches) > 0
	}
	if err := s.p.c.replaced(s.tp.Topic, b.topic); err != nil {
		s.window.gone(b, err)
		return s.nothingToTell()
	}
	if s.conn == nil || s.conn.ended() {
		if s.window.sent > 0 { // its failures are on their way here as events
			return false
		}
		if !s.connect(ctx) {
			return false
		}
	}
	if b.topic == "" {
		b.topic = s.p.c.topicID(s.tp.Topic)
	}
	if room := int(s.conn.info.MaxFrame) - wire.FrameSlack; len(b.data) > room {
		most := s.p.c.batchBytes(s.tp.Topic, room)
		s.window.refuse(b, fmt.Errorf("a batch of %d bytes, the topic takes %d (max.message.bytes): %w", len(b.data), most, record.ErrTooLarge))
		return s.nothingToTell()
	}
	return s.send(b)
}

// nothingToTell is false after a batch was given up: who hears of it may want nothing more to be sent.
func (s *sender) nothingToTell() bool { return len(s.window.done) == 0 }

// connect chooses the node of this round.
func (s *sender) connect(ctx context.Context) bool {
	addr, err := s.route.next(ctx)
	if err == nil {
		s.conn, err = s.p.c.connect(ctx, addr)
	}
	if err == nil {
		return true
	}
	s.conn = nil
	if ctx.Err() != nil {
		s.lastErr = clearer(s.lastErr, cause(err))
		return false
	}
	v := s.route.failed(ctx, addr, err)
	if v == stop && isUnknown(err) {
		s.window.gone(s.window.batches[0], err)
	}
	s.failed(addr, err, v)
	return false
}

func (s *sender) send(b *batch) bool {
	req := &wire.ProduceRequest{
		Topic: s.tp.Topic, Partition: s.tp.Partition, Acks: s.window.acks, Epoch: record.NoEpoch,
		TimeoutMs: int32(max(time.Until(b.deadline).Milliseconds(), 1)),
		Batch:     b.data, TopicID: b.topic,
	}
	round, addr := s.window.round, s.route.tried
	_, err := s.conn.send(wire.APIProduce, req, func(resp *wire.Response, err error) {
		ev := event{round: round, batch: b, err: err}
		if err == nil {
			ev.ack, ev.err = readAck(resp, addr)
		}
		s.mu.Lock()
		s.mu.events = append(s.mu.events, ev)
		s.mu.Unlock()
		s.poke()
	})
	if err != nil { // the connection has ended
		s.failed(addr, err, s.judge(addr, err))
		s.window.rewind()
		return false
	}
	if b.sends > 0 {
		s.p.c.stats.retries.Add(1)
	}
	s.window.markSent(b)
	s.moved = time.Now()
	return true
}

// readAck reads the answer of a produce.
func readAck(resp *wire.Response, addr string) (ack wire.ProduceResponse, err error) {
	if err := resp.Decode(&ack); err != nil {
		return ack, &ConnError{addr, err}
	}
	return ack, resp.Err
}

// handleEvents takes what came back.
func (s *sender) handleEvents() {
	s.mu.Lock()
	events := s.mu.events
	s.mu.events = nil
	s.mu.Unlock()
	for _, ev := range events {
		addr := s.route.tried
		if ev.round == s.window.round {
			s.moved = time.Now()
		}
		if !s.window.answer(ev) {
			if ev.err == nil {
				s.backoff, s.lastErr, s.doubt = backoff{}, nil, s.p.c.cfg.Silence
			}
			continue
		}
		s.route.id = ev.batch.topic
		v := s.judge(addr, ev.err)
		if v == stop && isUnknown(ev.err) {
			s.window.gone(ev.batch, ev.err)
		}
		s.failed(addr, ev.err, v)
	}
}

// judge learns from a failed attempt. It may ask the cluster, for as long as the oldest
// batch has time.
func (s *sender) judge(addr string, err error) verdict {
	deadline := time.Now().Add(s.p.c.attemptTimeout())
	if len(s.window.batches) > 0 {
		deadline = s.window.batches[0].deadline
	}
	ctx, cancel := context.WithDeadline(s.p.ctx, deadline)
	defer cancel()
	return s.route.failed(ctx, addr, err)
}

// failed ends the round: the next one begins at once or after a pause.
func (s *sender) failed(addr string, err error, v verdict) {
	s.conn, s.lastErr = nil, clearer(s.lastErr, cause(err))
	if v == now && s.backoff.jump() {
		s.retryAt = time.Time{}
		return
	}
	pause := s.backoff.pause()
	s.retryAt = time.Now().Add(pause)
	s.p.c.cfg.Logger.Debug("produce will be repeated", "partition", s.tp, "node", addr, "err", err, "in", pause)
}

// askOthers looks for a new leader when the one that was asked has not answered for long.
// The batches stay with it if it still leads: sending them again would only load it more.
func (s *sender) askOthers() {
	if s.window.sent == 0 || s.conn == nil || time.Since(s.moved) < s.doubt {
		return
	}
	s.moved = time.Now()
	s.doubt = min(2*s.doubt, maxSilence)
	addr := s.route.tried
	var md wire.Metadata
	other := s.p.c.pick(addr)
	err := s.p.c.attempt(s.p.ctx, other, s.p.c.attemptTimeout(), wire.APIMetadata, &wire.MetadataRequest{Topics: []string{s.tp.Topic}}, &md)
	if err != nil {
		return
	}
	s.p.c.learnMetadata(md)
	moved := false
	s.p.c.withPartition(s.tp, func(p *partition) { moved = p.trusted(time.Now()) && p.addr != addr })
	if moved {
		s.p.c.stats.redirects.Add(1)
		s.window.rewind()
		s.conn, s.retryAt = nil, time.Time{}
	}
}

// deliver tells producers what became of their records, and makes room for others.
func (s *sender) deliver() {
	for _, f := range s.window.takeDone() {
		s.p.buffer.Release(f.bytes)
		ack := Ack{
			Topic: s.tp.Topic, Partition: s.tp.Partition, Offset: -1,
			Epoch: f.ack.Epoch, Durability: f.ack.Durability,
		}
		if f.err != nil {
			ack.Err = fmt.Errorf("%v: %w", s.tp, f.err)
		}
		for i, r := range f.records {
			if f.err == nil && f.ack.BaseOffset >= 0 {
				ack.Offset = f.ack.BaseOffset + record.Offset(i)
			}
			if r.done != nil {
				r.done(ack)
			}
		}
		if f.err != nil {
			s.p.failed()
		}
		s.p.count(-len(f.records))
	}
}

// wait sleeps until there is something to do.
func (s *sender) wait() {
	const never = time.Duration(math.MaxInt64)
	next := never
	sooner := func(d time.Duration) { next = min(next, max(d, 0)) }
	if len(s.window.batches) > 0 {
		sooner(time.Until(s.window.batches[0].deadline))
		if s.window.sent > 0 && s.conn != nil {
			sooner(time.Until(s.moved.Add(s.doubt)))
		}
		if !s.retryAt.IsZero() {
			sooner(time.Until(s.retryAt))
		}
	}
	s.mu.Lock()
	if s.mu.open != nil && len(s.window.batches) < maxInFlight {
		sooner(s.lingeredLocked())
	}
	s.mu.Unlock()
	var timer <-chan time.Time // nil while nothing is under way: only a record or the end wakes us
	if next < never {
		t := time.NewTimer(next)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-s.wake:
	case <-timer:
	case <-s.p.ctx.Done():
	}
}
