package node

import (
	"context"
	"fmt"
	"slices"
	"time"

	"edged/metadata"
	"edged/partition"
	"edged/record"
	"edged/transport/wire"
)

// notReady says why this node takes nothing on, nil if it does.
func (n *Node) notReady() error {
	if n.stopping.Load() {
		return record.ErrShuttingDown
	}
	return n.notMember()
}

// notMember says why this node cannot tell about the cluster yet, nil if it can. It goes on telling while
// it stops: who asks then wants to know where to go, and what is said to be missing is believed.
func (n *Node) notMember() error {
	if n.host.Load() == nil || n.machine.Picture().ClusterID().IsZero() {
		if text := n.bootstrap.status(); text != "" {
			return fmt.Errorf("%w (%s)", record.ErrNotReady, text)
		}
		return record.ErrNotReady
	}
	return nil
}

// Metadata describes the cluster as this node knows it.
func (b broker) Metadata(_ context.Context, topics []string) (wire.Metadata, error) {
	n := b.n
	if err := n.notMember(); err != nil {
		return wire.Metadata{}, err
	}
	p := n.machine.Picture()
	m := wire.Metadata{Cluster: p.Name(), ClusterID: p.ClusterID().String(), MetadataLeader: n.metadataLeader()}
	all := make(map[string]wire.Topic, len(p.Topics()))
	if topics == nil {
		for _, t := range p.Topics() {
			if !t.Internal() {
				m.Topics = append(m.Topics, n.describeTopic(t))
			}
		}
	} else {
		for _, name := range topics {
			if _, twice := all[name]; twice {
				continue
			}
			t := wire.Topic{Name: name, Err: n.unknownTopic(name)}
			if found := p.Topic(name); found != nil {
				t = n.describeTopic(found)
			}
			all[name] = t
			m.Topics = append(m.Topics, t)
		}
	}
	m.Nodes = n.describeNodes(p)
	return m, nil
}

func (n *Node) metadataLeader() record.NodeID {
	if h := n.host.Load(); h != nil {
		return h.Partition(record.MetadataGroup).View().Leader
	}
	return record.NoNode
}

func (n *Node) describeTopic(t *metadata.Topic) wire.Topic {
	out := wire.Topic{Name: t.Name, ID: t.ID.String(), Configs: t.Configs.Map(), Partitions: make([]wire.Partition, len(t.Partitions))}
	up := n.up()
	for i, part := range t.Partitions {
		out.Replication = max(out.Replication, int16(len(part.Replicas)))
		d := n.describePartition(int32(i), part)
		d.InSync = n.inSync(part.Group, &d, up)
		out.Partitions[i] = d
	}
	return out
}

func (n *Node) describePartition(number int32, mp *metadata.Partition) wire.Partition {
	part := n.host.Load().Lookup(mp.Group)
	if part != nil && part.View().Role == partition.RoleNone {
		part = nil
	}
	w := wire.Partition{Partition: number, Leader: record.NoNode, LogStart: -1, HighWatermark: -1, Replicas: nodesOf(mp.Replicas), Voters: nodesOf(mp.Replicas)}
	w.Leader, w.Epoch = n.leaderOf(mp.Group, part)
	if part != nil {
		v := part.View()
		if len(v.Voters) > 0 {
			w.Voters = nodesOf(v.Voters)
		}
		// One that is damaged, or that is being filled in its place, knows less than was known here before.
		if v.Role != partition.RoleDamaged && slices.Contains(v.Voters, v.Replica) {
			w.LogStart, w.HighWatermark = part.LogStart(), part.HighWatermark()
		} else if w.Leader == record.NoNode {
			w.Epoch = record.NoEpoch
		}
	}
	if node := n.machine.Picture().Node(w.Leader); node != nil {
		w.LeaderAddr = node.NativeAddr
	}
	return w
}

func nodesOf(rs []record.ReplicaID) []record.NodeID {
	out := make([]record.NodeID, len(rs))
	for i, r := range rs {
		out[i] = r.Node()
	}
	return out
}

