package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edged/internal/memnet"
	"edged/record"
	"edged/transport/wire"
)

// fakeCluster is wire servers on a network in memory that share one truth: the logs of the
// partitions. It does to a log what Raft may do to it: a leader's entries commit a while
// after they were appended, and a change of leader keeps some of the uncommitted ones and
// cuts off the rest.
type fakeCluster struct {
	t      *testing.T
	net    *memnet.Network
	nodes  []*fakeNode
	rand   *rand.Rand
	commit time.Duration // from append to answer

	mu         sync.Mutex
	topics     map[string][]*fakePartition
	ids        map[string]string
	configs    map[string]string // of every topic
	made       int               // topics so far
	metaLeader int
	lastID     int64
	refused    func() // called once, under the lock, behind a fetch that is out of range
	stats      struct{ produces, fetches, waiting int }
}

// fakeNode is one node. Its broker answers from the cluster's truth.
type fakeNode struct {
	c      *fakeCluster
	at     int
	id     record.NodeID
	name   string // its address
	host   *memnet.Host
	server *wire.Server
	ln     net.Listener
	served sync.WaitGroup

	// What tests change, under the cluster's lock.
	cluster string                                  // that it says it is of
	behind  map[string]bool                         // topics that this node has not heard of yet
	produce func(wire.ProduceRequest) error         // refuses; nil: does not
	asked   func(api string) (lose bool, err error) // for admin requests
}

type fakePartition struct {
	c         *fakeCluster
	tp        record.TopicPartition
	leader    int // index of the node, -1: none
	epoch     record.Epoch
	log       []record.Batch
	next      record.Offset
	start     record.Offset
	high      record.Offset // committed
	producers map[int64]*fakeProducer
	pending   []*fakeAppend
	changed   chan struct{} // closed when high or leader changes
}

// fakeProducer is what a partition remembers of a producer.
type fakeProducer struct {
	next   int32
	recent []fakeAppend // the last five
}

type fakeAppend struct {
	sequence int32
	base     record.Offset
	end      record.Offset
	epoch    record.Epoch
	done     []func(wire.ProduceResponse)
}

func newFakeCluster(t *testing.T, nodes int) *fakeCluster {
	c := &fakeCluster{
		t: t, net: memnet.New(), rand: rand.New(rand.NewPCG(1, uint64(len(t.Name())))), commit: 5 * time.Millisecond,
		topics: map[string][]*fakePartition{}, ids: map[string]string{},
	}
	c.net.SetLatency(time.Millisecond / 2)
	for i := range nodes {
		n := &fakeNode{c: c, at: i, id: record.NodeID(100 + i), name: fmt.Sprintf("n%d:7400", i), host: c.net.Host(fmt.Sprint("n", i)), cluster: "fake", behind: map[string]bool{}}
		c.nodes = append(c.nodes, n)
		n.start()
	}
	return c
}

func (n *fakeNode) addr() string { return n.name }

// start begins or begins again to serve.
func (n *fakeNode) start() {
	ln, err := n.host.Listen(7400)
	if err != nil {
		n.c.t.Fatal(err)
	}
	server := wire.NewServer(wire.Config{Broker: n, Logger: slog.New(slog.DiscardHandler)})
	n.ln, n.server = ln, server
	n.served.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			n.served.Go(func() { server.Handle(nc) })
		}
	})
}

// kill ends the process: connections are closed, leaderships are lost.
func (n *fakeNode) kill() {
	n.host.Kill()
	n.server.Close()
	n.served.Wait()
}

func (c *fakeCluster) close() {
	for _, n := range c.nodes {
		n.kill()
	}
}

func (c *fakeCluster) addTopic(name string, partitions int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made++
	c.ids[name] = fmt.Sprintf("id-%s-%d", name, c.made)
	c.topics[name] = nil
	for i := range partitions {
		c.topics[name] = append(c.topics[name], &fakePartition{
			c: c, tp: record.TopicPartition{Topic: name, Partition: int32(i)}, leader: i % len(c.nodes), epoch: 1,
			producers: map[int64]*fakeProducer{}, changed: make(chan struct{}),
		})
	}
}

