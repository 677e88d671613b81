package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"edged/metadata"
	"edged/partition"
	"edged/record"
	"edged/transport/kafka"
	"edged/transport/wire"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kafkaClient is franz-go with its defaults.
func kafkaClient(t *testing.T, nodes []*testNode, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{seeds(nodes)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// within is a context for what should not take long.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// consume reads n records of a topic from its beginning.
func consume(t *testing.T, nodes []*testNode, topic string, n int, opts ...kgo.Opt) []*kgo.Record {
	t.Helper()
	c := kafkaClient(t, nodes, append([]kgo.Opt{kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}, opts...)...)
	defer c.Close()
	ctx := within(t)
	var out []*kgo.Record
	for len(out) < n {
		fs := c.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			t.Fatalf("%d of %d records: %v", len(out), n, err)
		}
		out = append(out, fs.Records()...)
	}
	return out
}

// raw sends one request to one node, whatever its client would do with errors.
func raw[R kmsg.Response](t *testing.T, n *testNode, req kmsg.Request) R {
	t.Helper()
	return rawAt[R](t, n.Addrs().Kafka, req)
}

func rawAt[R kmsg.Response](t *testing.T, addr string, req kmsg.Request) R {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.MaxVersions(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	resp, err := c.SeedBrokers()[0].Request(within(t), req)
	if err != nil {
		t.Fatal(err)
	}
	return resp.(R)
}

func TestKafka_everyCodecThereAndBack(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 1)
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	for name, codec := range codecs {
		c := kafkaClient(t, nodes, kgo.ProducerBatchCompression(codec), kgo.DefaultProduceTopic("t"))
		for i := range 50 {
			r := &kgo.Record{Key: []byte(name), Value: []byte(strings.Repeat(fmt.Sprint(i), 100)), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte(name)}}, Timestamp: time.UnixMilli(int64(1000 + i))}
			if err := c.ProduceSync(within(t), r).FirstErr(); err != nil {
				t.Fatal(name, err)
			}
		}
	}
	seen := map[string]int{}
	for _, r := range consume(t, nodes, "t", 50*len(codecs)) {
		name := string(r.Key)
		i := seen[name]
		if string(r.Value) != strings.Repeat(fmt.Sprint(i), 100) || r.Timestamp.UnixMilli() != int64(1000+i) || string(r.Headers[0].Value) != name {
			t.Fatalf("%s: record %d is %+v", name, i, r)
		}
		seen[name]++
	}
}

// Acks of each kind, idempotent or not.
func TestKafka_acks(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	want := 0
	for i, opts := range [][]kgo.Opt{
		{}, {kgo.DisableIdempotentWrite()}, {kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()}, {kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite()},
	} {
		c := kafkaClient(t, nodes, append(opts, kgo.DefaultProduceTopic("t"))...)
		for range 20 {
			if err := c.ProduceSync(within(t), kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
				t.Fatal(i, err)
			}
			want++
		}
	}
	if got := consume(t, nodes, "t", want); len(got) != want {
		t.Errorf("%d records, want %d", len(got), want)
	}
}

// A topic that stamps records at their append tells producer and consumer the same time, also for a batch
// that came twice.
func TestKafka_logAppendTime(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 1)
	adm := kadm.NewClient(kafkaClient(t, nodes))
	kind := "LogAppendTime"
	if _, err := adm.CreateTopic(within(t), 1, 1, map[string]*string{metadata.TimestampType: &kind}, "stamped"); err != nil {
		t.Fatal(err)
	}
	send := func() kafka.ProduceResult {
		b := record.NewBuilder(record.Gzip, 1<<20)
		b.Append(5, nil, []byte("v"), nil)
		b.SetProducer(77, 0, 0)
		done := make(chan kafka.ProduceResult, 1)
		kafkaBroker{nodes[0].Node}.Produce(kafka.ProduceRequest{Topic: "stamped", Acks: -1, TimeoutMs: 5000, Batch: b.Build()}, func(r kafka.ProduceResult) { done <- r })
		return <-done
	}
	first := send()
	if first.Err != nil || first.AppendTime < 1_700_000_000_000 {
		t.Fatalf("%+v", first)
	}
	if again := send(); again.Err != nil || again.AppendTime != first.AppendTime || again.BaseOffset != first.BaseOffset {
		t.Errorf("the same batch again: %+v, first %+v", again, first)
	}
	got := consume(t, nodes, "stamped", 1)
	if ms := got[0].Timestamp.UnixMilli(); ms != first.AppendTime || got[0].Attrs.TimestampType() != 1 {
		t.Errorf("consumed with %d, type %d", ms, got[0].Attrs.TimestampType())
	}
}