func (n *Node) describeNodes(p *metadata.Picture) []wire.Node {
	up := n.up()
	type counts struct{ leaders, replicas, internal int32 }
	count := map[record.NodeID]*counts{}
	for _, node := range p.NodesSorted() {
		count[node.ID] = &counts{}
	}
	add := func(id record.NodeID, to func(*counts)) {
		if c := count[id]; c != nil { // a removed node may still be named
			to(c)
		}
	}
	for _, t := range p.Topics() {
		for _, part := range t.Partitions {
			for _, r := range slices.Concat(part.Replicas, part.Removing) {
				add(r.Node(), func(c *counts) {
					if t.Internal() {
						c.internal++
					} else {
						c.replicas++
					}
				})
			}
			if !t.Internal() {
				leader, _ := n.leaderOf(part.Group, n.host.Load().Lookup(part.Group))
				add(leader, func(c *counts) { c.leaders++ })
			}
		}
	}
	out := make([]wire.Node, 0, len(p.NodesSorted()))
	for _, node := range p.NodesSorted() {
		c := count[node.ID]
		w := wire.Node{
			ID: node.ID, Name: node.Name, Native: node.NativeAddr, Kafka: node.KafkaAddr, HTTP: node.HTTPAddr, Version: node.Version,
			Alive: up[node.ID], Leaders: c.leaders, Replicas: c.replicas, Leaving: node.Leaving, Internal: c.internal,
		}
		if !w.Alive {
			w.AwayMs = n.alive.awayMs(node.ID)
		}
		out = append(out, w)
	}
	return out
}

// Status is the cluster in one line.
func (b broker) Status(context.Context) (wire.Status, error) {
	n := b.n
	if err := n.notMember(); err != nil {
		return wire.Status{}, err
	}
	p := n.machine.Picture()
	up := n.up()
	s := wire.Status{
		Cluster: p.Name(), ClusterID: p.ClusterID().String(), Nodes: int32(len(p.NodesSorted())), MetadataLeader: n.metadataLeader(),
	}
	for _, node := range p.NodesSorted() {
		if up[node.ID] {
			s.NodesAlive++
		}
	}
	for _, t := range p.Topics() {
		if !t.Internal() {
			s.Topics++
		}
		for i, part := range t.Partitions {
			leaderless, under := n.health(p, t, int32(i), part, up)
			switch {
			case t.Internal():
				s.Internal++
				s.InternalUnwell += max(one(leaderless), one(under))
			default:
				s.Partitions++
				s.Leaderless += one(leaderless)
				s.UnderReplicated += one(under)
			}
		}
	}
	return s, nil
}

func one(b bool) int32 {
	if b {
		return 1
	}
	return 0
}

// health tells what a partition lacks.
func (n *Node) health(p *metadata.Picture, t *metadata.Topic, number int32, part *metadata.Partition, up map[record.NodeID]bool) (leaderless, under bool) {
	d := n.describePartition(number, part)
	synced := len(n.inSync(part.Group, &d, up))
	return d.Leader == record.NoNode, synced < len(part.Replicas) || synced < wantedReplicas(t, p)
}

// wantedReplicas is how many replicas the topic's setting asks for now.
func wantedReplicas(t *metadata.Topic, p *metadata.Picture) int {
	if t.Configs.Replication == metadata.AutoReplication {
		usable := slices.DeleteFunc(slices.Clone(p.NodesSorted()), func(n *metadata.Node) bool { return n.Leaving })
		return metadata.AutoReplicas(len(usable))
	}
	return int(t.Configs.Replication)
}

// DescribeNode shows the insides of this node or of another that is connected.
func (b broker) DescribeNode(ctx context.Context, id record.NodeID) (wire.NodeDescription, error) {
	n := b.n
	if id == record.NoNode || id == n.ident.Get().Node {
		return n.describeSelf(), nil
	}
	if n.machine.Picture().Node(id) == nil {
		return wire.NodeDescription{}, fmt.Errorf("node %d: %w", id, record.ErrUnknownNode)
	}
	return n.describeNode(ctx, id)
}

// stateWord is where the node stands, in the protocol's words.
func (n *Node) stateWord() string {
	if n.stopping.Load() {
		return "stopping"
	}
	return n.bootstrap.gossipState().String()
}

