package kafka

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

// changed gives a batch with other bytes at a place, and a CRC that fits again.
func changed(b record.Batch, at int, bytes ...byte) record.Batch {
	out := append(record.Batch{}, b...)
	copy(out[at:], bytes)
	binary.BigEndian.PutUint32(out[17:], crc32.Checksum(out[21:], crc32.MakeTable(crc32.Castagnoli)))
	return out
}

func TestProduce_everyVersion(t *testing.T) {
	for version := range int16(12) {
		b := start(t)
		b.broker.topic("t", 2)
		p := onlyPartition(t, ask[*kmsg.ProduceResponse](b.dial(), produceOf("t", 1, -1, batch(record.Gzip, "a", "b")), version))
		if version < 3 {
			if p.ErrorCode != kerr.UnsupportedVersion.Code || len(b.broker.produced) != 0 {
				t.Errorf("v%d: error %d, %d batches taken", version, p.ErrorCode, len(b.broker.produced))
			}
			continue
		}
		if p.ErrorCode != 0 || p.Partition != 1 || p.BaseOffset != 0 || p.LogAppendTime != -1 || version >= 5 && p.LogStartOffset != 0 || p.ErrorMessage != nil {
			t.Errorf("v%d: %+v", version, p)
		}
	}
}

// The codec's bytes are what the client sent, but for base offset and epoch.
func TestProduce_keepsTheBytes(t *testing.T) {
	b := start(t)
	b.broker.topic("t", 1)
	c := b.dial()
	for _, codec := range []record.Codec{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd} {
		sent := batch(codec, "one", "two", "three")
		want := bytes.Clone(sent)
		if p := onlyPartition(t, ask[*kmsg.ProduceResponse](c, produceOf("t", 0, -1, sent), 9)); p.ErrorCode != 0 {
			t.Fatalf("%v: error %d", codec, p.ErrorCode)
		}
		got := b.broker.produced[len(b.broker.produced)-1].Batch
		if !bytes.Equal(got[16:], want[16:]) {
			t.Errorf("%v: the batch has changed", codec)
		}
	}
}

