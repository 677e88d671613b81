package kafka

import (
	"encoding/binary"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func createOf(name string, partitions int32, replicas int16, settings ...string) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 10000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, replicas
	for i := 0; i < len(settings); i += 2 {
		t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: settings[i], Value: &settings[i+1]})
	}
	req.Topics = append(req.Topics, t)
	return req
}

// settled is for topics that are made and deleted: both servers do it, but not at once everywhere.
func (c *conversation) settled(name string, there bool) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
	for limit := time.Now().Add(patience); time.Now().Before(limit); time.Sleep(5 * time.Millisecond) {
		if (c.ask(req, 9).(*kmsg.MetadataResponse).Topics[0].ErrorCode == 0) == there {
			return
		}
	}
	c.fail("%s: the topic %s is still there or still not", c.server.name, name)
}

func init() {
	of(18, "plain", func(c *conversation) {
		ask := func(label, name, version string) {
			req := kmsg.NewPtrApiVersionsRequest()
			req.ClientSoftwareName, req.ClientSoftwareVersion = name, version
			resp := c.ask(req, c.version).(*kmsg.ApiVersionsResponse)
			for i := range resp.ApiKeys { // that they differ is no secret
				resp.ApiKeys[i].MinVersion, resp.ApiKeys[i].MaxVersion = 0, 0
			}
			values := c.flatten(resp)
			for path := range values {
				if strings.Contains(path, "ApiKeys[") || strings.Contains(path, "Features") {
					delete(values, path)
				}
			}
			values["ApiKeys"] = "some"
			if len(resp.ApiKeys) == 0 {
				values["ApiKeys"] = "none"
			}
			c.note(label, values)
		}
		ask("in order", "judge", "1.0")
		ask("no name", "", "1.0")
		ask("no version", "judge", "")
		ask("odd name", "a b", "1.0")
		ask("name ends with a dash", "judge-", "1.0")
		ask("version with dots", "j", "1.2.3-x")
	})
	of(18, "unknown versions", func(c *conversation) {
		unknown := func(label string, version int16) {
			req := kmsg.NewPtrApiVersionsRequest()
			req.SetVersion(4)
			req.ClientSoftwareName, req.ClientSoftwareVersion = "judge", "1"
			frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientName)).AppendRequest(nil, req, 1)
			binary.BigEndian.PutUint16(frame[6:], uint16(version))
			answer, err := c.exchange(frame)
			if err != nil {
				c.note(label, map[string]string{"": err.Error()})
				return
			}
			resp := kmsg.NewPtrApiVersionsResponse()
			values := map[string]string{"readable": "no"}
			if err := resp.ReadFrom(answer[4:]); err == nil {
				values = map[string]string{"readable": "yes", "ErrorCode": c.number("ErrorCode", int64(resp.ErrorCode)), "keys": map[bool]string{true: "some", false: "none"}[len(resp.ApiKeys) > 0]}
			}
			c.note(label, values)
		}
		unknown("version 99", 99)
		unknown("version -1", -1)
	})
	within(18, 0, 0, "what is no request", func(c *conversation) {
		head := func(key, version int16) []byte {
			b := binary.BigEndian.AppendUint16(nil, uint16(key))
			b = binary.BigEndian.AppendUint16(b, uint16(version))
			return append(binary.BigEndian.AppendUint32(b, 1), 0xff, 0xff)
		}
		c.judgeRaw("unknown key", head(999, 0))
		c.judgeRaw("negative key", head(-1, 0))
		c.judgeRaw("key of controllers", head(52, 0))
		asked := map[int16]bool{18: true}
		for _, s := range scripts {
			if name := kmsg.NameForKey(s.key); !asked[s.key] {
				asked[s.key] = true
				c.judgeRaw("newer version of "+name, head(s.key, 99))
				c.judgeRaw("negative version of "+name, head(s.key, -1))
				c.judgeRaw("no body of "+name, head(s.key, c.server.versions[s.key][1]))
			}
		}
		many := []byte{0x7f, 0xff, 0xff, 0xff}
		c.judgeRaw("a huge count of topics in Metadata", append(head(3, 1), many...))
		c.judgeRaw("a huge compact count of topics in Metadata", append(head(3, 12), 0, 0xff, 0xff, 0xff, 0xff, 7))
		c.judgeRaw("a huge count of topics in Produce", append(head(0, 3), append([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1}, many...)...))
		c.judgeRaw("a huge count of topics in Fetch", append(head(1, 4), append([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0}, many...)...))
		c.judgeRaw("a huge count of groups in DescribeGroups", append(head(15, 0), many...))
		c.judgeRaw("a huge count of topics in CreateTopics", append(head(19, 2), many...))
		c.judgeRaw("a huge string in FindCoordinator", append(head(10, 0), 0x7f, 0xff, 'x'))
		c.judgeRaw("half a header", []byte{0, 3, 0, 0})
		c.judgeRaw("nothing", nil)
	})
	of(17, "plain", func(c *conversation) {
		req := kmsg.NewPtrSASLHandshakeRequest()
		req.Mechanism = "PLAIN"
		c.judge("plain", req)
	})
	of(36, "plain", func(c *conversation) {
		req := kmsg.NewPtrSASLAuthenticateRequest()
		req.SASLAuthBytes = []byte("\x00user\x00secret")
		c.judge("plain", req)
	})
	of(19, "plain", func(c *conversation) {
		topic := c.topic
		c.judge("one partition", createOf(topic, 1, 1))
		c.judge("again", createOf(topic, 1, 1))
		c.judge("three partitions", createOf(topic+".three", 3, 1))
		only := createOf(topic+".checked", 3, 1)
		only.ValidateOnly = true
		c.judge("only checked", only)
		only = createOf(topic, 3, 1)
		only.ValidateOnly = true
		c.judge("only checked, is there", only)
		c.judge("no partitions", createOf(topic+".a", 0, 1))
		c.judge("-2 partitions", createOf(topic+".b", -2, 1))
		c.judge("default partitions", createOf(topic+".c", -1, 1))
		c.judge("no replicas", createOf(topic+".d", 1, 0))
		c.judge("default replicas", createOf(topic+".e", 1, -1))
		c.judge("too many replicas", createOf(topic+".f", 1, 4))
		c.judge("no name", createOf("", 1, 1))
		c.judge("a dot", createOf(".", 1, 1))
		c.judge("impossible name", createOf("a b", 1, 1))
		c.judge("long name", createOf(strings.Repeat("x", 250), 1, 1))
		c.judge("setting", createOf(topic+".g", 1, 1, "retention.ms", "3600000"))
		c.judge("unknown setting", createOf(topic+".h", 1, 1, "retention.sm", "3600000"))
		c.judge("impossible setting", createOf(topic+".i", 1, 1, "retention.ms", "soon"))
		c.judge("setting out of range", createOf(topic+".j", 1, 1, "retention.ms", "-5"))
		c.judge("impossible policy", createOf(topic+".k", 1, 1, "cleanup.policy", "burn"))
		null := createOf(topic+".l", 1, 1)
		null.Topics[0].Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms"}}
		c.judge("setting is null", null)
		twice := createOf(topic+".m", 1, 1)
		twice.Topics = append(twice.Topics, twice.Topics[0])
		c.judge("twice at once", twice)
		nothing := createOf(topic, 1, 1)
		nothing.Topics = nil
		c.judge("nothing", nothing)
		assign := func(label string, partitions int32, replicas int16, on ...[]int32) {
			req := createOf(topic+"."+strings.ReplaceAll(label, " ", "-"), partitions, replicas)
			for i, nodes := range on {
				req.Topics[0].ReplicaAssignment = append(req.Topics[0].ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: int32(i), Replicas: nodes})
			}
			if strings.Contains(label, "hole") {
				req.Topics[0].ReplicaAssignment[0].Partition = 3
			}
			c.judge(label, req)
		}
		node := c.server.node
		assign("assigned", -1, -1, []int32{node}, []int32{node})
		assign("assigned with counts", 2, 1, []int32{node}, []int32{node})
		assign("assigned to nobody", -1, -1, []int32{})
		assign("assigned to unknown", -1, -1, []int32{node + 7})
		assign("assigned twice", -1, -1, []int32{node, node})
		assign("assigned with a hole", -1, -1, []int32{node})
		assign("assigned unevenly", -1, -1, []int32{node}, []int32{})
	})
	of(20, "plain", func(c *conversation) {
		topic := c.makeTopic("", 1)
		drop := func(label string, names ...string) {
			req := kmsg.NewPtrDeleteTopicsRequest()
			req.TimeoutMillis, req.TopicNames = 10000, names
			if c.version >= 6 {
				req.TopicNames = nil
				for _, n := range names {
					req.Topics = append(req.Topics, kmsg.DeleteTopicsRequestTopic{Topic: &n})
				}
			}
			c.judge(label, req)
		}
		drop("unknown", topic+".none")
		drop("no name", "")
		drop("impossible name", "a b")
		drop("nothing")
		drop("twice at once", topic, topic)
		drop("known", topic)
		c.settled(topic, false)
		drop("again", topic)
		if c.version >= 6 {
			byID := kmsg.NewPtrDeleteTopicsRequest()
			byID.TimeoutMillis = 10000
			name := c.makeTopic(".id", 1)
			byID.Topics = []kmsg.DeleteTopicsRequestTopic{{TopicID: [16]byte{5}}}
			c.judge("by unknown id", byID)
			byID.Topics = []kmsg.DeleteTopicsRequestTopic{{}}
			c.judge("neither name nor id", byID)
			byID.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: &name, TopicID: c.ids[name]}}
			c.judge("by both", byID)
			byID.Topics = []kmsg.DeleteTopicsRequestTopic{{TopicID: c.ids[name]}}
			c.judge("by id", byID)
		}
	})
	of(21, "plain", func(c *conversation) {
		topic := c.makeTopic("", 2)
		c.fill(topic, 3)
		cut := func(label, topic string, partition int32, offset int64) {
			req := kmsg.NewPtrDeleteRecordsRequest()
			req.TimeoutMillis = 5000
			req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: partition, Offset: offset}}}}
			c.judge(label, req)
		}
		cut("unknown topic", topic+".none", 0, 1)
		cut("unknown partition", topic, 9, 1)
		cut("negative partition", topic, -1, 1)
		cut("nothing to delete", topic, 0, 0)
		cut("within a batch", topic, 0, 4)
		cut("what is gone already", topic, 0, 2)
		cut("beyond the end", topic, 0, 10)
		cut("-2", topic, 0, -2)
		cut("of an empty partition", topic, 1, -1)
		c.judgeIn("start after it", func() kmsg.Request {
			req := kmsg.NewPtrListOffsetsRequest()
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = topic
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Timestamp = -2
			t.Partitions = append(t.Partitions, p)
			req.Topics = append(req.Topics, t)
			return req
		}(), 5)
		c.judgeIn("fetch below it", c.fetchOf(topic, 3, 0), 11)
		c.judgeIn("fetch at it", c.fetchOf(topic, 4, 0), 11)
		cut("all", topic, 0, -1)
		cut("all again", topic, 0, -1)
		compacted := c.makeTopic(".compacted", 1, "cleanup.policy", "compact")
		cut("of a compacted topic", compacted, 0, -1)
		nothing := kmsg.NewPtrDeleteRecordsRequest()
		c.judge("nothing", nothing)
	})
	of(22, "plain", func(c *conversation) {
		id, empty := "tx", ""
		ask := func(label string, tx *string, timeout int32, producer int64, epoch int16) {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = tx, timeout, producer, epoch
			c.judge(label, req)
		}
		ask("in order", nil, 1000, -1, -1)
		ask("no timeout", nil, 0, -1, -1)
		ask("negative timeout", nil, -1, -1, -1)
		ask("empty transactional id", &empty, 1000, -1, -1)
		ask("transactional id", &id, 1000, -1, -1)
		if c.version >= 3 {
			ask("with an identity", nil, 1000, 5, 3)
			ask("without an epoch", nil, 1000, 5, -1)
			ask("without an id", nil, 1000, -1, 3)
		}
	})
	of(32, "plain", func(c *conversation) {
		topic := c.makeTopic("", 1, "retention.ms", "3600000")
		describe := func(label string, kind kmsg.ConfigResourceType, name string, names ...string) {
			req := kmsg.NewPtrDescribeConfigsRequest()
			r := kmsg.NewDescribeConfigsRequestResource()
			r.ResourceType, r.ResourceName, r.ConfigNames = kind, name, names
			req.Resources = append(req.Resources, r)
			req.IncludeSynonyms, req.IncludeDocumentation = strings.Contains(label, "all about"), strings.Contains(label, "all about")
			c.judge(label, req)
		}
		for _, name := range []string{"cleanup.policy", "compression.type", "delete.retention.ms", "max.message.bytes", "message.timestamp.type",
			"message.timestamp.before.max.ms", "message.timestamp.after.max.ms", "min.insync.replicas", "retention.bytes", "retention.ms",
			"segment.bytes", "segment.ms", "unclean.leader.election.enable", "file.delete.delay.ms", "flush.messages", "flush.ms",
			"index.interval.bytes", "max.compaction.lag.ms", "min.cleanable.dirty.ratio", "min.compaction.lag.ms", "preallocate",
			"segment.index.bytes", "segment.jitter.ms", "remote.storage.enable", "local.retention.ms", "local.retention.bytes",
			"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"} {
			describe(name, 2, topic, name)
		}
		describe("all about one that is set", 2, topic, "retention.ms")
		describe("all about one that is not set", 2, topic, "max.message.bytes")
		describe("unknown setting", 2, topic, "retention.sm")
		describe("unknown topic", 2, topic+".none")
		describe("no name", 2, "")
		describe("impossible name", 2, "a b")
		describe("unknown node", 4, "77")
		describe("node that is none", 4, "seven")
		describe("unknown kind", 99, "x")
		describe("kind 0", 0, "x")
		c.judge("nothing", kmsg.NewPtrDescribeConfigsRequest())
	})
	of(33, "plain", func(c *conversation) {
		topic := c.makeTopic("", 1, "retention.ms", "3600000")
		alter := func(label string, kind kmsg.ConfigResourceType, name string, settings ...string) {
			req := kmsg.NewPtrAlterConfigsRequest()
			r := kmsg.NewAlterConfigsRequestResource()
			r.ResourceType, r.ResourceName = kind, name
			for i := 0; i < len(settings); i += 2 {
				r.Configs = append(r.Configs, kmsg.AlterConfigsRequestResourceConfig{Name: settings[i], Value: &settings[i+1]})
			}
			req.Resources = append(req.Resources, r)
			req.ValidateOnly = strings.Contains(label, "checked")
			c.judge(label, req)
		}
		alter("only checked", 2, topic, "retention.ms", "5000")
		alter("one setting", 2, topic, "max.message.bytes", "2000")
		alter("two settings", 2, topic, "max.message.bytes", "2000", "retention.ms", "60000")
		alter("none", 2, topic)
		alter("unknown setting", 2, topic, "retention.sm", "1")
		alter("impossible setting", 2, topic, "retention.ms", "soon")
		alter("unknown topic", 2, topic+".none", "retention.ms", "60000")
		alter("no name", 2, "", "retention.ms", "60000")
		alter("impossible name", 2, "a b", "retention.ms", "60000")
		alter("same setting twice", 2, topic, "retention.ms", "60000", "retention.ms", "70000")
		alter("unknown kind", 99, "x")
		null := kmsg.NewPtrAlterConfigsRequest()
		null.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: 2, ResourceName: topic, Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: "retention.ms"}}}}
		c.judge("null", null)
		c.judge("nothing", kmsg.NewPtrAlterConfigsRequest())
	})
	of(44, "plain", func(c *conversation) {
		topic := c.makeTopic("", 1, "retention.ms", "3600000")
		alter := func(label, name string, op kmsg.IncrementalAlterConfigOp, setting string, value *string) {
			req := kmsg.NewPtrIncrementalAlterConfigsRequest()
			r := kmsg.NewIncrementalAlterConfigsRequestResource()
			r.ResourceType, r.ResourceName = 2, name
			r.Configs = append(r.Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: setting, Op: op, Value: value})
			if strings.Contains(label, "twice") {
				r.Configs = append(r.Configs, r.Configs[0])
			}
			req.Resources = append(req.Resources, r)
			req.ValidateOnly = strings.Contains(label, "checked")
			c.judge(label, req)
		}
		s := func(v string) *string { return &v }
		alter("only checked", topic, 0, "retention.ms", s("60000"))
		alter("set", topic, 0, "retention.ms", s("60000"))
		alter("unset", topic, 1, "retention.ms", nil)
		alter("unset again", topic, 1, "retention.ms", nil)
		alter("unset with a value", topic, 1, "retention.ms", s("1"))
		alter("add to a list", topic, 2, "cleanup.policy", s("compact"))
		alter("take from a list", topic, 3, "cleanup.policy", s("compact"))
		alter("add to a number", topic, 2, "retention.ms", s("1"))
		alter("take from a number", topic, 3, "retention.ms", s("1"))
		alter("unknown operation", topic, 9, "retention.ms", s("1"))
		alter("unknown setting", topic, 0, "retention.sm", s("1"))
		alter("unset unknown setting", topic, 1, "retention.sm", nil)
		alter("impossible value", topic, 0, "retention.ms", s("soon"))
		alter("null", topic, 0, "retention.ms", nil)
		alter("twice", topic, 0, "retention.ms", s("60000"))
		alter("unknown topic", topic+".none", 0, "retention.ms", s("60000"))
		alter("no name", "", 0, "retention.ms", s("60000"))
		alter("impossible name", "a b", 0, "retention.ms", s("60000"))
		same := kmsg.NewPtrIncrementalAlterConfigsRequest()
		r := kmsg.IncrementalAlterConfigsRequestResource{ResourceType: 2, ResourceName: topic}
		same.Resources = append(same.Resources, r, r)
		c.judge("same topic in two places", same)
		c.judge("nothing", kmsg.NewPtrIncrementalAlterConfigsRequest())
	})
	of(35, "plain", func(c *conversation) {
		topic := c.makeTopic("", 2)
		c.fill(topic, 1)
		ask := func(label, topic string, partitions ...int32) {
			req := kmsg.NewPtrDescribeLogDirsRequest()
			req.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: topic, Partitions: partitions}}
			c.judge(label, req)
		}
		ask("one partition", topic, 0)
		ask("unknown topic", topic+".none", 0)
		ask("unknown partition", topic, 9)
		none := kmsg.NewPtrDescribeLogDirsRequest()
		none.Topics = []kmsg.DescribeLogDirsRequestTopic{}
		c.judge("none", none)
	})
	of(37, "plain", func(c *conversation) {
		topic := c.makeTopic("", 2)
		add := func(label, name string, count int32, on ...[]int32) {
			req := kmsg.NewPtrCreatePartitionsRequest()
			req.TimeoutMillis = 10000
			t := kmsg.NewCreatePartitionsRequestTopic()
			t.Topic, t.Count = name, count
			for _, nodes := range on {
				t.Assignment = append(t.Assignment, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: nodes})
			}
			req.Topics = append(req.Topics, t)
			if strings.Contains(label, "two places") {
				req.Topics = append(req.Topics, t)
			}
			req.ValidateOnly = strings.Contains(label, "checked")
			c.judge(label, req)
		}
		node := c.server.node
		add("unknown topic", topic+".none", 3)
		add("no name", "", 3)
		add("as many", topic, 2)
		add("fewer", topic, 1)
		add("none", topic, 0)
		add("-1", topic, -1)
		add("only checked", topic, 3)
		add("one more", topic, 3)
		add("assigned", topic, 4, []int32{node})
		add("assigned to unknown", topic, 5, []int32{node + 7})
		add("assigned to nobody", topic, 5, []int32{})
		add("assigned too few", topic, 7, []int32{node})
		add("assigned twice", topic, 5, []int32{node, node})
		add("two places", topic, 6)
		c.judge("nothing", kmsg.NewPtrCreatePartitionsRequest())
	})
	of(43, "plain", func(c *conversation) {
		topic := c.makeTopic("", 1)
		elect := func(label string, kind int8, name string, partitions ...int32) {
			req := kmsg.NewPtrElectLeadersRequest()
			req.TimeoutMillis, req.ElectionType = 5000, kind
			req.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: name, Partitions: partitions}}
			c.judge(label, req)
		}
		elect("not needed", 0, topic, 0)
		elect("not needed, unclean", 1, topic, 0)
		elect("unknown type", 9, topic, 0)
		elect("unknown topic", 0, topic+".none", 0)
		elect("unknown partition", 0, topic, 9)
		elect("no partition", 0, topic)
		all := kmsg.NewPtrElectLeadersRequest()
		all.TimeoutMillis = 5000
		c.judge("all", all)
	})
	of(46, "plain", func(c *conversation) {
		topic := c.makeTopic("", 1)
		ask := func(label string, topics []kmsg.ListPartitionReassignmentsRequestTopic) {
			req := kmsg.NewPtrListPartitionReassignmentsRequest()
			req.Topics = topics
			c.judge(label, req)
		}
		ask("all", nil)
		ask("none", []kmsg.ListPartitionReassignmentsRequestTopic{})
		ask("one", []kmsg.ListPartitionReassignmentsRequestTopic{{Topic: topic, Partitions: []int32{0}}})
		ask("unknown topic", []kmsg.ListPartitionReassignmentsRequestTopic{{Topic: topic + ".none", Partitions: []int32{0}}})
	})
	of(60, "plain", func(c *conversation) {
		req := kmsg.NewPtrDescribeClusterRequest()
		c.judge("in order", req)
		req.IncludeClusterAuthorizedOperations = true
		c.judge("operations", req)
		if c.version >= 1 {
			req.EndpointType = 2
			c.judge("controllers", req)
			req.EndpointType = 9
			c.judge("unknown type", req)
		}
	})
}
