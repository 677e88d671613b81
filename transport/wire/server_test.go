package wire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edged/internal/memnet"
	"edged/record"
	"edged/transport"
)

// fakeBroker answers as its functions say; produces wait in parked if there is no function.
type fakeBroker struct {
	metadata func(ctx context.Context, topics []string) (Metadata, error)
	fetch    func(ctx context.Context, r FetchRequest) FetchResponse
	produce  func(r ProduceRequest, done func(ProduceResponse))

	mu     sync.Mutex
	parked []func(ProduceResponse)
	topics []string // of the produces, in order
}

func (b *fakeBroker) Hello() HelloInfo {
	return HelloInfo{Node: 7, ClusterID: "c1", Version: "v", Ready: true}
}
func (b *fakeBroker) Metadata(ctx context.Context, topics []string) (Metadata, error) {
	return b.metadata(ctx, topics)
}
func (b *fakeBroker) Produce(r ProduceRequest, done func(ProduceResponse)) {
	if b.produce != nil {
		b.produce(r, done)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parked = append(b.parked, done)
	b.topics = append(b.topics, r.Topic)
}
func (b *fakeBroker) Fetch(ctx context.Context, r FetchRequest) FetchResponse { return b.fetch(ctx, r) }
func (b *fakeBroker) Offsets(context.Context, OffsetsRequest) (OffsetsResponse, error) {
	return OffsetsResponse{}, &record.NotLeaderError{Leader: 3, Addr: "three:7400", Epoch: 12}
}
func (b *fakeBroker) ProducerID(context.Context) (int64, int16, error) { return 41, 2, nil }
func (b *fakeBroker) CreateTopic(ctx context.Context, r CreateTopicRequest) (CreateTopicResponse, error) {
	<-ctx.Done() // never decided
	return CreateTopicResponse{}, ctx.Err()
}
func (b *fakeBroker) DeleteTopic(context.Context, DeleteTopicRequest) error {
	return fmt.Errorf("topic: %w", record.ErrUnknownTopic)
}
func (b *fakeBroker) AlterTopic(context.Context, AlterTopicRequest) error { return nil }
func (b *fakeBroker) TransferLeader(context.Context, TransferLeaderRequest) (TransferLeaderResponse, error) {
	return TransferLeaderResponse{Leader: 9, Epoch: 4}, nil
}
func (b *fakeBroker) LeaderHistory(context.Context, LeaderHistoryRequest) ([]LeaderChange, error) {
	return nil, errors.New("a fault that nobody foresaw")
}
func (b *fakeBroker) Status(context.Context) (Status, error) { return Status{Nodes: 3}, nil }
func (b *fakeBroker) RemoveNode(_ context.Context, r RemoveNodeRequest) (RemoveNodeResponse, error) {
	return RemoveNodeResponse{Removed: r.Force, Moving: int32(r.Node)}, nil
}

func (b *fakeBroker) DescribeNode(context.Context, record.NodeID) (NodeDescription, error) {
	return NodeDescription{Node: Node{ID: 7}}, nil
}

// rig is a server on a network in memory.
type rig struct {
	t      *testing.T
	broker *fakeBroker
	server *Server
	net    *memnet.Network
	ln     net.Listener
	served sync.WaitGroup
}

func newRig(t *testing.T, cfg Config) *rig {
	r := &rig{t: t, broker: &fakeBroker{}, net: memnet.New()}
	cfg.Broker = r.broker
	cfg.Logger = slog.New(slog.DiscardHandler)
	r.server = NewServer(cfg)
	var err error
	if r.ln, err = r.net.Host("node").Listen(7400); err != nil {
		t.Fatal(err)
	}
	r.served.Go(func() {
		for {
			nc, err := r.ln.Accept()
			if err != nil {
				return
			}
			r.served.Go(func() { r.server.Handle(nc) })
		}
	})
	return r
}

func (r *rig) close() {
	r.ln.Close()
	r.server.Close()
	r.served.Wait()
	m := r.server.Metrics()
	if m.Connections != 0 || m.RequestBytes != 0 || m.ResponseBytes != 0 {
		r.t.Errorf("after Close: %d connections, %d bytes of requests, %d of responses", m.Connections, m.RequestBytes, m.ResponseBytes)
	}
}

// rawClient speaks frames.
type rawClient struct {
	t    *testing.T
	nc   net.Conn
	r    *bufio.Reader
	last uint32
}

func (r *rig) dial() *rawClient {
	r.t.Helper()
	nc, err := r.net.Host("client").Dial(r.t.Context(), "node:7400")
	if err != nil {
		r.t.Fatal(err)
	}
	return &rawClient{t: r.t, nc: nc, r: bufio.NewReader(nc)}
}

// greet dials and says hello.
func (r *rig) greet() *rawClient {
	r.t.Helper()
	c := r.dial()
	var info HelloInfo
	if err := c.ask(APIHello, &HelloRequest{Client: "test"}, &info); err != nil || info.Node != 7 {
		r.t.Fatalf("hello: %+v, %v", info, err)
	}
	return c
}

func (c *rawClient) send(api API, m Message) uint32 {
	c.t.Helper()
	c.last++
	f, err := EncodeRequest(api, c.last, m)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := f.Pieces.WriteTo(c.nc); err != nil {
		c.t.Fatal(err)
	}
	return c.last
}

func (c *rawClient) receive() *Response {
	c.t.Helper()
	frame, err := ReadFrame(c.r, MaxFrameLimit)
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := ParseResponse(frame)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp
}

func (c *rawClient) ask(api API, req, resp Message) error {
	c.t.Helper()
	id := c.send(api, req)
	r := c.receive()
	if r.Correlation != id {
		c.t.Fatalf("answer to %d, asked was %d", r.Correlation, id)
	}
	if err := r.Decode(resp); err != nil {
		c.t.Fatal(err)
	}
	return r.Err
}

// ended makes sure that the server closes the connection.
func (c *rawClient) ended() {
	c.t.Helper()
	if b, err := c.r.ReadByte(); !errors.Is(err, io.EOF) {
		c.t.Errorf("the connection goes on: byte %x, err %v", b, err)
	}
}

// raw writes bytes as they are.
func (c *rawClient) raw(b ...byte) {
	c.t.Helper()
	if _, err := c.nc.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// frame puts a length in front.
func frame(b ...byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

func testBatch(t testing.TB, values ...string) record.Batch {
	t.Helper()
	b := record.NewBuilder(record.None, 1<<20)
	for _, v := range values {
		if !b.Append(1000, nil, []byte(v), nil) {
			t.Fatal("the batch is full")
		}
	}
	return b.Build()
}

// inBubble runs f under virtual time with a rig that is closed at the end.
func inBubble(t *testing.T, cfg Config, f func(*testing.T, *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, cfg)
		f(t, r)
		r.close()
	})
}

func TestServer_answersEveryAPI(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *rig) {
		r.broker.metadata = func(_ context.Context, topics []string) (Metadata, error) {
			if topics != nil {
				return Metadata{}, fmt.Errorf("asked for %v, wanted all", topics)
			}
			return Metadata{ClusterID: "c1", MetadataLeader: 3, Topics: []Topic{{Name: "gone", Err: record.ErrUnknownTopic}}}, nil
		}
		c := r.greet()
		var md Metadata
		if err := c.ask(APIMetadata, &MetadataRequest{}, &md); err != nil || md.MetadataLeader != 3 || !errors.Is(md.Topics[0].Err, record.ErrUnknownTopic) {
			t.Errorf("metadata: %+v, %v", md, err)
		}
		var id ProducerIDResponse
		if err := c.ask(APIProducerID, &ProducerIDRequest{}, &id); err != nil || id != (ProducerIDResponse{41, 2}) {
			t.Errorf("producer id: %+v, %v", id, err)
		}
		var nl *record.NotLeaderError
		if err := c.ask(APIOffsets, &OffsetsRequest{Topic: "t"}, &OffsetsResponse{}); !errors.As(err, &nl) || *nl != (record.NotLeaderError{Leader: 3, Addr: "three:7400", Epoch: 12}) {
			t.Errorf("offsets: %v", err)
		}
		if err := c.ask(APIDeleteTopic, &DeleteTopicRequest{Name: "x"}, &Empty{}); !errors.Is(err, record.ErrUnknownTopic) {
			t.Errorf("delete: %v", err)
		}
		if err := c.ask(APIAlterTopic, &AlterTopicRequest{Name: "x"}, &Empty{}); err != nil {
			t.Errorf("alter: %v", err)
		}
		var tr TransferLeaderResponse
		if err := c.ask(APITransferLeader, &TransferLeaderRequest{Topic: "x"}, &tr); err != nil || tr.Leader != 9 {
			t.Errorf("transfer: %+v, %v", tr, err)
		}
		if err := c.ask(APILeaderHistory, &LeaderHistoryRequest{}, &LeaderHistoryResponse{}); !errors.Is(err, record.ErrInternal) {
			t.Errorf("history: %v", err)
		}
		var st Status
		if err := c.ask(APIStatus, &StatusRequest{}, &st); err != nil || st.Nodes != 3 {
			t.Errorf("status: %+v, %v", st, err)
		}
		var nd NodeDescription
		if err := c.ask(APIDescribeNode, &DescribeNodeRequest{}, &nd); err != nil || nd.ID != 7 {
			t.Errorf("describe: %+v, %v", nd, err)
		}
		if err := c.ask(APIListGroups, &ListGroupsRequest{}, &ListGroupsResponse{}); !errors.Is(err, record.ErrUnsupported) {
			t.Errorf("groups of a node that has none: %v", err)
		}
		began := time.Now()
		if err := c.ask(APICreateTopic, &CreateTopicRequest{Name: "x", TimeoutMs: 1500}, &CreateTopicResponse{}); !errors.Is(err, record.ErrTimeout) || time.Since(began) != 1500*time.Millisecond {
			t.Errorf("create: %v after %v", err, time.Since(began))
		}
		m := r.server.Metrics()
		if m.Requests["metadata"] != 1 || m.Requests["hello"] != 1 || m.Errors["not_leader"] != 1 || m.Errors["timeout"] != 1 || m.Connections != 1 {
			t.Errorf("metrics: %+v", m)
		}
	})
}

