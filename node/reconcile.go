package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"edged/gossip"
	"edged/metadata"
	"edged/partition"
	"edged/record"
	"edged/transport/peer"
)

// reconcileEvery is how often reconcile looks although nobody rang: for what only time brings,
// such as a node that has been away long. Twice a minute costs an idle node nothing.
const reconcileEvery = 30 * time.Second

// hurry is the pause between looks while something is under way.
const hurry = 200 * time.Millisecond

// soon is the pause before what came too early is told again: others wait for the replica.
const soon = 50 * time.Millisecond

// reconciler makes this node what the metadata says. It remembers what it has already told the Core.
type reconciler struct {
	n     *Node
	told  map[record.GroupID]told
	dying map[metadata.Tombstone]bool // being removed
	count int                         // partitions in the cluster at the last look
	known map[record.NodeID]string    // nodes of the cluster at the last look, for people
	early notYet
	doubt time.Time // when alone last asked
	asked int       // how often it has
	mender
	readmitAsked time.Time
	aloneTold    bool
}

// notYet are the groups whose assignment was read from a copy of the metadata that may be older than
// what this node has done itself: they are told again.
type notYet struct {
	mu     sync.Mutex
	groups []record.GroupID // at most one for each replica of this node
}

// add tells whether it is the first.
func (y *notYet) add(g record.GroupID) (first bool) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.groups = append(y.groups, g)
	return len(y.groups) == 1
}

func (y *notYet) take() []record.GroupID {
	y.mu.Lock()
	defer y.mu.Unlock()
	groups := y.groups
	y.groups = nil
	return groups
}

// told is compared by identity: a partition or topic that changed is another value.
type told struct {
	partition *metadata.Partition
	topic     *metadata.Topic
}

func (n *Node) runReconcile() {
	r := &reconciler{n: n, told: map[record.GroupID]told{}, dying: map[metadata.Tombstone]bool{}}
	timer := time.NewTimer(reconcileEvery)
	defer timer.Stop()
	for {
		select {
		case <-n.events:
		case <-n.gossip.Events():
		case <-timer.C:
		case <-n.ctx.Done():
			n.unnamed.flush(n, true)
			return
		}
		pause := reconcileEvery
		if n.host.Load() != nil && !n.stopping.Load() {
			if r.look() {
				pause = hurry
			}
		}
		timer.Reset(pause)
	}
}

// look does what is to be done now; more is true if it should look again soon.
func (r *reconciler) look() (more bool) {
	n := r.n
	asOf := n.host.Load().Partition(record.MetadataGroup).Applied() // before the picture, which then has it
	p := n.machine.Picture()
	if p.Banned(n.ident.Get().Node) {
		n.wasRemoved()
		return false
	}
	r.noteRemoved(p)
	r.connect(p)
	r.alone(p)
	if news := n.led.take(); len(news) > 0 {
		n.gossip.PublishLeaders(news)
	}
	if p.PartitionCount() < r.count { // leaders of deleted topics would fill gossip's table in the end
		n.gossip.RetainLeaders(func(g record.GroupID) bool { _, ok := p.Group(g); return ok })
	}
	r.count = p.PartitionCount()
	if text := n.aloneText(); text != "" && !r.aloneTold {
		r.aloneTold = true
		n.note(eventConfig, text)
	}
	more = n.unnamed.flush(n, false)
	more = r.register(p) || more
	r.partitions(p, asOf)
	r.bury(p)
	more = r.mendAll(p) || more
	return n.autopilot(p) || more
}

// noteRemoved makes an event of each node that was taken out of the cluster since the last look.
func (r *reconciler) noteRemoved(p *metadata.Picture) {
	for id, name := range r.known {
		if p.Banned(id) {
			r.n.noteWell(eventMembership, name+" was removed from the cluster for good")
		}
	}
	r.known = map[record.NodeID]string{}
	for _, node := range p.NodesSorted() {
		r.known[node.ID] = r.n.nodeText(node.ID)
	}
}

