package kafka

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

// metadataOf asks for topics by name; nil for all.
func metadataOf(names ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	for _, n := range names {
		req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{Topic: &n})
	}
	return req
}

func TestMetadata_everyVersion(t *testing.T) {
	b := start(t)
	id := b.broker.topic("t", 2).id
	for version := range int16(13) {
		resp := ask[*kmsg.MetadataResponse](b.dial(), metadataOf("t"), version)
		if len(resp.Brokers) != 1 || resp.Brokers[0].NodeID != 7 || resp.Brokers[0].Host != "127.0.0.1" {
			t.Errorf("v%d: brokers %+v", version, resp.Brokers)
		}
		if version >= 1 && (resp.ControllerID != 7 || *resp.Brokers[0].Rack != "shed") || version >= 2 && *resp.ClusterID != "the-cluster" {
			t.Errorf("v%d: controller %d, cluster %v", version, resp.ControllerID, resp.ClusterID)
		}
		topic := resp.Topics[0]
		if len(resp.Topics) != 1 || topic.ErrorCode != 0 || *topic.Topic != "t" || len(topic.Partitions) != 2 || version >= 10 && topic.TopicID != id {
			t.Fatalf("v%d: %+v", version, topic)
		}
		for i, p := range topic.Partitions {
			if p.Partition != int32(i) || p.ErrorCode != 0 || p.Leader != 7 || version >= 7 && p.LeaderEpoch != 5 || len(p.Replicas) != 2 || len(p.ISR) != 1 || version >= 5 && len(p.OfflineReplicas) != 1 {
				t.Errorf("v%d: %+v", version, p)
			}
		}
		if version >= 8 && topic.AuthorizedOperations != unknownOperations {
			t.Errorf("v%d: operations %d", version, topic.AuthorizedOperations)
		}
	}
}

func TestMetadata_allNoneOrSome(t *testing.T) {
	b := start(t)
	for i := range 3 {
		b.broker.topic(fmt.Sprint("t", i), 1)
	}
	empty := kmsg.NewPtrMetadataRequest()
	empty.Topics = []kmsg.MetadataRequestTopic{}
	for _, x := range []struct {
		version int16
		req     *kmsg.MetadataRequest
		want    int
	}{{0, empty, 3}, {1, empty, 0}, {12, empty, 0}, {1, metadataOf(), 3}, {12, metadataOf(), 3}, {9, metadataOf("t0", "t1", "t0"), 2}} {
		if got := ask[*kmsg.MetadataResponse](b.dial(), x.req, x.version); len(got.Topics) != x.want {
			t.Errorf("v%d with %v: %d topics, want %d", x.version, x.req.Topics, len(got.Topics), x.want)
		}
	}
}

func TestMetadata_byID(t *testing.T) {
	b := start(t)
	id := b.broker.topic("t", 1).id
	for _, x := range []struct {
		id   [16]byte
		want *kerr.Error
	}{{id, nil}, {[16]byte{9}, kerr.UnknownTopicID}} {
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = []kmsg.MetadataRequestTopic{{TopicID: x.id}}
		got := ask[*kmsg.MetadataResponse](b.dial(), req, 12).Topics[0]
		if x.want == nil && (got.ErrorCode != 0 || *got.Topic != "t" || len(got.Partitions) != 1) || x.want != nil && (got.ErrorCode != x.want.Code || got.Topic != nil || got.TopicID != x.id) {
			t.Errorf("%x: %+v", x.id, got)
		}
	}
}

// A partition without a leader, or whose leader clients of this listener cannot reach, is
// LEADER_NOT_AVAILABLE with leader -1 and its last epoch.
func TestMetadata_noLeader(t *testing.T) {
	b := start(t)
	top := b.broker.topic("t", 3)
	top.parts[0].leader = record.NoNode
	top.parts[1].leader = 99 // not among the nodes
	got := ask[*kmsg.MetadataResponse](b.dial(), metadataOf("t"), 9).Topics[0]
	if got.ErrorCode != 0 {
		t.Errorf("topic: %d", got.ErrorCode)
	}
	for i, p := range got.Partitions {
		wantCode, wantLeader := kerr.LeaderNotAvailable.Code, int32(-1)
		if i == 2 {
			wantCode, wantLeader = 0, 7
		}
		if p.ErrorCode != wantCode || p.Leader != wantLeader || p.LeaderEpoch != 5 || len(p.Replicas) == 0 {
			t.Errorf("%+v", p)
		}
	}
	if len(b.broker.awaited) != 1 || len(b.broker.awaited[0]) != 1 {
		t.Errorf("waited for %v", b.broker.awaited)
	}
}

