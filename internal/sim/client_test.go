package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"edged/record"
	"edged/transport/wire"
)

// patience is how long a client waits for one answer.
const patience = 3 * time.Second

// router finds the node to ask, as a client does: by what the last answer said, else anyone.
type router struct {
	w      *world
	rng    *rand.Rand
	leader record.NodeID
}

func newRouter(w *world, client int) *router {
	return &router{w: w, rng: rand.New(rand.NewPCG(w.seed, 1000+uint64(client))), leader: record.NoNode}
}

// pick gives a running node, nil if none is.
func (r *router) pick() *life {
	ls := r.w.lives()
	for _, l := range ls {
		if l.id == r.leader {
			return l
		}
	}
	r.leader = record.NoNode
	if len(ls) == 0 {
		return nil
	}
	return ls[r.rng.IntN(len(ls))]
}

// learn takes the hint of an error, or forgets what it believed.
func (r *router) learn(err error) {
	var nl *record.NotLeaderError
	if errors.As(err, &nl) {
		r.leader = nl.Leader
		return
	}
	if err != nil {
		r.leader = record.NoNode
	}
}

// sleep waits, and tells whether the client is to go on.
func (w *world) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return !w.over()
	case <-w.stop:
		return false
	}
}

// never tells that a batch answered with this error was not appended.
func never(err error) bool {
	switch record.Code(err) {
	case record.CodeNotLeader, record.ErrNoLeader.Code, record.ErrBusy.Code, record.ErrNotReady.Code, record.ErrTooLarge.Code,
		record.ErrUnknownTopic.Code, record.ErrUnknownPartition.Code, record.ErrFencedEpoch.Code, record.ErrUnknownEpoch.Code:
		return true
	}
	return false
}

func batchOf(s *sent, codec record.Codec) record.Batch {
	b := record.NewBuilder(codec, 1<<20)
	for _, v := range s.values {
		b.Append(s.stamp, nil, []byte(v), nil)
	}
	if s.pid >= 0 {
		b.SetProducer(s.pid, 0, s.seq)
	}
	return b.Build()
}

func (r *router) send(l *life, s *sent) <-chan wire.ProduceResponse {
	s.tries++
	return l.produce(wire.ProduceRequest{
		Topic: s.part.topic.name, Partition: s.part.number, Acks: s.acks, Epoch: record.NoEpoch, TimeoutMs: 2000, Batch: batchOf(s, record.None),
	}, patience)
}

// producer sends to one partition.
type producer struct {
	*router
	name string
	part *part
	acks int16
	pid  int64
	seq  int32
	// inFlight is how many batches an idempotent producer has on their way.
	inFlight int
	pace     time.Duration
	pad      int
}

// runOnce is a producer without an identity: it sends each batch once, so each may be there once at most.
func (p *producer) runOnce() {
	for p.w.sleep(time.Duration(p.rng.Int64N(int64(2 * p.pace)))) {
		l := p.pick()
		if l == nil {
			continue
		}
		s := p.w.hist.begin(p.part, p.name, -1, -1, 1+p.rng.IntN(3), p.rng.IntN(p.pad+1), p.acks)
		res := <-p.send(l, s)
		switch {
		case res.Err == nil && s.acks != wire.AcksNone:
			p.w.hist.ack(s, res)
		case res.Err != nil && never(res.Err):
			p.w.hist.refuse(s)
		}
		if p.part.topic.gone(res.Err) {
			return
		}
		p.learn(res.Err)
	}
}

// gone tells that the script deleted the topic and a node knows it.
func (t *topic) gone(err error) bool {
	return t.deleted.Load() && errors.Is(err, record.ErrUnknownTopic)
}