func TestKafka_timestampLimits(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 1)
	c := kafkaClient(t, nodes, kgo.DefaultProduceTopic("strict"), kgo.DisableIdempotentWrite())
	hour := "3600000"
	if _, err := kadm.NewClient(c).CreateTopic(within(t), 1, 1, map[string]*string{metadata.TimestampBefore: &hour, metadata.TimestampAfter: &hour}, "strict"); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for at, want := range map[time.Time]error{now: nil, now.Add(-50 * time.Minute): nil, now.Add(-2 * time.Hour): kerr.InvalidTimestamp, now.Add(2 * time.Hour): kerr.InvalidTimestamp, time.UnixMilli(0): kerr.InvalidTimestamp} {
		if err := c.ProduceSync(within(t), &kgo.Record{Timestamp: at, Value: []byte("v")}).FirstErr(); !errors.Is(err, want) {
			t.Errorf("%v: %v, want %v", at, err, want)
		}
	}
}

// A producer that a partition does not know goes on where it is, as in Kafka: the topic may have been made anew, or
// the producer forgotten. But not behind a batch of its that was refused, and what it sent before is no duplicate.
func TestKafka_unknownProducerGoesOn(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 1)
	c := kafkaClient(t, nodes, kgo.MaxVersions(nil))
	limit := "2000"
	if _, err := kadm.NewClient(c).CreateTopic(within(t), 1, 1, map[string]*string{metadata.MaxMessageBytes: &limit}, "p"); err != nil {
		t.Fatal(err)
	}
	b := c.SeedBrokers()[0] // one connection for all that is produced
	send := func(producer int64, sequence int32, size int) error {
		t.Helper()
		builder := record.NewBuilder(record.None, 1<<16)
		builder.SetProducer(producer, 0, sequence)
		builder.Append(1000, nil, make([]byte, size), nil)
		batch := builder.Build()
		req := kmsg.NewPtrProduceRequest()
		req.Acks, req.TimeoutMillis, req.Version = -1, 5000, 9
		req.Topics = []kmsg.ProduceRequestTopic{{Topic: "p", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: batch}}}}
		resp, err := b.Request(within(t), req)
		if err != nil {
			t.Fatal(err)
		}
		return kerr.ErrorForCode(resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
	}
	for _, x := range []struct {
		producer int64
		sequence int32
		size     int
		want     error
	}{
		{900, 7, 10, nil}, {900, 8, 10, nil}, {900, 6, 10, kerr.OutOfOrderSequenceNumber}, {900, 7, 10, nil},
		{901, 0, 3000, kerr.MessageTooLarge}, {901, 1, 10, kerr.UnknownProducerID}, {901, 0, 10, nil}, {901, 1, 10, nil},
	} {
		if err := send(x.producer, x.sequence, x.size); !errors.Is(err, x.want) {
			t.Errorf("producer %d, sequence %d: %v, want %v", x.producer, x.sequence, err, x.want)
		}
	}
}

// A record without a key would be none that compaction may keep or drop; looked for in compressed batches too.
func TestKafka_compactedTopicsTakeOnlyKeys(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 1)
	for _, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.ZstdCompression()} {
		c := kafkaClient(t, nodes, kgo.DefaultProduceTopic("compacted"), kgo.ProducerBatchCompression(codec))
		policy := "compact"
		if _, err := kadm.NewClient(c).CreateTopic(within(t), 1, 1, map[string]*string{metadata.CleanupPolicy: &policy}, "compacted"); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			t.Fatal(err)
		}
		if err := c.ProduceSync(within(t), kgo.KeyStringRecord("k", "v")).FirstErr(); err != nil {
			t.Errorf("with a key: %v", err)
		}
		if err := c.ProduceSync(within(t), &kgo.Record{Key: []byte{}, Value: []byte("v")}).FirstErr(); err != nil {
			t.Errorf("with an empty key: %v", err)
		}
		if err := c.ProduceSync(within(t), kgo.StringRecord(strings.Repeat("v", 1000))).FirstErr(); !errors.Is(err, kerr.InvalidRecord) {
			t.Errorf("without a key: %v", err)
		}
	}
}