func (n *Node) describeSelf() wire.NodeDescription {
	p := n.machine.Picture()
	id := n.ident.Get()
	d := wire.NodeDescription{
		Instance: id.Instance.String(), State: n.stateWord(), Zone: n.cfg.Zone, BootCounter: id.BootCounter,
		UptimeMs: time.Since(n.started).Milliseconds(), DataBytes: n.store.Metrics().DiskBytes, DiskFree: -1, Problems: n.problems.all(),
	}
	info := n.info()
	d.Node = wire.Node{ID: info.ID, Name: info.Name, Native: info.NativeAddr, Kafka: info.KafkaAddr, HTTP: info.HTTPAddr, Version: info.Version, Alive: true}
	if free, _, err := n.store.FreeSpace(); err == nil {
		d.DiskFree = free
	}
	if f := n.failure(); f != nil {
		d.Problems = append(d.Problems, "storage failed: "+f.Error())
	}
	if p := n.place.Load(); p.waits {
		d.Problems = append(d.Problems, p.why)
	}
	if text := n.aloneText(); text != "" {
		d.Problems = append(d.Problems, text)
	}
	d.Problems = append(d.Problems, n.troubleWithOthers()...)
	if h := n.host.Load(); h != nil && h.DiskFull() {
		d.Problems = append(d.Problems, fmt.Sprintf("the disk has less than %d MiB free: no records are taken until there is more", keepFree>>20))
	}
	if wait := n.stalled(); wait > stalledAfter {
		d.Problems = append(d.Problems, fmt.Sprintf("the disk has not answered for %v", wait.Round(time.Second)))
	}
	d.Device = n.describeDevice()
	for _, s := range n.peers.Peers() {
		ps := wire.PeerStatus{ID: s.Node, Addr: s.Addr, Up: s.Up}
		if !s.Up {
			ps.Problem = s.LastError
		} else {
			ps.PauseMs = n.pausing.of(s.Node).Milliseconds()
		}
		d.Peers = append(d.Peers, ps)
	}
	h := n.host.Load()
	if h == nil {
		return d
	}
	if text := n.damagedMetadataText(h.Partition(record.MetadataGroup).View()); text != "" {
		d.Problems = append(d.Problems, text)
	}
	for _, held := range p.ReplicasOn(id.Node) {
		part := h.Lookup(held.Partition.Group)
		if part == nil {
			continue
		}
		v := part.View()
		np := wire.NodePartition{
			Topic: held.Topic.Name, Partition: held.Number, Role: v.Role.String(), Leader: v.Leader, Epoch: v.Epoch,
			LogStart: part.LogStart(), HighWatermark: part.HighWatermark(),
		}
		switch {
		case v.Role == partition.RoleLeader:
			d.Leaders += one(!held.Topic.Internal())
		case slices.Contains(v.Learners, held.Replica):
			np.Role = "learner"
		}
		if text := n.damagedText(held); text != "" {
			d.Problems = append(d.Problems, text)
		}
		if held.Topic.Internal() {
			d.Internal++
		} else {
			d.Replicas++
		}
		d.Partitions = append(d.Partitions, np)
	}
	return d
}

// lately is how long something that others did is told as a problem. They repeat it while it lasts.
const lately = 5 * time.Minute

// troubleWithOthers is what is wrong between this node and others now; what is over is in the events.
func (n *Node) troubleWithOthers() []string {
	out := n.refusals.all()
	st := n.gossip.Stats()
	if time.Since(st.RefusedAt) < lately {
		out = append(out, "gossip found fault with a member: "+st.LastRefused)
	}
	if time.Since(st.CloneAt) < lately {
		out = append(out, "another process runs under the identity of this node: "+st.LastClone)
	}
	for _, m := range n.gossip.Strangers() {
		if m.Alive {
			out = append(out, strangerText(m, n.identity().Cluster))
		}
	}
	return out
}

// describeDevice is how the machine is doing.
func (n *Node) describeDevice() wire.DeviceStatus {
	budget := n.cfg.Budget()
	f := n.wear.figures(time.Since(n.started))
	d := wire.DeviceStatus{
		MemoryBudget: budget.Bytes, MemoryFrom: budget.Source, MemoryUsed: -1, DiskTotal: -1,
		DiskLow: n.disk.full.Load(), DiskStalledMs: n.stalled().Milliseconds(),
		Written: f.Written, WrittenPerDay: f.PerDay, Amplification: int64(f.Amplification * 100), WearDays: f.Days,
		Now: n.opts.Wall().UnixMilli(),
	}
	d.ClockTrusted, d.Clock = n.clock.status()
	if kb := procValue("/", "self/status", "VmRSS:"); kb > 0 {
		d.MemoryUsed = kb << 10
	}
	if _, total, err := n.store.FreeSpace(); err == nil {
		d.DiskTotal = total
	}
	return d
}