// runIdempotent keeps up to inFlight batches on their way, in order, and repeats what failed until it is
// acknowledged.
func (p *producer) runIdempotent() {
	var window []*sent
	for p.w.sleep(time.Duration(p.rng.Int64N(int64(2 * p.pace)))) {
		if p.pid < 0 {
			if !p.identify() {
				continue
			}
			window = nil
		}
		l := p.pick()
		if l == nil {
			continue
		}
		for len(window) < 1+p.rng.IntN(p.inFlight) {
			n := 1 + p.rng.IntN(3)
			window = append(window, p.w.hist.begin(p.part, p.name, p.pid, p.seq, n, p.rng.IntN(p.pad+1), p.acks))
			p.seq += int32(n)
		}
		answers := make([]<-chan wire.ProduceResponse, len(window))
		for i, s := range window {
			answers[i] = p.send(l, s)
		}
		done, again := 0, false
		for i, c := range answers {
			res := <-c
			if p.part.topic.gone(res.Err) {
				return
			}
			if again || res.Err != nil {
				if !again && !p.took(window[i], res.Err) {
					p.pid, p.seq = -1, 0
				}
				again = true
				if res.Err == nil { // behind one that failed: it was appended before
					p.w.hist.ack(window[i], res)
				}
				continue
			}
			p.w.hist.ack(window[i], res)
			done = i + 1
		}
		window = window[done:]
	}
}

// took judges the first failure of a window; false means that the producer must begin anew.
func (p *producer) took(s *sent, err error) bool {
	p.learn(err)
	switch {
	case errors.Is(err, record.ErrDuplicateSequence):
		return false // it is in the log, its offset is not known any more
	case errors.Is(err, record.ErrOutOfOrder), errors.Is(err, record.ErrUnknownProducer):
		if p.acks == wire.AcksAll && !p.part.topic.relaxed {
			p.w.fail(lawNoDuplicate, "%v follows what was acknowledged, but: %v", s, err)
		}
		return false
	}
	return true
}

// identify asks for a producer id.
func (p *producer) identify() bool {
	l := p.pick()
	if l == nil {
		return false
	}
	type answer struct {
		id  int64
		err error
	}
	a, ok := ask(l, patience, func(ctx context.Context, b wire.Broker) answer {
		id, _, err := b.ProducerID(ctx)
		return answer{id, err}
	})
	if !ok || a.err != nil {
		return false
	}
	p.pid, p.seq = a.id, 0
	return true
}

// consumer reads partitions from their beginning on, over and over.
type consumer struct {
	name    string
	w       *world
	rng     *rand.Rand
	cursors []*cursor
}

// cursor is where a consumer stands in one partition, and what it was told of it.
type cursor struct {
	*router
	part  *part
	next  record.Offset
	epoch record.Epoch
	high  record.Offset
	start record.Offset
}

func newConsumer(w *world, number int) *consumer {
	c := &consumer{name: "reader" + strconv.Itoa(number), w: w, rng: rand.New(rand.NewPCG(w.seed, 5000+uint64(number)))}
	for _, p := range w.hist.parts() {
		c.cursors = append(c.cursors, &cursor{router: newRouter(w, 6000+number), part: p, epoch: record.NoEpoch})
	}
	return c
}

func (c *consumer) run() {
	for i := 0; c.w.sleep(time.Duration(c.rng.Int64N(int64(60 * time.Millisecond)))); i++ {
		if len(c.cursors) > 0 {
			c.cursors[i%len(c.cursors)].fetch(c.name)
		}
	}
}

// fetch reads once. A reader that has heard of an epoch does not listen to an older leader.
func (c *cursor) fetch(who string) (ok bool) {
	l := c.pick()
	return l != nil && c.fetchFrom(l, who, time.Duration(c.rng.IntN(300))*time.Millisecond)
}

// fetchFrom reads once from a node, which may wait for something to read.
func (c *cursor) fetchFrom(l *life, who string, wait time.Duration) (ok bool) {
	if c.part.topic.deleted.Load() {
		return false
	}
	f := fetched{call: c.w.hist.now(), from: c.next}
	res, ok := ask(l, patience, func(ctx context.Context, b wire.Broker) wire.FetchResponse {
		return b.Fetch(ctx, wire.FetchRequest{
			Topic: c.part.topic.name, Partition: c.part.number, Epoch: record.NoEpoch, Offset: c.next, MaxBytes: 16 << 10, MinBytes: 1,
			MaxWaitMs: int32(wait.Milliseconds()),
		})
	})
	if !ok || c.part.topic.deleted.Load() {
		c.leader = record.NoNode
		return false
	}
	c.learn(res.Err)
	return c.hear(fmt.Sprintf("%s at %s", who, l.m.name), res, &f)
}

