package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"edged/client"
	"edged/record"
	"edged/transport/wire"
)

// realClient produces and consumes through package client and the network, faults and all.
type realClient struct {
	w     *world
	name  string
	parts []*part
}

func (w *world) newRealClient() *realClient {
	return &realClient{w: w, name: "client", parts: w.hist.parts()}
}

func (r *realClient) connect() *client.Client {
	host := r.w.net.Host("10.9.0.1")
	var nodes []string
	for _, m := range r.w.machines {
		nodes = append(nodes, fmt.Sprintf("%s:%d", m.addr(), nativePort))
	}
	c, err := client.New(client.Config{Nodes: nodes, Name: r.name, Dial: func(ctx context.Context, addr string) (net.Conn, error) { return host.Dial(ctx, addr) }})
	if err != nil {
		r.w.fail(lawRuns, "the client: %v", err)
		return nil
	}
	return c
}

// produce sends records one by one until the run ends; the client batches and pipelines them.
func (r *realClient) produce() {
	c := r.connect()
	if c == nil {
		return
	}
	defer c.Close()
	rng := newRouter(r.w, 7000).rng
	p := c.NewProducer(client.ProducerConfig{Acks: client.AcksAll, Linger: 5 * time.Millisecond, DeliveryTimeout: 20 * time.Second})
	ctx, cancel := r.context()
	defer cancel()
	for r.w.sleep(time.Duration(rng.Int64N(int64(30 * time.Millisecond)))) {
		pt := r.parts[rng.IntN(len(r.parts))]
		if pt.topic.deleted.Load() {
			continue
		}
		s := r.w.hist.begin(pt, r.name, -1, -1, 1, rng.IntN(300), wire.AcksAll)
		err := p.ProduceTo(ctx, pt.number, client.Record{Topic: pt.topic.name, Value: []byte(s.values[0]), Timestamp: s.stamp}, func(a client.Ack) {
			switch {
			case a.Err == nil && a.Offset >= 0:
				r.w.hist.ack(s, wire.ProduceResponse{BaseOffset: a.Offset, Epoch: a.Epoch})
			case a.Err == nil, errors.Is(a.Err, record.ErrTimeout), errors.Is(a.Err, record.ErrInterrupted), errors.Is(a.Err, client.ErrClosed):
			default:
				r.w.hist.refuse(s)
			}
		})
		if err != nil && ctx.Err() == nil && !errors.Is(err, record.ErrTimeout) && !pt.topic.deleted.Load() {
			r.w.story.tell(r.name, "produce: %v", err)
		}
	}
	_ = p.Close()
}

// context ends with the clients.
func (r *realClient) context() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-r.w.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// consume follows all partitions from their start.
func (r *realClient) consume() {
	c := r.connect()
	if c == nil {
		return
	}
	defer c.Close()
	ctx, cancel := r.context()
	defer cancel()
	var starts []client.Start
	byName := map[string]*part{}
	for _, p := range r.parts {
		if !p.topic.transient {
			starts = append(starts, client.From(p.topic.name, p.number, wire.AtStart))
			byName[p.String()] = p
		}
	}
	co, err := c.NewConsumer(client.ConsumerConfig{Partitions: starts, Reset: client.ResetStart, MaxWait: 200 * time.Millisecond})
	if err != nil {
		r.w.fail(lawRuns, "the consumer: %v", err)
		return
	}
	defer co.Close()
	next := map[string]record.Offset{}
	for ctx.Err() == nil && !r.w.over() {
		ms, err := co.Poll(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, client.ErrSkipped) {
			for k := range next { // only where retention may have passed it
				if p := byName[k]; p.topic.retention {
					delete(next, k)
				}
			}
			r.w.story.tell(r.name, "%v", err)
		} else if err != nil {
			r.w.fail(lawRuns, "the consumer: %v", err)
			return
		}
		for _, m := range ms {
			k := fmt.Sprintf("%s/%d", m.Topic, m.Partition)
			if want, ok := next[k]; ok && m.Offset != want && !byName[k].topic.relaxed {
				r.w.fail(lawDense, "the consumer got offset %d of %s where %d should follow", m.Offset, k, want)
				return
			}
			next[k] = m.Offset + 1
			r.w.hist.got(byName[k], "the consumer", m.Offset, string(m.Value))
		}
	}
}
