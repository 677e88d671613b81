package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"edged/record"
	"edged/transport"
	"edged/transport/wire"
)

// fakeBroker is a cluster of one node in memory, for what the commands themselves do.
// What a topic's name begins with makes it misbehave: see produceError.
type fakeBroker struct {
	addr string

	mu     sync.Mutex
	topics map[string]*fakeTopic
	grown  chan struct{} // closed and replaced at each append
}

type fakeTopic struct {
	wire.Topic
	logs [][]record.Batch
}

// serveFake runs a fake broker on a free port of loopback until the returned stop.
func serveFake(tb testing.TB) (addr string, stop func()) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	b := &fakeBroker{addr: ln.Addr().String(), topics: map[string]*fakeTopic{}, grown: make(chan struct{})}
	log := slog.New(slog.DiscardHandler)
	ws := wire.NewServer(wire.Config{Broker: b, Logger: log})
	ts := transport.New(transport.Config{Route: func([4]byte) transport.Handler { return ws.Handle }, Logger: log})
	served := make(chan error, 1)
	go func() { served <- ts.Serve(ln) }()
	return b.addr, func() {
		if err := errors.Join(ws.Close(), ts.Close(), <-served); err != nil {
			tb.Error(err)
		}
	}
}

const (
	fakeNode  record.NodeID = 7
	deadNode  record.NodeID = 8
	fakeEpoch record.Epoch  = 3
)

func (b *fakeBroker) Hello() wire.HelloInfo {
	return wire.HelloInfo{Node: fakeNode, ClusterID: "c1", Version: "v1", Ready: true}
}

func (b *fakeBroker) nodes() []wire.Node {
	return []wire.Node{
		{ID: fakeNode, Name: "pi1", Native: b.addr, Kafka: "pi1:9092", Version: "v1", Alive: true, Leaders: 2, Replicas: 3},
		{ID: deadNode, Name: "pi2", Version: "v0", AwayMs: 100 * 60_000},
		{ID: deadNode + 1, Name: "pi2", Alive: true, Leaving: true},
	}
}

func (b *fakeBroker) Metadata(_ context.Context, names []string) (wire.Metadata, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	md := wire.Metadata{Cluster: "edge", ClusterID: "c1", Nodes: b.nodes(), MetadataLeader: fakeNode}
	if names == nil {
		for name := range b.topics {
			names = append(names, name)
		}
		slices.Sort(names)
	}
	for _, name := range names {
		t, ok := b.topics[name]
		if !ok {
			md.Topics = append(md.Topics, wire.Topic{Name: name, Err: record.ErrUnknownTopic})
			continue
		}
		md.Topics = append(md.Topics, b.describeLocked(t))
	}
	return md, nil
}

func (b *fakeBroker) describeLocked(t *fakeTopic) wire.Topic {
	d := t.Topic
	d.Partitions = slices.Clone(d.Partitions)
	for i := range d.Partitions {
		d.Partitions[i].HighWatermark = highWatermark(t.logs[i])
	}
	return d
}

func highWatermark(log []record.Batch) record.Offset {
	if len(log) == 0 {
		return 0
	}
	return log[len(log)-1].NextOffset()
}

// produceError is how topics with certain names answer a produce.
func produceError(topic string) error {
	for prefix, err := range map[string]error{
		"deny": record.ErrRefused, "small": record.ErrTooLarge, "busy": record.ErrBusy, "broken": record.ErrInternal, "late": record.ErrTimeout,
	} {
		if strings.HasPrefix(topic, prefix) {
			return err
		}
	}
	return nil
}

func (b *fakeBroker) Produce(req wire.ProduceRequest, done func(wire.ProduceResponse)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	log, err := b.logLocked(req.Topic, req.Partition)
	if err == nil {
		err = produceError(req.Topic)
	}
	if err != nil {
		done(wire.ProduceResponse{BaseOffset: -1, Err: err})
		return
	}
	base := highWatermark(*log)
	req.Batch.SetBase(base, fakeEpoch)
	*log = append(*log, req.Batch)
	close(b.grown)
	b.grown = make(chan struct{})
	done(wire.ProduceResponse{BaseOffset: base, Epoch: fakeEpoch, Durability: "fsync-leader"})
}

func (b *fakeBroker) logLocked(topic string, partition int32) (*[]record.Batch, error) {
	t, ok := b.topics[topic]
	switch {
	case !ok:
		return nil, record.ErrUnknownTopic
	case int(partition) >= len(t.logs):
		return nil, record.ErrUnknownPartition
	}
	return &t.logs[partition], nil
}