// What is not understood is named, and costs the connection only where the next frame
// cannot be found any more.
func TestServer_namesWhatItDoesNotUnderstand(t *testing.T) {
	hello := frame(0x94, 0, 1, 1, 0x91, 0xa0)
	good := frame(0x94, 21, 1, 9, 0x91, 0)
	for _, c := range []struct {
		name, code, text, reason string
		send                     []byte
		correlation              uint32
		goesOn                   bool
	}{
		{"api", "unsupported_version", "there is no api 99", BadAPI, frame(0x94, 99, 1, 5, 0x90), 5, true},
		{"version", "unsupported_version", "metadata version 7; this node speaks 1 to 1", BadVersion, frame(0x94, 1, 7, 5, 0x90), 5, true},
		{"body", "invalid_request", "offsets version 1: at byte", BadBody, frame(0x94, 4, 1, 5, 0x92, 0xa0, 0xa1, 'x'), 5, true},
		{"body that is no array", "invalid_request", "produce version 1: at byte", BadBody, frame(0x94, 2, 1, 5, 0xa1, 'x'), 5, true},
		{"bytes behind the request", "invalid_request", "2 bytes follow", BadBody, frame(0x94, 21, 1, 5, 0x91, 0, 1, 2), 5, true},
		{"length", "invalid_request", "speaking edged's native protocol?", BadLength, []byte("GET / HTTP/1.1\r\n\r\n"), 0, false},
		{"length 0", "invalid_request", "a frame of 0 bytes", BadLength, []byte{0, 0, 0, 0}, 0, false},
		{"no msgpack", "invalid_request", "not a request", BadHeader, frame([]byte("\x00\x12\x00\x03\x00\x00\x00\x01rdkafka")...), 0, false},
		{"short array", "invalid_request", "an array of 3 values", BadHeader, frame(0x93, 1, 1, 5), 0, false},
		{"correlation 0", "invalid_request", "the correlation is 0", BadHeader, frame(0x94, 1, 1, 0, 0x90), 0, false},
		{"correlation too large", "invalid_request", "the correlation is 4294967296", BadHeader, frame(0x94, 1, 1, 0xcf, 0, 0, 0, 1, 0, 0, 0, 0, 0x90), 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, r *rig) {
				cl := r.dial()
				cl.raw(hello...)
				cl.receive()
				cl.raw(c.send...)
				got := cl.receive()
				if record.Code(got.Err) != c.code || got.Err == nil || !strings.Contains(got.Err.Error(), c.text) || got.Correlation != c.correlation {
					t.Errorf("correlation %d, code %q, error %v", got.Correlation, record.Code(got.Err), got.Err)
				}
				if n := r.server.Metrics().BadFrames[c.reason]; n != 1 {
					t.Errorf("counted %d of %s: %v", n, c.reason, r.server.Metrics().BadFrames)
				}
				if !c.goesOn {
					cl.ended()
					return
				}
				cl.raw(good...)
				if got := cl.receive(); got.Err != nil || got.Correlation != 9 {
					t.Errorf("the next request: %+v", got)
				}
			})
		})
	}
}

