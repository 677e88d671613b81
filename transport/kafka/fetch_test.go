package kafka

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

// offsetsOf gives the base offsets of the batches of a partition's answer, which must be whole.
func offsetsOf(t testing.TB, p kmsg.FetchResponseTopicPartition) (at []record.Offset) {
	t.Helper()
	for b, err := range record.SplitBatches(p.RecordBatches) {
		if err != nil {
			t.Fatalf("partition %d: %v", p.Partition, err)
		}
		at = append(at, b.BaseOffset())
	}
	return at
}

func parts(resp *kmsg.FetchResponse) []kmsg.FetchResponseTopicPartition {
	return resp.Topics[0].Partitions
}

func TestFetch_everyVersion(t *testing.T) {
	b := start(t)
	top := b.broker.topic("t", 1)
	for range 3 {
		top.parts[0].add(batch(record.None, "a", "b"))
	}
	for version := int16(4); version <= 16; version++ {
		req := fetchOf("t", 3, 0) // in the middle of the second batch
		req.Topics[0].TopicID = top.id
		req.Topics[0].Partitions[0].CurrentLeaderEpoch = 5
		resp := ask[*kmsg.FetchResponse](b.dial(), req, version)
		p := parts(resp)[0]
		if p.ErrorCode != 0 || p.HighWatermark != 6 || p.LastStableOffset != 6 || p.PreferredReadReplica != -1 || resp.SessionID != 0 {
			t.Errorf("v%d: %+v", version, p)
		}
		if at := offsetsOf(t, p); len(at) != 2 || at[0] != 2 || at[1] != 4 {
			t.Errorf("v%d: batches at %v", version, at)
		}
		if version >= 13 && resp.Topics[0].TopicID != top.id || version < 13 && resp.Topics[0].Topic != "t" {
			t.Errorf("v%d: topic %+v", version, resp.Topics[0].Topic)
		}
	}
}

func TestFetch_faults(t *testing.T) {
	b := start(t)
	id := b.broker.topic("t", 1).id
	p := b.broker.topics["t"].parts[0]
	for range 4 {
		p.add(batch(record.None, "v"))
	}
	p.start = 2
	b.broker.topic("elsewhere", 1).parts[0].leader = 8
	for _, x := range []struct {
		name    string
		version int16
		change  func(*kmsg.FetchRequest)
		want    *kerr.Error
		hw      int64
	}{
		{"unknown topic", 12, func(r *kmsg.FetchRequest) { r.Topics[0].Topic = "no" }, kerr.UnknownTopicOrPartition, -1},
		{"unknown partition", 12, func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].Partition = 9 }, kerr.UnknownTopicOrPartition, -1},
		{"unknown id", 13, func(r *kmsg.FetchRequest) { r.Topics[0].TopicID = [16]byte{1} }, kerr.UnknownTopicID, -1},
		{"no id", 13, func(r *kmsg.FetchRequest) { r.Topics[0].TopicID = [16]byte{} }, kerr.UnknownTopicID, -1},
		{"elsewhere", 12, func(r *kmsg.FetchRequest) { r.Topics[0].Topic = "elsewhere" }, kerr.NotLeaderForPartition, -1},
		{"older epoch", 12, func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].CurrentLeaderEpoch = 4 }, kerr.FencedLeaderEpoch, -1},
		{"newer epoch", 12, func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].CurrentLeaderEpoch = 6 }, kerr.UnknownLeaderEpoch, -1},
		{"epoch before leader", 12, func(r *kmsg.FetchRequest) {
			r.Topics[0].Topic, r.Topics[0].Partitions[0].CurrentLeaderEpoch = "elsewhere", 4
		}, kerr.FencedLeaderEpoch, -1},
		{"below the log", 12, func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].FetchOffset = 1 }, kerr.OffsetOutOfRange, 4},
		{"negative", 12, func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].FetchOffset = -1 }, kerr.OffsetOutOfRange, 4},
		{"above the log", 12, func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].FetchOffset = 5 }, kerr.OffsetOutOfRange, 4},
		{"a leader epoch below none", 12, func(r *kmsg.FetchRequest) {
			r.Topics[0].Partitions[0].CurrentLeaderEpoch, r.Topics[0].Partitions[0].FetchOffset = -2, 5
		}, kerr.OffsetOutOfRange, 4},
		{"a replica", 12, func(r *kmsg.FetchRequest) { r.ReplicaID = 8 }, kerr.NotLeaderForPartition, -1},
		{"a replica's new way", 15, func(r *kmsg.FetchRequest) { r.ReplicaState.ID = 8 }, kerr.NotLeaderForPartition, -1},
	} {
		t.Run(x.name, func(t *testing.T) {
			req := fetchOf("t", 2, 0)
			req.Topics[0].TopicID = id
			req.MaxWaitMillis = 60_000 // an error does not wait for that
			x.change(req)
			got := parts(ask[*kmsg.FetchResponse](b.dial(), req, x.version))[0]
			if got.ErrorCode != x.want.Code || got.HighWatermark != x.hw || len(got.RecordBatches) != 0 {
				t.Errorf("%v with high watermark %d, want %v", kerr.ErrorForCode(got.ErrorCode), got.HighWatermark, x.want)
			}
			if x.want == kerr.OffsetOutOfRange && got.LogStartOffset != 2 {
				t.Errorf("log start %d", got.LogStartOffset)
			}
		})
	}
}

