//go:build linux

package interop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"edged/test/interop/driver"
)

// codecsPass sends records in each codec through a node that does not lead, looks at the log that
// they are kept as the client compressed them, and has the client read them through the other one.
func (j *judge) codecsPass(t *testing.T, c *cluster) string {
	c.t = t
	c.createTopic("codecs", 1)
	leader := c.leader("codecs", 0)
	var others []string
	for _, n := range c.nodes {
		if n != leader {
			others = append(others, n.addr.Kafka)
		}
	}
	const each = 30
	var sent []string
	for number, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		if !slices.Contains(j.codecs, codec) {
			continue
		}
		from := c.ends("codecs")[0]
		p := j.produce(t, others[0], "codecs", driver.Default, codec, codec)
		p.send(each)
		p.allAcked()
		sent = append(sent, p.sent...)
		eventually(t, codec+": all records are kept", func() error { // some clients ask for acks=1
			if to := c.ends("codecs")[0]; to != from+each {
				return fmt.Errorf("%d records, not %d", to-from, each)
			}
			return nil
		})
		if got, err := c.codecAt("codecs", from); err != nil || got != number {
			t.Errorf("%s: the batch is kept with codec %d (%v)", codec, got, err)
		}
	}
	group := "codecs"
	if j.alone {
		group = driver.NoGroup
	}
	reader := j.run(t, "consume", others[1], "codecs", group)
	reader.gets(sent)
	reader.finish()
	if len(reader.errors) > 0 {
		t.Errorf("the consumer was told: %q", reader.errors)
	}
	for name, times := range consumed(reader) {
		if times != 1 {
			t.Errorf("%s was read %d times", name, times)
		}
	}
	return fmt.Sprintf("%s, %d records each", strings.Join(j.codecs, " "), each)
}

// gets waits until all of these records have arrived.
func (p *program) gets(ids []string) {
	p.t.Helper()
	if err := awaitConsumed(ids, p); err != nil {
		p.t.Fatal(err)
	}
}

func awaitConsumed(ids []string, consumers ...*program) error {
	return await(patience, func() error {
		got, missing := consumed(consumers...), 0
		first := ""
		for _, name := range ids {
			if got[name] == 0 {
				if missing++; missing == 1 {
					first = name
				}
			}
		}
		if missing > 0 {
			return fmt.Errorf("%d of %d records have not been read, the first is %s", missing, len(ids), first)
		}
		return nil
	})
}

// codecAt is the codec of the batch at an offset of partition 0, as it is kept.
func (c *cluster) codecAt(topic string, offset int64) (int, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
	defer cancel()
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.MinBytes, req.MaxWaitMillis = 1<<20, 1, 5000
	part := kmsg.NewFetchRequestTopicPartition()
	part.FetchOffset, part.PartitionMaxBytes = offset, 1<<20
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.Partitions = topic, []kmsg.FetchRequestTopicPartition{part}
	req.Topics = []kmsg.FetchRequestTopic{rt}
	req.Version = 12
	// The name is asked, not the id: the answer is read by hand.
	leader := c.leader(topic, 0)
	cl, err := kgo.NewClient(kgo.SeedBrokers(leader.addr.Kafka), kgo.MaxVersions(maxFetch12()))
	if err != nil {
		return -1, err
	}
	defer cl.Close()
	raw, err := cl.Broker(int(leader.addr.NodeID)).RetriableRequest(ctx, req)
	if err != nil {
		return -1, err
	}
	got := raw.(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		return -1, err
	}
	var batch kmsg.RecordBatch
	if err := batch.ReadFrom(got.RecordBatches); err != nil && err != kbin.ErrNotEnoughData {
		return -1, err
	}
	return int(batch.Attributes & 7), nil
}

// maxFetch12 keeps requests to versions in which topics go by their names.
func maxFetch12() *kversion.Versions {
	v := kversion.Stable()
	v.SetMaxKeyVersion(1, 12)
	return v
}