func (c *fakeCluster) partition(topic string, partition int32) *fakePartition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.topics[topic][partition]
}

// move gives a partition another leader, -1 for none, in a new epoch.
func (p *fakePartition) move(to int) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.moveLocked(to)
}

func (p *fakePartition) moveLocked(to int) {
	p.epoch++
	p.leader = to
	pending := p.pending
	p.pending = nil
	// A prefix of what was not committed survives.
	keep := p.c.rand.IntN(len(pending) + 1)
	for i, a := range pending {
		if i < keep {
			p.high = a.end
		}
		for _, done := range a.done {
			go done(wire.ProduceResponse{Err: record.ErrInterrupted})
		}
	}
	p.cutLocked()
	p.wakeLocked()
}

// cutLocked drops what is not committed and rebuilds what is known of producers.
func (p *fakePartition) cutLocked() {
	for len(p.log) > 0 && p.log[len(p.log)-1].NextOffset() > p.high {
		p.log = p.log[:len(p.log)-1]
	}
	p.next = p.high
	p.producers = map[int64]*fakeProducer{}
	for _, b := range p.log {
		p.noteLocked(b)
	}
}

// forget makes the partition forget producers, as after their records have expired.
func (p *fakePartition) forget() {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.producers = map[int64]*fakeProducer{}
}

func (p *fakePartition) wakeLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *fakePartition) noteLocked(b record.Batch) {
	if b.ProducerID() < 0 {
		return
	}
	pr := p.producers[b.ProducerID()]
	if pr == nil {
		pr = &fakeProducer{}
		p.producers[b.ProducerID()] = pr
	}
	pr.next = b.BaseSequence() + b.Count()
	pr.recent = append(pr.recent, fakeAppend{sequence: b.BaseSequence(), base: b.BaseOffset(), end: b.NextOffset()})
	if len(pr.recent) > maxInFlight {
		pr.recent = pr.recent[1:]
	}
}

// sequenceLocked says what the partition thinks of a batch: nil to append, a repeated one, or an error.
func (p *fakePartition) sequenceLocked(b record.Batch) (*fakeAppend, error) {
	pr := p.producers[b.ProducerID()]
	if pr == nil {
		if b.BaseSequence() != 0 {
			return nil, record.ErrUnknownProducer
		}
		return nil, nil
	}
	for _, a := range pr.recent {
		if a.sequence == b.BaseSequence() {
			return &a, nil
		}
	}
	switch {
	case b.BaseSequence() < pr.next:
		return nil, record.ErrDuplicateSequence
	case b.BaseSequence() > pr.next:
		return nil, record.ErrOutOfOrder
	}
	return nil, nil
}

// notLeaderLocked is the node's answer if it does not lead the partition.
func (n *fakeNode) notLeaderLocked(p *fakePartition) error {
	if p.leader == n.at {
		return nil
	}
	e := &record.NotLeaderError{Leader: record.NoNode, Epoch: p.epoch}
	if p.leader >= 0 {
		l := n.c.nodes[p.leader]
		e.Leader, e.Addr = l.id, l.addr()
	}
	return e
}

func (n *fakeNode) findLocked(topic string, partition int32) (*fakePartition, error) {
	ps := n.c.topics[topic]
	switch {
	case ps == nil || n.behind[topic]:
		return nil, record.ErrUnknownTopic
	case partition < 0 || int(partition) >= len(ps):
		return nil, record.ErrUnknownPartition
	}
	return ps[partition], n.notLeaderLocked(ps[partition])
}

// findIDLocked is findLocked for requests that name the topic's id.
func (n *fakeNode) findIDLocked(topic, id string, partition int32) (*fakePartition, error) {
	if id != "" && n.c.topics[topic] != nil && id != n.c.ids[topic] {
		return nil, record.ErrUnknownTopicID
	}
	return n.findLocked(topic, partition)
}