// connect keeps a connection with every node of the cluster, at the address that was heard of last.
func (r *reconciler) connect(p *metadata.Picture) {
	n := r.n
	self := n.ident.Get().Node
	heard := map[record.NodeID]gossip.Member{}
	for _, m := range n.gossip.Members() {
		heard[m.Node] = m
	}
	mine := n.identity().Cluster
	addrs := map[record.NodeID]string{}
	for _, node := range p.NodesSorted() {
		addrs[node.ID] = node.NativeAddr
		// With the registered boot counter and another boot id it is a clone: the registered life is the true one.
		if m, ok := heard[node.ID]; ok && (m.BootCounter > node.BootCounter || m.BootCounter == node.BootCounter && m.Boot == node.Boot) {
			addrs[node.ID] = nativeAddr(m)
		}
	}
	// Also who is in the cluster and not in our copy of the registry yet. A founder is so before
	// gossip says it of him.
	v := n.host.Load().Partition(record.MetadataGroup).View()
	founders := nodesOf(slices.Concat(v.Voters, v.Learners))
	for id, m := range heard {
		if _, known := addrs[id]; !known && (m.Cluster == mine || slices.Contains(founders, id)) && !p.Banned(id) {
			addrs[id] = nativeAddr(m)
		}
	}
	for _, m := range n.gossip.Strangers() {
		n.notOurs(m, mine)
	}
	for _, s := range n.peers.Peers() {
		if _, ok := addrs[s.Node]; !ok && s.Addr != "" {
			n.peers.RemovePeer(s.Node)
			n.addrs.forget(s.Node) // it may come back as it was
			n.refusals.forget(s.Node)
		}
	}
	for id, addr := range addrs {
		if id != self && n.addrs.changed(id, addr, heard[id].Boot) {
			if err := n.peers.SetPeer(id, addr); err != nil {
				n.problems.add(err.Error())
			}
		}
	}
}

// doubtEvery is how often a node that nobody is connected with asks whether it was removed.
const doubtEvery = 3 * time.Second

// alone asks one of the others, in turn, while this node is connected with none of them: nobody
// connects with a node that was removed, and it may not have heard of that.
func (r *reconciler) alone(p *metadata.Picture) {
	n := r.n
	self := n.ident.Get().Node
	others := slices.DeleteFunc(slices.Clone(p.NodesSorted()), func(o *metadata.Node) bool { return o.ID == self })
	if len(others) == 0 || len(n.up()) > 1 || time.Since(r.doubt) < doubtEvery {
		return
	}
	r.doubt = time.Now()
	r.asked++
	addr := others[r.asked%len(others)].NativeAddr
	n.wg.Go(func() { // not here: it may take long, and what connects nodes must not wait
		ctx, cancel := context.WithTimeout(n.ctx, askTimeout)
		defer cancel()
		_, _, err := n.askInfo(ctx, addr)
		var theirs *peer.RemoteRefusal
		if errors.As(err, &theirs) && errors.Is(err, metadata.ErrNodeBanned) {
			n.wasRemoved()
		}
	})
}

// notOurs tells of a node that is of another cluster under our name.
func (n *Node) notOurs(m gossip.Member, mine record.ClusterID) {
	if n.strangers.add(strangerText(m, mine)) {
		n.log.Warn("another cluster of the same name is near", "node", m.Node, "addr", nativeAddr(m), "cluster", m.Cluster)
	}
}

func strangerText(m gossip.Member, mine record.ClusterID) string {
	return fmt.Sprintf("node %d at %s is of cluster %v, this one of %v; clusters never merge: give each a name of its own with --cluster", m.Node, nativeAddr(m), m.Cluster, mine)
}

// register keeps this node's record in the registry up to date.
func (r *reconciler) register(p *metadata.Picture) (more bool) {
	n := r.n
	info := n.info()
	if known := p.Node(info.ID); known != nil && known.NodeInfo == info || p.Banned(info.ID) {
		return false
	}
	if known := p.Node(info.ID); known != nil && len(p.NodesSorted()) == 1 && known.Instance == info.Instance && known.Boot != info.Boot && known.BootCounter >= info.BootCounter {
		n.setStartsRight(known.BootCounter)
		return false
	}
	if n.metadataLeader() == record.NoNode {
		return true // waiting here for one would keep us from connecting with those who elect it
	}
	ctx, cancel := context.WithTimeout(n.ctx, askTimeout)
	defer cancel()
	if _, err := n.propose(ctx, &metadata.RegisterNode{NodeInfo: info}); err != nil && !mayRetry(err) && ctx.Err() == nil {
		n.log.Error("this node is not let in", "err", err)
		n.checkClone(err)
	}
	return true
}

// partitions tells the Core what this node is to hold, by a picture that has the entry asOf.
func (r *reconciler) partitions(p *metadata.Picture, asOf uint64) {
	h := r.n.host.Load()
	for _, g := range r.early.take() {
		delete(r.told, g)
	}
	for _, held := range p.ReplicasOn(r.n.ident.Get().Node) {
		now := told{held.Partition, held.Topic}
		if r.told[held.Partition.Group] == now {
			continue
		}
		r.told[held.Partition.Group] = now
		h.Configure(&partition.Assignment{
			Group: held.Partition.Group, Class: held.Topic.Class,
			Voters: held.Partition.Replicas, Initial: held.Partition.Initial, Machine: machineKind(held.Topic),
			Relaxed:  held.Topic.Configs.Durability == metadata.Relaxed,
			MaxBatch: held.Topic.Configs.MaxMessageBytes,
			AsOf:     max(asOf, 1), // 0 would make the replica in any case
			Done:     func(err error) { r.answered(held.Partition.Group, err) },
		})
	}
}

