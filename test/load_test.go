//go:build linux

package test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"edged/client"
	"edged/record"
	"edged/transport/wire"
)

// load produces to a topic, watches who leads it and reads along, until it is stopped; then
// everything is compared.
type load struct {
	c          *cluster
	topic      string
	acks       client.Acks
	partitions int32
	cl         *client.Client
	p          []*client.Producer
	consumer   *client.Consumer
	cancel     context.CancelFunc
	running    sync.WaitGroup

	mu struct {
		sync.Mutex
		sent    []sent
		acks    []ackTime
		errs    []error
		tail    []read
		sighted []ledBy
	}
}

// ackTime is when an acknowledgement arrived.
type ackTime struct {
	at        time.Time
	partition int32
	epoch     int32
}

// loadConfig is how a load produces. Zero fields get a load that leaves the machine some air.
type loadConfig struct {
	producers int
	rate      int // records a second of each producer, over all partitions
	size      int // bytes of a value, at least
	acks      client.Acks
	timeout   time.Duration // of a delivery
}

func (c loadConfig) withDefaults() loadConfig {
	set := func(v *int, to int) {
		if *v == 0 {
			*v = to
		}
	}
	set(&c.producers, 3)
	set(&c.rate, 300)
	set(&c.size, 40)
	if c.timeout == 0 {
		c.timeout = patience
	}
	return c
}

// startLoad begins to produce to all partitions of a topic that exists.
func (c *cluster) startLoad(topic string, cfg loadConfig) *load {
	c.t.Helper()
	cfg = cfg.withDefaults()
	l := &load{c: c, topic: topic, acks: cfg.acks, cl: c.client()}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	c.t.Cleanup(l.halt)
	n, err := l.cl.PartitionCount(ctx, topic)
	if err != nil {
		c.t.Fatal(err)
	}
	l.partitions = n
	for i := range cfg.producers {
		p := l.cl.NewProducer(client.ProducerConfig{Acks: cfg.acks, DeliveryTimeout: cfg.timeout})
		l.p = append(l.p, p)
		l.running.Go(func() { l.produce(ctx, p, int32(i), cfg) })
	}
	l.follow(ctx)
	for _, n := range c.nodes {
		l.running.Go(func() { l.watch(ctx, n) })
	}
	return l
}

// produce sends at the rate, round robin over the partitions, without waiting for answers.
func (l *load) produce(ctx context.Context, p *client.Producer, id int32, cfg loadConfig) {
	tick := time.NewTicker(time.Second / time.Duration(cfg.rate))
	defer tick.Stop()
	seqs := make([]int64, l.partitions)
	for i := int32(0); ; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		part := i % l.partitions
		s := sent{producer: id, partition: part, seq: seqs[part], offset: -1}
		seqs[part]++
		rec := client.Record{Topic: l.topic, Value: loadValue(s, cfg.size)}
		if err := p.ProduceTo(ctx, part, rec, func(a client.Ack) { l.answered(s, a) }); err != nil {
			s.outcome = refused // it was not even taken
			l.note(s, err)
		}
	}
}

// loadValue names the record, so that a reader knows whose it is. What fills it up does not
// get smaller by compression.
func loadValue(s sent, size int) []byte {
	b := fmt.Appendf(nil, "%d %d %d ", s.producer, s.partition, s.seq)
	noise := rand.NewPCG(uint64(s.producer)<<32|uint64(s.partition), uint64(s.seq))
	for len(b) < size {
		b = binary.LittleEndian.AppendUint64(b, noise.Uint64())
	}
	return b
}

func (l *load) answered(s sent, a client.Ack) {
	s.offset = int64(a.Offset)
	switch {
	case a.Err == nil:
		s.outcome = acked
	case errors.Is(a.Err, record.ErrTimeout), errors.Is(a.Err, record.ErrInterrupted), errors.Is(a.Err, client.ErrClosed):
		s.outcome = unknown
	default:
		s.outcome = refused
	}
	l.note(s, a.Err)
	if a.Err == nil {
		l.mu.Lock()
		l.mu.acks = append(l.mu.acks, ackTime{time.Now(), s.partition, int32(a.Epoch)})
		l.mu.Unlock()
	}
}