func TestServer_wantsHelloFirstAndSoon(t *testing.T) {
	inBubble(t, Config{HandshakeTimeout: 3 * time.Second}, func(t *testing.T, r *rig) {
		first := r.dial()
		id := first.send(APIStatus, &StatusRequest{})
		if got := first.receive(); got.Correlation != id || !errors.Is(got.Err, record.ErrInvalidRequest) {
			t.Errorf("%+v", got)
		}
		first.ended()

		began := time.Now()
		silent := r.dial()
		if got := silent.receive(); !strings.Contains(got.Err.Error(), "no hello within 3s") {
			t.Errorf("%+v", got)
		}
		silent.ended()
		if took := time.Since(began); took < 3*time.Second || took > 5*time.Second {
			t.Errorf("took %v", took)
		}

		idle := r.greet() // and then nothing for long: that is allowed
		time.Sleep(time.Hour)
		if err := idle.ask(APIStatus, &StatusRequest{}, &Status{}); err != nil {
			t.Error(err)
		}
	})
}

func TestServer_stalledFrameEndsTheConnection(t *testing.T) {
	inBubble(t, Config{FrameTimeout: 2 * time.Second}, func(t *testing.T, r *rig) {
		c := r.greet()
		c.raw(0, 0, 4, 0, 0x94, 1)
		began := time.Now()
		c.ended()
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("took %v", took)
		}
		if r.server.Metrics().BadFrames[BadCutShort] != 1 {
			t.Errorf("%v", r.server.Metrics().BadFrames)
		}
	})
}