func TestKafka_maxMessageBytes(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 1)
	c := kafkaClient(t, nodes, kgo.DefaultProduceTopic("small"), kgo.ProducerBatchCompression(kgo.NoCompression()))
	limit := "2000"
	if _, err := kadm.NewClient(c).CreateTopic(within(t), 1, 1, map[string]*string{metadata.MaxMessageBytes: &limit}, "small"); err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int]error{1000: nil, 3000: kerr.MessageTooLarge} {
		if err := c.ProduceSync(within(t), kgo.SliceRecord(make([]byte, size))).FirstErr(); !errors.Is(err, want) {
			t.Errorf("%d bytes: %v, want %v", size, err, want)
		}
	}
}

// ListOffsets in all its ways, against records whose offsets and times are known.
func TestKafka_listOffsets(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 1)
	c := kafkaClient(t, nodes, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic("t"))
	adm := kadm.NewClient(c)
	times := []int64{1000, 3000, 2000, 3000, 2500} // the largest twice
	for _, ms := range times {
		if err := c.ProduceSync(within(t), &kgo.Record{Value: []byte("v"), Timestamp: time.UnixMilli(ms)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	at := func(l kadm.ListedOffsets, err error, partition int32) kadm.ListedOffset {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		o, _ := l.Lookup("t", partition)
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		return o
	}
	l, err := adm.ListEndOffsets(within(t), "t")
	if o := at(l, err, 0); o.Offset != 5 {
		t.Errorf("end %d", o.Offset)
	}
	if o := at(l, err, 1); o.Offset != 0 {
		t.Errorf("end of an empty one %d", o.Offset)
	}
	l, err = adm.ListStartOffsets(within(t), "t")
	if o := at(l, err, 0); o.Offset != 0 {
		t.Errorf("start %d", o.Offset)
	}
	l, err = adm.ListMaxTimestampOffsets(within(t), "t")
	if o := at(l, err, 0); o.Offset != 1 || o.Timestamp != 3000 {
		t.Errorf("largest time: %+v", o)
	}
	if o := at(l, err, 1); o.Offset != -1 {
		t.Errorf("largest time of an empty one: %+v", o)
	}
	for ms, want := range map[int64]int64{0: 0, 1000: 0, 1001: 1, 2001: 1, 3000: 1, 3001: -1} {
		res, err := kafkaBroker{nodes[0].Node}.Offset(within(t), kafka.OffsetRequest{Topic: "t", Epoch: record.NoEpoch, At: ms})
		if err != nil || int64(res.Offset) != want || (want < 0) != (res.Epoch == record.NoEpoch) {
			t.Errorf("time %d: %+v, %v, want %d", ms, res, err, want)
		}
	}
}

// The epoch in every answer is one and the same, and it is the Raft term.
func TestKafka_epochsAgree(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	c := kafkaClient(t, nodes, kgo.DefaultProduceTopic("t"))
	for range 30 {
		if err := c.ProduceSync(within(t), kgo.StringRecord("v")).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	epochs := map[int32]int32{}
	for _, n := range nodes {
		req := kmsg.NewPtrMetadataRequest()
		for _, p := range raw[*kmsg.MetadataResponse](t, n, req).Topics[0].Partitions {
			if e, ok := epochs[p.Partition]; ok && e != p.LeaderEpoch {
				t.Errorf("partition %d has epoch %d and %d", p.Partition, e, p.LeaderEpoch)
			}
			epochs[p.Partition] = p.LeaderEpoch
		}
	}
	for _, r := range consume(t, nodes, "t", 30) {
		if r.LeaderEpoch != epochs[r.Partition] {
			t.Errorf("a record of partition %d has epoch %d, its leader %d", r.Partition, r.LeaderEpoch, epochs[r.Partition])
		}
	}
	for number, epoch := range epochs {
		for _, n := range nodes {
			res, err := kafkaBroker{n.Node}.Offset(within(t), kafka.OffsetRequest{Topic: "t", Partition: number, Epoch: record.Epoch(epoch), At: kafka.AtEnd})
			if err == nil && res.Epoch != record.Epoch(epoch) {
				t.Errorf("partition %d: offsets with epoch %d, want %d", number, res.Epoch, epoch)
			}
			_, _, err = n.lead("t", number, record.Epoch(epoch-1))
			var fenced *kafka.FencedError
			if !errors.As(err, &fenced) || fenced.Epoch != record.Epoch(epoch) {
				t.Errorf("an older epoch at node %d: %v", n.Identity().Node, err)
			}
			if _, _, err = n.lead("t", number, record.Epoch(epoch+1)); !errors.Is(err, record.ErrUnknownEpoch) {
				t.Errorf("a newer epoch at node %d: %v", n.Identity().Node, err)
			}
		}
	}
}

// What was written in an epoch ends where the next one began, and restarts do not change that.
func TestKafka_epochEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := startNodeIn(t, dir, 0)
	await(t, "a cluster", func() bool { return n.notReady() == nil && n.caughtUp() })
	if _, err := (broker{n.Node}).CreateTopic(t.Context(), wire.CreateTopicRequest{Name: "t", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	type mark struct {
		epoch record.Epoch
		end   record.Offset
	}
	var marks []mark
	for i := range 3 {
		nodes := []*testNode{n}
		c := kafkaClient(t, nodes, kgo.DefaultProduceTopic("t"))
		for range i + 1 {
			if err := c.ProduceSync(within(t), kgo.StringRecord("v")).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		c.Close()
		_, part, err := n.lead("t", 0, record.NoEpoch)
		if err != nil {
			t.Fatal(err)
		}
		marks = append(marks, mark{part.View().Epoch, part.HighWatermark()})
		n.stop()
		n = startNodeIn(t, dir, 0)
		await(t, "its partition", func() bool { _, err := (kafkaBroker{n.Node}).Reader("t", 0, record.NoEpoch); return err == nil })
	}
	b := kafkaBroker{n.Node}
	for i, m := range marks {
		if i > 0 && m.epoch <= marks[i-1].epoch {
			t.Fatalf("epochs %+v", marks)
		}
		if e, end, err := b.EpochEnd("t", 0, record.NoEpoch, m.epoch); err != nil || e != m.epoch || end != m.end {
			t.Errorf("epoch %d ended at %d (%d, %v), want %d", m.epoch, end, e, err, m.end)
		}
	}
	if e, end, err := b.EpochEnd("t", 0, record.NoEpoch, 1000); err != nil || e != record.NoEpoch || end != -1 {
		t.Errorf("an epoch to come: %d, %d, %v", e, end, err)
	}
}

// What operators and tools ask of a cluster. One cluster is made for all of it.
func TestKafka_admin(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	for name, test := range map[string]func(*testing.T, []*testNode){
		"every node is as good": kafkaEveryNodeIsAsGood, "topic settings": kafkaTopicSettings, "topics": kafkaTopics,
		"elect leaders": kafkaElectLeaders, "disk and cluster": kafkaDiskAndCluster,
	} {
		t.Run(name, func(t *testing.T) { test(t, nodes) })
	}
}

// Each node answers for the whole cluster and takes what is meant for a controller; clients are
// sent to the leader with its address and epoch.
func kafkaEveryNodeIsAsGood(t *testing.T, nodes []*testNode) {
	for i, n := range nodes {
		meta := raw[*kmsg.MetadataResponse](t, n, kmsg.NewPtrMetadataRequest())
		if len(meta.Brokers) != 3 || len(meta.Topics) < 1 {
			t.Errorf("node %d knows %d nodes and %d topics", i, len(meta.Brokers), len(meta.Topics))
		}
		create := kmsg.NewPtrCreateTopicsRequest()
		create.TimeoutMillis = 10_000
		create.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: fmt.Sprint("by", i), NumPartitions: 2, ReplicationFactor: 3}}
		if got := raw[*kmsg.CreateTopicsResponse](t, n, create).Topics[0]; got.ErrorCode != 0 || got.NumPartitions != 2 || got.ReplicationFactor != 3 {
			t.Errorf("node %d made: %+v", i, got)
		}
		drop := kmsg.NewPtrDeleteTopicsRequest()
		name := fmt.Sprint("by", i)
		drop.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: &name}}
		if got := raw[*kmsg.DeleteTopicsResponse](t, n, drop).Topics[0]; got.ErrorCode != 0 {
			t.Errorf("node %d deleted: %+v", i, got)
		}
		if id, err := (kafkaBroker{n.Node}).ProducerID(within(t)); err != nil || id <= 0 {
			t.Errorf("node %d gave producer id %d, %v", i, id, err)
		}
		for number := range int32(6) {
			b := record.NewBuilder(record.None, 1<<20)
			b.Append(1, nil, []byte("v"), nil)
			req := kmsg.NewPtrProduceRequest()
			req.Acks, req.TimeoutMillis = -1, 5000
			req.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: number, Records: b.Build()}}}}
			req.SetVersion(11)
			resp := raw[*kmsg.ProduceResponse](t, n, req)
			got := resp.Topics[0].Partitions[0]
			_, part, err := n.lead("t", number, record.NoEpoch)
			if err == nil {
				if got.ErrorCode != 0 || got.BaseOffset < 0 || part == nil {
					t.Errorf("the leader of %d answers %+v", number, got)
				}
				continue
			}
			leader, epoch := n.leaderOf(n.machine.Picture().Topic("t").Partitions[number].Group, n.host.Load().Lookup(n.machine.Picture().Topic("t").Partitions[number].Group))
			if got.ErrorCode != kerr.NotLeaderForPartition.Code || got.CurrentLeader.LeaderID != int32(leader) || got.CurrentLeader.LeaderEpoch != int32(epoch) ||
				len(resp.Brokers) != 1 || resp.Brokers[0].NodeID != int32(leader) || resp.Brokers[0].Port == 0 {
				t.Errorf("node %d, which does not lead %d: %+v %+v", i, number, got, resp.Brokers)
			}
		}
	}
}

