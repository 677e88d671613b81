package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

// Metadata, key 3, versions 0 to 12.
//
// Every node answers for the whole cluster. A partition without a leader is answered with
// LEADER_NOT_AVAILABLE, leader -1 and the last known epoch, after a wait of about an election: some
// clients give up within a second. Where all topics are asked for, only those are waited for that
// never had a leader. A leader without an address on the listener that was asked is
// answered the same way, because LISTENER_NOT_FOUND is fatal to some clients. Dead nodes are not in
// the list of brokers, from which clients pick whom to ask next; they stay among the replicas.
//
//	v0:  no topics means all of them; from v1 on null does, and none means none
//	v4:  the client says whether a topic may be made; before, it may
//	v7:  leader epochs
//	v8:  authorized operations: all
//	v10: topic ids
//	v12: topics may be named by id alone
func init() { register(0, 12, (*call).metadata) }

const (
	// unknownOperations stands where authorized operations were not asked for.
	unknownOperations = -1 << 31
	// There are no ACLs, so everybody may do all that can be done with a thing: bits by Kafka's
	// numbers of operations.
	topicOperations   = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11
	groupOperations   = 1<<3 | 1<<6 | 1<<8 | 1<<10 | 1<<11
	clusterOperations = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12
	// metadataCost is what one partition of an answer counts for, in bytes.
	metadataCost = 256
	// maxAutoCreate bounds the topics that one request makes.
	maxAutoCreate = 16
)

func (q *call) metadata(req *kmsg.MetadataRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	ctx, cancel := q.context(0)
	defer cancel()
	topics := q.askedTopics(ctx, req)
	cost := int64(0)
	for _, t := range topics {
		cost += int64(len(t.Partitions)+1) * metadataCost
	}
	if q.reserve(ctx, cost) != nil {
		return nil
	}
	cluster := q.conn.s.cfg.Broker.Cluster(q.conn.at)
	if cluster.ID != "" {
		resp.ClusterID = &cluster.ID
	}
	resp.ControllerID, resp.AuthorizedOperations = int32(cluster.Controller), operations(req.IncludeClusterAuthorizedOperations, clusterOperations)
	resp.Brokers = make([]kmsg.MetadataResponseBroker, len(cluster.Nodes))
	for i, n := range cluster.Nodes {
		resp.Brokers[i] = kmsg.MetadataResponseBroker{NodeID: int32(n.ID), Host: n.Host, Port: n.Port, Rack: rackOf(n)}
	}
	resp.Topics = make([]kmsg.MetadataResponseTopic, len(topics))
	for i, t := range topics {
		resp.Topics[i] = q.metadataTopic(cluster, t)
		resp.Topics[i].AuthorizedOperations = operations(req.IncludeTopicAuthorizedOperations && t.err == nil, topicOperations)
	}
	return resp
}

// operations gives what may be done, if that was asked.
func operations(asked bool, all int32) int32 {
	if asked {
		return all
	}
	return unknownOperations
}

func rackOf(e Endpoint) *string {
	if e.Rack == "" {
		return nil
	}
	return &e.Rack
}

// askedTopic is a topic of the answer. With err there is nothing but its name or id.
type askedTopic struct {
	Topic
	err error
}

// askedTopics finds what the client asks for, each topic once.
func (q *call) askedTopics(ctx context.Context, req *kmsg.MetadataRequest) []askedTopic {
	b := q.conn.s.cfg.Broker
	var out []askedTopic
	if req.Topics == nil || q.version == 0 && len(req.Topics) == 0 {
		for _, t := range b.Topics(ctx) {
			out = append(out, askedTopic{Topic: t})
		}
		return out
	}
	var names []string
	for _, t := range req.Topics {
		if t.Topic != nil {
			names = append(names, *t.Topic)
		}
	}
	b.AwaitLeaders(ctx, names)
	mayCreate := q.conn.s.cfg.AutoCreate && (q.version < 4 || req.AllowAutoTopicCreation)
	created := 0
	seenName, seenID := map[string]bool{}, map[record.TopicID]bool{}
	for _, t := range req.Topics {
		if t.Topic == nil || q.version >= 12 && t.TopicID != [16]byte{} {
			if id := record.TopicID(t.TopicID); !seenID[id] {
				seenID[id] = true
				out = append(out, q.topicByID(id))
			}
			continue
		}
		name := *t.Topic
		if seenName[name] {
			continue
		}
		seenName[name] = true
		asked := q.topicByName(name)
		if errors.Is(asked.err, record.ErrUnknownTopic) && mayCreate && created < maxAutoCreate {
			created++
			asked = q.autoCreate(ctx, name)
		}
		out = append(out, asked)
	}
	return out
}

