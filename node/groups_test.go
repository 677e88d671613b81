package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"edged/client"
	"edged/metadata"
	"edged/record"
	"edged/transport/kafka"
	"edged/transport/wire"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

// testNode is a node in this process with connections that can be cut, as a power cut would.
type testNode struct {
	*Node
	cancel context.CancelFunc
	done   chan error
	mu     sync.Mutex
	dead   bool
	open   map[io.Closer]bool
}

var errDead = errors.New("the node is dead")

// track keeps something to be closed by die, nil after it.
func (tn *testNode) track(c io.Closer) error {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	if tn.dead {
		_ = c.Close()
		return errDead
	}
	tn.open[c] = true
	return nil
}

// die ends everything that others can notice of the node, at once.
func (tn *testNode) die() {
	tn.mu.Lock()
	tn.dead = true
	open := tn.open
	tn.open = map[io.Closer]bool{}
	tn.mu.Unlock()
	for c := range open {
		_ = c.Close()
	}
}

// deadly is a listener whose connections end with the node.
type deadly struct {
	net.Listener
	tn *testNode
}

func (d deadly) Accept() (net.Conn, error) {
	c, err := d.Listener.Accept()
	if err == nil {
		err = d.tn.track(c)
	}
	return c, err
}

// startNode starts a node on loopback that joins others, or forms a cluster with them.
func startNode(t *testing.T, expect int, join ...string) *testNode {
	t.Helper()
	return startNodeIn(t, t.TempDir(), expect, join...)
}

func startNodeIn(t *testing.T, dir string, expect int, join ...string) *testNode {
	t.Helper()
	return startNodeWith(t, dir, func(*Config, *Options) {}, expect, join...)
}

func startNodeWith(t testing.TB, dir string, change func(*Config, *Options), expect int, join ...string) *testNode {
	t.Helper()
	cfg := DefaultConfig()
	cfg.DataDir, cfg.NodeName, cfg.Advertise = dir, "test", "127.0.0.1"
	cfg.NativeAddr, cfg.GossipAddr, cfg.KafkaAddr, cfg.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.BootstrapExpect, cfg.Join, cfg.KafkaGroupDelay = expect, join, 100
	tn := &testNode{done: make(chan error, 1), open: map[io.Closer]bool{}}
	opts := Options{
		ClockSynced: func() (bool, string) { return true, "for a test" },
		Logger:      slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelInfo})),
		Listen: func(addr string) (net.Listener, error) {
			ln, err := net.Listen("tcp", addr)
			if err == nil {
				err = tn.track(ln)
			}
			return deadly{ln, tn}, err
		},
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, "tcp", addr)
			if err == nil {
				err = tn.track(c)
			}
			return c, err
		},
	}
	change(&cfg, &opts)
	n, err := New(cfg, opts)
	if err != nil {
		t.Fatal(err)
	}
	tn.Node = n
	ctx, cancel := context.WithCancel(t.Context())
	tn.cancel = cancel
	go func() { tn.done <- n.Run(ctx) }()
	t.Cleanup(tn.stop)
	return tn
}

// stop ends a node in good order.
func (tn *testNode) stop() {
	tn.cancel()
	<-tn.done
	tn.done <- nil
}

// testLog writes what a node says into the test's log, until the test is over.
type testLog struct{ t testing.TB }

func (l testLog) Write(b []byte) (int, error) {
	if l.t.Context().Err() == nil {
		l.t.Logf("%s", b[:len(b)-1])
	}
	return len(b), nil
}

// await waits until something holds.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20 s", what)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("interrupted")
		}
	}
}

// startCluster starts nodes that form a cluster, with a topic t of 6 partitions.
func startCluster(t testing.TB, size int) []*testNode {
	t.Helper()
	return startClusterWith(t, size, func(*Config, *Options) {})
}

func startClusterWith(t testing.TB, size int, change func(*Config, *Options)) []*testNode {
	t.Helper()
	var nodes []*testNode
	var join []string
	for range size {
		n := startNodeWith(t, t.TempDir(), change, size, join...)
		nodes = append(nodes, n)
		join = []string{nodes[0].Addrs().Gossip}
	}
	for _, n := range nodes {
		await(t, "a cluster", func() bool {
			return n.notReady() == nil && n.caughtUp() && len(n.machine.Picture().NodesSorted()) == size
		})
	}
	if _, err := (broker{nodes[0].Node}).CreateTopic(t.Context(), wire.CreateTopicRequest{Name: "t", Partitions: 6}); err != nil {
		t.Fatal(err)
	}
	return nodes
}

