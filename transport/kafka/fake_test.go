package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"edged/record"
)

// fakeBroker keeps topics in memory: a node without disks, peers or elections. Tests reach into it.
type fakeBroker struct {
	mu      sync.Mutex
	self    record.NodeID
	nodes   []Endpoint
	topics  map[string]*fakeTopic
	notYet  error // what Topic answers for unknown topics
	nextPID int64
	// hold, if set, keeps the answers of produces until it is closed.
	hold     chan struct{}
	produced []ProduceRequest
	mayJoin  []bool // of each of them, when it came
	awaited  [][]string
	altered  []AlterTopic
	created  []CreateTopic
}

type fakeTopic struct {
	id    record.TopicID
	parts []*fakePartition
	set   map[string]string
}

type fakePartition struct {
	mu       sync.Mutex
	leader   record.NodeID
	epoch    record.Epoch
	start    record.Offset
	batches  []record.Batch
	notYet   bool  // the leader does not serve yet
	produce  error // what produces answer
	readable record.Offset
	limited  bool          // readable holds
	unsure   chan struct{} // until it is closed, a majority has not said who leads
	changed  chan struct{}
}

const fakeNode record.NodeID = 7

func newFake() *fakeBroker {
	return &fakeBroker{self: fakeNode, topics: map[string]*fakeTopic{}, nodes: []Endpoint{{ID: fakeNode, Host: "127.0.0.1", Port: 9092, Rack: "shed"}}}
}

// topic makes a topic that the fake leads.
func (b *fakeBroker) topic(name string, partitions int) *fakeTopic {
	t := &fakeTopic{id: record.NewTopicID(), set: map[string]string{}}
	for range partitions {
		t.parts = append(t.parts, &fakePartition{leader: b.self, epoch: 5, changed: make(chan struct{})})
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.topics[name] = t
	return t
}

func (p *fakePartition) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *fakePartition) endLocked() record.Offset {
	if len(p.batches) == 0 {
		return p.start
	}
	return p.batches[len(p.batches)-1].NextOffset()
}

func (p *fakePartition) add(b record.Batch) record.Offset {
	var base record.Offset
	p.change(func() {
		base = p.endLocked()
		b.SetBase(base, p.epoch)
		p.batches = append(p.batches, b)
	})
	return base
}

func (b *fakeBroker) Cluster(Listener) Cluster {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Cluster{ID: "the-cluster", Self: b.self, Controller: b.nodes[0].ID, Nodes: slices.Clone(b.nodes)}
}

func (b *fakeBroker) describe(name string, t *fakeTopic) Topic {
	out := Topic{Name: name, ID: t.id}
	for _, p := range t.parts {
		p.mu.Lock()
		out.Partitions = append(out.Partitions, Partition{Leader: p.leader, Epoch: p.epoch, Replicas: []record.NodeID{b.self, 8}, ISR: []record.NodeID{b.self}, Offline: []record.NodeID{8}})
		p.mu.Unlock()
	}
	return out
}

func (b *fakeBroker) Topics(context.Context) (out []Topic) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(b.topics)) {
		out = append(out, b.describe(name, b.topics[name]))
	}
	return out
}

func (b *fakeBroker) Topic(name string) (Topic, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[name]
	switch {
	case t != nil:
		return b.describe(name, t), nil
	case b.notYet != nil:
		return Topic{}, b.notYet
	}
	return Topic{}, fmt.Errorf("topic %q: %w", name, record.ErrUnknownTopic)
}

func (b *fakeBroker) DescribeTopic(name string) (Topic, error) {
	t, err := b.Topic(name)
	if err != nil {
		return t, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t.Settings = []Setting{
		{Name: "cleanup.policy", Value: "delete", Default: "delete", Type: TypeList},
		{Name: "retention.ms", Value: "604800000", Default: "604800000", Type: TypeLong, Doc: "how long"},
	}
	for i := range t.Settings {
		if v, ok := b.topics[name].set[t.Settings[i].Name]; ok {
			t.Settings[i].Value, t.Settings[i].Explicit = v, true
		}
	}
	return t, nil
}

func (b *fakeBroker) TopicByID(id record.TopicID) (Topic, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, t := range b.topics {
		if t.id == id {
			return b.describe(name, t), nil
		}
	}
	return Topic{}, record.ErrUnknownTopic
}

func (b *fakeBroker) AwaitLeaders(_ context.Context, topics []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.awaited = append(b.awaited, topics)
}

func (b *fakeBroker) find(topic string, number int32) (*fakePartition, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[topic]
	if t == nil {
		return nil, record.ErrUnknownTopic
	}
	if number < 0 || int(number) >= len(t.parts) {
		return nil, record.ErrUnknownPartition
	}
	return t.parts[number], nil
}

// leads has Kafka's order of checks.
func (b *fakeBroker) leads(topic string, number int32, epoch record.Epoch) (*fakePartition, error) {
	p, err := b.find(topic, number)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case epoch != record.NoEpoch && epoch < p.epoch:
		return nil, &FencedError{Leader: p.leader, Epoch: p.epoch}
	case epoch > p.epoch:
		return nil, record.ErrUnknownEpoch
	case p.leader == record.NoNode:
		return nil, record.ErrNoLeader
	case p.leader != b.self:
		return nil, &record.NotLeaderError{Leader: p.leader, Epoch: p.epoch}
	}
	return p, nil
}