func TestServer_saysWhenItIsFull(t *testing.T) {
	inBubble(t, Config{MaxConns: 2}, func(t *testing.T, r *rig) {
		a := r.greet()
		r.greet()
		c := r.dial()
		if got := c.receive(); got.Correlation != 0 || !errors.Is(got.Err, record.ErrLimit) {
			t.Errorf("%+v", got)
		}
		c.nc.Close()
		a.nc.Close()
		synctest.Wait()
		r.greet()
		if m := r.server.Metrics(); m.Refused != 1 || m.Accepted != 3 {
			t.Errorf("%+v", m)
		}
	})
}

// Answers of produces to one partition leave in the order of their requests, whatever the
// order in which the broker settles them; other partitions do not wait for them.
func TestServer_producesAreAnsweredInOrderPerPartition(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *rig) {
		c := r.greet()
		b := testBatch(t, "x")
		var ids []uint32
		for _, topic := range []string{"a", "a", "b", "a"} {
			ids = append(ids, c.send(APIProduce, &ProduceRequest{Topic: topic, Acks: AcksAll, Batch: b}))
		}
		bad := c.send(APIProduce, &ProduceRequest{Topic: "a", Acks: 3, Batch: b}) // refused by the server itself
		synctest.Wait()
		if got := r.broker.topics; !slices.Equal(got, []string{"a", "a", "b", "a"}) {
			t.Fatalf("the broker saw %v", got)
		}
		settle := func(i int) {
			r.broker.parked[i](ProduceResponse{BaseOffset: record.Offset(i), Durability: "fsync-majority"})
		}
		settle(3)
		settle(1)
		settle(2)
		if got := c.receive(); got.Correlation != ids[2] {
			t.Errorf("first answer is to %d, wanted b's %d", got.Correlation, ids[2])
		}
		settle(0)
		for i, want := range []uint32{ids[0], ids[1], ids[3], bad} {
			got := c.receive()
			var resp ProduceResponse
			if err := got.Decode(&resp); err != nil {
				t.Fatal(err)
			}
			if got.Correlation != want || (got.Err != nil) != (want == bad) {
				t.Errorf("answer %d: to %d with %v, wanted to %d", i, got.Correlation, got.Err, want)
			}
		}
	})
}

