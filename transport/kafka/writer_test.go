package kafka

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The answer of a fetch is written around its batches: on the wire it is as kmsg makes it, in each version.
func TestEncode_fetchIsAsKmsgHasIt(t *testing.T) {
	answer := func(version int16) *kmsg.FetchResponse {
		resp := kmsg.NewPtrFetchResponse()
		resp.Version, resp.ThrottleMillis = version, 3
		for i := range 3 {
			topic := kmsg.NewFetchResponseTopic()
			topic.Topic, topic.TopicID = fmt.Sprint("topic-", i), [16]byte{1, byte(i)}
			for j := range i + 1 {
				p := kmsg.NewFetchResponseTopicPartition()
				p.Partition, p.HighWatermark, p.LastStableOffset, p.LogStartOffset = int32(j), 300, 200, 100
				p.RecordBatches = bytes.Repeat([]byte{byte(10*i + j)}, 150*j) // an empty one among them
				switch j {
				case 1:
					p.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
				case 2:
					p.ErrorCode, p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = 6, 7, 8
				}
				topic.Partitions = append(topic.Partitions, p)
			}
			resp.Topics = append(resp.Topics, topic)
		}
		resp.Brokers = []kmsg.FetchResponseBroker{{NodeID: 7, Host: "host", Port: 9092}}
		return resp
	}
	for version := apis[1].min; version <= apis[1].max; version++ {
		var out output
		for range 2 { // what is gathered before stays as it is
			(&call{key: 1, version: version, correlation: 5, answer: answer(version)}).encode(&out)
		}
		want := answer(version).AppendTo(nil)
		head := []byte{0, 0, 0, 0, 0, 0, 0, 5}
		if version >= 12 {
			head = append(head, 0)
		}
		one := append(head, want...)
		one[2], one[3] = byte((len(one)-4)>>8), byte(len(one)-4)
		size := out.size()
		if got := bytes.Join(out.take(), nil); !bytes.Equal(got, append(one[:len(one):len(one)], one...)) || size != len(got) || out.size() != 0 {
			t.Errorf("version %d: %d bytes\n%x, twice the %d bytes\n%x", version, size, got, len(one), one)
		}
	}
}
