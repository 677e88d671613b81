// Command kafka-go drives segmentio's kafka-go: Writer and Reader.
package main

import (
	"context"
	"errors"

	"github.com/segmentio/kafka-go"

	"edged/test/interop/driver"
)

var codecs = map[string]kafka.Compression{
	"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

func main() {
	driver.Main(driver.Client{
		Version: driver.ModuleVersion("kafka-go", "github.com/segmentio/kafka-go"),
		Produce: produce, Consume: consume,
	})
}

// A Writer's default is acks=0, with which nothing is ever acknowledged; so every mode has acks=all.
func produce(to driver.Target, mode, codec string, lines <-chan driver.Line) error {
	w := &kafka.Writer{
		Addr: kafka.TCP(to.Bootstrap...), Topic: to.Topic, Balancer: &kafka.Hash{},
		RequiredAcks: kafka.RequireAll, Compression: codecs[codec],
	}
	for all := driver.Gather(lines); all != nil; all = driver.Gather(lines) {
		msgs := make([]kafka.Message, len(all))
		for i, l := range all {
			msgs[i] = kafka.Message{Key: []byte(l.Key), Value: []byte(l.Value)}
		}
		err := w.WriteMessages(context.Background(), msgs...)
		var each kafka.WriteErrors
		if !errors.As(err, &each) {
			each = make(kafka.WriteErrors, len(msgs))
			for i := range each {
				each[i] = err
			}
		}
		for i, l := range all {
			if each[i] != nil {
				driver.Fail(l.Value, each[i])
			} else {
				driver.Ack(l.Value, -1, -1)
			}
		}
	}
	return w.Close()
}

func consume(ctx context.Context, to driver.Target, group string) error {
	cfg := kafka.ReaderConfig{Brokers: to.Bootstrap, Topic: to.Topic, StartOffset: kafka.FirstOffset}
	if group != driver.NoGroup {
		cfg.GroupID = group
	}
	r := kafka.NewReader(cfg)
	for {
		m, err := r.ReadMessage(ctx)
		switch {
		case ctx.Err() != nil:
			return r.Close()
		case err != nil:
			driver.Error(err)
		default:
			driver.Rec(int32(m.Partition), m.Offset, string(m.Value))
		}
	}
}
