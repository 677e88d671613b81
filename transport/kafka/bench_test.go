package kafka

import (
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

// benchRecords is how many records of 100 bytes a batch of the benchmarks holds.
const benchRecords = 100

// serveBench is a server with one connection in memory.
func serveBench(b *testing.B) (*fakeBroker, *client) {
	broker := newFake()
	s := NewServer(Config{Broker: broker, Groups: &fakeGroups{}, Logger: slog.New(slog.DiscardHandler)})
	ours, theirs := net.Pipe()
	go s.Handler("")(theirs)
	b.Cleanup(func() { _ = ours.Close(); _ = s.Close() })
	return broker, &client{t: b, nc: ours}
}

func benchBatch() record.Batch {
	values := make([]string, benchRecords)
	for i := range values {
		values[i] = strings.Repeat("x", 100)
	}
	return batch(record.None, values...)
}

// BenchmarkProduce is the protocol alone: the broker only counts. bytes/record is what the server, and the
// client of the test, allocate beside the record's own bytes.
func BenchmarkProduce(b *testing.B) {
	broker, c := serveBench(b)
	broker.topic("t", 1).parts[0].produce = record.ErrBusy // nothing is kept
	req := produceOf("t", 0, -1, benchBatch())
	req.SetVersion(9)
	frame := kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		c.write(frame)
		c.frame()
		broker.produced = broker.produced[:0]
	}
}

// BenchmarkFetch reads one batch again and again.
func BenchmarkFetch(b *testing.B) {
	broker, c := serveBench(b)
	broker.topic("t", 1).parts[0].add(benchBatch())
	req := fetchOf("t", 0, 0)
	req.SetVersion(12)
	frame := kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)
	b.SetBytes(int64(len(benchBatch())))
	b.ReportAllocs()
	for b.Loop() {
		c.write(frame)
		c.frame()
	}
}