func TestFetch_hints(t *testing.T) {
	b := start(t)
	top := b.broker.topic("t", 1)
	p := top.parts[0]
	p.leader, p.epoch = 8, 6
	b.broker.nodes = append(b.broker.nodes, Endpoint{ID: 8, Host: "pi8", Port: 9999})
	for _, x := range []struct {
		version int16
		epoch   int32
		code    *kerr.Error
		leader  int32
	}{
		{15, -1, kerr.NotLeaderForPartition, -1}, {16, -1, kerr.NotLeaderForPartition, 8},
		{16, 5, kerr.FencedLeaderEpoch, 8}, {16, 7, kerr.UnknownLeaderEpoch, -1},
	} {
		req := fetchOf("t", 0, 0)
		req.Topics[0].TopicID = top.id
		req.Topics[0].Partitions[0].CurrentLeaderEpoch = x.epoch
		resp := ask[*kmsg.FetchResponse](b.dial(), req, x.version)
		got := parts(resp)[0]
		if got.ErrorCode != x.code.Code || got.CurrentLeader.LeaderID != x.leader || x.leader >= 0 && got.CurrentLeader.LeaderEpoch != 6 {
			t.Errorf("%+v: %+v", x, got)
		}
		if (len(resp.Brokers) == 1) != (x.leader >= 0) {
			t.Errorf("%+v: endpoints %+v", x, resp.Brokers)
		}
	}
}

// A new leader that does not know yet what is committed gives nothing, and no error.
func TestFetch_fromALeaderThatDoesNotServeYet(t *testing.T) {
	b := start(t)
	p := b.broker.topic("t", 1).parts[0]
	p.add(batch(record.None, "v"))
	p.notYet = true
	for _, at := range []int64{0, 1, 9} {
		if got := parts(ask[*kmsg.FetchResponse](b.dial(), fetchOf("t", at, 0), 12))[0]; got.ErrorCode != 0 || len(got.RecordBatches) != 0 {
			t.Errorf("from %d: %+v", at, got)
		}
	}
	p.change(func() { p.notYet = false })
	if got := parts(ask[*kmsg.FetchResponse](b.dial(), fetchOf("t", 0, 0), 12))[0]; len(got.RecordBatches) == 0 {
		t.Errorf("then: %+v", got)
	}
}

// Between the high watermark and the end of the leader's log there is nothing to read yet.
func TestFetch_aboveTheHighWatermark(t *testing.T) {
	b := start(t)
	p := b.broker.topic("t", 1).parts[0]
	for range 3 {
		p.add(batch(record.None, "v"))
	}
	p.limited, p.readable = true, 1
	for at, want := range map[int64]int16{1: 0, 3: 0, 4: 1} {
		if got := parts(ask[*kmsg.FetchResponse](b.dial(), fetchOf("t", at, 0), 12))[0]; got.ErrorCode != want || len(got.RecordBatches) != 0 || got.HighWatermark != 1 {
			t.Errorf("from %d: %+v", at, got)
		}
	}
}

