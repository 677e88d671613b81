package kafka

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

// codeOf is the number of an error, 0 for nil.
func codeOf(e *kerr.Error) int16 {
	if e == nil {
		return 0
	}
	return e.Code
}

func TestCreateTopics(t *testing.T) {
	value := "1000"
	assign := func(parts ...[]int32) (out []kmsg.CreateTopicsRequestTopicReplicaAssignment) {
		for i, p := range parts {
			out = append(out, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: int32(i), Replicas: p})
		}
		return out
	}
	hole := assign([]int32{7}, []int32{7})
	hole[1].Partition = 2
	for _, x := range []struct {
		name    string
		version int16
		topic   kmsg.CreateTopicsRequestTopic
		want    *kerr.Error
	}{
		{"plain", 0, kmsg.CreateTopicsRequestTopic{Topic: "a", NumPartitions: 2, ReplicationFactor: 1}, nil},
		{"latest", 7, kmsg.CreateTopicsRequestTopic{Topic: "a", NumPartitions: 2, ReplicationFactor: 1}, nil},
		{"defaults", 4, kmsg.CreateTopicsRequestTopic{Topic: "a", NumPartitions: -1, ReplicationFactor: -1}, nil},
		{"defaults before they were promised", 2, kmsg.CreateTopicsRequestTopic{Topic: "a", NumPartitions: -1, ReplicationFactor: -1}, nil},
		{"settings", 5, kmsg.CreateTopicsRequestTopic{Topic: "a", NumPartitions: 1, ReplicationFactor: 1, Configs: []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms", Value: &value}}}, nil},
		{"null setting", 5, kmsg.CreateTopicsRequestTopic{Topic: "a", NumPartitions: 1, ReplicationFactor: 1, Configs: []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms"}}}, kerr.InvalidConfig},
		{"there already", 5, kmsg.CreateTopicsRequestTopic{Topic: "t", NumPartitions: 1, ReplicationFactor: 1}, kerr.TopicAlreadyExists},
		{"bad name", 5, kmsg.CreateTopicsRequestTopic{Topic: "a b", NumPartitions: 1, ReplicationFactor: 1}, kerr.InvalidTopicException},
		{"no partitions", 5, kmsg.CreateTopicsRequestTopic{Topic: "a", NumPartitions: 0, ReplicationFactor: 1}, kerr.InvalidPartitions},
		{"no replicas", 5, kmsg.CreateTopicsRequestTopic{Topic: "a", NumPartitions: 1, ReplicationFactor: 0}, kerr.InvalidReplicationFactor},
		{"by hand", 0, kmsg.CreateTopicsRequestTopic{Topic: "a", NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: assign([]int32{7}, []int32{8})}, nil},
		{"by hand and by count", 5, kmsg.CreateTopicsRequestTopic{Topic: "a", NumPartitions: 2, ReplicationFactor: -1, ReplicaAssignment: assign([]int32{7})}, kerr.InvalidRequest},
		{"a hole", 5, kmsg.CreateTopicsRequestTopic{Topic: "a", NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: hole}, kerr.InvalidReplicaAssignment},
		{"one node twice", 5, kmsg.CreateTopicsRequestTopic{Topic: "a", NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: assign([]int32{7, 7})}, kerr.InvalidReplicaAssignment},
		{"uneven", 5, kmsg.CreateTopicsRequestTopic{Topic: "a", NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: assign([]int32{7}, []int32{7, 8})}, kerr.InvalidReplicaAssignment},
	} {
		for _, only := range []bool{false, true} {
			if only && x.version == 0 {
				continue
			}
			b := start(t)
			b.broker.topic("t", 1)
			req := kmsg.NewPtrCreateTopicsRequest()
			req.Topics, req.ValidateOnly = []kmsg.CreateTopicsRequestTopic{x.topic}, only
			got := ask[*kmsg.CreateTopicsResponse](b.dial(), req, x.version).Topics[0]
			if got.ErrorCode != codeOf(x.want) || got.Topic != x.topic.Topic || x.version >= 1 && (got.ErrorMessage == nil) != (x.want == nil) {
				t.Errorf("%s v%d (only validate: %v): %+v", x.name, x.version, only, got)
			}
			if x.want == nil && (len(b.broker.created) != 1 || b.broker.created[0].ValidateOnly != only) {
				t.Errorf("%s: the broker heard %+v", x.name, b.broker.created)
			}
			if x.want == nil && !only && x.version >= 5 && (got.NumPartitions < 1 || got.ReplicationFactor != 2 || len(got.Configs) == 0 || x.version >= 7 && got.TopicID == [16]byte{}) {
				t.Errorf("%s v%d: %+v", x.name, x.version, got)
			}
		}
	}
	// Twice in one request is once refused.
	req := kmsg.NewPtrCreateTopicsRequest()
	one := kmsg.CreateTopicsRequestTopic{Topic: "a", NumPartitions: 1, ReplicationFactor: 1}
	req.Topics = []kmsg.CreateTopicsRequestTopic{one, one, {Topic: "b", NumPartitions: 1, ReplicationFactor: 1}}
	got := ask[*kmsg.CreateTopicsResponse](start(t).dial(), req, 5).Topics
	if len(got) != 2 || got[0].ErrorCode != kerr.InvalidRequest.Code || got[1].ErrorCode != 0 {
		t.Errorf("named twice: %+v", got)
	}
}

func TestDeleteTopics(t *testing.T) {
	b := start(t)
	name, other := "t", "no"
	id := b.broker.topic(name, 1).id
	for _, x := range []struct {
		name    string
		version int16
		topic   kmsg.DeleteTopicsRequestTopic
		want    *kerr.Error
	}{
		{"by name", 0, kmsg.DeleteTopicsRequestTopic{Topic: &name}, nil},
		{"by name", 6, kmsg.DeleteTopicsRequestTopic{Topic: &name}, nil},
		{"by id", 6, kmsg.DeleteTopicsRequestTopic{TopicID: id}, nil},
		{"unknown", 1, kmsg.DeleteTopicsRequestTopic{Topic: &other}, kerr.UnknownTopicOrPartition},
		{"unknown", 6, kmsg.DeleteTopicsRequestTopic{Topic: &other}, kerr.UnknownTopicOrPartition},
		{"unknown id", 6, kmsg.DeleteTopicsRequestTopic{TopicID: [16]byte{1}}, kerr.UnknownTopicID},
		{"both", 6, kmsg.DeleteTopicsRequestTopic{Topic: &name, TopicID: id}, kerr.InvalidRequest},
		{"neither", 6, kmsg.DeleteTopicsRequestTopic{}, kerr.InvalidRequest},
	} {
		b.broker.topics[name] = &fakeTopic{id: id}
		req := kmsg.NewPtrDeleteTopicsRequest()
		if x.version < 6 {
			req.TopicNames = []string{*x.topic.Topic}
		} else {
			req.Topics = []kmsg.DeleteTopicsRequestTopic{x.topic}
		}
		got := ask[*kmsg.DeleteTopicsResponse](b.dial(), req, x.version).Topics[0]
		if got.ErrorCode != codeOf(x.want) || x.want == nil && (*got.Topic != name || x.version >= 6 && got.TopicID != id) {
			t.Errorf("%s v%d: %+v", x.name, x.version, got)
		}
		if _, there := b.broker.topics[name]; there == (x.want == nil) {
			t.Errorf("%s v%d: is there: %v", x.name, x.version, there)
		}
	}
}

// What is named twice is not deleted, whether by name or by id, and answered once.
func TestDeleteTopics_namedTwice(t *testing.T) {
	b := start(t)
	name := "t"
	id := b.broker.topic(name, 1).id
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: &name}, {TopicID: id}}
	got := ask[*kmsg.DeleteTopicsResponse](b.dial(), req, 6).Topics
	if len(got) != 1 || got[0].ErrorCode != kerr.InvalidRequest.Code || b.broker.topics[name] == nil {
		t.Errorf("%+v, is there: %v", got, b.broker.topics[name] != nil)
	}
}

func TestDeleteRecords(t *testing.T) {
	b := start(t)
	p := b.broker.topic("t", 1).parts[0]
	p.add(batch(record.None, "a", "b", "c"))
	b.broker.topic("elsewhere", 1).parts[0].leader = 8
	for _, x := range []struct {
		topic  string
		offset int64
		low    int64
		want   *kerr.Error
	}{{"t", 2, 2, nil}, {"t", -1, 3, nil}, {"no", 1, -1, kerr.UnknownTopicOrPartition}, {"elsewhere", 1, -1, kerr.NotLeaderForPartition}} {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: x.topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Offset: x.offset}}}}
		got := ask[*kmsg.DeleteRecordsResponse](b.dial(), req, 2).Topics[0].Partitions[0]
		if got.ErrorCode != codeOf(x.want) || got.LowWatermark != x.low {
			t.Errorf("%+v: %+v", x, got)
		}
	}
}