// answered hears from the Core what became of an assignment.
func (r *reconciler) answered(g record.GroupID, err error) {
	if errors.Is(err, record.ErrNotReady) && r.early.add(g) {
		time.AfterFunc(soon, r.n.wake)
	}
}

// bury removes what the metadata names for removal, and only that (law 7).
func (r *reconciler) bury(p *metadata.Picture) {
	n, h := r.n, r.n.host.Load()
	self := n.ident.Get().Node
	for _, t := range p.Tombstones(self) {
		if r.dying[t] || len(r.dying) >= metadata.MaxChanged {
			continue
		}
		r.dying[t] = true
		delete(r.told, t.Group)
		h.Remove(t.Group, t.Replica, func(err error) {
			if err != nil {
				n.log.Error("a replica could not be removed", "group", t.Group, "err", err)
				return
			}
			n.groups.forget(t.Group)
			n.done.add(&metadata.TombstoneDone{Node: self, Done: []metadata.Tombstone{t}})
		})
	}
	for t := range r.dying {
		if !slices.Contains(p.Tombstones(self), t) {
			delete(r.dying, t)
		}
	}
}

// addresses remembers what the peer transport was told, so that it is told again only when
// something changed: each telling ends its pause between dials.
type addresses struct {
	mu sync.Mutex
	m  map[record.NodeID]address
}

type address struct {
	addr string
	boot record.BootID
}

func (a *addresses) changed(id record.NodeID, addr string, boot record.BootID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.m == nil {
		a.m = map[record.NodeID]address{}
	}
	now := address{addr, boot}
	if a.m[id] == now {
		return false
	}
	a.m[id] = now
	return true
}

func (a *addresses) forget(id record.NodeID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.m, id)
}

// configured gathers reports for the metadata, which runReports proposes. Its bound is one entry
// per group: a newer report replaces the older one.
type configured struct {
	mu    sync.Mutex
	queue []metadata.Command
	byKey map[record.GroupID]int // place of a group's ReplicasChanged in queue
	bell  chan struct{}
}

func (c *configured) add(cmd metadata.Command) {
	c.mu.Lock()
	if c.byKey == nil {
		c.byKey = map[record.GroupID]int{}
	}
	if rc, ok := cmd.(*metadata.ReplicasChanged); ok {
		if i, ok := c.byKey[rc.Group]; ok {
			c.queue[i] = cmd
			c.mu.Unlock()
			return
		}
		c.byKey[rc.Group] = len(c.queue)
	}
	if td, ok := cmd.(*metadata.TombstoneDone); ok && len(c.queue) > 0 {
		if last, ok := c.queue[len(c.queue)-1].(*metadata.TombstoneDone); ok && len(last.Done) < metadata.MaxChanged {
			last.Done = append(last.Done, td.Done...)
			c.mu.Unlock()
			return
		}
	}
	c.queue = append(c.queue, cmd)
	c.mu.Unlock()
	select {
	case c.bell <- struct{}{}:
	default:
	}
}

func (c *configured) take() []metadata.Command {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queue
	c.queue, c.byKey = nil, nil
	return q
}

// onConfigured hears from the Core that a group led here is as it was asked to be.
func (n *Node) onConfigured(g record.GroupID, voters, learners []record.ReplicaID) {
	if g == record.MetadataGroup {
		n.wake()
		return
	}
	at, ok := n.machine.Picture().Group(g)
	if !ok || len(at.Partition.Adding) == 0 && len(at.Partition.Removing) == 0 {
		return
	}
	cmd := &metadata.ReplicasChanged{Group: g, Added: voters}
	for _, r := range at.Partition.Removing {
		if !slices.Contains(voters, r) && !slices.Contains(learners, r) {
			cmd.Removed = append(cmd.Removed, r)
		}
	}
	n.done.add(cmd)
}

// runReports proposes what the Core has reached.
func (n *Node) runReports() {
	for {
		select {
		case <-n.done.bell:
		case <-n.ctx.Done():
			return
		}
		for _, cmd := range n.done.take() {
			ctx, cancel := context.WithTimeout(n.ctx, 10*time.Second)
			_, err := n.propose(ctx, cmd)
			cancel()
			switch {
			case err == nil || n.ctx.Err() != nil:
			case ctx.Err() != nil || mayRetry(err):
				n.done.add(cmd) // a report that is lost would leave its partition changing for ever
			default:
				n.log.Warn("the metadata did not take a report", "report", cmd, "err", err)
			}
		}
	}
}
