// Command kgo drives franz-go's client.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"edged/test/interop/driver"
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func main() {
	driver.Main(driver.Client{
		Version: driver.ModuleVersion("franz-go", "github.com/twmb/franz-go"),
		Produce: produce, Consume: consume,
	})
}

func produce(to driver.Target, mode, codec string, lines <-chan driver.Line) error {
	opts := []kgo.Opt{kgo.SeedBrokers(to.Bootstrap...), kgo.DefaultProduceTopic(to.Topic)}
	if codec != "default" {
		opts = append(opts, kgo.ProducerBatchCompression(codecs[codec]))
	}
	if mode == driver.All {
		opts = append(opts, kgo.DisableIdempotentWrite())
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx := context.Background()
	for l := range lines {
		cl.Produce(ctx, &kgo.Record{Key: []byte(l.Key), Value: []byte(l.Value)}, func(r *kgo.Record, err error) {
			if err != nil {
				driver.Fail(string(r.Value), err)
				return
			}
			driver.Ack(string(r.Value), r.Partition, r.Offset)
		})
	}
	return cl.Flush(ctx)
}

func consume(ctx context.Context, to driver.Target, group string) error {
	opts := []kgo.Opt{kgo.SeedBrokers(to.Bootstrap...), kgo.ConsumeTopics(to.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	if group != driver.NoGroup {
		opts = append(opts, kgo.ConsumerGroup(group))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	defer cl.Close() // commits what was polled and leaves
	for {
		fetches := cl.PollFetches(ctx)
		for _, e := range fetches.Errors() {
			if !errors.Is(e.Err, context.Canceled) {
				driver.Error(fmt.Errorf("%s/%d: %w", e.Topic, e.Partition, e.Err))
			}
		}
		fetches.EachRecord(func(r *kgo.Record) { driver.Rec(r.Partition, r.Offset, string(r.Value)) })
		if ctx.Err() == nil {
			continue
		}
		if group == driver.NoGroup {
			return nil
		}
		return cl.CommitUncommittedOffsets(context.WithoutCancel(ctx))
	}
}