// topicByName finds a topic. A node that is in no cluster yet, or has not caught up, knows nothing, not
// even that there is no such topic.
func (q *call) topicByName(name string) askedTopic {
	b := q.conn.s.cfg.Broker
	t, err := b.Topic(name)
	if err == nil {
		return askedTopic{Topic: t}
	}
	if validTopicName(name) != nil {
		err = kerr.InvalidTopicException
	} else if notReady(err) {
		err = kerr.LeaderNotAvailable
	}
	return askedTopic{Topic{Name: name}, err}
}

func notReady(err error) bool {
	return errors.Is(err, record.ErrNotReady) || errors.Is(err, record.ErrShuttingDown)
}

func (q *call) topicByID(id record.TopicID) askedTopic {
	b := q.conn.s.cfg.Broker
	t, err := b.TopicByID(id)
	switch {
	case err == nil:
		return askedTopic{Topic: t}
	case notReady(err):
		err = kerr.LeaderNotAvailable
	case errors.Is(err, record.ErrUnknownTopic):
		err = kerr.UnknownTopicID
	}
	return askedTopic{Topic{ID: id}, err}
}

// autoCreate makes a topic that a client asked for, with the node's defaults.
func (q *call) autoCreate(ctx context.Context, name string) askedTopic {
	t, err := q.conn.s.cfg.Broker.CreateTopic(ctx, CreateTopic{Name: name, Partitions: -1, Replication: -1})
	if errors.Is(err, record.ErrTopicExists) {
		return q.topicByName(name) // somebody was quicker
	}
	if err != nil {
		return askedTopic{Topic{Name: name}, err}
	}
	q.conn.s.cfg.Logger.Info("kafka: a topic was made because a client asked for it", "topic", name, "from", q.conn.nc.RemoteAddr())
	return askedTopic{Topic: t}
}

func (q *call) metadataTopic(cluster Cluster, t askedTopic) kmsg.MetadataResponseTopic {
	out := kmsg.NewMetadataResponseTopic()
	if t.Name != "" || t.ID == (record.TopicID{}) {
		out.Topic = &t.Name
	}
	out.TopicID, out.ErrorCode = t.ID, q.code(t.err)
	out.IsInternal = t.Internal
	out.Partitions = make([]kmsg.MetadataResponseTopicPartition, len(t.Partitions))
	for i, p := range t.Partitions {
		mp := &out.Partitions[i]
		mp.Default()
		mp.Partition, mp.Leader, mp.LeaderEpoch = int32(i), int32(p.Leader), int32(p.Epoch)
		mp.Replicas, mp.ISR, mp.OfflineReplicas = nodeIDs(p.Replicas), nodeIDs(p.ISR), nodeIDs(p.Offline)
		if _, ok := cluster.endpoint(p.Leader); !ok {
			mp.Leader, mp.ErrorCode = int32(record.NoNode), q.code(kerr.LeaderNotAvailable)
		}
	}
	return out
}

func nodeIDs(nodes []record.NodeID) []int32 {
	ids := make([]int32, len(nodes))
	for i, n := range nodes {
		ids[i] = int32(n)
	}
	return ids
}

// validTopicName is Kafka's rule.
func validTopicName(name string) error {
	ok := name != "" && name != "." && name != ".." && len(name) <= 249
	for _, b := range []byte(name) {
		ok = ok && (b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '.' || b == '_' || b == '-')
	}
	if !ok {
		return fmt.Errorf("topic name %.80q: %w", name, record.ErrInvalidTopic)
	}
	return nil
}