// hear takes an answer, and tells whether it moves the reader. An answer with an error has an epoch too.
func (c *cursor) hear(who string, res wire.FetchResponse, f *fetched) (ok bool) {
	if res.Epoch < c.epoch {
		return false
	}
	c.epoch = res.Epoch
	if res.HighWatermark >= 0 {
		c.judge(who, res)
	}
	if res.Err != nil {
		if errors.Is(res.Err, record.ErrOffsetOutOfRange) && res.LogStart > c.next {
			c.next = res.LogStart
		}
		return false
	}
	c.take(who, res, f)
	c.w.hist.saw(c.part, *f)
	return true
}

// judge checks the marks of an answer against those of the answers before it.
func (c *cursor) judge(who string, res wire.FetchResponse) {
	w := c.w
	relaxed := c.part.topic.relaxed
	switch {
	case res.HighWatermark < c.high && !relaxed:
		w.fail(lawHighRises, "%s in epoch %d: the high watermark of %s went from %d to %d", who, res.Epoch, c.part, c.high, res.HighWatermark)
	case res.LogStart < c.start:
		w.fail(lawHighRises, "%s in epoch %d: the log start of %s went from %d to %d", who, res.Epoch, c.part, c.start, res.LogStart)
	case res.LogStart > res.HighWatermark:
		w.fail(lawHighRises, "%s: the log of %s starts at %d, above its high watermark %d", who, c.part, res.LogStart, res.HighWatermark)
	case res.LogStart > 0 && !c.part.topic.retention:
		w.fail(lawStart, "%s: the log of %s starts at %d", who, c.part, res.LogStart)
	}
	if res.HighWatermark > c.high && !relaxed {
		w.committed(c.part, who, res.HighWatermark)
	}
	if res.LogStart > c.start {
		w.hist.removed(c.part, who, res.LogStart)
	}
	c.high, c.start = res.HighWatermark, res.LogStart
}

// take checks the batches of an answer: whole, dense, below the high watermark, and what was sent.
func (c *cursor) take(who string, res wire.FetchResponse, f *fetched) {
	from := record.Offset(-1)
	for b, err := range record.SplitBatches(res.Batches) {
		if err == nil {
			err = b.Verify()
		}
		if err != nil {
			c.w.fail(lawHealthy, "%s: a batch of %s at offset %d: %v", who, c.part, c.next, err)
			return
		}
		base, end := b.BaseOffset(), b.BaseOffset()+record.Offset(b.Span())
		switch {
		case from < 0 && (base > c.next || end <= c.next):
			c.w.fail(lawDense, "%s asked %s for offset %d and got a batch with %d to %d", who, c.part, c.next, base, end-1)
			return
		case from >= 0 && base != from:
			c.w.fail(lawDense, "%s: in %s a batch at offset %d follows one that ends at %d", who, c.part, base, from)
			return
		case end > res.HighWatermark:
			c.w.fail(lawBelowHigh, "%s: a batch of %s with offsets %d to %d, the high watermark is %d", who, c.part, base, end-1, res.HighWatermark)
			return
		case b.Epoch() > res.Epoch:
			c.w.fail(lawEpochsRise, "%s: a batch of epoch %d in %s, served in epoch %d", who, b.Epoch(), c.part, res.Epoch)
		}
		from = end
		for r, err := range b.Records() {
			if err != nil {
				c.w.fail(lawHealthy, "%s: a record of %s: %v", who, c.part, err)
				return
			}
			c.w.hist.got(c.part, who, r.Offset, string(r.Value))
			if r.Offset >= f.from {
				f.values = append(f.values, string(r.Value))
			}
		}
		c.next = end
	}
}