func seeds(nodes []*testNode) kgo.Opt {
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.Addrs().Kafka)
	}
	return kgo.SeedBrokers(addrs...)
}

// tally counts what the members of a group have read.
type tally struct {
	mu   sync.Mutex
	seen map[string]int
}

func (c *tally) add(rs []*kgo.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range rs {
		c.seen[string(r.Value)]++
	}
}

func (c *tally) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.seen)
}

// twice are the records that were read more than once.
func (c *tally) twice() (values []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for v, n := range c.seen {
		if n > 1 {
			values = append(values, v)
		}
	}
	return values
}

// groupMember is a consumer of a group that commits what it has read, after each poll.
type groupMember struct {
	client *kgo.Client
	cancel context.CancelFunc
	ended  chan struct{}
	mu     sync.Mutex
	has    map[int32]bool
	lost   int // partitions that were taken without being given back
}

func (m *groupMember) partitions() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.has)
}

func startMember(t *testing.T, nodes []*testNode, group string, into *tally, opts ...kgo.Opt) *groupMember {
	t.Helper()
	m := &groupMember{ended: make(chan struct{}), has: map[int32]bool{}}
	change := func(to bool, lost bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, ps map[string][]int32) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, p := range ps["t"] {
				if delete(m.has, p); to {
					m.has[p] = true
				} else if lost {
					m.lost++
				}
			}
		}
	}
	opts = append([]kgo.Opt{
		seeds(nodes), kgo.MetadataMinAge(100 * time.Millisecond), kgo.ConsumerGroup(group), kgo.ConsumeTopics("t"), kgo.DisableAutoCommit(), kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.SessionTimeout(6 * time.Second), kgo.RebalanceTimeout(10 * time.Second), kgo.BlockRebalanceOnPoll(), kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(change(true, false)), kgo.OnPartitionsRevoked(change(false, false)), kgo.OnPartitionsLost(change(false, true)),
	}, opts...)
	var err error
	if m.client, err = kgo.NewClient(opts...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go func() {
		defer close(m.ended)
		for ctx.Err() == nil {
			fetches := m.client.PollFetches(ctx)
			records := fetches.Records()
			into.add(records)
			if len(records) > 0 {
				_ = m.client.CommitRecords(context.Background(), records...)
			}
			m.client.AllowRebalance()
		}
	}()
	t.Cleanup(m.leave)
	return m
}

// leave ends the member in good order.
func (m *groupMember) leave() {
	m.cancel()
	<-m.ended
	m.client.AllowRebalance()
	m.client.Close()
}