// Each fault has Kafka's code, in Kafka's order.
func TestProduce_faults(t *testing.T) {
	good := batch(record.None, "a", "b")
	damaged := append(record.Batch{}, good...)
	damaged[len(damaged)-1] ^= 1
	old := append(record.Batch{}, good...)
	old[16] = 1
	cut := good[:len(good)-1]
	for _, x := range []struct {
		name    string
		version int16
		req     *kmsg.ProduceRequest
		want    *kerr.Error
	}{
		{"unknown topic", 9, produceOf("no", 0, -1, good), kerr.UnknownTopicOrPartition},
		{"unknown partition", 9, produceOf("t", 2, -1, good), kerr.UnknownTopicOrPartition},
		{"negative partition", 9, produceOf("t", -1, -1, good), kerr.UnknownTopicOrPartition},
		{"unknown topic before a bad batch", 9, produceOf("no", 0, -1, damaged), kerr.UnknownTopicOrPartition},
		{"elsewhere before a bad batch", 9, produceOf("elsewhere", 0, -1, damaged), kerr.NotLeaderForPartition},
		{"elsewhere", 9, produceOf("elsewhere", 0, -1, good), kerr.NotLeaderForPartition},
		{"nobody leads", 9, produceOf("nobody", 0, -1, good), kerr.NotLeaderForPartition},
		{"acks", 9, produceOf("t", 0, 2, good), kerr.InvalidRequiredAcks},
		{"acks after an unknown topic", 9, produceOf("no", 0, 2, good), kerr.UnknownTopicOrPartition},
		{"the cluster's own topic", 9, produceOf("own", 0, -1, good), kerr.InvalidTopicException},
		{"no batch", 9, produceOf("t", 0, -1, nil), kerr.InvalidRecord},
		{"two batches", 9, produceOf("t", 0, -1, append(append([]byte{}, good...), good...)), kerr.InvalidRecord},
		{"old format", 9, produceOf("t", 0, -1, old), kerr.InvalidRecord},
		{"a format that there never was", 9, produceOf("t", 0, -1, changed(good, 16, 3)), kerr.CorruptMessage},
		{"cut off", 9, produceOf("t", 0, -1, cut), kerr.InvalidRecord},
		{"not even a header", 9, produceOf("t", 0, -1, good[:20]), kerr.InvalidRecord},
		{"absurd length", 9, produceOf("t", 0, -1, changed(good, 8, 0, 0, 0, 1)), kerr.CorruptMessage},
		{"CRC", 9, produceOf("t", 0, -1, damaged), kerr.CorruptMessage},
		{"zstd too early", 6, produceOf("t", 0, -1, changed(good, 21, 0, 4)), kerr.UnsupportedCompressionType},
		{"no such codec", 9, produceOf("t", 0, -1, changed(good, 21, 0, 5)), kerr.UnsupportedCompressionType},
		{"base offset", 9, produceOf("t", 0, -1, changed(good, 0, 0, 0, 0, 0, 0, 0, 0, 9)), kerr.InvalidRecord},
		{"count of none", 9, produceOf("t", 0, -1, changed(good, 57, 0, 0, 0, 0)), kerr.InvalidRecord},
		{"count is not the delta", 9, produceOf("t", 0, -1, changed(good, 57, 0, 0, 0, 1)), kerr.InvalidRecord},
		{"control batch", 9, produceOf("t", 0, -1, changed(good, 21, 0, 0x20)), kerr.InvalidRecord},
		{"append time from a client", 9, produceOf("t", 0, -1, changed(good, 21, 0, 0x08)), kerr.InvalidTimestamp},
		{"producer without sequence", 9, produceOf("t", 0, -1, changed(good, 43, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 255, 255, 255, 255)), kerr.InvalidRecord},
		{"transaction", 9, produceOf("t", 0, -1, changed(good, 21, 0, 0x10)), kerr.TransactionalIDAuthorizationFailed},
		{"no key where one is needed", 9, produceOf("compacted", 0, -1, good), kerr.InvalidRecord},
		{"too large", 9, produceOf("large", 0, -1, good), kerr.MessageTooLarge},
		{"sequence", 9, produceOf("sequence", 0, -1, good), kerr.OutOfOrderSequenceNumber},
		{"in doubt", 9, produceOf("doubt", 0, -1, good), kerr.RequestTimedOut},
		{"busy", 9, produceOf("busy", 0, -1, good), kerr.NotEnoughReplicas},
	} {
		t.Run(x.name, func(t *testing.T) {
			b := start(t)
			b.broker.topic("t", 2)
			b.broker.topic("elsewhere", 1).parts[0].leader = 8
			b.broker.topic("nobody", 1).parts[0].leader = record.NoNode
			for name, err := range map[string]error{"own": record.ErrInvalidTopic, "large": record.ErrTooLarge, "sequence": record.ErrOutOfOrder, "doubt": record.ErrInterrupted, "compacted": record.ErrInvalidRequest, "busy": record.ErrBusy} {
				b.broker.topic(name, 1).parts[0].produce = err
			}
			p := onlyPartition(t, ask[*kmsg.ProduceResponse](b.dial(), x.req, x.version))
			if p.ErrorCode != x.want.Code || p.BaseOffset != -1 || x.version >= 8 && (p.ErrorMessage == nil || *p.ErrorMessage == "") {
				t.Errorf("%v (offset %d, %v), want %v", kerr.ErrorForCode(p.ErrorCode), p.BaseOffset, p.ErrorMessage, x.want)
			}
			if n := b.server.Metrics().Errors[x.want.Message]; n != 1 {
				t.Errorf("%s is counted %d times", x.want.Message, n)
			}
		})
	}
}

