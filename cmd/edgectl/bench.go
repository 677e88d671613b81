package main

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"sync"
	"time"

	"edged/client"
	"edged/record"
	"edged/transport/wire"

	"github.com/urfave/cli/v2"
)

// maxBenchRecord bounds the size of a bench record in bytes.
const maxBenchRecord = 16 << 20

func benchCommand() *cli.Command {
	return group("bench", "measure how fast records go in and out",
		leaf("produce", "TOPIC", "send random records and time their acknowledgements", []cli.Flag{
			&cli.Int64Flag{Name: "records", Value: 100_000, Usage: "send `N` records"},
			&cli.Int64Flag{Name: "size", Value: 100, Usage: "of `BYTES` each"},
			&cli.StringFlag{Name: "acks", Value: "all", Usage: acksUsage},
			&cli.Float64Flag{Name: "rate", Usage: "send at most `N` records a second", DefaultText: "no limit"},
		}, benchProduce),
		leaf("consume", "TOPIC", "read records from the start", []cli.Flag{
			&cli.Int64Flag{Name: "records", Usage: "read `N` records", DefaultText: "all there are"},
		}, benchConsume),
	)
}

// benchResult is what both benches print.
type benchResult struct {
	Records       int64   `json:"records"`
	Bytes         int64   `json:"bytes"` // keys and values
	Seconds       float64 `json:"seconds"`
	RecordsPerSec float64 `json:"records_per_second"`
	BytesPerSec   float64 `json:"bytes_per_second"`
	// From produce to acknowledgement in ms, too high by at most an eighth; 0 in bench consume.
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
}

func (b benchResult) print(c *cli.Context) error {
	if c.Bool("json") {
		return printJSON(c.App.Writer, b)
	}
	_, err := fmt.Fprintf(c.App.Writer, "%s, %s in %.2f s: %.0f records/s, %s/s\n",
		countText(b.Records, "record"), bytesText(b.Bytes), b.Seconds, b.RecordsPerSec, bytesText(int64(b.BytesPerSec)))
	if err == nil && b.Max > 0 {
		_, err = fmt.Fprintf(c.App.Writer, "acknowledged after %.2f ms (half), %.2f ms (99 of 100), %.2f ms (slowest)\n", b.P50, b.P99, b.Max)
	}
	return err
}

func newResult(records, bytes int64, took time.Duration) benchResult {
	s := max(took.Seconds(), 1e-9)
	return benchResult{Records: records, Bytes: bytes, Seconds: s, RecordsPerSec: float64(records) / s, BytesPerSec: float64(bytes) / s}
}

func benchProduce(c *cli.Context) error {
	records, size, rate := c.Int64("records"), c.Int64("size"), c.Float64("rate")
	acks, err := acksFlag(c)
	switch {
	case err != nil:
		return err
	case records < 1:
		return usage(c, "--records is %d; it is at least 1", records)
	case size < 0:
		return usage(c, "--size is %d; it is at least 0", size)
	case size > maxBenchRecord: // refused as it would be by a node, which takes less
		return fmt.Errorf("--size is %d: %w", size, record.ErrTooLarge)
	case rate < 0:
		return usage(c, "--rate is %v; it is above 0", rate)
	}
	return withClient(c, func(cl *client.Client) error {
		p := cl.NewProducer(client.ProducerConfig{Acks: acks, DeliveryTimeout: c.Duration("timeout")})
		b := bench{c: c, p: p, value: make([]byte, size)}
		for i := range b.value {
			b.value[i] = byte(rand.Uint32())
		}
		err := errors.Join(b.produce(records, rate), p.Close())
		if err != nil {
			return explained(c.Context, cl, err)
		}
		res := newResult(records, records*size, b.took)
		res.P50, res.P99, res.Max = b.delays.quantile(0.5), b.delays.quantile(0.99), b.delays.max()
		return res.print(c)
	})
}

// bench is one run of bench produce.
type bench struct {
	c     *cli.Context
	p     *client.Producer
	value []byte
	took  time.Duration

	mu     sync.Mutex
	delays delays
	failed error // the first failure
}