// The leader is killed while an idempotent producer of default settings writes: nothing acknowledged is lost,
// nothing is there twice, order is kept, no error reaches the application.
func TestKafka_leaderDiesUnderIdempotentProducer(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	c := kafkaClient(t, nodes, kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	const count = 3000
	failed := make(chan error, count)
	// The first record shows that the producer is at work: one that has no identity yet takes a closed
	// connection for a refused login.
	if err := c.ProduceSync(within(t), kgo.StringRecord("0")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	sent := 0
	killed := false
	for i := 1; i < count; i++ {
		c.Produce(within(t), kgo.StringRecord(fmt.Sprint(i)), func(_ *kgo.Record, err error) { failed <- err })
		sent++
		if i == count/3 && !killed {
			killed = true
			_, part, err := nodes[0].locate("t", 0)
			if err != nil {
				t.Fatal(err)
			}
			leader := part.View().Leader
			for _, n := range nodes {
				if n.Identity().Node == leader {
					n.die()
				}
			}
		}
	}
	for range sent {
		if err := <-failed; err != nil {
			t.Fatalf("an error for the application: %v", err)
		}
	}
	var alive []*testNode
	for _, n := range nodes {
		if !n.dead {
			alive = append(alive, n)
		}
	}
	for i, r := range consume(t, alive, "t", count) {
		if string(r.Value) != fmt.Sprint(i) || r.Offset != int64(i) {
			t.Fatalf("record %d is %s at offset %d", i, r.Value, r.Offset)
		}
	}
}

// A consumer that waits at a leader is told when it hands over, and goes on at the next one at once.
func TestKafka_leaderMovesUnderConsumer(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	producer := kafkaClient(t, nodes, kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	consumer := kafkaClient(t, nodes, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().AtStart()}}), kgo.FetchMaxWait(30*time.Second))
	read := func(want string) {
		t.Helper()
		for {
			fs := consumer.PollFetches(within(t))
			if err := fs.Err0(); err != nil {
				t.Fatal(err)
			}
			for _, r := range fs.Records() {
				if string(r.Value) != want {
					t.Fatalf("read %s, want %s", r.Value, want)
				}
				return
			}
		}
	}
	for i := range 4 {
		if err := producer.ProduceSync(within(t), kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
			t.Fatal(err)
		}
		read(fmt.Sprint(i))
		if _, err := (broker{nodes[i%3].Node}).TransferLeader(within(t), wire.TransferLeaderRequest{Topic: "t", To: record.NoNode}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestKafka_deleteRecords(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 1)
	c := kafkaClient(t, nodes, kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	adm := kadm.NewClient(c)
	var rs []*kgo.Record
	for i := range 10 {
		rs = append(rs, kgo.StringRecord(fmt.Sprint(i)))
	}
	if err := c.ProduceSync(within(t), rs...).FirstErr(); err != nil { // one batch
		t.Fatal(err)
	}
	cut := func(at int64) kadm.DeleteRecordsResponse {
		t.Helper()
		os := kadm.Offsets{}
		os.AddOffset("t", 0, at, -1)
		got, err := adm.DeleteRecords(within(t), os)
		if err != nil {
			t.Fatal(err)
		}
		r, _ := got.Lookup("t", 0)
		return r
	}
	if r := cut(4); r.Err != nil || r.LowWatermark != 4 { // inside the batch
		t.Errorf("%+v", r)
	}
	if got := consume(t, nodes, "t", 6); got[0].Offset != 4 || string(got[0].Value) != "4" {
		t.Errorf("reads %+v first", got[0])
	}
	if r := cut(2); r.Err != nil || r.LowWatermark != 4 {
		t.Errorf("what is gone already: %+v", r)
	}
	if r := cut(11); !errors.Is(r.Err, kerr.OffsetOutOfRange) {
		t.Errorf("above the end: %+v", r)
	}
	if r := cut(-1); r.Err != nil || r.LowWatermark != 10 {
		t.Errorf("all: %+v", r)
	}
	l, err := adm.ListStartOffsets(within(t), "t")
	if o, _ := l.Lookup("t", 0); err != nil || o.Offset != 10 {
		t.Errorf("begins at %+v, %v", o, err)
	}
	if err := c.ProduceSync(within(t), kgo.StringRecord("more")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if r := cut(-1); r.Err != nil || r.LowWatermark != 11 {
		t.Errorf("all again: %+v", r)
	}
}

func kafkaTopicSettings(t *testing.T, nodes []*testNode) {
	adm := kadm.NewClient(kafkaClient(t, nodes))
	compact := "compact"
	if _, err := adm.CreateTopic(within(t), 2, 3, map[string]*string{"cleanup.policy": &compact, "segment.bytes": kadm.StringPtr("1048576")}, "c"); err != nil {
		t.Fatal(err)
	}
	get := func() map[string]kadm.Config {
		t.Helper()
		rs, err := adm.DescribeTopicConfigs(within(t), "c")
		if err != nil || rs[0].Err != nil {
			t.Fatal(err, rs[0].Err)
		}
		m := map[string]kadm.Config{}
		for _, c := range rs[0].Configs {
			m[c.Key] = c
		}
		return m
	}
	got := get()
	for _, name := range []string{"cleanup.policy", "compression.type", "delete.retention.ms", "max.message.bytes", "message.timestamp.type", "min.insync.replicas", "retention.bytes", "retention.ms", "segment.bytes", "unclean.leader.election.enable"} {
		if _, ok := got[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
	if c := got["cleanup.policy"]; *c.Value != "compact" || c.Source != kmsg.ConfigSourceDynamicTopicConfig {
		t.Errorf("%+v", c)
	}
	if c := got["retention.ms"]; *c.Value != "604800000" || c.Source != kmsg.ConfigSourceDefaultConfig {
		t.Errorf("%+v", c)
	}
	alter := func(want error, cs ...kadm.AlterConfig) {
		t.Helper()
		rs, err := adm.AlterTopicConfigs(within(t), cs, "c")
		if err != nil {
			t.Fatal(err)
		}
		if !errors.Is(rs[0].Err, want) {
			t.Errorf("%+v: %v, want %v", cs, rs[0].Err, want)
		}
	}
	alter(nil, kadm.AlterConfig{Op: kadm.SetConfig, Name: "retention.ms", Value: kadm.StringPtr("1000")})
	alter(kerr.InvalidConfig, kadm.AlterConfig{Op: kadm.SetConfig, Name: "retention.ms", Value: kadm.StringPtr("soon")})
	alter(kerr.InvalidConfig, kadm.AlterConfig{Op: kadm.SetConfig, Name: "no.such", Value: kadm.StringPtr("1")})
	alter(nil, kadm.AlterConfig{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: kadm.StringPtr("delete")})
	// The client asks any node, and they hear of it one after the other.
	await(t, "the changes everywhere", func() bool {
		got := get()
		return *got["retention.ms"].Value == "1000" && *got["cleanup.policy"].Value == "compact,delete" && *got["segment.bytes"].Value == "1048576"
	})
	// The older way replaces everything, but not how many replicas there are.
	if rs, err := adm.AlterTopicConfigsState(within(t), []kadm.AlterConfig{{Name: "retention.bytes", Value: kadm.StringPtr("77")}}, "c"); err != nil || rs[0].Err != nil {
		t.Fatal(err, rs)
	}
	await(t, "the defaults again", func() bool {
		got := get()
		return *got["retention.bytes"].Value == "77" && *got["retention.ms"].Value == "604800000" && *got["cleanup.policy"].Value == "delete"
	})
	if rf := nodes[0].machine.Picture().Topic("c").Configs.Replication; rf != 3 {
		t.Errorf("replication is %d now", rf)
	}
	// Tools of that time write back all that they have read.
	var all []kadm.AlterConfig
	for _, c := range get() {
		all = append(all, kadm.AlterConfig{Name: c.Key, Value: c.Value})
	}
	if rs, err := adm.AlterTopicConfigsState(within(t), all, "c"); err != nil || rs[0].Err != nil {
		t.Errorf("%d settings as they were read: %v, %v", len(all), err, rs[0].Err)
	}
	// A name that does not exist makes no topic.
	if _, err := adm.CreateTopic(within(t), 1, 1, map[string]*string{"no.such": &compact}, "bad"); !errors.Is(err, kerr.InvalidConfig) || nodes[0].machine.Picture().Topic("bad") != nil {
		t.Errorf("made with an unknown setting: %v", err)
	}
}

func kafkaTopics(t *testing.T, nodes []*testNode) {
	adm := kadm.NewClient(kafkaClient(t, nodes))
	for name, x := range map[string]struct {
		partitions int32
		rf         int16
		want       error
	}{"a": {3, 3, nil}, "b": {-1, -1, nil}, "even": {1, 2, nil}, "too-many": {1, 4, kerr.InvalidReplicationFactor}, "far-too-many": {1, 9, kerr.InvalidReplicationFactor}, "t": {1, 1, kerr.TopicAlreadyExists}, "__groups": {1, 1, kerr.InvalidTopicException}, "huge": {1 << 20, 1, kerr.InvalidPartitions}} {
		if _, err := adm.CreateTopic(within(t), x.partitions, x.rf, nil, name); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", name, err, x.want)
		}
	}
	if _, err := adm.ValidateCreateTopics(within(t), 1, 1, nil, "only-asked"); err != nil || nodes[0].machine.Picture().Topic("only-asked") != nil {
		t.Errorf("validated: %v", err)
	}
	r, err := adm.UpdatePartitions(within(t), 5, "a", "no")
	if err != nil || r["a"].Err != nil || !errors.Is(r["no"].Err, kerr.UnknownTopicOrPartition) {
		t.Errorf("%v, %v", r, err)
	}
	d, err := adm.ListTopics(within(t), "a")
	if err != nil || len(d["a"].Partitions) != 5 {
		t.Errorf("%+v, %v", d["a"], err)
	}
	for _, p := range d["a"].Partitions {
		if p.Leader < 0 || len(p.Replicas) != 3 || len(p.ISR) != 3 {
			t.Errorf("%+v", p)
		}
	}
	// By hand, on nodes that are named.
	create := kmsg.NewPtrCreateTopicsRequest()
	ids := []int32{int32(nodes[2].Identity().Node), int32(nodes[0].Identity().Node)}
	create.TimeoutMillis = 10_000
	create.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "hand", NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: ids}}}}
	if got := raw[*kmsg.CreateTopicsResponse](t, nodes[1], create).Topics[0]; got.ErrorCode != 0 {
		t.Fatalf("%+v", got)
	}
	d, err = adm.ListTopics(within(t), "hand")
	if p := d["hand"].Partitions[0]; err != nil || fmt.Sprint(p.Replicas) != fmt.Sprint(ids) {
		t.Errorf("%+v, %v", p, err)
	}
	create.Topics[0].Topic, create.Topics[0].ReplicaAssignment[0].Replicas = "nobody", []int32{12345}
	if got := raw[*kmsg.CreateTopicsResponse](t, nodes[1], create).Topics[0]; got.ErrorCode != kerr.InvalidReplicaAssignment.Code {
		t.Errorf("on a node that is not there: %+v", got)
	}
}

// Leadership goes back to the first replica when asked for, from any node.
func kafkaElectLeaders(t *testing.T, nodes []*testNode) {
	adm := kadm.NewClient(kafkaClient(t, nodes))
	if _, err := (broker{nodes[0].Node}).TransferLeader(within(t), wire.TransferLeaderRequest{Topic: "t", To: record.NoNode}); err != nil {
		t.Fatal(err)
	}
	var set kadm.TopicsSet
	set.Add("t", 0, 1)
	// Right after a change the first replica may not have caught up: then it is not available, and later it is.
	await(t, "an election that is held", func() bool {
		got, err := adm.ElectLeaders(within(t), kadm.ElectPreferredReplica, set)
		if err != nil {
			t.Fatal(err)
		}
		if !errors.Is(got["t"][1].Err, kerr.ElectionNotNeeded) {
			return false // a busy machine has moved this one too; it comes back
		}
		switch zero := got["t"][0].Err; {
		case zero == nil || errors.Is(zero, kerr.ElectionNotNeeded):
			return true
		case errors.Is(zero, kerr.PreferredLeaderNotAvailable):
			return false
		default:
			t.Fatal(zero)
			return false
		}
	})
	at, part, err := nodes[0].locate("t", 0)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the first replica to lead", func() bool { return part.View().Leader == at.Partition.Replicas[0].Node() })
}

func kafkaDiskAndCluster(t *testing.T, nodes []*testNode) {
	c := kafkaClient(t, nodes, kgo.DefaultProduceTopic("t"))
	adm := kadm.NewClient(c)
	for range 20 {
		if err := c.ProduceSync(within(t), kgo.SliceRecord(make([]byte, 1000))).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	dirs, err := adm.DescribeAllLogDirs(within(t), nil)
	if err != nil || len(dirs) != 3 {
		t.Fatalf("%+v, %v", dirs, err)
	}
	total := int64(0)
	dirs.Each(func(d kadm.DescribedLogDir) {
		d.Topics.Each(func(p kadm.DescribedLogDirPartition) {
			if p.Topic == "t" {
				total += p.Size
			}
		})
	})
	if total < 3*20*1000/50 { // compressed by the client
		t.Errorf("%d bytes", total)
	}
	meta, err := adm.BrokerMetadata(within(t))
	if err != nil || len(meta.Brokers) != 3 || meta.Cluster == "" || meta.Controller < 0 {
		t.Errorf("%+v, %v", meta, err)
	}
	self := int32(nodes[0].Identity().Node)
	rs, err := adm.DescribeBrokerConfigs(within(t), self)
	if err != nil || rs[0].Err != nil || len(rs[0].Configs) < 15 {
		t.Errorf("%+v, %v", rs, err)
	}
}

// A node that is in no cluster yet tells clients to wait, and knows of no topic that it could deny.
func TestKafka_beforeThereIsACluster(t *testing.T) {
	t.Parallel()
	n := startNode(t, 3)
	req := kmsg.NewPtrMetadataRequest()
	name := "t"
	req.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
	got := raw[*kmsg.MetadataResponse](t, n, req)
	if len(got.Brokers) != 1 || got.Brokers[0].NodeID != int32(n.Identity().Node) || got.Topics[0].ErrorCode != kerr.LeaderNotAvailable.Code {
		t.Errorf("%+v", got)
	}
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "t", NumPartitions: 1, ReplicationFactor: 1}}
	if got := raw[*kmsg.CreateTopicsResponse](t, n, create).Topics[0]; got.ErrorCode != kerr.RequestTimedOut.Code {
		t.Errorf("%+v", got)
	}
	if got := raw[*kmsg.InitProducerIDResponse](t, n, kmsg.NewPtrInitProducerIDRequest()); got.ErrorCode != kerr.CoordinatorNotAvailable.Code {
		t.Errorf("%+v", got)
	}
}