func (l *load) note(s sent, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.sent = append(l.mu.sent, s)
	if err != nil && !errors.Is(err, context.Canceled) {
		l.mu.errs = append(l.mu.errs, err)
	}
}

// follow reads along from the end, as a consumer in production would.
func (l *load) follow(ctx context.Context) {
	starts := make([]client.Start, l.partitions)
	for i := range starts {
		starts[i] = client.From(l.topic, int32(i), wire.AtStart)
	}
	consumer, err := l.cl.NewConsumer(client.ConsumerConfig{Partitions: starts, Reset: client.ResetStart})
	if err != nil {
		l.c.t.Fatal(err)
	}
	l.consumer = consumer
	l.running.Go(func() {
		for ctx.Err() == nil {
			messages, err := consumer.Poll(ctx)
			if err != nil && ctx.Err() == nil {
				l.c.t.Errorf("the consumer that follows: %v", err)
				return
			}
			got := make([]read, 0, len(messages))
			for _, m := range messages {
				got = append(got, toRead(l.c.t, m))
			}
			l.mu.Lock()
			l.mu.tail = append(l.mu.tail, got...)
			l.mu.Unlock()
		}
	})
}

func toRead(t testing.TB, m client.Message) read {
	r := read{partition: m.Partition, epoch: int32(m.Epoch), offset: int64(m.Offset)}
	var named int32
	if _, err := fmt.Sscanf(string(m.Value), "%d %d %d ", &r.producer, &named, &r.seq); err != nil || named != m.Partition {
		t.Errorf("partition %d, offset %d has the value %.40q", m.Partition, m.Offset, m.Value)
	}
	return r
}

// watch asks one node again and again who leads. Epochs and high watermarks that one life of a
// node tells never go back.
func (l *load) watch(ctx context.Context, n *node) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var raw *rawConn
	var before []partitionState
	drop := func() {
		if raw != nil {
			raw.close()
		}
		raw, before = nil, nil
	}
	defer drop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if raw == nil {
			var err error
			if raw, err = dialRaw(n.native.Load().(string)); err != nil {
				raw = nil
				continue
			}
		}
		now, err := raw.partitions(l.topic)
		if err != nil {
			drop()
			continue
		}
		l.sight(n, before, now)
		before = now
	}
}

func (l *load) sight(n *node, before, now []partitionState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, p := range now {
		l.mu.sighted = append(l.mu.sighted, ledBy{int32(i), p.epoch, p.leader})
		if before == nil {
			continue
		}
		if p.epoch >= 0 && p.epoch < before[i].epoch {
			l.c.t.Errorf("%s: partition %d went from epoch %d to %d", n.name, i, before[i].epoch, p.epoch)
		}
		if p.high >= 0 && p.high < before[i].high {
			l.c.t.Errorf("%s: the high watermark of partition %d went from %d to %d", n.name, i, before[i].high, p.high)
		}
	}
}

// halt ends everything that the load runs; it may be called again.
func (l *load) halt() {
	l.cancel()
	for _, p := range l.p {
		_ = p.Close() // always nil
	}
	if l.consumer != nil {
		_ = l.consumer.Close() // always nil
	}
	l.running.Wait()
}

// finish stops producing, waits for the answers, reads the whole topic and checks all laws.
func (l *load) finish() result {
	t := l.c.t
	t.Helper()
	l.cancel()
	l.running.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	for _, p := range l.p {
		if err := p.Flush(ctx); err != nil {
			t.Errorf("not all records were answered: %v", err)
		}
	}
	stats := l.cl.Stats()
	l.halt()
	log, start := readAll(t, l.cl, l.topic, l.partitions)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sightHistory()
	h := history{start: start, sent: l.mu.sent, read: log, tails: [][]read{l.mu.tail}, sighted: l.mu.sighted, weakAcks: l.acks != client.AcksAll}
	for _, f := range check(h) {
		t.Error(f)
	}
	r := result{sent: len(l.mu.sent), read: len(log), errs: l.mu.errs, acks: l.mu.acks, redirects: stats.Redirects, retries: stats.Retries}
	for _, s := range l.mu.sent {
		if s.outcome == acked {
			r.acked++
		}
	}
	return r
}