// produce writes n records, each of its own value, over all partitions.
func produce(t *testing.T, client *kgo.Client, from, n int) {
	t.Helper()
	var records []*kgo.Record
	for i := range n {
		records = append(records, &kgo.Record{Topic: "t", Value: fmt.Appendf(nil, "v%06d", from+i), Partition: int32(i % 6)})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func newProducer(t *testing.T, nodes []*testNode) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(seeds(nodes), kgo.MetadataMinAge(100*time.Millisecond), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// shared tells whether the members have all six partitions between them, each at least one.
func shared(members ...*groupMember) func() bool {
	return func() bool {
		sum := 0
		for _, m := range members {
			n := m.partitions()
			if n == 0 {
				return false
			}
			sum += n
		}
		return sum == 6
	}
}

// committed adds up what a group has committed, as its coordinator sees it; -1 if nobody answers.
func committed(t *testing.T, nodes []*testNode, group string) int64 {
	for _, n := range nodes {
		offsets, err := kafkaGroups{n.groups}.FetchOffsets(t.Context(), group, nil)
		if err == nil {
			sum := int64(0)
			for _, o := range offsets {
				sum += int64(o.Offset)
			}
			return sum
		}
	}
	return -1
}

func TestGroups_membersComeAndGo(t *testing.T) {
	nodes := startCluster(t, 1)
	producer := newProducer(t, nodes)
	produce(t, producer, 0, 600)
	got := &tally{seen: map[string]int{}}
	a, b := startMember(t, nodes, "g", got), startMember(t, nodes, "g", got)
	await(t, "two members share", shared(a, b))
	c := startMember(t, nodes, "g", got)
	await(t, "three members share", shared(a, b, c))
	await(t, "all is read", func() bool { return got.count() == 600 })

	b.leave()
	await(t, "two members share what the third had", shared(a, c))
	produce(t, producer, 600, 600)
	await(t, "all is read", func() bool { return got.count() == 1200 })

	a.leave()
	c.leave()
	if sum := committed(t, nodes, "g"); sum != 1200 {
		t.Errorf("%d offsets are committed, 1200 records were read", sum)
	}
	d := startMember(t, nodes, "g", got)
	await(t, "one member has all", shared(d))
	produce(t, producer, 1200, 60)
	await(t, "all is read", func() bool { return got.count() == 1260 })
	if twice := got.twice(); len(twice) > 0 {
		t.Errorf("%d records were read twice although everybody left in good order: %v", len(twice), twice[:min(3, len(twice))])
	}
}

// TestGroups_oldClients speaks the versions of the protocol that clients of older releases do.
func TestGroups_oldClients(t *testing.T) {
	nodes := startCluster(t, 1)
	producer := newProducer(t, nodes)
	produce(t, producer, 0, 60)
	for name, versions := range map[string]*kversion.Versions{
		"0.11": kversion.V0_11_0(), "1.0": kversion.V1_0_0(), "2.1": kversion.V2_1_0(), "2.3": kversion.V2_3_0(), "2.4": kversion.V2_4_0(), "2.8": kversion.V2_8_0(), "3.5": kversion.V3_5_0(),
	} {
		got := &tally{seen: map[string]int{}}
		opts := []kgo.Opt{kgo.MaxVersions(versions), kgo.Balancers(kgo.RangeBalancer(), kgo.RoundRobinBalancer())}
		a, b := startMember(t, nodes, name, got, opts...), startMember(t, nodes, name, got, opts...)
		await(t, "two members share", shared(a, b))
		await(t, "all is read", func() bool { return got.count() == 60 })
		await(t, "all is committed", func() bool { return committed(t, nodes, name) == 60 })
		a.leave()
		await(t, "one has all", shared(b))
		b.leave()
	}
}

func TestGroups_coordinatorDies(t *testing.T) {
	nodes := startCluster(t, 3)
	producer := newProducer(t, nodes)
	got := &tally{seen: map[string]int{}}
	var members []*groupMember
	for range 3 {
		members = append(members, startMember(t, nodes, "g", got))
	}
	await(t, "three members share", shared(members...))
	produce(t, producer, 0, 600)
	await(t, "all is read", func() bool { return got.count() == 600 })
	await(t, "all is committed", func() bool { return committed(t, nodes, "g") == 600 })

	coordinator, err := kafkaGroups{nodes[0].groups}.FindCoordinator(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	before, _ := describe(t, nodes, "g")
	var rest []*testNode
	for _, n := range nodes {
		if n.Addrs().NodeID == coordinator {
			t.Logf("node %d dies", coordinator)
			n.die()
		} else {
			rest = append(rest, n)
		}
	}
	await(t, "another coordinator", func() bool { return committed(t, rest, "g") >= 600 })
	produce(t, producer, 600, 600)
	await(t, "all is read", func() bool { return got.count() == 1200 })
	await(t, "all is committed", func() bool { return committed(t, rest, "g") == 1200 })
	after, err := describe(t, rest, "g")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(memberIDs(before), memberIDs(after)) {
		t.Errorf("the members were %v and are %v", memberIDs(before), memberIDs(after))
	}
	for i, m := range members {
		if m.lost > 0 {
			t.Errorf("member %d lost %d partitions", i, m.lost)
		}
	}
}

// TestGroups_coordinatorMoves hands the coordinator's log from node to node while the members read:
// they go on in their generation, and so do their offsets.
func TestGroups_coordinatorMoves(t *testing.T) {
	nodes := startCluster(t, 3)
	producer := newProducer(t, nodes)
	got := &tally{seen: map[string]int{}}
	a, b := startMember(t, nodes, "g", got), startMember(t, nodes, "g", got)
	await(t, "two members share", shared(a, b))
	before, err := describe(t, nodes, "g")
	if err != nil {
		t.Fatal(err)
	}
	part := nodes[0].groupLog("g").Group
	at, _ := nodes[0].machine.Picture().Group(part)
	for i := range 5 {
		produce(t, producer, i*60, 60)
		req := wire.TransferLeaderRequest{Topic: metadata.GroupsTopic, Partition: at.Number, To: record.NoNode}
		if _, err := (broker{nodes[0].Node}).TransferLeader(t.Context(), req); err != nil {
			t.Log(err)
		}
		await(t, "all is read", func() bool { return got.count() == (i+1)*60 })
		await(t, "all is committed", func() bool { return committed(t, nodes, "g") == int64(i+1)*60 })
	}
	after, err := describe(t, nodes, "g")
	if err != nil || !slices.Equal(memberIDs(before), memberIDs(after)) {
		t.Errorf("the members were %v and are %v, %v", memberIDs(before), memberIDs(after), err)
	}
	if v := nodes[0].host.Load().Partition(part).View(); v.Epoch < 4 {
		t.Errorf("the log is only in epoch %d after five transfers", v.Epoch)
	}
	if a.lost+b.lost > 0 || len(got.twice()) > 0 {
		t.Errorf("%d partitions were lost, %v read twice", a.lost+b.lost, got.twice())
	}
}

// TestGroups_operators asks every node of a cluster about groups that others coordinate.
func TestGroups_operators(t *testing.T) {
	nodes := startCluster(t, 3)
	producer := newProducer(t, nodes)
	produce(t, producer, 0, 60)
	got := &tally{seen: map[string]int{}}
	groups := []string{"a", "b", "c", "d"}
	var members []*groupMember
	for _, g := range groups {
		m := startMember(t, nodes, g, got, kgo.InstanceID("pi"))
		await(t, "one member has all", shared(m))
		await(t, "all is committed", func() bool { return committed(t, nodes, g) == 60 })
		members = append(members, m)
	}
	for _, n := range nodes {
		cl, err := client.New(client.Config{Nodes: []string{n.Addrs().Native}})
		if err != nil {
			t.Fatal(err)
		}
		admin := cl.Admin()
		all, err := admin.Groups(t.Context())
		if err != nil || len(all) != len(groups) {
			t.Fatalf("%+v, %v", all, err)
		}
		for i, g := range groups {
			if all[i].Group != g || all[i].State != "Stable" || all[i].Members != 1 {
				t.Errorf("listed as %+v", all[i])
			}
			d, err := admin.Group(t.Context(), g)
			if err != nil || d.GroupListing != all[i] || len(d.Members) != 1 || len(d.Offsets) != 1 {
				t.Fatalf("%+v, %v", d, err)
			}
			if m := d.Members[0]; m.Instance != "pi" || m.ClientHost != "/127.0.0.1" || len(m.Topics) != 1 || len(m.Topics[0].Partitions) != 6 {
				t.Errorf("a member of %s is %+v", g, m)
			}
			if o := d.Offsets[0]; o.Topic != "t" || len(o.Partitions) != 6 || o.Partitions[5].Offset != 10 {
				t.Errorf("the offsets of %s are %+v", g, o)
			}
			to := map[record.TopicPartition]record.Offset{{Topic: "t", Partition: 1}: 4}
			if err := admin.CommitGroup(t.Context(), g, to); !errors.Is(err, record.ErrGroupNotEmpty) {
				t.Errorf("offsets of a group with members: %v", err)
			}
			if err := admin.DeleteGroup(t.Context(), g); !errors.Is(err, record.ErrGroupNotEmpty) {
				t.Errorf("delete a group with members: %v", err)
			}
		}
		if err := cl.Close(); err != nil {
			t.Error(err)
		}
	}
	admin, done := adminOf(t, nodes[0])
	defer done()
	for i, g := range groups {
		// A static member stays when its client ends; an operator takes it out.
		members[i].leave()
		if d, err := admin.Group(t.Context(), g); err != nil || len(d.Members) != 1 {
			t.Fatalf("%+v, %v", d, err)
		}
		leaveStatic(t, nodes, g, "pi")
		to := map[record.TopicPartition]record.Offset{{Topic: "t", Partition: 1}: 4, {Topic: "t", Partition: 2}: -1}
		if err := admin.CommitGroup(t.Context(), g, to); err != nil {
			t.Fatal(err)
		}
		d, err := admin.Group(t.Context(), g)
		if err != nil || d.State != "Empty" || len(d.Offsets[0].Partitions) != 5 || d.Offsets[0].Partitions[1].Offset != 4 {
			t.Errorf("%+v, %v", d, err)
		}
		if err := admin.DeleteGroup(t.Context(), g); err != nil {
			t.Error(err)
		}
		if _, err := admin.Group(t.Context(), g); !errors.Is(err, record.ErrUnknownGroup) {
			t.Errorf("a deleted group: %v", err)
		}
	}
}

func adminOf(t *testing.T, n *testNode) (client.Admin, func()) {
	t.Helper()
	cl, err := client.New(client.Config{Nodes: []string{n.Addrs().Native}})
	if err != nil {
		t.Fatal(err)
	}
	return cl.Admin(), func() { _ = cl.Close() }
}

func leaveStatic(t *testing.T, nodes []*testNode, group, instance string) {
	t.Helper()
	await(t, "the member has left", func() bool {
		for _, n := range nodes {
			errs, err := kafkaGroups{n.groups}.LeaveGroup(t.Context(), kafka.LeaveGroupRequest{Group: group, Members: []kafka.LeavingMember{{Instance: instance}}})
			if err == nil && errs[0] == nil {
				return true
			}
		}
		return false
	})
}

// TestGroups_offsetsOutliveNodes commits on a single node, starts it again, lets the cluster grow around
// it, and takes it away.
func TestGroups_offsetsOutliveNodes(t *testing.T) {
	dir := t.TempDir()
	first := startNodeIn(t, dir, 1)
	await(t, "a cluster of one", func() bool { return first.notReady() == nil && first.caughtUp() })
	if _, err := (broker{first.Node}).CreateTopic(t.Context(), wire.CreateTopicRequest{Name: "t", Partitions: 6}); err != nil {
		t.Fatal(err)
	}
	commit := func(n *testNode, group string, offset record.Offset) {
		t.Helper()
		k := kafkaGroups{n.groups}
		if _, err := k.FindCoordinator(t.Context(), group); err != nil {
			t.Fatal(err)
		}
		req := kafka.CommitOffsetsRequest{MemberIdentity: kafka.MemberIdentity{Group: group, Generation: kafka.NoGeneration}}
		req.Offsets = []kafka.CommittedOffset{{TopicPartition: record.TopicPartition{Topic: "t", Partition: 0}, Offset: offset}}
		var err error
		await(t, "a commit", func() bool {
			var errs []error
			if errs, err = k.CommitOffsets(t.Context(), req); err == nil {
				err = errs[0]
			}
			return err == nil || !record.Retriable(err)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	groups := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"}
	for _, g := range groups {
		commit(first, g, 5)
	}
	first.stop()
	first = startNodeIn(t, dir, 1)
	await(t, "the offsets after a restart", func() bool { return committed(t, []*testNode{first}, "a") == 5 })
	for _, g := range groups[1:] {
		await(t, "the offsets after a restart", func() bool { return committed(t, []*testNode{first}, g) == 5 })
		commit(first, g, 6)
	}

	nodes := []*testNode{first}
	for range 2 {
		nodes = append(nodes, startNode(t, 0, first.Addrs().Gossip))
	}
	await(t, "three copies of everything", func() bool {
		s, err := (broker{first.Node}).Status(t.Context())
		return err == nil && s.NodesAlive == 3 && s.UnderReplicated == 0
	})
	first.stop()
	for _, g := range groups[1:] {
		await(t, "the offsets on the other nodes", func() bool { return committed(t, nodes[1:], g) == 6 })
	}
}

func describe(t *testing.T, nodes []*testNode, group string) (d kafka.GroupDescription, err error) {
	err = record.ErrNoCoordinator
	for _, n := range nodes {
		if d, err = (kafkaGroups{n.groups}).DescribeGroup(t.Context(), group); err == nil {
			return d, nil
		}
	}
	return d, err
}

func memberIDs(d kafka.GroupDescription) (ids []string) {
	for _, m := range d.Members {
		ids = append(ids, m.Member)
	}
	slices.Sort(ids)
	return ids
}