func (n *fakeNode) Hello() wire.HelloInfo {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	return wire.HelloInfo{Node: n.id, ClusterID: n.cluster, Ready: true}
}

func (n *fakeNode) Metadata(_ context.Context, topics []string) (wire.Metadata, error) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	md := wire.Metadata{ClusterID: "fake", MetadataLeader: n.c.nodes[n.c.metaLeader].id}
	var ids []record.NodeID
	for _, o := range n.c.nodes {
		md.Nodes = append(md.Nodes, wire.Node{ID: o.id, Native: o.addr(), Alive: true})
		ids = append(ids, o.id)
	}
	if topics == nil {
		for name := range n.c.topics {
			topics = append(topics, name)
		}
		slices.Sort(topics)
	}
	for _, name := range topics {
		t := wire.Topic{Name: name, ID: n.c.ids[name], Replication: int16(len(ids)), Configs: n.c.configs}
		if n.c.topics[name] == nil || n.behind[name] {
			md.Topics = append(md.Topics, wire.Topic{Name: name, Err: record.ErrUnknownTopic})
			continue
		}
		for _, p := range n.c.topics[name] {
			wp := wire.Partition{Partition: p.tp.Partition, Leader: record.NoNode, Epoch: p.epoch, Replicas: ids, Voters: ids}
			if p.leader >= 0 {
				wp.Leader, wp.LeaderAddr = n.c.nodes[p.leader].id, n.c.nodes[p.leader].addr()
			}
			t.Partitions = append(t.Partitions, wp)
		}
		md.Topics = append(md.Topics, t)
	}
	return md, nil
}

func (n *fakeNode) Produce(r wire.ProduceRequest, done func(wire.ProduceResponse)) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	n.c.stats.produces++
	p, err := n.findIDLocked(r.Topic, r.TopicID, r.Partition)
	if err == nil && n.produce != nil {
		err = n.produce(r)
	}
	var repeated *fakeAppend
	if err == nil {
		repeated, err = p.sequenceLocked(r.Batch)
	}
	if err != nil {
		done(wire.ProduceResponse{Err: err})
		return
	}
	if repeated != nil {
		for _, a := range p.pending {
			if a.base == repeated.base {
				a.done = append(a.done, done)
				return
			}
		}
		done(wire.ProduceResponse{BaseOffset: repeated.base, Epoch: p.epoch})
		return
	}
	b := slices.Clone(r.Batch)
	b.SetBase(p.next, p.epoch)
	p.log = append(p.log, b)
	p.next = b.NextOffset()
	p.noteLocked(b)
	a := &fakeAppend{base: b.BaseOffset(), end: b.NextOffset(), epoch: p.epoch, done: []func(wire.ProduceResponse){done}}
	p.pending = append(p.pending, a)
	time.AfterFunc(n.c.commit, func() { p.committed(a) })
}

// committed answers the append and all before it, unless leadership was lost since.
func (p *fakePartition) committed(a *fakeAppend) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	i := slices.Index(p.pending, a)
	for _, b := range p.pending[:i+1] {
		p.high = b.end
		for _, done := range b.done {
			done(wire.ProduceResponse{BaseOffset: b.base, Epoch: b.epoch, Durability: "fake"})
		}
	}
	p.pending = p.pending[i+1:]
	p.wakeLocked()
}

func (n *fakeNode) Fetch(ctx context.Context, r wire.FetchRequest) wire.FetchResponse {
	timer := time.NewTimer(time.Duration(r.MaxWaitMs) * time.Millisecond)
	defer timer.Stop()
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	n.c.stats.fetches++
	n.c.stats.waiting++
	defer func() { n.c.stats.waiting-- }()
	for over := false; ; {
		p, err := n.findIDLocked(r.Topic, r.TopicID, r.Partition)
		if err != nil {
			return wire.FetchResponse{Err: err}
		}
		resp := wire.FetchResponse{HighWatermark: p.high, LogStart: p.start, Epoch: p.epoch}
		if r.Offset < p.start || r.Offset > p.high {
			resp.Err = record.ErrOffsetOutOfRange
			if n.c.refused != nil {
				n.c.refused()
				n.c.refused = nil
			}
			return resp
		}
		resp.Batches = p.readLocked(r.Offset, r.MaxBytes)
		if len(resp.Batches) > 0 || over {
			return resp
		}
		changed := p.changed
		n.c.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
			over = true
		case <-ctx.Done():
			over = true
		}
		n.c.mu.Lock()
	}
}

