package wire

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
)

// BenchmarkProduce is the protocol alone: 1 KiB batches over loopback, many under way, and
// a broker that answers at once.
func BenchmarkProduce(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	broker := &fakeBroker{produce: func(_ ProduceRequest, done func(ProduceResponse)) { done(ProduceResponse{Durability: "none"}) }}
	s := NewServer(Config{Broker: broker, Logger: slog.New(slog.DiscardHandler)})
	var served sync.WaitGroup
	served.Go(func() {
		if nc, err := ln.Accept(); err == nil {
			s.Handle(nc)
		}
	})
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	send := func(api API, m Message) []byte {
		f, err := EncodeRequest(api, 1, m)
		if err != nil {
			b.Fatal(err)
		}
		return bytes.Join(f.Pieces, nil)
	}
	if _, err := nc.Write(send(APIHello, &HelloRequest{})); err != nil {
		b.Fatal(err)
	}
	if _, err := ReadFrame(nc, MaxFrameLimit); err != nil {
		b.Fatal(err)
	}
	one := send(APIProduce, &ProduceRequest{Topic: "t", Acks: AcksAll, Epoch: -1, Batch: testBatch(b, strings.Repeat("x", 1<<10))})
	b.SetBytes(int64(len(one)))
	b.ReportAllocs()
	var writer sync.WaitGroup
	writer.Go(func() {
		for range b.N {
			if _, err := nc.Write(one); err != nil {
				b.Error(err)
				return
			}
		}
	})
	for range b.N {
		if _, err := ReadFrame(nc, MaxFrameLimit); err != nil {
			b.Fatal(err)
		}
	}
	writer.Wait()
	nc.Close()
	served.Wait()
	ln.Close()
}
