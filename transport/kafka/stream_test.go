package kafka

import (
	"bytes"
	"encoding/binary"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

// streamRequest is a MaxRequest of the tests. A request that is larger may name 36 topics and partitions, and has
// room for 27 KiB of batches.
const (
	streamRequest = 32 << 10
	streamRoom    = (streamRequest + requestCost) * 3 / 4
)

func streaming(c *Config) { c.MaxRequest = streamRequest }

// wideRequest names 20 partitions of "t", each with a batch of about 4 KiB, and one of a topic that there is not.
func wideRequest() *kmsg.ProduceRequest {
	req := produceOf("none", 0, -1, batch(record.None, "v"))
	t := kmsg.NewProduceRequestTopic()
	t.Topic = "t"
	for i := range int32(20) {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = i, batch(record.None, strings.Repeat("x", 4000), "of partition "+string('a'+rune(i)))
		t.Partitions = append(t.Partitions, p)
	}
	t.Partitions[3].Records[40] ^= 1 // its checksum is wrong
	t.Partitions[4].Records = nil
	req.Topics = append(req.Topics, t)
	return req
}

// A request that is read in parts is answered as if it had been read as a whole, and keeps the same.
func TestStream_isLikeAnyOther(t *testing.T) {
	for _, version := range []int16{3, 8, 9, 11} {
		var answers, logs [2][]byte
		for i, change := range []func(*Config){func(*Config) {}, streaming} {
			b := start(t, change)
			topic := b.broker.topic("t", 19)
			c := b.dial()
			c.send(wideRequest(), version)
			answers[i] = c.frame()
			for _, p := range topic.parts {
				for _, batch := range p.batches {
					logs[i] = append(logs[i], batch...)
				}
			}
			ask[*kmsg.ApiVersionsResponse](c, kmsg.NewPtrApiVersionsRequest(), 3) // the connection goes on
			until(t, "its memory is free", func() bool { return b.server.Metrics().RequestBytes == 0 })
		}
		if !bytes.Equal(answers[0], answers[1]) {
			t.Errorf("version %d: in parts it is answered\n%x, as a whole\n%x", version, answers[1], answers[0])
		}
		if !bytes.Equal(logs[0], logs[1]) || len(logs[0]) < 60_000 {
			t.Errorf("version %d: in parts %d bytes are kept, as a whole %d", version, len(logs[1]), len(logs[0]))
		}
	}
}

// A batch for which there is no room is refused alone.
func TestStream_refusesTheBatchThatIsTooLarge(t *testing.T) {
	b := start(t, streaming)
	b.broker.topic("t", 20)
	req := wideRequest()
	req.Topics[1].Partitions[5].Records = batch(record.None, strings.Repeat("x", streamRoom))
	resp := ask[*kmsg.ProduceResponse](b.dial(), req, 9)
	for i, p := range resp.Topics[1].Partitions {
		want := map[int]int16{3: kerr.CorruptMessage.Code, 4: kerr.InvalidRecord.Code, 5: kerr.MessageTooLarge.Code}[i]
		if p.Partition != int32(i) || p.ErrorCode != want {
			t.Errorf("partition %d: %+v, want code %d", i, p, want)
		}
	}
}

// countingBroker knows how many bytes of batches it had at most that were not answered.
type countingBroker struct {
	*fakeBroker
	mu        sync.Mutex
	now, most int
}

func (b *countingBroker) add(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now += n
	b.most = max(b.most, b.now)
}

func (b *countingBroker) Produce(req ProduceRequest, done func(ProduceResult)) {
	n := len(req.Batch)
	b.add(n)
	b.fakeBroker.Produce(req, func(r ProduceResult) { b.add(-n); done(r) })
}

// However large a request is, no more of it is in memory than there is room for.
func TestStream_waitsForRoom(t *testing.T) {
	var counting *countingBroker
	b := start(t, streaming, func(c *Config) {
		counting = &countingBroker{fakeBroker: c.Broker.(*fakeBroker)}
		c.Broker = counting
	})
	b.broker.topic("t", 20)
	b.broker.hold = make(chan struct{})
	c := b.dial()
	req := wideRequest()
	correlation := c.send(req, 9)
	size := len(req.Topics[1].Partitions[0].Records)
	until(t, "the room is full", func() bool {
		counting.mu.Lock()
		defer counting.mu.Unlock()
		return counting.now > streamRoom-size
	})
	if m := b.server.Metrics(); m.RequestBytes != streamRequest+requestCost {
		t.Errorf("%d bytes are held", m.RequestBytes)
	}
	close(b.broker.hold)
	c.receive(req, correlation)
	if counting.most > streamRoom {
		t.Errorf("%d bytes were in memory at once, there is room for %d", counting.most, streamRoom)
	}
}

// With acks=0 there is no answer, here neither.
func TestStream_acksNone(t *testing.T) {
	b := start(t, streaming)
	topic := b.broker.topic("t", 20)
	req := wideRequest()
	req.Topics, req.Acks = req.Topics[1:], 0
	req.Topics[0].Partitions = req.Topics[0].Partitions[5:]
	c := b.dial()
	c.send(req, 9)
	ask[*kmsg.ApiVersionsResponse](c, kmsg.NewPtrApiVersionsRequest(), 3)
	if len(topic.parts[19].batches) != 1 {
		t.Error("the last batch is not kept")
	}
}

// What is wrong with a request may show when a part of it is in the log. The connection ends without an answer.
func TestStream_thatIsBroken(t *testing.T) {
	whole := func(req *kmsg.ProduceRequest, version int16) []byte {
		req.SetVersion(version)
		return kmsg.NewRequestFormatter(kmsg.FormatterClientID("test")).AppendRequest(nil, req, 1)
	}
	sized := func(b []byte) []byte {
		binary.BigEndian.PutUint32(b, uint32(len(b)-lengthSize))
		return b
	}
	at := func(b []byte, what string) int { return bytes.Index(b, []byte(what)) + len(what) }
	many := wideRequest()
	for range 20 {
		many.Topics[1].Partitions = append(many.Topics[1].Partitions, many.Topics[1].Partitions[0])
	}
	for name, tc := range map[string]struct {
		bytes  []byte
		reason string
	}{
		"version 2":           {whole(wideRequest(), 2), BadLength},
		"bytes follow":        {sized(append(whole(wideRequest(), 8), 1, 2, 3)), BadBody},
		"too many partitions": {whole(many, 9), BadBody},
		"a batch that is longer than the rest": {func() []byte {
			b := whole(wideRequest(), 8)
			binary.BigEndian.PutUint32(b[at(b, "none")+4+4:], 1<<20)
			return b
		}(), BadBody},
		"a count of topics": {func() []byte {
			b := whole(wideRequest(), 8)
			binary.BigEndian.PutUint32(b[at(b, "test")+2+2+4:], 1<<30)
			return b
		}(), BadBody},
		"a number without an end": {func() []byte {
			b := whole(wideRequest(), 9)
			copy(b[at(b, "test"):], []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
			return b
		}(), BadBody},
		"a longer name than any": {func() []byte {
			b := whole(wideRequest(), 8)
			binary.BigEndian.PutUint16(b[at(b, "test"):], 0x7fff)
			return sized(append(b, make([]byte, 64<<10)...))
		}(), BadBody},
		"cut short": {whole(wideRequest(), 9)[:60_000], BadCutShort},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, streaming)
			b.broker.topic("t", 20)
			c := b.dial()
			go func() {
				_, _ = c.nc.Write(tc.bytes) // the server may close before it has all
				if tc.reason == BadCutShort {
					_ = c.nc.Close()
				}
			}()
			if frame, err := c.tryFrame(); err == nil {
				t.Errorf("an answer of %d bytes", len(frame))
			}
			until(t, "the connection is gone and its memory free", func() bool {
				m := b.server.Metrics()
				return m.Connections == 0 && m.RequestBytes == 0 && m.BadRequests[tc.reason] == 1
			})
		})
	}
}