func TestServer_damagedBatchIsRefusedBeforeTheBroker(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *rig) {
		c := r.greet()
		b := testBatch(t, "x")
		b[len(b)-1] ^= 1
		if err := c.ask(APIProduce, &ProduceRequest{Topic: "a", Acks: AcksAll, Batch: b}, &ProduceResponse{}); !errors.Is(err, record.ErrCorrupt) {
			t.Errorf("%v", err)
		}
		if err := c.ask(APIProduce, &ProduceRequest{Topic: "a", Acks: AcksAll}, &ProduceResponse{}); !errors.Is(err, record.ErrCorrupt) {
			t.Errorf("%v", err)
		}
		if len(r.broker.topics) != 0 {
			t.Error("the broker saw it")
		}
	})
}

// A producer that is faster than the cluster is read no further than ConnBytes.
func TestServer_readsNoMoreThanItHasRoomFor(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *rig) {
		c := r.greet()
		b := testBatch(t, strings.Repeat("x", 1<<19))
		var sent sync.WaitGroup
		sent.Go(func() {
			for range 40 { // 20 MiB
				c.send(APIProduce, &ProduceRequest{Topic: "a", Acks: AcksAll, Batch: b})
			}
		})
		synctest.Wait()
		if m := r.server.Metrics(); m.RequestBytes > DefaultConnBytes || len(r.broker.parked) != 7 {
			t.Errorf("%d bytes, %d batches taken", m.RequestBytes, len(r.broker.parked))
		}
		for done := 0; done < 40; done++ {
			synctest.Wait()
			r.broker.mu.Lock()
			settle := r.broker.parked[done]
			r.broker.mu.Unlock()
			settle(ProduceResponse{})
			if got := c.receive(); got.Err != nil {
				t.Fatal(got.Err)
			}
		}
		sent.Wait()
	})
}

// A client that sends requests and never reads the answers is stopped, and dropped.
func TestServer_clientThatDoesNotReadCostsBoundedMemory(t *testing.T) {
	inBubble(t, Config{WriteTimeout: 5 * time.Second}, func(t *testing.T, r *rig) {
		b := testBatch(t, strings.Repeat("y", 900<<10))
		reserved := make(chan struct{}, 100)
		r.broker.fetch = func(ctx context.Context, req FetchRequest) FetchResponse {
			if err := req.Reserve(ctx, int64(req.MaxBytes)); err != nil {
				return FetchResponse{Err: err}
			}
			reserved <- struct{}{}
			return FetchResponse{Batches: b}
		}
		c := r.greet()
		for range 50 { // 45 MiB of answers
			c.send(APIFetch, &FetchRequest{Topic: "t", MaxBytes: 1 << 20})
		}
		synctest.Wait()
		if m := r.server.Metrics(); m.ResponseBytes > DefaultConnBytes || m.ResponseBytes < int64(len(b)) {
			t.Errorf("%d bytes of answers", m.ResponseBytes)
		}
		if n := len(reserved); n > 5 {
			t.Errorf("%d fetches were read", n)
		}
		other := r.greet() // others go on
		if err := other.ask(APIStatus, &StatusRequest{}, &Status{}); err != nil {
			t.Error(err)
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if m := r.server.Metrics(); m.Connections != 1 || m.ResponseBytes != 0 || m.RequestBytes != 0 {
			t.Errorf("after the write timeout: %+v", m)
		}
	})
}

// Clients that leave their answers lying hold memory that others wait for: they are dropped
// long before the write timeout, and only those.
func TestServer_clientsThatDoNotReadDoNotStopOthers(t *testing.T) {
	inBubble(t, Config{TotalBytes: 2 * DefaultConnBytes}, func(t *testing.T, r *rig) {
		b := testBatch(t, strings.Repeat("y", 900<<10))
		r.broker.fetch = func(ctx context.Context, req FetchRequest) FetchResponse {
			if err := req.Reserve(ctx, int64(req.MaxBytes)); err != nil {
				return FetchResponse{Err: err}
			}
			return FetchResponse{Batches: b}
		}
		for range 3 {
			stuck := r.greet()
			for range 10 {
				stuck.send(APIFetch, &FetchRequest{Topic: "t", MaxBytes: 1 << 20})
			}
		}
		synctest.Wait()
		began := time.Now()
		if err := r.greet().ask(APIFetch, &FetchRequest{Topic: "t", MaxBytes: 1 << 20}, &FetchResponse{}); err != nil {
			t.Error(err)
		}
		if waited := time.Since(began); waited > 2*transport.StallLimit {
			t.Errorf("a client that reads waited %v", waited)
		}
		time.Sleep(DefaultWriteTimeout / 2)
		synctest.Wait()
		if m := r.server.Metrics(); m.Stalled == 0 || m.Connections == 0 {
			t.Errorf("%d connections were dropped, %d are left", m.Stalled, m.Connections)
		}
	})
}

func TestServer_fetchWaitsWithoutHoldingMemory(t *testing.T) {
	inBubble(t, Config{MaxFetches: 3}, func(t *testing.T, r *rig) {
		data := make(chan struct{})
		b := testBatch(t, "z")
		r.broker.fetch = func(ctx context.Context, req FetchRequest) FetchResponse {
			select {
			case <-data:
			case <-ctx.Done():
				return FetchResponse{Err: ctx.Err()}
			}
			if err := req.Reserve(ctx, int64(req.MaxBytes)); err != nil {
				return FetchResponse{Err: err}
			}
			return FetchResponse{HighWatermark: 5, Batches: b}
		}
		c := r.greet()
		for range 3 {
			c.send(APIFetch, &FetchRequest{Topic: "t"})
		}
		synctest.Wait()
		if m := r.server.Metrics(); m.ResponseBytes != 0 {
			t.Errorf("waiting fetches hold %d bytes", m.ResponseBytes)
		}
		if err := c.ask(APIFetch, &FetchRequest{Topic: "t"}, &FetchResponse{}); !errors.Is(err, record.ErrBusy) {
			t.Errorf("the fourth fetch: %v", err)
		}
		close(data)
		for range 3 {
			got := c.receive()
			var resp FetchResponse
			if err := got.Decode(&resp); err != nil || got.Err != nil || !bytes.Equal(resp.Batches, b) || resp.HighWatermark != 5 {
				t.Errorf("%+v, %v, %v", resp, got.Err, err)
			}
		}
	})
}

// The error of a fetch comes with the numbers that are known, so that a reader can go on.
func TestServer_fetchErrorKeepsItsNumbers(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *rig) {
		r.broker.fetch = func(context.Context, FetchRequest) FetchResponse {
			return FetchResponse{LogStart: 10, HighWatermark: 20, Err: record.ErrOffsetOutOfRange}
		}
		c := r.greet()
		var resp FetchResponse
		if err := c.ask(APIFetch, &FetchRequest{Topic: "t", Offset: 5}, &resp); !errors.Is(err, record.ErrOffsetOutOfRange) || resp.LogStart != 10 || resp.HighWatermark != 20 {
			t.Errorf("%+v, %v", resp, err)
		}
	})
}

