package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

// until waits for what the server does in its own time.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal("not in time: " + what)
		}
	}
}

// Answers leave in the order of the requests. Produces overlap; what comes behind them waits for them,
// so that it sees what they did.
func TestConn_answersInOrder(t *testing.T) {
	b := start(t)
	b.broker.topic("t", 1)
	hold := make(chan struct{})
	b.broker.hold = hold
	c := b.dial()
	var produces []*kmsg.ProduceRequest
	var correlations []int32
	for range 3 {
		req := produceOf("t", 0, -1, batch(record.None, "v"))
		produces = append(produces, req)
		correlations = append(correlations, c.send(req, 9))
	}
	list := kmsg.NewPtrListOffsetsRequest()
	list.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsRequestTopicPartition{{Timestamp: AtEnd, CurrentLeaderEpoch: -1}}}}
	listed := c.send(list, 4)
	until(t, "all produces at the broker", func() bool {
		b.broker.mu.Lock()
		defer b.broker.mu.Unlock()
		return len(b.broker.produced) == 3
	})
	close(hold)
	for i, req := range produces {
		p := onlyPartition(t, c.receive(req, correlations[i]).(*kmsg.ProduceResponse))
		if p.ErrorCode != 0 || p.BaseOffset != int64(i) {
			t.Errorf("produce %d: error %d, offset %d", i, p.ErrorCode, p.BaseOffset)
		}
	}
	if at := c.receive(list, listed).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].Offset; at != 3 {
		t.Errorf("the request behind the produces sees offset %d", at)
	}
}

// A request that waits does not let a produce behind it overtake, as in Kafka.
func TestConn_oneRequestAtATime(t *testing.T) {
	b := start(t)
	b.broker.topic("t", 1)
	joined := make(chan struct{})
	b.groups.join = func(context.Context, JoinGroupRequest) JoinGroupResponse {
		<-joined
		return JoinGroupResponse{Member: "m"}
	}
	c := b.dial()
	join := kmsg.NewPtrJoinGroupRequest()
	first := c.send(join, 5)
	produce := produceOf("t", 0, 1, batch(record.None, "v"))
	second := c.send(produce, 9)
	until(t, "the join", func() bool { b.groups.mu.Lock(); defer b.groups.mu.Unlock(); return len(b.groups.joined) == 1 })
	b.broker.mu.Lock()
	overtook := len(b.broker.produced)
	b.broker.mu.Unlock()
	close(joined)
	c.receive(join, first)
	c.receive(produce, second)
	if overtook != 0 {
		t.Error("the produce was started before the join was answered")
	}
}

// A client that leaves takes its waiting requests along.
func TestConn_clientLeavesWhileARequestWaits(t *testing.T) {
	b := start(t)
	ended := make(chan error, 1)
	b.groups.join = func(ctx context.Context, _ JoinGroupRequest) JoinGroupResponse {
		<-ctx.Done()
		ended <- ctx.Err()
		return JoinGroupResponse{}
	}
	c := b.dial()
	c.send(kmsg.NewPtrJoinGroupRequest(), 5)
	until(t, "the join", func() bool { b.groups.mu.Lock(); defer b.groups.mu.Unlock(); return len(b.groups.joined) == 1 })
	_ = c.nc.Close()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the join goes on")
	}
	until(t, "the connection's end", func() bool { m := b.server.Metrics(); return m.Connections == 0 && m.RequestBytes == 0 })
}