func (b *fakeBroker) Fetch(ctx context.Context, req wire.FetchRequest) wire.FetchResponse {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(req.MaxWaitMs)*time.Millisecond)
	defer cancel()
	for {
		b.mu.Lock()
		resp, grown := wire.FetchResponse{Epoch: fakeEpoch}, b.grown
		log, err := b.logLocked(req.Topic, req.Partition)
		if err == nil {
			resp.HighWatermark = highWatermark(*log)
			if req.Offset > resp.HighWatermark {
				err = record.ErrOffsetOutOfRange
			}
			for _, batch := range *log {
				if batch.NextOffset() > req.Offset && len(resp.Batches) < int(req.MaxBytes) {
					resp.Batches = append(resp.Batches, batch...)
				}
			}
		}
		resp.Err = err
		b.mu.Unlock()
		if err != nil || len(resp.Batches) > 0 || ctx.Err() != nil {
			return resp
		}
		select {
		case <-grown:
		case <-ctx.Done():
		}
	}
}

func (b *fakeBroker) Offsets(_ context.Context, req wire.OffsetsRequest) (wire.OffsetsResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	log, err := b.logLocked(req.Topic, req.Partition)
	if err != nil {
		return wire.OffsetsResponse{}, err
	}
	resp := wire.OffsetsResponse{Timestamp: -1, Epoch: fakeEpoch, HighWatermark: highWatermark(*log)}
	switch req.At {
	case wire.AtStart:
	case wire.AtEnd:
		resp.Offset = resp.HighWatermark
	default:
		resp.Offset = resp.HighWatermark
		for _, batch := range slices.Backward(*log) {
			if batch.MaxTimestamp() >= req.At {
				resp.Offset, resp.Timestamp = batch.BaseOffset(), batch.MaxTimestamp()
			}
		}
	}
	return resp, nil
}

func (b *fakeBroker) ProducerID(context.Context) (int64, int16, error) { return 1000, 0, nil }

func (b *fakeBroker) CreateTopic(_ context.Context, req wire.CreateTopicRequest) (wire.CreateTopicResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.topics[req.Name] != nil:
		return wire.CreateTopicResponse{}, record.ErrTopicExists
	case strings.ContainsAny(req.Name, " /"):
		return wire.CreateTopicResponse{}, record.ErrInvalidTopic
	case req.Replication > 2:
		return wire.CreateTopicResponse{}, record.ErrNoNodes
	case req.Configs["nonsense"] != "":
		return wire.CreateTopicResponse{}, fmt.Errorf("%w: nonsense is not known", record.ErrInvalidConfig)
	}
	t := &fakeTopic{Topic: wire.Topic{Name: req.Name, ID: "id-" + req.Name, Replication: max(req.Replication, 1), Configs: req.Configs}}
	for i := range req.Partitions {
		t.Partitions = append(t.Partitions, wire.Partition{
			Partition: i, Leader: fakeNode, LeaderAddr: b.addr, Epoch: fakeEpoch,
			Replicas: []record.NodeID{fakeNode, deadNode}, Voters: []record.NodeID{fakeNode}, InSync: []record.NodeID{fakeNode},
		})
	}
	if req.Name == groupsTopic { // the first of its partitions has no majority
		t.Partitions[0].Leader, t.Partitions[0].LeaderAddr = record.NoNode, ""
	}
	t.logs = make([][]record.Batch, req.Partitions)
	b.topics[req.Name] = t
	return wire.CreateTopicResponse{Name: req.Name, ID: t.ID, Partitions: req.Partitions, Replication: t.Replication}, nil
}

func (b *fakeBroker) DeleteTopic(_ context.Context, req wire.DeleteTopicRequest) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.topics[req.Name] == nil {
		return record.ErrUnknownTopic
	}
	delete(b.topics, req.Name)
	return nil
}

func (b *fakeBroker) AlterTopic(_ context.Context, req wire.AlterTopicRequest) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[req.Name]
	if t == nil {
		return record.ErrUnknownTopic
	}
	for k, v := range req.Set {
		t.Configs[k] = v
	}
	for _, k := range req.Unset {
		delete(t.Configs, k)
	}
	return nil
}

