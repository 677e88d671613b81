package node

import (
	"testing"
	"time"

	"edged/transport/kafka"
	"edged/transport/wire"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Some clients put into one request all that waits for a node: franz-go up to 100 MiB, a batch of 1 MB for
// each partition. On a small device that is more than there is memory for; it is taken all the same.
func TestKafka_aRequestLargerThanTheMemory(t *testing.T) {
	t.Parallel()
	const partitions, each, size = 100, 50, 16 << 10 // 80 MB
	nodes := startClusterWith(t, 1, func(cfg *Config, _ *Options) { cfg.MemoryLimit = "64MiB" })
	if _, err := (broker{nodes[0].Node}).CreateTopic(t.Context(), wire.CreateTopicRequest{Name: "wide", Partitions: partitions}); err != nil {
		t.Fatal(err)
	}
	c := kafkaClient(t, nodes, kgo.DefaultProduceTopic("wide"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ManualFlushing(),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.RecordDeliveryTimeout(20*time.Second))
	value := make([]byte, size)
	for i := range partitions * each {
		c.Produce(t.Context(), &kgo.Record{Partition: int32(i % partitions), Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := c.Flush(within(t)); err != nil {
		t.Error(err)
	}
	if m := nodes[0].kafka.server.Metrics(); m.BadRequests[kafka.BadLength] > 0 || m.BytesIn < partitions*each*size {
		t.Errorf("%+v", m)
	}
}
