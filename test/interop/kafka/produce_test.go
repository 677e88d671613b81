package kafka

import (
	"encoding/binary"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func produceOf(topic string, partition int32, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 5000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, records
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

// producerID asks for an identity.
func (c *conversation) producerID() int64 {
	return c.ask(kmsg.NewPtrInitProducerIDRequest(), 1).(*kmsg.InitProducerIDResponse).ProducerID
}

// fill produces a batch of three records so many times.
func (c *conversation) fill(topic string, times int) {
	for range times {
		resp := c.ask(produceOf(topic, 0, batchOf()), 7).(*kmsg.ProduceResponse)
		if code := resp.Topics[0].Partitions[0].ErrorCode; code != 0 {
			c.fail("%s: producing is answered with %d", c.server.name, code)
		}
	}
}

func init() {
	within(0, 0, 2, "old versions", func(c *conversation) {
		c.judge("message set", produceOf(c.makeTopic("", 1), 0, oldSet(1)))
	})
	within(0, 3, 99, "plain", func(c *conversation) {
		topic := c.makeTopic("", 2)
		c.judge("first batch", produceOf(topic, 0, batchOf()))
		c.judge("second batch", produceOf(topic, 0, batchOf()))
		c.judge("gzip", produceOf(topic, 0, batchOf(gzipped)))
		leader := produceOf(topic, 0, batchOf())
		leader.Acks = 1
		c.judge("acks=1", leader)
		none := produceOf(topic, 0, batchOf())
		none.Acks = 0
		c.judgeSilence("acks=0", none)
		two := produceOf(topic, 0, batchOf())
		two.Topics[0].Partitions = append(two.Topics[0].Partitions, kmsg.ProduceRequestTopicPartition{Partition: 1, Records: batchOf()})
		c.judge("two partitions", two)
		zero := produceOf(topic, 0, batchOf())
		zero.TimeoutMillis = 0
		c.judge("no time", zero)
	})
	within(0, 3, 99, "where nothing is", func(c *conversation) {
		topic := c.makeTopic("", 1)
		c.judge("unknown topic", produceOf(topic+".none", 0, batchOf()))
		c.judge("unknown partition", produceOf(topic, 7, batchOf()))
		c.judge("negative partition", produceOf(topic, -1, batchOf()))
		c.judge("no name", produceOf("", 0, batchOf()))
		c.judge("impossible name", produceOf("a b", 0, batchOf()))
		c.judge("long name", produceOf(strings.Repeat("x", 300), 0, batchOf()))
		c.judge("internal topic", produceOf("__consumer_offsets", 0, batchOf()))
		nothing := produceOf(topic, 0, nil)
		nothing.Topics = nil
		c.judge("nothing", nothing)
		noPartition := produceOf(topic, 0, nil)
		noPartition.Topics[0].Partitions = nil
		c.judge("no partition", noPartition)
		none := produceOf(topic+".none", 0, batchOf())
		none.Acks = 0
		c.judgeSilence("unknown topic and acks=0", none)
		c.judge("unknown topic and a broken batch", produceOf(topic+".none", 0, []byte("x")))
	})
	within(0, 3, 99, "acks", func(c *conversation) {
		topic := c.makeTopic("", 1)
		for _, acks := range []int16{2, -2, 32767} {
			req := produceOf(topic, 0, batchOf())
			req.Acks = acks
			c.judge("acks="+string(rune('A'+acks&7)), req)
		}
		unknown := produceOf(topic+".none", 0, batchOf())
		unknown.Acks = 5
		c.judge("acks=5 and an unknown topic", unknown)
	})
	within(0, 3, 99, "transactions", func(c *conversation) {
		topic, id, empty := c.makeTopic("", 1), "tx", ""
		req := produceOf(topic, 0, batchOf())
		req.TransactionID = &id
		c.judge("transactional id, plain batch", req)
		req = produceOf(topic, 0, batchOf())
		req.TransactionID = &empty
		c.judge("empty transactional id", req)
		c.judge("transactional batch", produceOf(topic, 0, batchOf(from(c.producerID(), 0, 0), attributes(0x10))))
	})
	within(0, 3, 99, "broken batches", func(c *conversation) {
		topic := c.makeTopic("", 1)
		send := func(label string, records []byte) {
			c.offsetsFrom = c.end(topic)
			c.judge(label, produceOf(topic, 0, records))
		}
		change := func(label string, change func(b []byte) []byte) { send(label, change(batchOf())) }
		set32 := func(at int, v uint32, sum bool) func([]byte) []byte {
			return func(b []byte) []byte {
				binary.BigEndian.PutUint32(b[at:], v)
				if sum {
					b = checksummed(b)
				}
				return b
			}
		}
		send("empty", []byte{})
		change("bad checksum", func(b []byte) []byte { b[17] ^= 1; return b })
		change("damaged value", func(b []byte) []byte { b[len(b)-2] ^= 1; return b })
		change("cut short", func(b []byte) []byte { return b[:len(b)-1] })
		change("cut in the header", func(b []byte) []byte { return b[:30] })
		change("cut before the magic", func(b []byte) []byte { return b[:16] })
		change("one byte", func(b []byte) []byte { return b[:1] })
		change("a byte too many", func(b []byte) []byte { return append(b, 0) })
		change("two batches", func(b []byte) []byte { return append(b, b...) })
		change("length 0", set32(8, 0, false))
		change("length too small", set32(8, 40, false))
		change("length too large", set32(8, 1000, false))
		change("length huge", set32(8, 0x7fffffff, false))
		change("length negative", set32(8, 0xffffffff, false))
		change("magic 3", func(b []byte) []byte { b[16] = 3; return b })
		change("magic -1", func(b []byte) []byte { b[16] = 255; return b })
		send("magic 0", oldSet(0))
		send("magic 1", oldSet(1))
		change("base offset 5", func(b []byte) []byte { b[7] = 5; return b })
		change("leader epoch 9", set32(12, 9, false))
		change("count 0", set32(57, 0, true))
		change("count too small", set32(57, 2, true))
		change("count too large", set32(57, 4, true))
		change("count huge", set32(57, 0x7fffffff, true))
		change("count negative", set32(57, 0xffffffff, true))
		change("last offset delta too small", set32(23, 1, true))
		change("last offset delta too large", set32(23, 3, true))
		change("last offset delta negative", set32(23, 0xffffffff, true))
		send("no records", batchWith(nil))
		send("gzip that is none", batchOf(attributes(1)))
		send("snappy that is none", batchOf(attributes(2)))
		send("lz4 that is none", batchOf(attributes(3)))
		send("zstd that is none", batchOf(attributes(4)))
		send("codec 5", batchOf(attributes(5)))
		send("codec 7", batchOf(attributes(7)))
		send("log append time", batchOf(attributes(0x08)))
		send("control batch", batchOf(attributes(0x20)))
		send("delete horizon", batchOf(attributes(0x40)))
		send("unknown attribute", batchOf(attributes(0x100)))
		send("records that are none", batchOf(func(b *kmsg.RecordBatch) { b.Records = []byte("xyz") }))
		send("bytes after the records", batchOf(func(b *kmsg.RecordBatch) { b.Records = append(b.Records, 1, 2, 3) }))
		send("offset deltas from 1 on", batchOf(func(b *kmsg.RecordBatch) { b.Records[3]++ }))
		c.offsetsFrom = c.end(topic)
		c.judge("a broken batch and a sound one", func() kmsg.Request {
			req := produceOf(topic, 0, batchOf())
			bad := batchOf()
			bad[17] ^= 1
			other := produceOf(c.makeTopic(".other", 1), 0, bad)
			req.Topics = append(req.Topics, other.Topics...)
			return req
		}())
		none := produceOf(topic, 0, batchOf()[:20])
		none.Acks = 0
		c.judgeSilence("a broken batch and acks=0", none)
	})
	within(0, 3, 99, "times", func(c *conversation) {
		topic := c.makeTopic("", 1)
		at := func(first, last int64) func(*kmsg.RecordBatch) {
			return func(b *kmsg.RecordBatch) { b.FirstTimestamp, b.MaxTimestamp = first, last }
		}
		c.judge("negative", produceOf(topic, 0, batchOf(at(-5, -3))))
		c.judge("none", produceOf(topic, 0, batchOf(at(-1, -1))))
		c.judge("in 10 years", produceOf(topic, 0, batchOf(at(2_100_000_000_000, 2_100_000_000_002))))
		c.judge("largest one is not true", produceOf(topic, 0, batchOf(at(1000, 5000))))
		append_ := c.makeTopic(".append", 1, "message.timestamp.type", "LogAppendTime")
		c.judge("topic with append time", produceOf(append_, 0, batchOf()))
		c.judge("topic with append time, future", produceOf(append_, 0, batchOf(at(2_100_000_000_000, 2_100_000_000_002))))
		limited := c.makeTopic(".limited", 1, "message.timestamp.before.max.ms", "60000", "message.timestamp.after.max.ms", "60000")
		c.judge("topic with limits, past", produceOf(limited, 0, batchOf()))
		c.judge("topic with limits, future", produceOf(limited, 0, batchOf(at(2_100_000_000_000, 2_100_000_000_002))))
	})
	within(0, 3, 99, "size", func(c *conversation) {
		topic := c.makeTopic("", 1, "max.message.bytes", "2000")
		c.judge("below", produceOf(topic, 0, batchWith([]rec{{value: strings.Repeat("x", 1900)}})))
		c.judge("above", produceOf(topic, 0, batchWith([]rec{{value: strings.Repeat("x", 2000)}})))
		c.judge("compressed below", produceOf(topic, 0, batchWith([]rec{{value: strings.Repeat("x", 20000)}}, gzipped)))
	})
	within(0, 3, 99, "compacted topic", func(c *conversation) {
		topic := c.makeTopic("", 1, "cleanup.policy", "compact")
		c.judge("keys", produceOf(topic, 0, batchWith([]rec{{key: "k", value: "a"}, {key: "l", value: "b"}})))
		c.judge("no key", produceOf(topic, 0, batchOf()))
		c.judge("one without a key", produceOf(topic, 0, batchWith([]rec{{key: "k", value: "a"}, {value: "b"}})))
		c.judge("no key, gzip", produceOf(topic, 0, batchOf(gzipped)))
	})
	within(0, 3, 99, "idempotence", func(c *conversation) {
		topic, id := c.makeTopic("", 2), c.producerID()
		send := func(label string, producer int64, epoch int16, sequence int32) {
			c.judge(label, produceOf(topic, 0, batchOf(from(producer, epoch, sequence))))
		}
		send("first", id, 0, 0)
		send("first again", id, 0, 0)
		send("gap", id, 0, 4)
		send("second", id, 0, 3)
		send("third", id, 0, 6)
		send("second again", id, 0, 3)
		send("overlapping", id, 0, 7)
		for _, s := range []int32{9, 12, 15, 18} {
			send("next "+string(rune('a'+s)), id, 0, s)
		}
		send("older than five", id, 0, 0)
		send("five ago", id, 0, 6)
		send("higher epoch, not from 0", id, 2, 3)
		send("higher epoch", id, 2, 0)
		send("older epoch", id, 1, 0)
		send("older epoch, duplicate", id, 0, 18)
		send("unknown producer from 0", id+1000, 0, 0)
		send("unknown producer not from 0", id+2000, 0, 7)
		send("unknown producer, continued", id+2000, 0, 10)
		send("unknown producer, what was before", id+2000, 0, 4)
		send("unknown producer, what was first", id+2000, 0, 0)
		send("no sequence", id, 3, -1)
		send("up to the wrap", id+4000, 0, 2147483645)
		send("after the wrap", id+4000, 0, 0)
		send("across the wrap", id+5000, 0, 2147483646)
		send("after it", id+5000, 0, 1)
		send("no epoch", id+3000, -1, 0)
		send("negative producer with sequence", -5, 0, 0)
		c.judge("duplicate with other records", produceOf(topic, 1, batchOf(from(id, 0, 0))))
		c.judge("of it", produceOf(topic, 1, batchWith([]rec{{value: "x"}, {value: "y"}, {value: "z"}}, from(id, 0, 0))))
		c.judge("one more record than the duplicate", produceOf(topic, 1, batchWith([]rec{{value: "x"}, {value: "y"}, {value: "z"}, {value: "w"}}, from(id, 0, 0))))
	})
}