func TestDescribeConfigs(t *testing.T) {
	b := start(t)
	b.broker.topic("t", 1).set["retention.ms"] = "5"
	ask1 := func(version int16, kind kmsg.ConfigResourceType, name string, names []string) kmsg.DescribeConfigsResponseResource {
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.IncludeSynonyms, req.IncludeDocumentation = true, true
		req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kind, ResourceName: name, ConfigNames: names}}
		return ask[*kmsg.DescribeConfigsResponse](b.dial(), req, version).Resources[0]
	}
	for version := range int16(5) {
		got := ask1(version, kmsg.ConfigResourceTypeTopic, "t", nil)
		i := slices.IndexFunc(got.Configs, func(c kmsg.DescribeConfigsResponseResourceConfig) bool { return c.Name == "retention.ms" })
		if got.ErrorCode != 0 || len(got.Configs) != 2 || i < 0 {
			t.Fatalf("v%d: %+v", version, got)
		}
		c, d := got.Configs[i], got.Configs[1-i]
		if *c.Value != "5" || version == 0 && (c.IsDefault || !d.IsDefault) ||
			version >= 1 && (c.Source != kmsg.ConfigSourceDynamicTopicConfig || d.Source != kmsg.ConfigSourceDefaultConfig || len(c.ConfigSynonyms) != 2 || len(d.ConfigSynonyms) != 1) ||
			version >= 3 && (c.ConfigType != kmsg.ConfigTypeLong || *c.Documentation != "how long") {
			t.Errorf("v%d: %+v", version, got.Configs)
		}
	}
	for _, x := range []struct {
		kind  kmsg.ConfigResourceType
		name  string
		names []string
		want  *kerr.Error
		count int
	}{
		{kmsg.ConfigResourceTypeTopic, "t", []string{"retention.ms", "no.such"}, nil, 1},
		{kmsg.ConfigResourceTypeTopic, "t", []string{}, nil, 2},
		{kmsg.ConfigResourceTypeTopic, "no", nil, kerr.UnknownTopicOrPartition, 0},
		{kmsg.ConfigResourceTypeTopic, "a b", nil, kerr.InvalidTopicException, 0},
		{kmsg.ConfigResourceTypeBroker, "7", nil, nil, 1},
		{kmsg.ConfigResourceTypeBroker, "", nil, nil, 0},
		{kmsg.ConfigResourceTypeBroker, "8", nil, kerr.InvalidRequest, 0},
		{kmsg.ConfigResourceTypeBrokerLogger, "7", nil, nil, 0},
		{kmsg.ConfigResourceTypeGroupConfig, "g", nil, kerr.InvalidRequest, 0},
	} {
		if got := ask1(4, x.kind, x.name, x.names); got.ErrorCode != codeOf(x.want) || len(got.Configs) != x.count {
			t.Errorf("%+v: %+v", x, got)
		}
	}
	if got := ask1(4, kmsg.ConfigResourceTypeBroker, "7", nil).Configs[0]; !got.ReadOnly || got.Source != kmsg.ConfigSourceStaticBrokerConfig {
		t.Errorf("a node's setting: %+v", got)
	}
}

