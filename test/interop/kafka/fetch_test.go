package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchOf asks for partitions of a topic from an offset on, by name and by id, whichever the version has.
func (c *conversation) fetchOf(topic string, from int64, partitions ...int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 0, 1, 1<<20, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = topic, c.ids[topic]
	for _, n := range partitions {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = n, from, 1<<20, -1
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return req
}

func init() {
	of(1, "plain", func(c *conversation) {
		topic := c.makeTopic("", 2)
		c.judge("empty partition", c.fetchOf(topic, 0, 0))
		c.fill(topic, 3)
		c.judge("from the start", c.fetchOf(topic, 0, 0))
		c.judge("within a batch", c.fetchOf(topic, 4, 0))
		c.judge("last record", c.fetchOf(topic, 8, 0))
		c.judge("the end", c.fetchOf(topic, 9, 0))
		c.judge("beyond the end", c.fetchOf(topic, 10, 0))
		c.judge("far beyond", c.fetchOf(topic, 1<<40, 0))
		c.judge("offset -1", c.fetchOf(topic, -1, 0))
		c.judge("two partitions", c.fetchOf(topic, 0, 0, 1))
		committed := c.fetchOf(topic, 0, 0)
		committed.IsolationLevel = 1
		c.judge("committed only", committed)
		odd := c.fetchOf(topic, 0, 0)
		odd.IsolationLevel = 9
		c.judge("unknown isolation", odd)
		waits := c.fetchOf(topic, 9, 0)
		waits.MaxWaitMillis = 50
		c.judge("waiting for nothing", waits)
		more := c.fetchOf(topic, 0, 0)
		more.MaxWaitMillis, more.MinBytes = 50, 1<<20
		c.judge("waiting for more", more)
	})
	of(1, "limits", func(c *conversation) {
		topic := c.makeTopic("", 1)
		c.fill(topic, 3)
		one := c.fetchOf(topic, 0, 0)
		one.Topics[0].Partitions[0].PartitionMaxBytes = 1
		c.judge("partition of one byte", one)
		one = c.fetchOf(topic, 0, 0)
		one.MaxBytes = 1
		c.judge("answer of one byte", one)
		zero := c.fetchOf(topic, 0, 0)
		zero.MaxBytes, zero.Topics[0].Partitions[0].PartitionMaxBytes = 0, 0
		c.judge("no bytes", zero)
		negative := c.fetchOf(topic, 0, 0)
		negative.MaxBytes, negative.Topics[0].Partitions[0].PartitionMaxBytes = -1, -1
		c.judge("negative bytes", negative)
		negative = c.fetchOf(topic, 0, 0)
		negative.MaxWaitMillis, negative.MinBytes = -1, -1
		c.judge("negative wait", negative)
	})
	of(1, "where nothing is", func(c *conversation) {
		topic := c.makeTopic("", 1)
		c.ids[topic+".none"] = [16]byte{1, 2, 3}
		c.said["01020300000000000000000000000000"] = "id of nothing"
		c.judge("unknown topic", c.fetchOf(topic+".none", 0, 0))
		c.judge("topic without a name", c.fetchOf("", 0, 0))
		c.judge("unknown partition", c.fetchOf(topic, 0, 5))
		c.judge("negative partition", c.fetchOf(topic, 0, -1))
		c.judge("known and unknown", c.fetchOf(topic, 0, 0, 5))
		nothing := c.fetchOf(topic, 0)
		c.judge("no partition", nothing)
		nothing = c.fetchOf(topic, 0)
		nothing.Topics = nil
		nothing.MaxWaitMillis = 100
		c.judge("nothing", nothing)
	})
	of(1, "epochs", func(c *conversation) {
		topic := c.makeTopic("", 1)
		c.fill(topic, 1)
		with := func(label string, epoch int32) {
			req := c.fetchOf(topic, 0, 0)
			req.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
			c.judge(label, req)
		}
		with("this epoch", c.epochs[topic])
		with("newer epoch", c.epochs[topic]+1)
		with("epoch -2", -2)
		req := c.fetchOf(topic, 0, 0)
		req.Topics[0].Partitions[0].LastFetchedEpoch = c.epochs[topic]
		c.judge("last fetched epoch", req)
		req = c.fetchOf(topic, 0, 0)
		req.Topics[0].Partitions[0].LastFetchedEpoch = c.epochs[topic] + 5
		c.judge("last fetched epoch is newer", req)
	})
	of(1, "replicas", func(c *conversation) {
		topic := c.makeTopic("", 1)
		c.fill(topic, 1)
		req := c.fetchOf(topic, 0, 0)
		req.ReplicaID, req.ReplicaState.ID = -2, -2
		c.judge("debugging consumer", req)
		req = c.fetchOf(topic, 0, 0)
		req.Rack = "cellar"
		c.judge("rack", req)
	})
	of(1, "sessions", func(c *conversation) {
		topic := c.makeTopic("", 1)
		c.fill(topic, 1)
		session := func(label string, id, epoch int32) {
			req := c.fetchOf(topic, 0, 0)
			req.SessionID, req.SessionEpoch = id, epoch
			c.judge(label, req)
		}
		session("none", 0, -1)
		session("none, as kafka-go says it", -1, -1)
		session("a new one", 0, 0)
		session("unknown", 12345, 1)
		session("unknown, to be closed", 12345, -1)
		session("unknown, to begin again", 12345, 0)
		session("no id, but an epoch", 0, 5)
	})
	of(2, "plain", func(c *conversation) {
		topic := c.makeTopic("", 2)
		at := func(label, topic string, partition int32, time int64, epoch int32) {
			req := kmsg.NewPtrListOffsetsRequest()
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = topic
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, time, epoch
			t.Partitions = append(t.Partitions, p)
			req.Topics = append(req.Topics, t)
			c.judge(label, req)
		}
		at("empty, end", topic, 0, -1, -1)
		at("empty, start", topic, 0, -2, -1)
		at("empty, largest time", topic, 0, -3, -1)
		at("empty, time 0", topic, 0, 0, -1)
		c.fill(topic, 3)
		at("end", topic, 0, -1, -1)
		at("start", topic, 0, -2, -1)
		at("largest time", topic, 0, -3, -1)
		at("local start", topic, 0, -4, -1)
		at("tiered end", topic, 0, -5, -1)
		at("-6", topic, 0, -6, -1)
		at("-7", topic, 0, -7, -1)
		at("time 0", topic, 0, 0, -1)
		at("time of the second record", topic, 0, 1001, -1)
		at("time of the third record", topic, 0, 1002, -1)
		at("after all", topic, 0, 1003, -1)
		at("largest number", topic, 0, 1<<62, -1)
		at("unknown topic", topic+".none", 0, -1, -1)
		at("no name", "", 0, -1, -1)
		at("impossible name", "a b", 0, -1, -1)
		at("unknown partition", topic, 9, -1, -1)
		at("negative partition", topic, -1, -1, -1)
		at("this epoch", topic, 0, -1, c.epochs[topic])
		at("newer epoch", topic, 0, -1, c.epochs[topic]+1)
		at("epoch -2", topic, 0, -1, -2)
		twice := kmsg.NewPtrListOffsetsRequest()
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = topic
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Timestamp = -1
		t.Partitions = append(t.Partitions, p, p)
		twice.Topics = append(twice.Topics, t)
		c.judge("twice", twice)
		c.judge("nothing", kmsg.NewPtrListOffsetsRequest())
		committed := kmsg.NewPtrListOffsetsRequest()
		t.Partitions = t.Partitions[:1]
		committed.Topics, committed.IsolationLevel = append(committed.Topics, t), 1
		c.judge("committed only", committed)
		replica := kmsg.NewPtrListOffsetsRequest()
		replica.Topics, replica.ReplicaID = append(replica.Topics, t), -2
		c.judge("debugging consumer", replica)
	})
	of(23, "plain", func(c *conversation) {
		topic := c.makeTopic("", 1)
		ask := func(label, topic string, partition, current, epoch int32) {
			req := kmsg.NewPtrOffsetForLeaderEpochRequest()
			t := kmsg.NewOffsetForLeaderEpochRequestTopic()
			t.Topic = topic
			p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = partition, current, epoch
			t.Partitions = append(t.Partitions, p)
			req.Topics = append(req.Topics, t)
			c.judge(label, req)
		}
		now := c.epochs[topic]
		ask("empty, this epoch", topic, 0, -1, now)
		c.fill(topic, 2)
		ask("this epoch", topic, 0, -1, now)
		ask("this epoch, known", topic, 0, now, now)
		ask("no epoch", topic, 0, -1, -1)
		ask("epoch -2", topic, 0, -1, -2)
		ask("newer epoch", topic, 0, -1, now+3)
		ask("current is newer", topic, 0, now+1, now)
		ask("unknown topic", topic+".none", 0, -1, now)
		ask("unknown partition", topic, 4, -1, now)
		ask("negative partition", topic, -4, -1, now)
		c.judge("nothing", kmsg.NewPtrOffsetForLeaderEpochRequest())
	})
}