// What breaks the protocol ends the connection and is counted under its name; the log says what
// it probably is.
func TestConn_brokenRequestsEndIt(t *testing.T) {
	length := func(n uint32, rest ...byte) []byte { return append(binary.BigEndian.AppendUint32(nil, n), rest...) }
	header := func(key, version uint16, rest ...byte) []byte {
		b := binary.BigEndian.AppendUint16(nil, key)
		b = binary.BigEndian.AppendUint16(b, version)
		b = append(append(b, 0, 0, 0, 9), rest...)
		return length(uint32(len(b)), b...)
	}
	for name, x := range map[string]struct {
		send   []byte
		reason string
		log    string
	}{
		"TLS":                   {[]byte{0x16, 3, 1, 2, 0, 1, 0, 0, 0, 0}, BadLength, "TLS"},
		"HTTP":                  {[]byte("GET / HTTP/1.1\r\n\r\n"), BadLength, "HTTP"},
		"another node":          {[]byte("EDGP and more"), BadLength, "native port"},
		"a negative length":     {length(1 << 31), BadLength, "of 2147483648 bytes"},
		"a length of nothing":   {length(3), BadLength, "this listener takes"},
		"a huge plain request":  {append(length(maxPlainRequest+1), header(3, 1, make([]byte, 100)...)[4:]...), BadLength, "Metadata"},
		"a key of brokers":      {header(6, 0, 255, 255), BadAPI, "UpdateMetadata"},
		"a key of nobody":       {header(999, 0, 255, 255), BadAPI, "999"},
		"a negative key":        {header(65535, 0, 255, 255), BadAPI, "-1"},
		"a version too old":     {header(1, 3, 255, 255), BadVersion, "this node speaks 4 to 16"},
		"a version too new":     {header(1, 17, 255, 255), BadVersion, "Fetch version 17"},
		"a client id cut off":   {header(3, 1, 0, 9, 'a'), BadHeader, "cut short"},
		"a body cut off":        {header(3, 1, 255, 255, 0, 0, 0, 2, 0, 1, 'a'), BadBody, "Metadata version 1"},
		"a count of everything": {header(3, 1, 255, 255, 127, 255, 255, 255, 0, 1, 'a'), BadBody, "Metadata"},
		"a produce's counts":    {header(0, 3, 255, 255, 255, 255, 0, 1, 0, 0, 0, 0, 127, 255, 255, 255), BadBody, "do not fit"},
	} {
		t.Run(name, func(t *testing.T) {
			var log syncBuffer
			b := start(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
			c := b.dial()
			c.write(x.send)
			c.gone()
			until(t, "count", func() bool { return b.server.Metrics().BadRequests[x.reason] == 1 })
			if !strings.Contains(log.String(), x.log) {
				t.Errorf("%q is not in the log: %s", x.log, log.String())
			}
		})
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}
func (s *syncBuffer) String() string { s.mu.Lock(); defer s.mu.Unlock(); return s.b.String() }

// Who says nothing, or stops within a request, is closed in time. Who waits for an answer is not.
func TestConn_silenceEndsIt(t *testing.T) {
	b := start(t, func(c *Config) { c.IdleTimeout, c.RequestTimeout = 50*time.Millisecond, 50*time.Millisecond })
	b.dial().gone() // nothing at all
	c := b.dial()
	c.write([]byte{0, 0})
	c.gone() // half a length
	c = b.dial()
	c.write([]byte{0, 0, 0, 100, 0, 3, 0, 1, 0, 0, 0, 1, 255, 255})
	c.gone() // half a request
	until(t, "counts", func() bool { return b.server.Metrics().BadRequests[BadCutShort] == 2 })

	b.broker.topic("t", 1)
	c = b.dial()
	req := fetchOf("t", 0, 0)
	req.MaxWaitMillis = 300 // six times the idle timeout
	if resp := ask[*kmsg.FetchResponse](c, req, 12); resp.ErrorCode != 0 {
		t.Errorf("long poll: %d", resp.ErrorCode)
	}
}

// At the bound connections are closed, and come in again when others have left.
func TestServer_boundsConnections(t *testing.T) {
	b := start(t, func(c *Config) { c.MaxConns = 1 })
	first := b.dial()
	ask[*kmsg.ApiVersionsResponse](first, kmsg.NewPtrApiVersionsRequest(), 0)
	b.dial().gone()
	if m := b.server.Metrics(); m.Refused != 1 || m.Connections != 1 {
		t.Errorf("%+v", m)
	}
	_ = first.nc.Close()
	until(t, "room", func() bool { return b.server.Metrics().Connections == 0 })
	ask[*kmsg.ApiVersionsResponse](b.dial(), kmsg.NewPtrApiVersionsRequest(), 0)
}

// A client that produces without end and without reading is stopped by its own window: what the
// server holds of it stays bounded.
func TestConn_windowBoundsWhatIsProduced(t *testing.T) {
	b := start(t)
	b.broker.topic("t", 1)
	b.broker.hold = make(chan struct{})
	defer close(b.broker.hold)
	c := b.dial()
	big := batch(record.None, strings.Repeat("x", 900<<10))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range int32(40) {
			req := produceOf("t", 0, 1, big)
			req.SetVersion(9)
			if _, err := c.nc.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, i)); err != nil {
				return
			}
		}
	}()
	until(t, "a full window", func() bool {
		b.broker.mu.Lock()
		defer b.broker.mu.Unlock()
		return len(b.broker.produced) == produceWindow/len(big)
	})
	if m := b.server.Metrics(); m.RequestBytes > produceWindow+2<<20 {
		t.Errorf("%d bytes are held", m.RequestBytes)
	}
	_ = c.nc.Close()
	<-done
}