func (b *bench) produce(records int64, rate float64) error {
	start := time.Now()
	for i := range records {
		if rate > 0 && !sleepUntil(b.c.Context, start.Add(time.Duration(float64(i)/rate*float64(time.Second)))) {
			return errInterrupted
		}
		ctx, cancel := context.WithTimeout(b.c.Context, b.c.Duration("timeout"))
		sent := time.Now()
		err := b.p.Produce(ctx, client.Record{Topic: b.c.Args().First(), Value: b.value}, func(a client.Ack) { b.done(sent, a) })
		cancel()
		if err != nil {
			return err
		}
		if err := b.failure(); err != nil {
			return err
		}
	}
	err := b.p.Flush(b.c.Context)
	b.took = time.Since(start)
	return errors.Join(err, b.failure())
}

func (b *bench) done(sent time.Time, a client.Ack) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.Err != nil && b.failed == nil {
		b.failed = notProduced(a)
	}
	b.delays.add(time.Since(sent))
}

func (b *bench) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}

// delays counts durations in buckets of µs, eight to each power of two.
type delays struct{ counts [64 * 8]int64 }

func (d *delays) add(t time.Duration) { d.counts[bucketOf(uint64(max(t.Microseconds(), 0)))]++ }

func bucketOf(us uint64) int {
	if us < 8 {
		return int(us)
	}
	n := bits.Len64(us) - 4 // so that us>>n has four bits, the first of them set
	return (n+1)*8 + int(us>>n&7)
}

// upper is where a bucket ends, in ms.
func upper(bucket int) float64 {
	if bucket < 8 {
		return float64(bucket+1) / 1000
	}
	n := bucket/8 - 1
	return float64(uint64(bucket%8+9)<<n) / 1000
}

// quantile is the delay in ms that the share q of all was at most.
func (d *delays) quantile(q float64) float64 {
	var all, seen int64
	for _, n := range d.counts {
		all += n
	}
	for i, n := range d.counts {
		if seen += n; n > 0 && float64(seen) >= q*float64(all) {
			return upper(i)
		}
	}
	return 0
}

func (d *delays) max() float64 { return d.quantile(1) }

func benchConsume(c *cli.Context) error {
	want := c.Int64("records")
	if c.IsSet("records") && want < 1 {
		return usage(c, "--records is %d; it is at least 1", want)
	}
	return withClient(c, func(cl *client.Client) error {
		starts, available, err := benchStarts(c, cl)
		switch {
		case err != nil:
			return err
		case want == 0:
			want = available
		case want > available:
			return fmt.Errorf("topic %s has %s, not %d", c.Args().First(), countText(available, "record"), want)
		}
		if want == 0 {
			return newResult(0, 0, 0).print(c)
		}
		co, err := cl.NewConsumer(client.ConsumerConfig{Partitions: starts})
		if err != nil {
			return err
		}
		var records, bytes int64
		start := time.Now()
		for records < want && err == nil {
			var messages []client.Message
			ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
			messages, err = co.Poll(ctx)
			cancel()
			records += int64(len(messages))
			for _, m := range messages {
				bytes += int64(len(m.Key) + len(m.Value))
			}
		}
		res := newResult(records, bytes, time.Since(start))
		if err := errors.Join(err, co.Close()); err != nil {
			return err
		}
		return res.print(c)
	})
}

// benchStarts gives the beginnings of all partitions, and how many records they hold.
func benchStarts(c *cli.Context, cl *client.Client) (starts []client.Start, available int64, err error) {
	ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
	defer cancel()
	topic := c.Args().First()
	n, err := cl.PartitionCount(ctx, topic)
	if err != nil {
		return nil, 0, err
	}
	for p := range n {
		o, err := cl.Offsets(ctx, topic, p, wire.AtStart)
		if err != nil {
			return nil, 0, err
		}
		available += int64(o.HighWatermark - o.LogStart)
		starts = append(starts, client.Start{Topic: topic, Partition: p, Offset: o.LogStart})
	}
	return starts, available, nil
}