func TestMetadata_topicsThatAreNotThere(t *testing.T) {
	for _, x := range []struct {
		name   string
		auto   bool
		allow  bool
		vers   int16
		notYet error
		topic  string
		want   *kerr.Error
	}{
		{"off by default", false, true, 9, nil, "new", kerr.UnknownTopicOrPartition},
		{"made", true, true, 9, nil, "new", nil},
		{"the client does not want it", true, false, 9, nil, "new", kerr.UnknownTopicOrPartition},
		{"old clients always do", true, false, 3, nil, "new", nil},
		{"bad name", true, true, 9, nil, "a b", kerr.InvalidTopicException},
		{"no name", true, true, 9, nil, "", kerr.InvalidTopicException},
		{"a node that knows nothing", false, true, 9, record.ErrNotReady, "new", kerr.LeaderNotAvailable},
		{"a node that stops", true, true, 9, record.ErrShuttingDown, "new", kerr.LeaderNotAvailable},
	} {
		t.Run(x.name, func(t *testing.T) {
			b := start(t, func(c *Config) { c.AutoCreate = x.auto })
			b.broker.notYet = x.notYet
			req := metadataOf(x.topic)
			req.AllowAutoTopicCreation = x.allow
			got := ask[*kmsg.MetadataResponse](b.dial(), req, x.vers).Topics[0]
			want := int16(0)
			if x.want != nil {
				want = x.want.Code
			}
			if got.ErrorCode != want || *got.Topic != x.topic || (want == 0) != (len(got.Partitions) == 1) || (want == 0) != (len(b.broker.created) == 1) {
				t.Errorf("%+v, made %v", got, b.broker.created)
			}
		})
	}
}

// A name that is repeated does not make the answer grow, and one request does not make topics without end.
func TestMetadata_bounds(t *testing.T) {
	b := start(t, func(c *Config) { c.AutoCreate = true })
	var names []string
	for i := range 5 * maxAutoCreate {
		names = append(names, fmt.Sprint("t", i), "t0")
	}
	req := metadataOf(names...)
	req.AllowAutoTopicCreation = true
	got := ask[*kmsg.MetadataResponse](b.dial(), req, 9)
	if len(got.Topics) != 5*maxAutoCreate || len(b.broker.created) != maxAutoCreate {
		t.Errorf("%d topics answered, %d made", len(got.Topics), len(b.broker.created))
	}
}

func TestDescribeCluster(t *testing.T) {
	b := start(t)
	for _, version := range []int16{0, 1} {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.EndpointType = 1
		got := ask[*kmsg.DescribeClusterResponse](b.dial(), req, version)
		if got.ErrorCode != 0 || got.ClusterID != "the-cluster" || got.ControllerID != 7 || len(got.Brokers) != 1 || got.Brokers[0].NodeID != 7 {
			t.Errorf("v%d: %+v", version, got)
		}
	}
	req := kmsg.NewPtrDescribeClusterRequest()
	req.EndpointType = 2
	if got := ask[*kmsg.DescribeClusterResponse](b.dial(), req, 1); got.ErrorCode != kerr.MismatchedEndpointType.Code {
		t.Errorf("controllers: %d", got.ErrorCode)
	}
}

// Without ACLs everybody may do everything, which is what Kafka says then.
func TestMetadata_operationsIfAsked(t *testing.T) {
	b := start(t)
	b.broker.topic("t", 1)
	for version := int16(8); version <= 12; version++ {
		req := metadataOf("t", "no")
		req.IncludeTopicAuthorizedOperations, req.IncludeClusterAuthorizedOperations = true, true
		resp := ask[*kmsg.MetadataResponse](b.dial(), req, version)
		if got := resp.Topics[0].AuthorizedOperations; got != 3576 {
			t.Errorf("v%d: of the topic %d", version, got)
		}
		if got := resp.Topics[1].AuthorizedOperations; got != unknownOperations {
			t.Errorf("v%d: of a topic that does not exist %d", version, got)
		}
		if got := resp.AuthorizedOperations; version <= 10 && got != 8096 {
			t.Errorf("v%d: of the cluster %d", version, got)
		}
	}
}

// From version 12 on an id wins over a name beside it.
func TestMetadata_idBesideAName(t *testing.T) {
	b := start(t)
	id := b.broker.topic("t", 1).id
	req := metadataOf("other")
	req.Topics[0].TopicID = id
	if got := ask[*kmsg.MetadataResponse](b.dial(), req, 12).Topics[0]; got.ErrorCode != 0 || *got.Topic != "t" {
		t.Errorf("%+v", got)
	}
}