// A leader that stood still while others went on ends before what a consumer has read already. It hears
// of them in a moment: the consumer is sent there, and not to the beginning of the partition.
func TestFetch_beyondTheEndOfALeaderThatIsNoneAnyMore(t *testing.T) {
	b := start(t)
	p := b.broker.topic("t", 1).parts[0]
	p.unsure = make(chan struct{})
	req := fetchOf("t", 5, 0)
	req.Topics[0].TopicID = b.broker.topics["t"].id
	answer := make(chan *kmsg.FetchResponse, 1)
	conn := b.dial()
	go func() { answer <- ask[*kmsg.FetchResponse](conn, req, 12) }()
	select {
	case r := <-answer:
		t.Fatalf("answered at once: %v", kerr.ErrorForCode(parts(r)[0].ErrorCode))
	case <-time.After(50 * time.Millisecond):
	}
	p.change(func() { p.leader, p.epoch = 8, 6 })
	close(p.unsure)
	if got := parts(<-answer)[0]; got.ErrorCode != kerr.NotLeaderForPartition.Code {
		t.Errorf("%v", kerr.ErrorForCode(got.ErrorCode))
	}
}

func TestFetch_waitsForMinBytes(t *testing.T) {
	b := start(t)
	top := b.broker.topic("t", 3)
	one := batch(record.None, "v")
	c := b.dial()
	req := fetchOf("t", 0, 0, 1, 2)
	req.MaxWaitMillis, req.MinBytes = 60_000, int32(2*len(one))
	correlation := c.send(req, 12)
	until(t, "the fetch", func() bool { return b.server.Metrics().Requests["Fetch"] == 1 })
	top.parts[2].add(batch(record.None, "v"))
	top.parts[1].add(batch(record.None, "v"))
	got := parts(c.receive(req, correlation).(*kmsg.FetchResponse))
	if len(got[0].RecordBatches) != 0 || len(got[1].RecordBatches) != len(one) || len(got[2].RecordBatches) != len(one) {
		t.Errorf("%d, %d and %d bytes", len(got[0].RecordBatches), len(got[1].RecordBatches), len(got[2].RecordBatches))
	}
	if b.server.Metrics().ResponseBytes != 0 {
		until(t, "the memory back", func() bool { return b.server.Metrics().ResponseBytes == 0 })
	}
}

func TestFetch_waitsNoLongerThanAsked(t *testing.T) {
	b := start(t)
	b.broker.topic("t", 2).parts[0].add(batch(record.None, "v"))
	for _, x := range []struct{ wait, least int32 }{{0, 1 << 20}, {-5, 1 << 20}, {30, 1 << 20}, {60_000, 0}, {60_000, -1}, {60_000, 1}} {
		req := fetchOf("t", 0, 0, 1)
		req.MaxWaitMillis, req.MinBytes = x.wait, x.least
		began := time.Now()
		got := parts(ask[*kmsg.FetchResponse](b.dial(), req, 12))
		if len(got[0].RecordBatches) == 0 || time.Since(began) < time.Duration(x.wait)*time.Millisecond && x.least > 1 {
			t.Errorf("wait %d for %d: %d bytes after %v", x.wait, x.least, len(got[0].RecordBatches), time.Since(began))
		}
	}
	// Nothing to ask for is answered at once as well.
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.SessionEpoch = 60_000, 1, 0
	ask[*kmsg.FetchResponse](b.dial(), req, 12)
}