func TestDescribeConfigs_boundsItsAnswer(t *testing.T) {
	b := start(t)
	b.broker.topic("t", 1)
	req := kmsg.NewPtrDescribeConfigsRequest()
	for range maxDescribed + 5 {
		req.Resources = append(req.Resources, kmsg.DescribeConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t"})
	}
	refused := 0
	for _, r := range ask[*kmsg.DescribeConfigsResponse](b.dial(), req, 4).Resources {
		if r.ErrorCode == kerr.InvalidRequest.Code && len(r.Configs) == 0 {
			refused++
		}
	}
	if refused != 5 {
		t.Errorf("%d are refused", refused)
	}
}

func TestAlterConfigs(t *testing.T) {
	five, list := "5", "compact"
	b := start(t)
	b.broker.topic("t", 1).set["cleanup.policy"] = "delete"
	whole := func(kind kmsg.ConfigResourceType, name string, configs ...kmsg.AlterConfigsRequestResourceConfig) int16 {
		req := kmsg.NewPtrAlterConfigsRequest()
		req.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: kind, ResourceName: name, Configs: configs}}
		return ask[*kmsg.AlterConfigsResponse](b.dial(), req, 2).Resources[0].ErrorCode
	}
	step := func(kind kmsg.ConfigResourceType, name string, configs ...kmsg.IncrementalAlterConfigsRequestResourceConfig) int16 {
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kind, ResourceName: name, Configs: configs}}
		return ask[*kmsg.IncrementalAlterConfigsResponse](b.dial(), req, 1).Resources[0].ErrorCode
	}
	type set = kmsg.AlterConfigsRequestResourceConfig
	type change = kmsg.IncrementalAlterConfigsRequestResourceConfig
	const topic, node = kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker
	for i, x := range []struct {
		got  int16
		want *kerr.Error
		as   *AlterTopic
	}{
		{whole(topic, "t", set{Name: "retention.ms", Value: &five}), nil, &AlterTopic{Topic: "t", Set: map[string]string{"retention.ms": "5"}, Unset: []string{"cleanup.policy"}}},
		{whole(topic, "t", set{Name: "retention.ms", Value: &five}, set{Name: "retention.ms", Value: &five}), kerr.InvalidRequest, nil},
		{whole(topic, "t", set{Name: "retention.ms"}), kerr.InvalidRequest, nil},
		{whole(topic, "no"), kerr.UnknownTopicOrPartition, nil},
		{whole(node, "7"), kerr.InvalidRequest, nil},
		{step(topic, "t", change{Name: "retention.ms", Value: &five}), nil, &AlterTopic{Topic: "t", Set: map[string]string{"retention.ms": "5"}}},
		{step(topic, "t", change{Name: "retention.ms", Op: 1}), nil, &AlterTopic{Topic: "t", Set: map[string]string{}, Unset: []string{"retention.ms"}}},
		{step(topic, "t", change{Name: "cleanup.policy", Op: 2, Value: &list}), nil, &AlterTopic{Topic: "t", Set: map[string]string{"cleanup.policy": "delete,compact"}}},
		{step(topic, "t", change{Name: "cleanup.policy", Op: 3, Value: &list}), nil, &AlterTopic{Topic: "t", Set: map[string]string{"cleanup.policy": "delete"}}},
		{step(topic, "t", change{Name: "retention.ms", Op: 2, Value: &five}), kerr.InvalidConfig, nil},
		{step(topic, "t", change{Name: "retention.ms", Op: 9, Value: &five}), kerr.InvalidRequest, nil},
		{step(topic, "t", change{Name: "retention.ms"}), kerr.InvalidRequest, nil},
		{step(topic, "t", change{Name: "a", Op: 1}, change{Name: "a", Op: 1}), kerr.InvalidRequest, nil},
		{step(topic, "no"), kerr.UnknownTopicOrPartition, nil},
		{step(node, "7", change{Name: "a", Value: &five}), kerr.InvalidRequest, nil},
	} {
		if x.got != codeOf(x.want) {
			t.Errorf("%d: code %d, want %v", i, x.got, x.want)
		}
		if x.as != nil {
			if len(b.broker.altered) == 0 || !reflect.DeepEqual(b.broker.altered[0], *x.as) {
				t.Errorf("%d: the broker heard %+v, want %+v", i, b.broker.altered, *x.as)
			}
			b.broker.altered = b.broker.altered[min(1, len(b.broker.altered)):]
		}
	}
	if len(b.broker.altered) != 0 {
		t.Errorf("the broker also heard %+v", b.broker.altered)
	}
}

