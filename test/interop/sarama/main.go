// Command sarama drives IBM's sarama with its default configuration.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/IBM/sarama"

	"edged/test/interop/driver"
)

var codecs = map[string]sarama.CompressionCodec{
	"default": sarama.CompressionNone, "none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

func main() {
	driver.Main(driver.Client{
		Version: driver.ModuleVersion("sarama", "github.com/IBM/sarama"),
		Produce: produce, Consume: consume,
	})
}

func produce(to driver.Target, mode, codec string, lines <-chan driver.Line) error {
	cfg := sarama.NewConfig()
	cfg.Producer.Return.Successes = true
	cfg.Producer.Compression = codecs[codec]
	switch mode {
	case driver.Idempotent: // sarama refuses it without the other two
		cfg.Producer.Idempotent, cfg.Net.MaxOpenRequests = true, 1
		cfg.Producer.RequiredAcks = sarama.WaitForAll
	case driver.All:
		cfg.Producer.RequiredAcks = sarama.WaitForAll
	}
	p, err := sarama.NewAsyncProducer(to.Bootstrap, cfg)
	if err != nil {
		return err
	}
	var told sync.WaitGroup
	told.Go(func() {
		for m := range p.Successes() {
			driver.Ack(string(m.Value.(sarama.StringEncoder)), m.Partition, m.Offset)
		}
	})
	told.Go(func() {
		for e := range p.Errors() {
			driver.Fail(string(e.Msg.Value.(sarama.StringEncoder)), e.Err)
		}
	})
	for l := range lines {
		p.Input() <- &sarama.ProducerMessage{Topic: to.Topic, Key: sarama.StringEncoder(l.Key), Value: sarama.StringEncoder(l.Value)}
	}
	p.AsyncClose()
	told.Wait()
	return nil
}

func consume(ctx context.Context, to driver.Target, group string) error {
	cfg := sarama.NewConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Consumer.Return.Errors = true
	if group == driver.NoGroup {
		return consumeAlone(ctx, to, cfg)
	}
	g, err := sarama.NewConsumerGroup(to.Bootstrap, group, cfg)
	if err != nil {
		return err
	}
	var told sync.WaitGroup
	told.Go(func() {
		for err := range g.Errors() {
			driver.Error(err)
		}
	})
	for ctx.Err() == nil { // sarama's way: Consume ends with each rebalance
		if err := g.Consume(ctx, []string{to.Topic}, handler{}); err != nil && !errors.Is(err, context.Canceled) {
			driver.Error(fmt.Errorf("Consume: %w", err))
		}
	}
	err = g.Close()
	told.Wait()
	return err
}

type handler struct{}

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (handler) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		driver.Rec(m.Partition, m.Offset, string(m.Value))
		s.MarkMessage(m, "")
	}
	return nil
}

func consumeAlone(ctx context.Context, to driver.Target, cfg *sarama.Config) error {
	c, err := sarama.NewConsumer(to.Bootstrap, cfg)
	if err != nil {
		return err
	}
	partitions, err := c.Partitions(to.Topic)
	if err != nil {
		return errors.Join(err, c.Close())
	}
	var all sync.WaitGroup
	for _, n := range partitions {
		pc, err := c.ConsumePartition(to.Topic, n, sarama.OffsetOldest)
		if err != nil {
			return errors.Join(err, c.Close())
		}
		all.Go(func() {
			for m := range pc.Messages() {
				driver.Rec(m.Partition, m.Offset, string(m.Value))
			}
		})
		all.Go(func() {
			for err := range pc.Errors() {
				driver.Error(err)
			}
		})
		context.AfterFunc(ctx, pc.AsyncClose)
	}
	all.Wait()
	return c.Close()
}
