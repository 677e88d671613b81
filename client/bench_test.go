package client

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"

	"edged/transport/wire"
)

// instant answers produces at once.
type instant struct{ *fakeNode }

func (instant) Produce(_ wire.ProduceRequest, done func(wire.ProduceResponse)) {
	done(wire.ProduceResponse{})
}

// BenchmarkProducer is client and protocol alone: 100-byte records over loopback to a
// broker that answers at once.
func BenchmarkProducer(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	c := &fakeCluster{topics: map[string][]*fakePartition{}, ids: map[string]string{}}
	c.nodes = []*fakeNode{{c: c, id: 100, name: ln.Addr().String()}}
	c.addTopic("t", 4)
	s := wire.NewServer(wire.Config{Broker: instant{c.nodes[0]}, Logger: slog.New(slog.DiscardHandler)})
	var served sync.WaitGroup
	served.Go(func() {
		if nc, err := ln.Accept(); err == nil {
			s.Handle(nc)
		}
	})
	cl, err := New(Config{Nodes: []string{ln.Addr().String()}})
	if err != nil {
		b.Fatal(err)
	}
	p := cl.NewProducer(ProducerConfig{})
	value := make([]byte, 100)
	b.SetBytes(int64(len(value)))
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Produce(context.Background(), Record{Topic: "t", Value: value}, nil); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Flush(context.Background()); err != nil {
		b.Fatal(err)
	}
	cl.Close()
	ln.Close()
	served.Wait()
}