func TestChangeList(t *testing.T) {
	for _, x := range []struct {
		list, words string
		add         bool
		want        string
	}{{"", "a", true, "a"}, {"a,b", "b, c", true, "a,b,c"}, {"a,b,c", "b,d", false, "a,c"}, {"a", "a", false, ""}, {"a", "", true, "a"}} {
		if got := changeList(x.list, x.words, x.add); got != x.want {
			t.Errorf("%+v: %q", x, got)
		}
	}
}

func TestCreatePartitions(t *testing.T) {
	b := start(t)
	b.broker.topic("t", 2)
	for _, x := range []struct {
		topic  string
		count  int32
		assign [][]int32
		want   *kerr.Error
	}{
		{"t", 3, nil, nil}, {"t", 3, nil, kerr.InvalidPartitions}, {"t", 1, nil, kerr.InvalidPartitions}, {"no", 3, nil, kerr.UnknownTopicOrPartition},
		{"t", 5, [][]int32{{7}, {8}}, nil}, {"t", 7, [][]int32{{7}}, kerr.InvalidReplicaAssignment}, {"t", 6, [][]int32{{}}, kerr.InvalidReplicaAssignment},
	} {
		req := kmsg.NewPtrCreatePartitionsRequest()
		rt := kmsg.CreatePartitionsRequestTopic{Topic: x.topic, Count: x.count}
		for _, a := range x.assign {
			rt.Assignment = append(rt.Assignment, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: a})
		}
		req.Topics = []kmsg.CreatePartitionsRequestTopic{rt}
		got := ask[*kmsg.CreatePartitionsResponse](b.dial(), req, 3).Topics
		if len(got) != 1 || got[0].Topic != x.topic || got[0].ErrorCode != codeOf(x.want) {
			t.Errorf("%+v: %+v", x, got)
		}
	}
}

