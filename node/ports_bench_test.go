package node

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"edged/record"
	"edged/transport/wire"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// What BenchmarkPorts sends: batches of so many records, so many requests on their way, and a log of so
// many batches to read, of which each answer has about as many as fit into answerBytes.
const (
	portBatch    = 100
	portWindow   = 5
	portLog      = 200
	portAnswer   = 512 << 10
	portPatience = time.Minute
)

// portRequests makes whole requests of a protocol, with the length in front that both have.
type portRequests struct {
	addr    func(*Node) string
	hello   []byte // sent first, nil if there is none
	produce func(batch record.Batch) []byte
	fetch   func(at int64) []byte
}

var ports = map[string]portRequests{
	"kafka": {
		addr: func(n *Node) string { return n.Addrs().Kafka },
		produce: func(batch record.Batch) []byte {
			p := kmsg.ProduceRequestTopicPartition{Records: batch}
			req := kmsg.ProduceRequest{Version: 11, Acks: -1, TimeoutMillis: 30_000, Topics: []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{p}}}}
			return kmsg.NewRequestFormatter().AppendRequest(nil, &req, 1)
		},
		fetch: func(at int64) []byte {
			p := kmsg.NewFetchRequestTopicPartition()
			p.FetchOffset, p.CurrentLeaderEpoch, p.PartitionMaxBytes = at, -1, portAnswer
			req := kmsg.NewPtrFetchRequest()
			req.Version, req.MaxBytes, req.MinBytes, req.SessionEpoch = 12, portAnswer, 1, -1
			req.Topics = []kmsg.FetchRequestTopic{{Topic: "t", Partitions: []kmsg.FetchRequestTopicPartition{p}}}
			return kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)
		},
	},
	"native": {
		addr:  func(n *Node) string { return n.Addrs().Native },
		hello: nativeRequest(wire.APIHello, &wire.HelloRequest{}),
		produce: func(batch record.Batch) []byte {
			return nativeRequest(wire.APIProduce, &wire.ProduceRequest{Topic: "t", Acks: wire.AcksAll, Epoch: record.NoEpoch, TimeoutMs: 30_000, Batch: batch})
		},
		fetch: func(at int64) []byte {
			return nativeRequest(wire.APIFetch, &wire.FetchRequest{Topic: "t", Epoch: record.NoEpoch, Offset: record.Offset(at), MaxBytes: portAnswer, MinBytes: 1})
		},
	},
}

func nativeRequest(api wire.API, m wire.Message) []byte {
	f, err := wire.EncodeRequest(api, 1, m)
	if err != nil {
		panic(err) // what is encoded here is constant
	}
	var b []byte
	for _, p := range f.Pieces {
		b = append(b, p...)
	}
	return b
}

// BenchmarkPorts is one node from the socket to the disk and back, through each of its ports. B/record and
// allocs/record are all that the process allocates, the storage and the node's own work included; the
// client of the benchmark sends bytes that it has, and reads into a buffer.
func BenchmarkPorts(b *testing.B) {
	for _, size := range []int{100, 1 << 10} {
		for _, port := range []string{"kafka", "native"} {
			r := ports[port]
			b.Run(fmt.Sprintf("produce/%dB/%s", size, port), func(b *testing.B) {
				c := dialPort(b, startCluster(b, 1)[0].Node, r)
				req := r.produce(portRecords(size))
				c.measure(b, size*portBatch, portBatch, func(int) []byte { return req })
			})
			b.Run(fmt.Sprintf("fetch/%dB/%s", size, port), func(b *testing.B) {
				c := dialPort(b, startCluster(b, 1)[0].Node, r)
				req := r.produce(portRecords(size))
				c.exchange(b, portLog, func(int) []byte { return req })
				batches := max(portAnswer/len(portRecords(size)), 1)
				var fetches [][]byte
				for at := 0; at+batches <= portLog; at += batches {
					fetches = append(fetches, r.fetch(int64(at*portBatch)))
				}
				c.measure(b, size*portBatch*batches, portBatch*batches, func(i int) []byte { return fetches[i%len(fetches)] })
			})
		}
	}
}

func portRecords(size int) record.Batch {
	builder := record.NewBuilder(record.None, 1<<20)
	for i := range portBatch {
		builder.Append(int64(1000+i), nil, make([]byte, size), nil)
	}
	return builder.Build()
}

// portConn is a connection to a port of a node.
type portConn struct {
	net.Conn
	buf []byte
}

func dialPort(b *testing.B, n *Node, r portRequests) *portConn {
	nc, err := net.Dial("tcp", r.addr(n))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = nc.Close() })
	c := &portConn{Conn: nc, buf: make([]byte, 4<<20)}
	if r.hello != nil {
		c.exchange(b, 1, func(int) []byte { return r.hello })
	}
	// The first answers may be that there is no leader yet.
	await(b, "a leader", func() bool {
		_, part, err := n.locate("t", 0)
		return err == nil && part != nil && part.View().Serving
	})
	return c
}

// exchange sends n requests, portWindow at a time, and gives the bytes of the answers.
func (c *portConn) exchange(b *testing.B, n int, req func(i int) []byte) (answered int64) {
	b.Helper()
	_ = c.SetDeadline(time.Now().Add(portPatience))
	window := make(chan struct{}, portWindow)
	var writer sync.WaitGroup
	defer writer.Wait()
	writer.Go(func() {
		for i := range n {
			window <- struct{}{}
			if _, err := c.Write(req(i)); err != nil {
				b.Error(err)
				_ = c.Close() // the reader learns of it
				return
			}
		}
	})
	for range n {
		if _, err := io.ReadFull(c, c.buf[:4]); err != nil {
			b.Fatal(err)
		}
		answer := c.buf[:binary.BigEndian.Uint32(c.buf)]
		if _, err := io.ReadFull(c, answer); err != nil {
			b.Fatal(err)
		}
		answered += int64(len(answer))
		<-window
	}
	return answered
}

// measure runs requests of so many bytes and records each.
func (c *portConn) measure(b *testing.B, bytes, records int, req func(i int) []byte) {
	b.SetBytes(int64(bytes))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b.ResetTimer()
	answered := c.exchange(b, b.N, req)
	b.StopTimer()
	runtime.ReadMemStats(&after)
	all := float64(b.N * records)
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/all, "B/record")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/all, "allocs/record")
	b.ReportMetric(float64(answered)/all, "answered-B/record")
}