// sightHistory adds what every node remembers of leader changes to what was seen.
func (l *load) sightHistory() {
	for _, n := range l.c.nodes {
		raw, err := dialRaw(n.addr.Native)
		if err != nil {
			continue // it is down at the end of the test
		}
		if b, err := raw.call(rawHistory, l.topic, -1, 0, 5000); err == nil {
			for _, c := range b[0].([]any) {
				f := c.([]any)
				l.mu.sighted = append(l.mu.sighted, ledBy{int32(number(f[1])), int32(number(f[2])), int32(number(f[3]))})
			}
		}
		raw.close()
	}
}

// result sums up a load.
type result struct {
	sent, acked, read  int
	errs               []error
	acks               []ackTime
	redirects, retries int64
}

func (r result) String() string {
	return fmt.Sprintf("%d sent, %d acked, %d read, %d failed, %d redirects, %d retries", r.sent, r.acked, r.read, len(r.errs), r.redirects, r.retries)
}

// longestGap is the longest time in which a partition had no acknowledgement.
func (r result) longestGap() time.Duration {
	last, gap := map[int32]time.Time{}, time.Duration(0)
	acks := slices.Clone(r.acks)
	slices.SortFunc(acks, func(a, b ackTime) int { return a.at.Compare(b.at) })
	for _, a := range acks {
		if was, ok := last[a.partition]; ok {
			gap = max(gap, a.at.Sub(was))
		}
		last[a.partition] = a.at
	}
	return gap
}

// ackedCount is how many acknowledgements there are now.
func (l *load) ackedCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.acks)
}

// awaitAcks waits until n more records are acknowledged.
func (l *load) awaitAcks(n int) {
	l.c.t.Helper()
	want := l.ackedCount() + n
	eventually(l.c.t, "records are acknowledged", func() error {
		if got := l.ackedCount(); got < want {
			return fmt.Errorf("%d of %d; errors: %s", got, want, l.errText())
		}
		return nil
	})
}

func (l *load) errText() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, e := range l.mu.errs {
		if out = append(out, e.Error()); len(out) == 3 {
			break
		}
	}
	return strings.Join(out, "; ")
}

// awaitEpoch waits until a record of the partition was acknowledged in an epoch after the given
// one, and gives how long after since that was.
func (l *load) awaitEpoch(partition, after int32, since time.Time) time.Duration {
	l.c.t.Helper()
	var at time.Time
	eventually(l.c.t, fmt.Sprintf("%s/%d goes on after epoch %d", l.topic, partition, after), func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, a := range slices.Backward(l.mu.acks) {
			if a.partition == partition && a.epoch > after {
				at = a.at // the oldest is found last
			}
			if a.at.Before(since) {
				break
			}
		}
		if at.IsZero() {
			return errors.New("no record was acknowledged in a later epoch")
		}
		return nil
	})
	return at.Sub(since)
}

// readAll reads a topic from its start to its end as of now.
func readAll(t testing.TB, cl *client.Client, topic string, partitions int32) (log []read, start map[int32]int64) {
	t.Helper()
	start = map[int32]int64{}
	for p := range partitions {
		messages, from := readPartition(t, cl, topic, p)
		start[p] = from
		for _, m := range messages {
			log = append(log, toRead(t, m))
		}
	}
	return log, start
}

// readPartition gives all messages of a partition, from the start of its log to its end as of now.
func readPartition(t testing.TB, cl *client.Client, topic string, partition int32) (all []client.Message, start int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	bounds, err := cl.Offsets(ctx, topic, partition, wire.AtStart)
	if err != nil {
		t.Fatal(err)
	}
	if bounds.LogStart == bounds.HighWatermark {
		return nil, int64(bounds.LogStart)
	}
	co, err := cl.NewConsumer(client.ConsumerConfig{Partitions: []client.Start{{Topic: topic, Partition: partition, Offset: bounds.LogStart}}})
	if err != nil {
		t.Fatal(err)
	}
	defer co.Close()
	for {
		messages, err := co.Poll(ctx)
		if err != nil {
			t.Fatalf("%s/%d: %v", topic, partition, err)
		}
		for _, m := range messages {
			if m.Offset >= bounds.HighWatermark {
				return all, int64(bounds.LogStart)
			}
			all = append(all, m)
		}
		if all[len(all)-1].Offset == bounds.HighWatermark-1 {
			return all, int64(bounds.LogStart)
		}
	}
}