func TestElectLeaders(t *testing.T) {
	b := start(t)
	b.broker.topic("t", 2).parts[1].leader = 9 // the first replica is 7, which lives
	b.broker.topic("u", 1).parts[0].leader = record.NoNode
	elect := func(kind int8, topics ...kmsg.ElectLeadersRequestTopic) map[string]int16 {
		req := kmsg.NewPtrElectLeadersRequest()
		req.ElectionType, req.Topics = kind, topics
		got := map[string]int16{}
		for _, t := range ask[*kmsg.ElectLeadersResponse](b.dial(), req, 2).Topics {
			for _, p := range t.Partitions {
				got[fmt.Sprint(t.Topic, p.Partition)] = p.ErrorCode
			}
		}
		return got
	}
	for i, x := range []struct{ got, want map[string]int16 }{
		{elect(0, kmsg.ElectLeadersRequestTopic{Topic: "t", Partitions: []int32{0, 1, 5}}), map[string]int16{"t0": 84, "t1": 0, "t5": 3}},
		{elect(0, kmsg.ElectLeadersRequestTopic{Topic: "no", Partitions: []int32{0}}), map[string]int16{"no0": 3}},
		{elect(1, kmsg.ElectLeadersRequestTopic{Topic: "t", Partitions: []int32{0}}, kmsg.ElectLeadersRequestTopic{Topic: "u", Partitions: []int32{0}}), map[string]int16{"t0": 84, "u0": 83}},
		{elect(0), map[string]int16{"u0": 0}},
	} {
		if !reflect.DeepEqual(x.got, x.want) {
			t.Errorf("%d: %v, want %v", i, x.got, x.want)
		}
	}
	if l := b.broker.topics["t"].parts[1].leader; l != 7 {
		t.Errorf("node %d leads", l)
	}
}

func TestDescribeLogDirs(t *testing.T) {
	c := start(t).dial()
	all := ask[*kmsg.DescribeLogDirsResponse](c, kmsg.NewPtrDescribeLogDirsRequest(), 4).Dirs[0]
	if all.Dir != "/data" || all.TotalBytes != 100 || all.UsableBytes != 40 || len(all.Topics) != 1 || len(all.Topics[0].Partitions) != 2 || all.Topics[0].Partitions[1].Size != 13 {
		t.Errorf("%+v", all)
	}
	req := kmsg.NewPtrDescribeLogDirsRequest()
	req.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: "t", Partitions: []int32{1}}, {Topic: "no", Partitions: []int32{0}}}
	if one := ask[*kmsg.DescribeLogDirsResponse](c, req, 0).Dirs[0]; len(one.Topics) != 1 || len(one.Topics[0].Partitions) != 1 {
		t.Errorf("%+v", one)
	}
}

func TestListPartitionReassignments_nothingMoves(t *testing.T) {
	b := start(t)
	b.broker.topic("t", 1)
	if got := ask[*kmsg.ListPartitionReassignmentsResponse](b.dial(), kmsg.NewPtrListPartitionReassignmentsRequest(), 0); got.ErrorCode != 0 || len(got.Topics) != 0 {
		t.Errorf("%+v", got)
	}
}

// Every one of our errors has a word of Kafka's, so that none ends as "unknown server error".
func TestCodes_everyErrorHasOne(t *testing.T) {
	for code, e := range codes {
		if e == kerr.UnknownServerError && code != record.ErrInternal.Code {
			t.Errorf("%s has no code", code)
		}
	}
	for _, err := range declaredErrors(t) {
		if codes[err] == nil {
			t.Errorf("%s is missing in the table", err)
		}
	}
	if kafkaError(fmt.Errorf("x: %w", &record.NotLeaderError{})) != kerr.NotLeaderForPartition || kafkaError(nil) != nil || kafkaError(&FencedError{}) != kerr.FencedLeaderEpoch {
		t.Error("wrapped errors are not found")
	}
}