func TestServer_boundsWhatAFetchAsksFor(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *rig) {
		var got FetchRequest
		r.broker.fetch = func(_ context.Context, req FetchRequest) FetchResponse {
			got = req
			return FetchResponse{}
		}
		c := r.greet()
		if err := c.ask(APIFetch, &FetchRequest{MaxBytes: -5, MinBytes: 1 << 30, MaxWaitMs: 1 << 30}, &FetchResponse{}); err != nil {
			t.Fatal(err)
		}
		room := int32(DefaultMaxFrame - FrameSlack)
		if got.MaxBytes != room || got.MinBytes != room || got.MaxWaitMs != int32(MaxTimeout.Milliseconds()) {
			t.Errorf("%+v", got)
		}
	})
}

func TestServer_answerLargerThanAFrameIsAnError(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *rig) {
		r.broker.metadata = func(context.Context, []string) (Metadata, error) {
			return Metadata{Topics: []Topic{{Name: "t", Partitions: make([]Partition, 200_000)}}}, nil
		}
		c := r.greet()
		if err := c.ask(APIMetadata, &MetadataRequest{}, &Metadata{}); !errors.Is(err, record.ErrTooLarge) {
			t.Errorf("%v", err)
		}
		if err := c.ask(APIStatus, &StatusRequest{}, &Status{}); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// Calls that are worked on are bounded per connection; what is behind them waits.
func TestServer_boundsCalls(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *rig) {
		var mu sync.Mutex
		running, most := 0, 0
		r.broker.metadata = func(ctx context.Context, _ []string) (Metadata, error) {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running--
			mu.Unlock()
			return Metadata{}, nil
		}
		c := r.greet()
		for range 5 * maxCalls {
			c.send(APIMetadata, &MetadataRequest{})
		}
		for range 5 * maxCalls {
			if got := c.receive(); got.Err != nil {
				t.Fatal(got.Err)
			}
		}
		if most != maxCalls {
			t.Errorf("%d at once", most)
		}
	})
}