// While nobody leads, metadata says so with the last epoch, and a produce is held for about an election.
func TestKafka_noLeader(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	_, part, err := nodes[0].locate("t", 0)
	if err != nil {
		t.Fatal(err)
	}
	epoch := part.View().Epoch
	nodes[1].die()
	nodes[2].die()
	await(t, "no leader", func() bool {
		for _, mp := range nodes[0].machine.Picture().Topic("t").Partitions {
			if v := nodes[0].host.Load().Lookup(mp.Group).View(); v.Leader != record.NoNode || v.Role == partition.RoleLeader {
				return false
			}
		}
		return true
	})
	req := kmsg.NewPtrMetadataRequest()
	name := "t"
	req.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
	got := raw[*kmsg.MetadataResponse](t, nodes[0], req)
	if len(got.Brokers) != 1 {
		t.Errorf("brokers %+v", got.Brokers)
	}
	for _, p := range got.Topics[0].Partitions {
		if p.ErrorCode != kerr.LeaderNotAvailable.Code || p.Leader != -1 || p.LeaderEpoch < int32(epoch) || len(p.Replicas) != 3 || len(p.OfflineReplicas) != 2 {
			t.Errorf("%+v", p)
		}
	}
	if err := (kafkaBroker{nodes[0].Node}).Leads("t", 0); record.Code(err) != "no_leader" {
		t.Errorf("%v", err)
	}
}