func (p *fakePartition) readLocked(from record.Offset, maxBytes int32) (out []byte) {
	for _, b := range p.log {
		if b.NextOffset() <= from || b.NextOffset() > p.high {
			continue
		}
		if len(out) > 0 && len(out)+len(b) > int(maxBytes) {
			break
		}
		out = append(out, b...)
	}
	return out
}

func (n *fakeNode) Offsets(_ context.Context, r wire.OffsetsRequest) (wire.OffsetsResponse, error) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	p, err := n.findLocked(r.Topic, r.Partition)
	if err != nil {
		return wire.OffsetsResponse{}, err
	}
	resp := wire.OffsetsResponse{Offset: p.high, Timestamp: -1, Epoch: p.epoch, LogStart: p.start, HighWatermark: p.high}
	if r.At == wire.AtStart {
		resp.Offset = p.start
	}
	return resp, nil
}

func (n *fakeNode) ProducerID(context.Context) (int64, int16, error) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	n.c.lastID++
	return n.c.lastID, 0, nil
}

// admin is what all requests for the metadata leader have in common. With lose the request
// takes effect and its answer does not arrive.
func (n *fakeNode) admin(api string) (lose bool, err error) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	if n.at != n.c.metaLeader {
		l := n.c.nodes[n.c.metaLeader]
		return false, &record.NotLeaderError{Leader: l.id, Addr: l.addr(), Epoch: 1}
	}
	if n.asked != nil {
		return n.asked(api)
	}
	return false, nil
}

func (n *fakeNode) CreateTopic(_ context.Context, r wire.CreateTopicRequest) (wire.CreateTopicResponse, error) {
	lose, err := n.admin("create_topic")
	if err != nil {
		return wire.CreateTopicResponse{}, err
	}
	n.c.mu.Lock()
	_, exists := n.c.topics[r.Name]
	n.c.mu.Unlock()
	if exists {
		return wire.CreateTopicResponse{}, record.ErrTopicExists
	}
	n.c.addTopic(r.Name, int(r.Partitions))
	if lose {
		return wire.CreateTopicResponse{}, record.ErrInterrupted
	}
	return wire.CreateTopicResponse{Name: r.Name, Partitions: r.Partitions}, nil
}

func (n *fakeNode) DeleteTopic(_ context.Context, r wire.DeleteTopicRequest) error {
	lose, err := n.admin("delete_topic")
	if err != nil {
		return err
	}
	n.c.mu.Lock()
	_, exists := n.c.topics[r.Name]
	delete(n.c.topics, r.Name)
	n.c.mu.Unlock()
	switch {
	case lose:
		return record.ErrInterrupted
	case !exists:
		return record.ErrUnknownTopic
	}
	return nil
}

func (n *fakeNode) AlterTopic(context.Context, wire.AlterTopicRequest) error {
	_, err := n.admin("alter_topic")
	return err
}

func (n *fakeNode) TransferLeader(_ context.Context, r wire.TransferLeaderRequest) (wire.TransferLeaderResponse, error) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	p, err := n.findLocked(r.Topic, r.Partition)
	if err != nil {
		return wire.TransferLeaderResponse{}, err
	}
	p.moveLocked(int(r.To) - 100)
	return wire.TransferLeaderResponse{Leader: r.To, Epoch: p.epoch}, nil
}

func (n *fakeNode) LeaderHistory(context.Context, wire.LeaderHistoryRequest) ([]wire.LeaderChange, error) {
	return []wire.LeaderChange{{Topic: "t", Leader: n.id, At: time.UnixMilli(5).UTC()}}, nil
}