// A node that does not lead names the leader, its epoch and its address, and says nothing if it does not
// know one of them.
func TestProduce_hints(t *testing.T) {
	b := start(t)
	p := b.broker.topic("t", 1).parts[0]
	p.leader, p.epoch = 8, 6
	b.broker.nodes = append(b.broker.nodes, Endpoint{ID: 8, Host: "pi8", Port: 9999, Rack: "roof"})
	for _, x := range []struct {
		version        int16
		leader         record.NodeID
		wantID, wantEp int32
	}{{9, 8, -1, -1}, {10, 8, 8, 6}, {11, 8, 8, 6}, {11, 9, -1, -1}, {11, record.NoNode, -1, -1}} {
		p.leader = x.leader
		resp := ask[*kmsg.ProduceResponse](b.dial(), produceOf("t", 0, -1, batch(record.None, "v")), x.version)
		got := onlyPartition(t, resp)
		if got.ErrorCode != kerr.NotLeaderForPartition.Code || got.CurrentLeader.LeaderID != x.wantID || got.CurrentLeader.LeaderEpoch != x.wantEp {
			t.Errorf("v%d leader %d: %+v", x.version, x.leader, got)
		}
		if known := x.wantID >= 0; known != (len(resp.Brokers) == 1) {
			t.Errorf("v%d leader %d: endpoints %+v", x.version, x.leader, resp.Brokers)
		} else if e := append(resp.Brokers, kmsg.ProduceResponseBroker{})[0]; known && (e.NodeID != 8 || e.Host != "pi8" || e.Port != 9999 || *e.Rack != "roof") {
			t.Errorf("v%d: endpoint %+v", x.version, e)
		}
	}
}

// acks=0 has no answer; only a failure shows, by the end of the connection.
func TestProduce_acksNone(t *testing.T) {
	b := start(t)
	b.broker.topic("t", 1)
	c := b.dial()
	c.send(produceOf("t", 0, 0, batch(record.None, "v")), 9)
	// The next answer is that of the next request.
	ask[*kmsg.ApiVersionsResponse](c, kmsg.NewPtrApiVersionsRequest(), 0)
	if len(b.broker.produced) != 1 {
		t.Fatalf("%d batches were taken", len(b.broker.produced))
	}
	c.send(produceOf("no", 0, 0, batch(record.None, "v")), 9)
	c.gone()
	if n := b.server.Metrics().BadRequests[BadAcksNone]; n != 1 {
		t.Errorf("counted %d times", n)
	}
}

// Every partition of a request is answered, the good beside the bad.
func TestProduce_manyPartitions(t *testing.T) {
	b := start(t)
	b.broker.topic("a", 3)
	b.broker.topic("b", 1)
	req := produceOf("a", 0, -1, batch(record.None, "0"))
	for _, n := range []int32{1, 7, 2} {
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, kmsg.ProduceRequestTopicPartition{Partition: n, Records: batch(record.None, "n")})
	}
	req.Topics = append(req.Topics, produceOf("b", 0, -1, batch(record.None, "b")).Topics[0], produceOf("no", 0, -1, batch(record.None, "b")).Topics[0])
	resp := ask[*kmsg.ProduceResponse](b.dial(), req, 11)
	var got []int16
	for i, topic := range resp.Topics {
		if topic.Topic != req.Topics[i].Topic {
			t.Errorf("topic %d is %q", i, topic.Topic)
		}
		for j, p := range topic.Partitions {
			if p.Partition != req.Topics[i].Partitions[j].Partition {
				t.Errorf("%s place %d is partition %d", topic.Topic, j, p.Partition)
			}
			got = append(got, p.ErrorCode)
		}
	}
	if want := []int16{0, 0, 3, 0, 0, 3}; !equal(got, want) {
		t.Errorf("codes %v, want %v", got, want)
	}
	// The batches do not keep the whole request in memory.
	for _, p := range b.broker.produced {
		if cap(p.Batch) > 2*len(p.Batch) {
			t.Errorf("a batch of %d bytes holds %d", len(p.Batch), cap(p.Batch))
		}
	}
}

func equal(a, b []int16) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// More topics and partitions than any client has are refused before anything is made for them.
func TestProduce_boundsItsCounts(t *testing.T) {
	b := start(t)
	c := b.dial()
	req := produceOf("t", 0, -1, nil)
	for range maxElements {
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, kmsg.ProduceRequestTopicPartition{})
	}
	c.send(req, 9)
	c.gone()
	if n := b.server.Metrics().BadRequests[BadBody]; n != 1 {
		t.Errorf("counted %d times", n)
	}
}