func (b *fakeBroker) Leads(topic string, number int32) error {
	_, err := b.leads(topic, number, record.NoEpoch)
	return err
}

func (b *fakeBroker) Produce(req ProduceRequest, done func(ProduceResult)) {
	p, err := b.leads(req.Topic, req.Partition, record.NoEpoch)
	b.mu.Lock()
	b.produced = append(b.produced, req)
	b.mayJoin = append(b.mayJoin, req.MayJoin())
	hold := b.hold
	b.mu.Unlock()
	if err == nil && p.produce != nil {
		err = p.produce
	}
	if err != nil {
		done(ProduceResult{BaseOffset: -1, LogStart: -1, AppendTime: record.NoTimestamp, Err: err})
		return
	}
	base := p.add(req.Batch)
	answer := func() { done(ProduceResult{BaseOffset: base, LogStart: p.start, AppendTime: record.NoTimestamp}) }
	if hold == nil {
		answer()
		return
	}
	go func() { <-hold; answer() }()
}

type fakeReader struct {
	*fakePartition
	node   record.NodeID
	opened record.Epoch
}

func (b *fakeBroker) Reader(topic string, number int32, epoch record.Epoch) (Reader, error) {
	p, err := b.leads(topic, number, epoch)
	if err != nil {
		return nil, err
	}
	return &fakeReader{p, b.self, p.epoch}, nil
}

func (r *fakeReader) State() (ReadState, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leader != r.node || r.epoch != r.opened {
		return ReadState{}, &record.NotLeaderError{Leader: r.leader, Epoch: r.epoch}
	}
	end := r.endLocked()
	s := ReadState{LogStart: r.start, Readable: end, HighWatermark: end, End: end, Serving: !r.notYet}
	if r.limited {
		s.Readable, s.HighWatermark = r.readable, r.readable
	}
	return s, nil
}

func (r *fakeReader) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

func (r *fakeReader) Confirm(ctx context.Context) error {
	r.mu.Lock()
	wait := r.unsure
	r.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	_, err := r.State()
	return err
}

func (r *fakeReader) Read(from record.Offset, maxBytes int32) (out []byte, next record.Offset, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next = from
	for _, b := range r.batches {
		if b.NextOffset() <= from {
			continue
		}
		if len(out) > 0 && len(out)+len(b) > int(maxBytes) {
			break
		}
		out, next = append(out, b...), b.NextOffset()
	}
	return out, next, nil
}