// Close does not wait for the broker's answers, and they may still come.
func TestServer_closeWithProducesUnderWay(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *rig) {
		c := r.greet()
		c.send(APIProduce, &ProduceRequest{Topic: "a", Acks: AcksAll, Batch: testBatch(t, "x")})
		c.send(APICreateTopic, &CreateTopicRequest{Name: "n"})
		synctest.Wait()
		r.server.Close()
		c.ended()
		r.broker.parked[0](ProduceResponse{})
	})
}

// Real sockets: the error frame arrives although the client had sent much more than the
// server read, and all goroutines end.
func TestServer_errorFrameSurvivesTheClose(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(Config{Broker: &fakeBroker{}, Logger: slog.New(slog.DiscardHandler)})
	var served sync.WaitGroup
	served.Go(func() {
		if nc, err := ln.Accept(); err == nil {
			s.Handle(nc)
		}
	})
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Write(bytes.Repeat([]byte("GET "), 50_000)); err != nil {
		t.Fatal(err)
	}
	c := &rawClient{t: t, nc: nc, r: bufio.NewReader(nc)}
	if got := c.receive(); !strings.Contains(got.Err.Error(), "a frame of 1195725856 bytes") {
		t.Errorf("%v", got.Err)
	}
	nc.Close()
	served.Wait()
	ln.Close()
	s.Close()
}

// The total is shared: what one connection holds is missing for the others, and comes back.
func TestServer_totalIsSharedByConnections(t *testing.T) {
	inBubble(t, Config{TotalBytes: 1}, func(t *testing.T, r *rig) { // that is, one connection's share
		big := testBatch(t, strings.Repeat("x", 1<<20-200))
		a, b := r.greet(), r.greet()
		for range 3 { // 3 of 4 MiB
			a.send(APIProduce, &ProduceRequest{Topic: "a", Acks: AcksAll, Batch: big})
		}
		synctest.Wait()
		var sent sync.WaitGroup
		sent.Go(func() { b.send(APIProduce, &ProduceRequest{Topic: "b", Acks: AcksAll, Batch: big}) })
		synctest.Wait()
		if got := r.broker.topics; !slices.Equal(got, []string{"a", "a", "a"}) {
			t.Errorf("the broker saw %v", got)
		}
		r.broker.parked[0](ProduceResponse{})
		a.receive()
		synctest.Wait()
		if got := r.broker.topics; !slices.Equal(got, []string{"a", "a", "a", "b"}) {
			t.Errorf("the broker saw %v", got)
		}
		sent.Wait()
		for _, settle := range r.broker.parked[1:] {
			settle(ProduceResponse{})
		}
		b.receive()
	})
}

// The whole way over TCP: accepted by transport.Server, batches larger than socket buffers.
func TestServer_behindTransport(t *testing.T) {
	big := testBatch(t, strings.Repeat("z", 1<<20-200))
	broker := &fakeBroker{fetch: func(context.Context, FetchRequest) FetchResponse { return FetchResponse{Batches: big} }}
	s := NewServer(Config{Broker: broker, Logger: slog.New(slog.DiscardHandler)})
	front := transport.New(transport.Config{Route: func([4]byte) transport.Handler { return s.Handle }})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- front.Serve(ln) }()
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := &rawClient{t: t, nc: nc, r: bufio.NewReader(nc)}
	if err := c.ask(APIHello, &HelloRequest{}, &HelloInfo{}); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		c.send(APIFetch, &FetchRequest{Topic: "t"})
	}
	for range 10 {
		got := c.receive()
		var resp FetchResponse
		if err := got.Decode(&resp); err != nil || got.Err != nil || !bytes.Equal(resp.Batches, big) {
			t.Fatalf("%d bytes, %v, %v", len(resp.Batches), got.Err, err)
		}
	}
	if err := errors.Join(front.Close(), s.Close(), <-served); err != nil {
		t.Error(err)
	}
	c.ended()
}

func (b *fakeBroker) Events(_ context.Context, req EventsRequest) ([]NodeEvent, error) {
	return nil, nil
}

func (b *fakeBroker) Network(_ context.Context, req NetworkRequest) ([]Reach, error) {
	return nil, nil
}