// Clients that do not read their answers, or stop within a request, are dropped when others need the
// memory, and only then.
func TestServer_dropsWhoStandsStill(t *testing.T) {
	for name, stop := range map[string]func(c *client){
		"reading": func(c *client) { c.send(fetchOf("t", 0, 0), 12) },
		"writing": func(c *client) { c.write([]byte{0, 16, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 255, 255, 0, 0}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := bench{t: t, broker: newFake(), groups: &fakeGroups{}}
				b.server = NewServer(Config{
					Broker: b.broker, Groups: b.groups, Logger: slog.New(slog.DiscardHandler), MaxRequest: 1 << 20, ConnBytes: 1 << 20, TotalBytes: 1 << 20,
				})
				defer b.server.Close()
				top := b.broker.topic("t", 1)
				top.parts[0].add(batch(record.None, strings.Repeat("x", 900<<10)))
				still := b.pipe()
				stop(still)
				time.Sleep(20 * time.Second) // less than the timeouts of its own
				if m := b.server.Metrics(); m.Stalled != 0 || m.RequestBytes+m.ResponseBytes < 900<<10 {
					t.Fatalf("nobody needs the memory: %+v", m)
				}
				began := time.Now()
				resp := ask[*kmsg.FetchResponse](b.pipe(), fetchOf("t", 0, 0), 12)
				if n := len(resp.Topics[0].Partitions[0].RecordBatches); n < 900<<10 {
					t.Errorf("the other client got %d bytes", n)
				}
				if m := b.server.Metrics(); m.Stalled != 1 || time.Since(began) > 2*time.Second {
					t.Errorf("%d connections were dropped, %v later", m.Stalled, time.Since(began))
				}
			})
		})
	}
}

// pipe is a connection without a network, for a synctest bubble.
func (b *bench) pipe() *client {
	ours, theirs := net.Pipe()
	go b.server.Handler("")(theirs)
	b.t.Cleanup(func() { _ = ours.Close() })
	return &client{t: b.t, nc: ours}
}

// Close ends what waits.
func TestServer_closeEndsWaitingRequests(t *testing.T) {
	b := start(t)
	b.broker.topic("t", 1)
	c := b.dial()
	req := fetchOf("t", 0, 0)
	req.MaxWaitMillis = 60_000
	c.send(req, 12)
	until(t, "the fetch", func() bool { return b.server.Metrics().Requests["Fetch"] == 1 })
	_ = b.server.Close()
	c.gone()
}

// A null client id and an empty one are legal in both kinds of headers.
func TestConn_clientIDMayBeMissing(t *testing.T) {
	b := start(t)
	for _, id := range [][]byte{{255, 255}, {0, 0}} {
		c := b.dial()
		body := append([]byte{0, 3, 0, 12, 0, 0, 0, 5}, id...)
		body = append(body, 0 /* tags */, 1 /* no topics */, 0, 0, 0)
		c.write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
		r := kbin.Reader{Src: c.frame()}
		if got := r.Int32(); got != 5 {
			t.Errorf("correlation %d", got)
		}
	}
}