func TestProduce_transactionalIDIsNoMatterWithoutTransaction(t *testing.T) {
	b := start(t)
	b.broker.topic("t", 1)
	for _, v := range []int16{3, 9} {
		req := produceOf("t", 0, -1, batch(record.None, "v"))
		id := strings.Repeat("x", 300)
		req.TransactionID = &id
		if p := onlyPartition(t, ask[*kmsg.ProduceResponse](b.dial(), req, v)); p.ErrorCode != 0 {
			t.Errorf("v%d: %d", v, p.ErrorCode)
		}
	}
}

func TestInitProducerID(t *testing.T) {
	c := start(t).dial()
	tx, empty := "tx", ""
	for _, x := range []struct {
		version int16
		change  func(*kmsg.InitProducerIDRequest)
		want    int16
	}{
		{0, func(*kmsg.InitProducerIDRequest) {}, 0},
		{5, func(*kmsg.InitProducerIDRequest) {}, 0},
		{3, func(r *kmsg.InitProducerIDRequest) { r.ProducerID, r.ProducerEpoch = 5, 1 }, 0},
		{3, func(r *kmsg.InitProducerIDRequest) { r.ProducerID, r.ProducerEpoch = 5, -1 }, 42},
		{4, func(r *kmsg.InitProducerIDRequest) { r.TransactionalID = &tx }, 53},
		{4, func(r *kmsg.InitProducerIDRequest) { r.TransactionalID = &empty }, 42},
	} {
		req := kmsg.NewPtrInitProducerIDRequest()
		x.change(req)
		resp := ask[*kmsg.InitProducerIDResponse](c, req, x.version)
		if ok := x.want == 0; resp.ErrorCode != x.want || ok != (resp.ProducerID >= 0) || ok != (resp.ProducerEpoch == 0) {
			t.Errorf("%+v: %+v", x, resp)
		}
	}
	seen := map[int64]bool{}
	for range 3 {
		id := ask[*kmsg.InitProducerIDResponse](c, kmsg.NewPtrInitProducerIDRequest(), 2).ProducerID
		if seen[id] {
			t.Errorf("id %d twice", id)
		}
		seen[id] = true
	}
}

// sequenced is a batch of a producer.
func sequenced(producer byte, sequence byte) record.Batch {
	return changed(batch(record.None, "v"), 43, 0, 0, 0, 0, 0, 0, 0, producer, 0, 0, 0, 0, 0, sequence)
}

// What comes on a connection behind a refused batch of the same producer for the same partition must not be
// where the partition begins to know the producer: the client sends the refused one again.
func TestProduce_nobodyJoinsBehindARefusedBatch(t *testing.T) {
	b := start(t)
	top := b.broker.topic("t", 2)
	c := b.dial()
	say := func(c *client, partition int32, batch record.Batch) (mayJoin bool) {
		t.Helper()
		ask[*kmsg.ProduceResponse](c, produceOf("t", partition, -1, batch), 9)
		b.broker.mu.Lock()
		defer b.broker.mu.Unlock()
		return b.broker.mayJoin[len(b.broker.mayJoin)-1]
	}
	if !say(c, 0, sequenced(1, 7)) {
		t.Error("the first batch may not")
	}
	top.parts[0].produce = record.ErrBusy
	say(c, 0, sequenced(1, 8))
	if say(c, 0, sequenced(1, 9)) {
		t.Error("one behind a refused batch may")
	}
	if !say(c, 1, sequenced(1, 9)) || !say(c, 0, sequenced(2, 9)) || !say(b.dial(), 0, sequenced(1, 9)) {
		t.Error("one of another partition, producer or connection may not")
	}
	top.parts[0].produce = nil
	say(c, 0, sequenced(1, 8))
	if !say(c, 0, sequenced(1, 9)) {
		t.Error("one behind a batch that was taken at last may not")
	}
	broken := sequenced(1, 10)
	broken[len(broken)-1] ^= 1
	ask[*kmsg.ProduceResponse](c, produceOf("t", 0, -1, broken), 9)
	if say(c, 0, sequenced(1, 11)) {
		t.Error("one behind a damaged batch may")
	}
	many := b.dial()
	for i := range maxSequences {
		say(many, 0, changed(sequenced(1, 0), 43, 0, 0, 0, 0, 0, 1, byte(i>>8), byte(i)))
	}
	if say(many, 0, sequenced(9, 1)) {
		t.Error("one of more producers than a connection remembers may")
	}
}
