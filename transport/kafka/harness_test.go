package kafka

import (
	"encoding/binary"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

// patience is how long a test waits for what should come at once.
const patience = 10 * time.Second

// bench is a server on a port of loopback, and its broker.
type bench struct {
	t      testing.TB
	broker *fakeBroker
	groups *fakeGroups
	server *Server
	addr   string
}

func start(t testing.TB, change ...func(*Config)) *bench {
	t.Helper()
	b := &bench{t: t, broker: newFake(), groups: &fakeGroups{}}
	cfg := Config{Broker: b.broker, Groups: b.groups, Logger: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&cfg)
	}
	b.server = NewServer(cfg)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.addr = ln.Addr().String()
	b.broker.nodes[0].Port = int32(ln.Addr().(*net.TCPAddr).Port)
	handle := b.server.Handler("")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go handle(nc)
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		<-done
		_ = b.server.Close()
	})
	return b
}

// client is one connection to it.
type client struct {
	t    testing.TB
	nc   net.Conn
	next int32
}

func (b *bench) dial() *client {
	b.t.Helper()
	nc, err := net.Dial("tcp", b.addr)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(patience))
	return &client{t: b.t, nc: nc}
}

func (c *client) write(b []byte) {
	c.t.Helper()
	if _, err := c.nc.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// send sends a request in a version and gives its correlation.
func (c *client) send(req kmsg.Request, version int16) int32 {
	c.t.Helper()
	c.next++
	req.SetVersion(version)
	c.write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("test")).AppendRequest(nil, req, c.next))
	return c.next
}

// frame reads one answer without its length.
func (c *client) frame() []byte {
	c.t.Helper()
	b, err := c.tryFrame()
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}

func (c *client) tryFrame() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(c.nc, head[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	_, err := io.ReadFull(c.nc, b)
	return b, err
}

// receive reads the answer to a request.
func (c *client) receive(req kmsg.Request, correlation int32) kmsg.Response {
	c.t.Helper()
	r := kbin.Reader{Src: c.frame()}
	if got := r.Int32(); got != correlation {
		c.t.Fatalf("%s: answer %d, want %d", kmsg.NameForKey(req.Key()), got, correlation)
	}
	resp := req.ResponseKind()
	if resp.IsFlexible() && req.Key() != keyApiVersions {
		if tags := r.Int8(); tags != 0 {
			c.t.Fatalf("%s: %d tags in the header", kmsg.NameForKey(req.Key()), tags)
		}
	}
	if err := resp.ReadFrom(r.Src); err != nil {
		c.t.Fatalf("%s version %d: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	// The encoding is the client's too: nothing may be left over.
	if again := resp.AppendTo(nil); len(again) != len(r.Src) {
		c.t.Fatalf("%s version %d: %d bytes of which %d are understood", kmsg.NameForKey(req.Key()), req.GetVersion(), len(r.Src), len(again))
	}
	return resp
}

// ask sends and receives.
func ask[R kmsg.Response](c *client, req kmsg.Request, version int16) R {
	c.t.Helper()
	return c.receive(req, c.send(req, version)).(R)
}

// gone waits until the server has closed the connection.
func (c *client) gone() {
	c.t.Helper()
	if b, err := c.tryFrame(); err == nil {
		c.t.Fatalf("an answer of %d bytes where the connection should be closed", len(b))
	} else if ne, ok := err.(net.Error); ok && ne.Timeout() {
		c.t.Fatal("the connection was not closed")
	}
}

// batch makes a batch of records with these values, stamped 1000, 1001, ...
func batch(codec record.Codec, values ...string) record.Batch {
	b := record.NewBuilder(codec, 1<<20)
	for i, v := range values {
		b.Append(int64(1000+i), nil, []byte(v), nil)
	}
	return b.Build()
}

// produceOf is a request with one batch for one partition.
func produceOf(topic string, partition int32, acks int16, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, 5000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, records
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

// onlyPartition is the answer for the one partition that was produced to.
func onlyPartition(t testing.TB, resp *kmsg.ProduceResponse) kmsg.ProduceResponseTopicPartition {
	t.Helper()
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		t.Fatalf("an answer for %+v", resp.Topics)
	}
	return resp.Topics[0].Partitions[0]
}

// fetchOf is a request for partitions of one topic, all from one offset.
func fetchOf(topic string, from int64, partitions ...int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 0, 1, 1<<20, 0
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	for _, n := range partitions {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = n, from, 1<<20, -1
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return req
}

// declaredErrors reads the codes off the source of package record, so that a new one cannot be left out.
func declaredErrors(t *testing.T) (found []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../record/errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.CompositeLit); ok && fmt.Sprint(lit.Type) == "Error" && len(lit.Elts) == 3 {
			code, _ := strconv.Unquote(lit.Elts[0].(*ast.BasicLit).Value)
			found = append(found, code)
		}
		return true
	})
	if len(found) < 40 {
		t.Fatalf("found %d errors in the source", len(found))
	}
	return found
}