func (b *fakeBroker) Offset(_ context.Context, req OffsetRequest) (OffsetResult, error) {
	p, err := b.leads(req.Topic, req.Partition, req.Epoch)
	if err != nil {
		return OffsetResult{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	res := OffsetResult{Offset: p.endLocked(), Timestamp: -1, Epoch: p.epoch}
	switch {
	case req.At == AtStart || req.At == AtEarliestLocal:
		res.Offset = p.start
	case p.notYet:
		return OffsetResult{}, record.ErrOffsetUnavailable
	case req.At == AtEnd:
	default:
		for _, batch := range p.batches {
			if batch.MaxTimestamp() >= req.At {
				return OffsetResult{batch.BaseOffset(), batch.MaxTimestamp(), p.epoch}, nil
			}
		}
		res = OffsetResult{-1, -1, record.NoEpoch}
	}
	return res, nil
}

func (b *fakeBroker) EpochEnd(topic string, number int32, epoch, of record.Epoch) (record.Epoch, record.Offset, error) {
	p, err := b.leads(topic, number, epoch)
	if err != nil {
		return 0, 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if of > p.epoch {
		return record.NoEpoch, -1, nil
	}
	return of, p.endLocked(), nil
}

func (b *fakeBroker) ProducerID(context.Context) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nextPID++
	return b.nextPID, nil
}

// fakeLimit bounds the partitions of a topic, as a real broker does.
const fakeLimit = 1000

func (b *fakeBroker) CreateTopic(_ context.Context, req CreateTopic) (Topic, error) {
	if req.Partitions > fakeLimit {
		return Topic{}, record.ErrLimit
	}
	if _, err := b.Topic(req.Name); err == nil {
		return Topic{}, record.ErrTopicExists
	}
	b.mu.Lock()
	b.created = append(b.created, req)
	b.mu.Unlock()
	if req.ValidateOnly {
		return Topic{Name: req.Name, Partitions: make([]Partition, max(req.Partitions, 1))}, nil
	}
	t := b.topic(req.Name, int(max(req.Partitions, 1)))
	maps.Copy(t.set, req.Configs)
	return b.DescribeTopic(req.Name)
}

func (b *fakeBroker) DeleteTopic(_ context.Context, name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.topics, name)
	return nil
}

func (b *fakeBroker) AddPartitions(_ context.Context, req AddPartitions) error {
	if req.Count > fakeLimit {
		return record.ErrLimit
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[req.Topic]
	for !req.ValidateOnly && len(t.parts) < int(req.Count) {
		t.parts = append(t.parts, &fakePartition{leader: b.self, changed: make(chan struct{})})
	}
	return nil
}

func (b *fakeBroker) AlterTopic(_ context.Context, req AlterTopic) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.altered = append(b.altered, req)
	return nil
}

func (b *fakeBroker) DeleteRecords(_ context.Context, topic string, number int32, before record.Offset) (record.Offset, error) {
	p, err := b.leads(topic, number, record.NoEpoch)
	if err != nil {
		return 0, err
	}
	p.change(func() {
		if before < 0 {
			before = p.endLocked()
		}
		p.start = before
	})
	return before, nil
}

func (b *fakeBroker) TransferLeader(_ context.Context, topic string, number int32, to record.NodeID) error {
	p, err := b.find(topic, number)
	if err == nil {
		p.change(func() { p.leader, p.epoch = to, p.epoch+1 })
	}
	return err
}

func (b *fakeBroker) NodeSettings() []Setting {
	return []Setting{{Name: "node.id", Value: "7", Default: "7", Explicit: true, ReadOnly: true, Type: TypeInt}}
}

func (b *fakeBroker) LogDir() (LogDir, error) {
	return LogDir{Path: "/data", Total: 100, Free: 40, Replicas: []ReplicaSize{{record.TopicPartition{Topic: "t", Partition: 0}, 12}, {record.TopicPartition{Topic: "t", Partition: 1}, 13}}}, nil
}

// fakeGroups answers with what it was asked, so that a test sees both.
type fakeGroups struct {
	mu      sync.Mutex
	err     error
	errs    []error
	joined  []JoinGroupRequest
	synced  []SyncGroupRequest
	beaten  []HeartbeatRequest
	left    []LeaveGroupRequest
	commits []CommitOffsetsRequest
	fetched [][]record.TopicPartition
	join    func(ctx context.Context, r JoinGroupRequest) JoinGroupResponse
}

func (g *fakeGroups) each(n int) []error {
	out := make([]error, n)
	copy(out, g.errs)
	return out
}

func (g *fakeGroups) FindCoordinator(context.Context, string) (record.NodeID, error) {
	return fakeNode, g.err
}

func (g *fakeGroups) JoinGroup(ctx context.Context, r JoinGroupRequest) JoinGroupResponse {
	g.mu.Lock()
	g.joined = append(g.joined, r)
	g.mu.Unlock()
	if g.join != nil {
		return g.join(ctx, r)
	}
	return JoinGroupResponse{Err: g.err, Generation: 3, ProtocolType: r.ProtocolType, Protocol: "range", Leader: "m", Member: "m", Members: []JoinedMember{{"m", "i", []byte("meta")}}}
}

func (g *fakeGroups) SyncGroup(_ context.Context, r SyncGroupRequest) SyncGroupResponse {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.synced = append(g.synced, r)
	return SyncGroupResponse{Err: g.err, ProtocolType: "consumer", Protocol: "range", Assignment: []byte("mine")}
}

func (g *fakeGroups) Heartbeat(_ context.Context, r HeartbeatRequest) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.beaten = append(g.beaten, r)
	return g.err
}

func (g *fakeGroups) LeaveGroup(_ context.Context, r LeaveGroupRequest) ([]error, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = append(g.left, r)
	return g.each(len(r.Members)), g.err
}

func (g *fakeGroups) CommitOffsets(_ context.Context, r CommitOffsetsRequest) ([]error, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.commits = append(g.commits, r)
	return g.each(len(r.Offsets)), g.err
}

func (g *fakeGroups) FetchOffsets(_ context.Context, _ string, ps []record.TopicPartition) ([]CommittedOffset, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fetched = append(g.fetched, ps)
	if g.err != nil {
		return nil, g.err
	}
	if ps == nil {
		ps = []record.TopicPartition{{Topic: "t", Partition: 4}}
	}
	out := make([]CommittedOffset, len(ps))
	for i, p := range ps {
		out[i] = CommittedOffset{p, NoCommit, record.NoEpoch, ""}
		if p.Topic == "t" {
			out[i] = CommittedOffset{p, 40, 2, "m"}
		}
	}
	return out, nil
}

func (g *fakeGroups) DescribeGroup(_ context.Context, group string) (GroupDescription, error) {
	return GroupDescription{Group: group, State: "Stable", ProtocolType: "consumer", Protocol: "range", Members: []MemberDescription{{"m", "", "c", "/h", []byte("a"), []byte("b")}}}, g.err
}

func (g *fakeGroups) ListGroups(context.Context) ([]GroupListing, error) {
	return []GroupListing{{"a", "consumer", "Stable"}, {"b", "connect", "Empty"}}, g.err
}

func (g *fakeGroups) DeleteGroup(context.Context, string) error { return g.err }

func (g *fakeGroups) DeleteOffsets(_ context.Context, _ string, ps []record.TopicPartition) ([]error, error) {
	return g.each(len(ps)), g.err
}