func (b *fakeBroker) TransferLeader(_ context.Context, req wire.TransferLeaderRequest) (wire.TransferLeaderResponse, error) {
	if req.To == deadNode {
		return wire.TransferLeaderResponse{}, fmt.Errorf("node %d is down: %w", req.To, record.ErrRefused)
	}
	return wire.TransferLeaderResponse{Leader: fakeNode, Epoch: fakeEpoch + 1}, nil
}

func (b *fakeBroker) LeaderHistory(_ context.Context, req wire.LeaderHistoryRequest) ([]wire.LeaderChange, error) {
	all := []wire.LeaderChange{
		{Topic: "t", Partition: 1, Epoch: 3, Leader: fakeNode, At: time.UnixMilli(2000).UTC(), Reason: "elected"},
		{Topic: "t", Partition: 0, Epoch: 2, Leader: record.NoNode, At: time.UnixMilli(1000).UTC(), Reason: "node 8 died"},
	}
	var out []wire.LeaderChange
	for _, c := range all {
		if (req.Topic == "" || req.Topic == c.Topic) && (req.Partition < 0 || req.Partition == c.Partition) && (req.Limit == 0 || len(out) < int(req.Limit)) {
			out = append(out, c)
		}
	}
	return out, nil
}

func (b *fakeBroker) Status(context.Context) (wire.Status, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	st := wire.Status{Cluster: "edge", ClusterID: "c1", Nodes: 2, NodesAlive: 1, MetadataLeader: fakeNode, Topics: int32(len(b.topics)), Internal: 8, InternalUnwell: 1}
	for _, t := range b.topics {
		st.Partitions += int32(len(t.logs))
	}
	return st, nil
}

func (b *fakeBroker) RemoveNode(_ context.Context, req wire.RemoveNodeRequest) (wire.RemoveNodeResponse, error) {
	switch {
	case req.Cancel:
		return wire.RemoveNodeResponse{}, nil
	case req.Node == deadNode:
		return wire.RemoveNodeResponse{Removed: true, Missing: 2}, nil
	case !req.Force:
		return wire.RemoveNodeResponse{}, fmt.Errorf("node %d is alive: %w", req.Node, record.ErrRefused)
	}
	return wire.RemoveNodeResponse{Moving: 3}, nil
}

func (b *fakeBroker) DescribeNode(_ context.Context, node record.NodeID) (wire.NodeDescription, error) {
	if node == record.NoNode {
		node = fakeNode
	}
	self := b.nodes()[node-fakeNode]
	if node == deadNode+1 {
		self.Leaders = 1 // which the first node has not heard of yet
	}
	return wire.NodeDescription{
		Node: self, Instance: "i1", State: "member", BootCounter: 4, UptimeMs: 61_000, DataBytes: 2048, DiskFree: 8 << 30,
		Device: wire.DeviceStatus{MemoryBudget: 64 << 20, MemoryFrom: "--memory-limit", MemoryUsed: 52 << 20, DiskTotal: 16 << 30, DiskLow: true,
			Written: 3 << 30, WrittenPerDay: 1 << 30, Amplification: 210, WearDays: 900, ClockTrusted: true, Clock: "synchronised", Now: 1_800_000_000_000},
		Peers:      []wire.PeerStatus{{ID: deadNode, Addr: "pi2:7400", Problem: "connection refused"}},
		Partitions: []wire.NodePartition{{Topic: "t", Partition: 1, Role: "leader", Leader: fakeNode, Epoch: 3, HighWatermark: 9}},
		Problems:   []string{"group 5 is damaged"},
	}, nil
}

func (b *fakeBroker) Events(_ context.Context, req wire.EventsRequest) ([]wire.NodeEvent, error) {
	if req.After >= 2 {
		return nil, nil
	}
	at := time.UnixMilli(1_800_000_000_000).UTC()
	return []wire.NodeEvent{{Seq: 1, At: at, Kind: "start", Text: "started", Count: 1}, {Seq: 2, At: at.Add(time.Second), Kind: "disk", Text: "a sync of the log took 2s", Count: 3}}[req.After:], nil
}

func (b *fakeBroker) Network(_ context.Context, req wire.NetworkRequest) ([]wire.Reach, error) {
	if req.Node == fakeNode {
		return []wire.Reach{{Node: 8, Protocol: "native", Addr: "10.0.0.8:7400", Problem: "connection refused"}, {Node: 9, Protocol: "gossip", Addr: "10.0.0.9:7946", Up: true, RTTMicros: 900, SkewMs: 5000}}, nil
	}
	return nil, nil
}