func (n *fakeNode) Status(context.Context) (wire.Status, error) {
	return wire.Status{Nodes: int32(len(n.c.nodes))}, nil
}

func (n *fakeNode) RemoveNode(_ context.Context, r wire.RemoveNodeRequest) (wire.RemoveNodeResponse, error) {
	return wire.RemoveNodeResponse{Removed: r.Force}, nil
}

func (n *fakeNode) DescribeNode(_ context.Context, id record.NodeID) (wire.NodeDescription, error) {
	if id != record.NoNode && id != n.id {
		return wire.NodeDescription{}, record.ErrUnknownNode
	}
	return wire.NodeDescription{Node: wire.Node{ID: n.id}}, nil
}

// produces is how many produce requests have come so far.
func (c *fakeCluster) produces() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats.produces
}

// client makes a client that knows the nodes named, or all.
func (c *fakeCluster) client(nodes ...int) *Client {
	c.t.Helper()
	var addrs []string
	for _, n := range c.nodes {
		if len(nodes) == 0 || slices.Contains(nodes, n.at) {
			addrs = append(addrs, n.addr())
		}
	}
	host := c.net.Host("client")
	cl, err := New(Config{Nodes: addrs, Name: "test", Dial: host.Dial})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { cl.Close() })
	return cl
}

// values reads a partition's committed records, and checks that offsets are dense.
func (p *fakePartition) values() []string {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	var out []string
	next := record.Offset(0)
	for _, b := range p.log {
		if b.NextOffset() > p.high {
			break
		}
		for r, err := range b.Records() {
			if err != nil || r.Offset != next {
				p.c.t.Fatalf("offset %d after %d, err %v", r.Offset, next-1, err)
			}
			next++
			out = append(out, string(r.Value))
		}
	}
	return out
}

// inBubble runs f under virtual time with a cluster that is closed at the end, as are its clients.
func inBubble(t *testing.T, nodes int, f func(*testing.T, *fakeCluster)) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, nodes)
		t.Cleanup(c.close)
		f(t, c)
	})
}

// history collects acks and compares them with a partition's log in the end.
type history struct {
	mu   sync.Mutex
	acks []Ack
	vals []string // of the acks
}

func (h *history) expect(value string) func(Ack) {
	return func(a Ack) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.acks = append(h.acks, a)
		h.vals = append(h.vals, value)
	}
}

// check: what was acked stands in the log once, at its offset and in the order of Produce;
// what failed for sure does not stand there; nothing stands there twice. It gives the
// number of acked and of failed records.
func (h *history) check(t *testing.T, p *fakePartition) (acked, failed int) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	at := map[string]int{}
	for i, v := range p.values() {
		if j, twice := at[v]; twice {
			t.Fatalf("%q stands at %d and at %d", v, j, i)
		}
		at[v] = i
	}
	last := -1
	for i, a := range h.acks {
		where, there := at[h.vals[i]]
		switch {
		case a.Err == nil && !there:
			t.Fatalf("%q was acked at %d and is lost", h.vals[i], a.Offset)
		case a.Err == nil && a.Offset >= 0 && int(a.Offset) != where:
			t.Fatalf("%q was acked at %d and stands at %d", h.vals[i], a.Offset, where)
		case a.Err == nil && where < last:
			t.Fatalf("%q stands at %d, before its predecessor at %d", h.vals[i], where, last)
		case a.Err != nil && there && !errors.Is(a.Err, record.ErrTimeout) && !errors.Is(a.Err, record.ErrInterrupted):
			t.Fatalf("%q failed for sure (%v) and stands at %d", h.vals[i], a.Err, where)
		}
		if a.Err == nil {
			acked++
			last = where
		} else {
			failed++
		}
	}
	return acked, failed
}

func (b *fakeNode) Events(_ context.Context, req wire.EventsRequest) ([]wire.NodeEvent, error) {
	return nil, nil
}

func (b *fakeNode) Network(_ context.Context, req wire.NetworkRequest) ([]wire.Reach, error) {
	return nil, nil
}