// A wait ends when leadership is lost, when records are cut off below it, and when the
// partition's own limit is reached before min_bytes.
func TestFetch_waitEnds(t *testing.T) {
	for name, x := range map[string]struct {
		change func(p *fakePartition)
		want   int16
	}{
		"leadership lost":  {func(p *fakePartition) { p.change(func() { p.leader = 8 }) }, 6},
		"leadership again": {func(p *fakePartition) { p.change(func() { p.epoch++ }) }, 6},
		"log start":        {func(p *fakePartition) { p.change(func() { p.start = 5 }) }, 1},
		"at its limit": {func(p *fakePartition) {
			p.add(batch(record.None, strings.Repeat("x", 1000)))
			p.add(batch(record.None, strings.Repeat("x", 1000)))
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			p := b.broker.topic("t", 2).parts[1]
			c := b.dial()
			req := fetchOf("t", 0, 0, 1)
			req.MaxWaitMillis, req.MinBytes = 60_000, 1<<20
			req.Topics[0].Partitions[1].PartitionMaxBytes = 1100
			correlation := c.send(req, 12)
			until(t, "the fetch", func() bool { return b.server.Metrics().Requests["Fetch"] == 1 })
			x.change(p)
			got := parts(c.receive(req, correlation).(*kmsg.FetchResponse))[1]
			if got.ErrorCode != x.want || x.want == 0 && len(offsetsOf(t, got)) != 1 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// The first batch comes whole whatever the limits say; after it both bind, and who came last this
// time comes first another time.
func TestFetch_limits(t *testing.T) {
	b := start(t)
	top := b.broker.topic("t", 3)
	for _, p := range top.parts {
		for range 4 {
			p.add(batch(record.None, strings.Repeat("x", 1000)))
		}
	}
	size := len(batch(record.None, strings.Repeat("x", 1000)))
	c := b.dial()
	firsts := map[int32]bool{}
	for _, x := range []struct{ all, each, want int }{
		{1, 1, 1}, {1, 1 << 20, 1}, {1 << 20, 1, 1}, {0, 0, 1}, {2 * size, 1 << 20, 2}, {1 << 20, 2 * size, 6}, {5*size + 5, 2*size + 5, 5}, {1 << 20, 1 << 20, 12},
	} {
		req := fetchOf("t", 0, 0, 1, 2)
		req.MaxBytes = int32(x.all)
		for i := range req.Topics[0].Partitions {
			req.Topics[0].Partitions[i].PartitionMaxBytes = int32(x.each)
		}
		n := 0
		for _, p := range parts(ask[*kmsg.FetchResponse](c, req, 12)) {
			at := offsetsOf(t, p)
			n += len(at)
			if len(at) > 0 && x.want == 1 {
				firsts[p.Partition] = true
			}
		}
		if n != x.want {
			t.Errorf("%d bytes, %d for each partition: %d batches, want %d", x.all, x.each, n, x.want)
		}
	}
	if len(firsts) != 3 {
		t.Errorf("only %v came first", firsts)
	}
}

// The server's own limit holds whatever the client asks for.
func TestFetch_cappedByTheServer(t *testing.T) {
	b := start(t, func(c *Config) { c.FetchBytes = 3000 })
	p := b.broker.topic("t", 1).parts[0]
	for range 10 {
		p.add(batch(record.None, strings.Repeat("x", 1000)))
	}
	req := fetchOf("t", 0, 0)
	req.MaxBytes, req.MinBytes, req.MaxWaitMillis = 1<<31-1, 1<<31-1, 60_000
	if n := len(parts(ask[*kmsg.FetchResponse](b.dial(), req, 12))[0].RecordBatches); n > 3000 || n < 2000 {
		t.Errorf("%d bytes", n)
	}
}

// Sessions are declined so that every client goes on with full fetches.
func TestFetch_sessions(t *testing.T) {
	b := start(t)
	b.broker.topic("t", 1).parts[0].add(batch(record.None, "v"))
	for _, x := range []struct {
		id, epoch int32
		want      int16
	}{{0, 0, 0}, {0, -1, 0}, {-1, -1, 0}, {77, -1, 0}, {77, 0, 0}, {77, 3, 70}, {0, 1, 70}} {
		req := fetchOf("t", 0, 0)
		req.SessionID, req.SessionEpoch = x.id, x.epoch
		resp := ask[*kmsg.FetchResponse](b.dial(), req, 12)
		if resp.ErrorCode != x.want || resp.SessionID != 0 || (x.want == 0) != (len(resp.Topics) == 1) {
			t.Errorf("session %d epoch %d: error %d, session %d, %d topics", x.id, x.epoch, resp.ErrorCode, resp.SessionID, len(resp.Topics))
		}
	}
}

// A reader of committed records gets an empty list of aborted transactions, others none at all.
func TestFetch_isolation(t *testing.T) {
	b := start(t)
	b.broker.topic("t", 1).parts[0].add(batch(record.None, "v"))
	for _, level := range []int8{0, 1} {
		req := fetchOf("t", 0, 0)
		req.IsolationLevel = level
		p := parts(ask[*kmsg.FetchResponse](b.dial(), req, 11))[0]
		if len(p.AbortedTransactions) != 0 || (p.AbortedTransactions == nil) != (level == 0) || p.LastStableOffset != p.HighWatermark {
			t.Errorf("level %d: %+v", level, p)
		}
	}
}

func TestListOffsets(t *testing.T) {
	b := start(t)
	p := b.broker.topic("t", 2).parts[0]
	for range 3 {
		p.add(batch(record.None, "a", "b"))
	}
	p.start = 2
	b.broker.topic("new", 1).parts[0].notYet = true
	b.broker.topic("elsewhere", 1).parts[0].leader = 8
	for _, x := range []struct {
		name              string
		topic             string
		version           int16
		epoch             int32
		at                int64
		want              int16
		offset, timestamp int64
	}{
		{"end", "t", 1, -1, -1, 0, 6, -1}, {"end", "t", 8, 5, -1, 0, 6, -1}, {"start", "t", 2, -1, -2, 0, 2, -1},
		{"time", "t", 4, -1, 1001, 0, 0, 1001}, {"no such time", "t", 8, -1, 5000, 0, -1, -1},
		{"largest time", "t", 6, -1, -3, 35, -1, -1}, {"earliest local", "t", 7, -1, -4, 35, -1, -1}, {"earliest local", "t", 8, -1, -4, 0, 2, -1},
		{"tiered", "t", 8, -1, -5, 35, -1, -1}, {"nonsense", "t", 8, -1, -99, 35, -1, -1},
		{"older epoch", "t", 8, 4, -1, 74, -1, -1}, {"newer epoch", "t", 8, 6, -1, 75, -1, -1},
		{"new leader", "new", 4, -1, -1, 5, -1, -1}, {"new leader", "new", 5, -1, -1, 78, -1, -1}, {"new leader's start", "new", 5, -1, -2, 0, 0, -1},
		{"elsewhere", "elsewhere", 5, -1, -1, 6, -1, -1}, {"unknown", "no", 5, -1, -1, 3, -1, -1},
	} {
		req := kmsg.NewPtrListOffsetsRequest()
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.CurrentLeaderEpoch, rp.Timestamp = x.epoch, x.at
		req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: x.topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{rp}}}
		got := ask[*kmsg.ListOffsetsResponse](b.dial(), req, x.version).Topics[0].Partitions[0]
		if got.ErrorCode != x.want || got.Offset != x.offset || got.Timestamp != x.timestamp {
			t.Errorf("%s v%d: %+v", x.name, x.version, got)
		}
		if hasEpoch := x.want == 0 && x.offset >= 0; x.version >= 4 && hasEpoch != (got.LeaderEpoch == 5) {
			t.Errorf("%s v%d: epoch %d", x.name, x.version, got.LeaderEpoch)
		}
	}
	req := kmsg.NewPtrListOffsetsRequest()
	twice := []kmsg.ListOffsetsRequestTopicPartition{{Timestamp: -1, CurrentLeaderEpoch: -1}, {Timestamp: -2, CurrentLeaderEpoch: -1}}
	req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "t", Partitions: twice}}
	for _, p := range ask[*kmsg.ListOffsetsResponse](b.dial(), req, 5).Topics[0].Partitions {
		if p.ErrorCode != kerr.InvalidRequest.Code {
			t.Errorf("a partition named twice: %+v", p)
		}
	}
}

func TestOffsetForLeaderEpoch(t *testing.T) {
	b := start(t)
	b.broker.topic("t", 1).parts[0].add(batch(record.None, "v"))
	for _, x := range []struct {
		version     int16
		current, of int32
		want        int16
		epoch       int32
		end         int64
	}{
		{0, 4, 5, 0, 5, 1}, {2, -1, 5, 0, 5, 1}, {2, 5, 3, 0, 3, 1}, {3, 4, 5, 74, -1, -1}, {4, 6, 5, 75, -1, -1}, {4, -1, 9, 0, -1, -1},
	} {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{{CurrentLeaderEpoch: x.current, LeaderEpoch: x.of}}}}
		got := ask[*kmsg.OffsetForLeaderEpochResponse](b.dial(), req, x.version).Topics[0].Partitions[0]
		if got.ErrorCode != x.want || got.EndOffset != x.end || x.version >= 1 && got.LeaderEpoch != x.epoch {
			t.Errorf("%+v: %+v", x, got)
		}
	}
}
