package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"edged/gossip"
	"edged/metadata"
	"edged/partition"
	"edged/record"
	"edged/storage"
	"edged/transport/peer"
)

// Words in the identity file's State. Anything but stateClean at start means that the last life
// was cut off.
const (
	stateRunning = "running"
	stateClean   = "clean"
)

// How often bootstrap looks around, and how long one question to another node may take.
const (
	bootstrapEvery = 200 * time.Millisecond
	askTimeout     = 2 * time.Second
)

// bootstrap is how far this node is on its way into a cluster. runBootstrap and the answers to
// formation messages share it.
type bootstrap struct {
	mu struct {
		sync.Mutex
		form  *metadata.Formation // nil for a node that only joins
		peers []metadata.Peer     // confirmed at the last tick
		state gossip.State
		text  string
	}
	final chan struct{} // a formation message made the proposal final
	told  toldTroubles  // runBootstrap's
}

func (b *bootstrap) gossipState() gossip.State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.state
}

// status says in one line where the node stands.
func (b *bootstrap) status() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.text
}

func (n *Node) setBootstrap(state gossip.State, text string) {
	b := &n.bootstrap
	b.mu.Lock()
	base, _, _ := strings.Cut(text, troubleMark)
	before, _, _ := strings.Cut(b.mu.text, troubleMark)
	changed := b.mu.state != state || b.mu.text != text
	baseChanged := b.mu.state != state || base != before
	stateChanged := b.mu.state != state
	b.mu.state, b.mu.text = state, text
	b.mu.Unlock()
	if changed {
		n.opts.Status(text)
	}
	if baseChanged {
		n.log.Info(base) // trouble is told apart, and less often
	}
	if stateChanged {
		n.gossip.SetMeta(n.gossipMeta())
	}
}

// loadFormation prepares the agreement on a new cluster. A node without a join list and without
// bootstrap-expect is a cluster of one; a node that only joins forms nothing.
func (n *Node) loadFormation() error {
	n.bootstrap.final = make(chan struct{}, 1)
	expect := n.cfg.BootstrapExpect
	if expect == 0 && len(n.cfg.Join) == 0 {
		expect = 1
	}
	id := n.ident.Get()
	if expect == 0 && len(id.Proposal) == 0 {
		return nil
	}
	form, err := metadata.NewFormation(id.Node, max(expect, 1), id.Proposal)
	if err != nil {
		return err
	}
	if expect == 0 && form.State() == metadata.Waiting {
		return nil
	}
	n.bootstrap.mu.Lock()
	defer n.bootstrap.mu.Unlock()
	n.bootstrap.mu.form = form
	return nil
}

// runBootstrap brings the node into a cluster: the one it is of, one that lets it in, or a new one.
func (n *Node) runBootstrap() {
	err := n.enterCluster()
	if err == nil || n.ctx.Err() != nil {
		return
	}
	n.fail(err)
	n.cancel()
}

func (n *Node) enterCluster() error {
	if err := n.loadFormation(); err != nil {
		return err
	}
	if id := n.ident.Get(); !id.Cluster.IsZero() {
		return n.resume(id.Cluster)
	}
	ticker := time.NewTicker(bootstrapEvery)
	defer ticker.Stop()
	for {
		done, err := n.bootstrapStep()
		if done || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-n.bootstrap.final:
		case <-n.ctx.Done():
			return n.ctx.Err()
		}
	}
}

// resume goes on as the member that this node was. Its metadata replica must be there: a node that
// forgot what it voted for must not vote again as itself.
func (n *Node) resume(cluster record.ClusterID) error {
	if _, ok := n.store.State(record.MetadataGroup); !ok {
		return beyondRestart(fmt.Errorf("%s belongs to cluster %v but its copy of the metadata is gone: a node that lost data must not go on as itself; move the directory away and start anew, other nodes, if there are any, hold the data", n.cfg.DataDir, cluster))
	}
	if err := n.findTwin(); err != nil {
		return twinError(err, n.ident.Get().Node, n.cfg.DataDir)
	}
	if err := n.startHost(cluster); err != nil {
		return err
	}
	n.setBootstrap(gossip.StateMember, "member of cluster "+cluster.String())
	return nil
}

// aloneText warns of a node that is alone in its cluster and whose settings name others, "" if that is not so: most
// often it was started without them once, and was a cluster of one from then on.
func (n *Node) aloneText() string {
	named := n.cfg.BootstrapExpect > 1 || n.cfg.BootstrapExpect == 0 && len(n.cfg.Join) > 0
	p := n.machine.Picture()
	if !named || n.host.Load() == nil || !n.caughtUp() || len(p.NodesSorted()) != 1 {
		return ""
	}
	return fmt.Sprintf("this node is alone in its cluster %v and never joins another one, though it has join or bootstrap-expect: a node stays in the cluster that it first formed or joined. "+
		"To join another: copy what it holds (`edgectl --json consume TOPIC`), stop it, move %s away, start it. To stay alone: take the two settings away", p.ClusterID(), n.cfg.DataDir)
}

// bootstrapStep looks around once. done is true when the node is a member.
func (n *Node) bootstrapStep() (done bool, err error) {
	state, proposal := n.formation()
	if state == metadata.Final {
		return true, n.found(proposal)
	}
	if state != metadata.Accepted {
		for _, m := range n.gossip.Members() {
			if m.Alive && !m.Cluster.IsZero() && m.Node != n.ident.Get().Node {
				joined, err := n.join(m)
				if joined || err != nil {
					return joined, err
				}
			}
		}
	}
	if !n.forming() {
		n.setBootstrap(gossip.StateJoining, n.withTroubles("waiting for a node of the cluster at one of the join addresses to let this node in"))
		return false, nil
	}
	return false, n.tickFormation()
}

// How long an address may lead to nobody before the log says so, as it does while nodes start one after the
// other, and how often it is said.
const (
	troubleAfter = 3 * time.Second
	troubleEvery = time.Minute
)

// toldTroubles is what the log was told about join addresses that lead to nobody.
type toldTroubles struct{ since, told time.Time }

// due tells whether it is time to say that there is trouble.
func (t *toldTroubles) due(trouble bool) bool {
	switch {
	case !trouble:
		t.since = time.Time{} // told stays: what comes and goes is not said more often
	case t.since.IsZero():
		t.since = time.Now()
	case time.Since(t.since) >= troubleAfter && (t.told.IsZero() || time.Since(t.told) >= troubleEvery):
		t.told = time.Now()
		return true
	}
	return false
}

// troubleMark stands between what a node waits for and why that may not come.
const troubleMark = "; trouble: "

// maxTroubles is how many addresses are named.
const maxTroubles = 3

// withTroubles adds to what the node waits for why it may wait for ever, and warns of it.
func (n *Node) withTroubles(text string) string {
	lines := n.gossip.Troubles()
	trouble := strings.Join(lines[:min(len(lines), maxTroubles)], "; ")
	if more := len(lines) - maxTroubles; more > 0 {
		trouble += fmt.Sprintf("; and %d more", more)
	}
	if n.bootstrap.told.due(trouble != "") {
		n.log.Warn("this node cannot join: " + trouble)
	}
	if trouble == "" {
		return text
	}
	return text + troubleMark + trouble
}

// forming tells whether this node may take part in forming a cluster.
func (n *Node) forming() bool {
	n.bootstrap.mu.Lock()
	defer n.bootstrap.mu.Unlock()
	return n.bootstrap.mu.form != nil
}

func (n *Node) formation() (metadata.FormationState, *metadata.Proposal) {
	n.bootstrap.mu.Lock()
	defer n.bootstrap.mu.Unlock()
	if n.bootstrap.mu.form == nil {
		return metadata.Waiting, nil
	}
	return n.bootstrap.mu.form.State(), n.bootstrap.mu.form.Proposal()
}

// tickFormation confirms who is there and lets the agreement go on.
func (n *Node) tickFormation() error {
	var peers []metadata.Peer
	if n.cfg.BootstrapExpect > 1 {
		peers = n.confirmPeers()
	}
	out, err := n.stepFormation(metadata.Tick{Peers: peers, Fresh: record.NewClusterID()})
	if err != nil {
		return err
	}
	n.bootstrap.mu.Lock()
	n.bootstrap.mu.peers = peers
	text := n.bootstrap.mu.form.Status(peers)
	n.bootstrap.mu.Unlock()
	if len(peers)+1 < n.cfg.BootstrapExpect {
		text = n.withTroubles(text)
	}
	n.setBootstrap(gossip.StateWaiting, text)
	var wg sync.WaitGroup
	for _, e := range out.Send {
		wg.Go(func() { n.askFormation(e) })
	}
	wg.Wait()
	return nil
}

// stepFormation takes one event; what has to be durable is so before anything is sent.
func (n *Node) stepFormation(ev metadata.Event) (metadata.Effects, error) {
	b := &n.bootstrap
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.form == nil {
		return metadata.Effects{}, record.ErrNotReady
	}
	out := b.mu.form.Step(ev)
	if out.Store {
		stored := b.mu.form.Stored()
		if err := n.ident.Update(func(id *storage.Identity) { id.Proposal = stored }); err != nil {
			// What the agreement holds in memory now is not on disk: nothing may be answered from it.
			err = fmt.Errorf("the agreement on a cluster cannot be stored: %w", err)
			b.mu.form = nil
			n.fail(err)
			n.cancel()
			return metadata.Effects{}, err
		}
	}
	if out.Final != nil {
		select {
		case b.final <- struct{}{}:
		default:
		}
	}
	return out, nil
}

// confirmPeers asks the nodes that gossip knows who they are: a name heard is not enough.
func (n *Node) confirmPeers() []metadata.Peer {
	var mu sync.Mutex
	var peers []metadata.Peer
	var wg sync.WaitGroup
	for _, m := range n.gossip.Members() {
		if m.Node == n.ident.Get().Node || !m.Alive {
			continue
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(n.ctx, askTimeout)
			defer cancel()
			id, info, err := n.askInfo(ctx, nativeAddr(m))
			if err != nil || id.Node != m.Node {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			peers = append(peers, metadata.Peer{Node: id.Node, Expect: info.Expect, Cluster: id.Cluster})
		})
	}
	wg.Wait()
	slices.SortFunc(peers, func(a, b metadata.Peer) int { return int(a.Node) - int(b.Node) })
	return peers
}

// askFormation sends one message of the agreement and takes the answer.
func (n *Node) askFormation(e metadata.Envelope) {
	addr := n.gossipAddrOf(e.To)
	if addr == "" {
		return
	}
	ctx, cancel := context.WithTimeout(n.ctx, askTimeout)
	defer cancel()
	from, answer, err := n.callForm(ctx, addr, e.Message)
	if err != nil || from.Node != e.To {
		return
	}
	if _, err := n.stepFormation(metadata.Received{From: from.Node, Message: answer}); err != nil && n.ctx.Err() == nil {
		n.log.Warn("formation", "err", err)
	}
}

// answerForm answers a message of the agreement.
func (n *Node) answerForm(from peer.Identity, m metadata.Message) (metadata.Message, error) {
	out, err := n.stepFormation(metadata.Received{From: from.Node, Message: m})
	if err != nil {
		return metadata.Message{}, err
	}
	for _, e := range out.Send {
		if e.To == from.Node {
			return e.Message, nil
		}
	}
	return metadata.Message{}, record.ErrNotReady
}

// found starts the cluster that was agreed on. The identity names the cluster only after the
// metadata replica is on disk: from then on a missing one means lost data.
func (n *Node) found(p *metadata.Proposal) error {
	var voters, learners []record.ReplicaID
	for _, m := range p.FoundingVoters() {
		voters = append(voters, metadata.MetadataReplica(m))
	}
	for _, m := range p.Members {
		if r := metadata.MetadataReplica(m); !slices.Contains(voters, r) {
			learners = append(learners, r)
		}
	}
	return n.become(p.Cluster, &partition.Assignment{Group: record.MetadataGroup, Machine: partition.MetadataLog, Voters: voters, Learners: learners, Initial: voters, InitialLearners: learners})
}

// join asks a member to let this node in.
func (n *Node) join(m gossip.Member) (bool, error) {
	ctx, cancel := context.WithTimeout(n.ctx, 2*askTimeout)
	defer cancel()
	welcome, err := n.askJoin(ctx, nativeAddr(m))
	switch {
	case errors.Is(err, metadata.ErrNodeIDTaken), isTwin(err): // asking again changes nothing
		return false, twinError(err, n.ident.Get().Node, n.cfg.DataDir)
	case errors.Is(err, metadata.ErrNodeBanned):
		return false, n.removedError()
	case err != nil:
		n.setBootstrap(gossip.StateJoining, fmt.Sprintf("node %d of cluster %v does not let this node in yet: %v", m.Node, m.Cluster, err))
		return false, nil
	}
	if n.forming() {
		if _, err := n.stepFormation(metadata.LetIn{Cluster: welcome.Cluster}); err != nil {
			return false, err
		}
		if state, _ := n.formation(); state != metadata.Joined {
			return false, nil // an agreement is on its way after all
		}
	}
	a := &partition.Assignment{Group: record.MetadataGroup, Machine: partition.MetadataLog, Learners: []record.ReplicaID{metadata.MetadataReplica(n.ident.Get().Node)}}
	for _, v := range welcome.Voters {
		a.Voters = append(a.Voters, metadata.MetadataReplica(v))
	}
	return true, n.become(welcome.Cluster, a)
}

// become makes the node a member: host, metadata replica on disk, then the identity.
func (n *Node) become(cluster record.ClusterID, a *partition.Assignment) error {
	made := make(chan error, 1)
	a.Done = func(err error) { made <- err }
	if err := n.startHost(cluster); err != nil {
		return err
	}
	n.host.Load().Configure(a)
	select {
	case err := <-made:
		if err != nil {
			return fmt.Errorf("the metadata replica cannot be made: %w", err)
		}
	case <-n.ctx.Done():
		return n.ctx.Err()
	}
	if err := n.ident.Update(func(id *storage.Identity) { id.Cluster = cluster }); err != nil {
		return err
	}
	n.setBootstrap(gossip.StateMember, "member of cluster "+cluster.String())
	n.wake()
	return nil
}

// startHost opens the groups of this node and lets peers in.
func (n *Node) startHost(cluster record.ClusterID) error {
	id := n.ident.Get()
	unclean := id.State != stateClean && id.BootCounter > 1
	if unclean {
		n.note(eventStart, "the last run of this node did not end cleanly; recovered")
	}
	if err := n.ident.Update(func(id *storage.Identity) { id.State = stateRunning }); err != nil {
		return err
	}
	h := partition.NewHost(partition.HostConfig{
		Node: id.Node, Boot: n.boot, Cluster: cluster, Unclean: unclean, Store: n.store, Outbox: outbox{n.peers}, Rand: n.opts.Rand,
		Timing: n.opts.Timing, Limits: n.memory.core, Logger: n.log,
		Machine: n.machineOf, OnLeader: n.onLeader, OnConfigured: n.onConfigured, OnDamaged: n.onDamaged, OnPause: n.onPause, OnFailed: n.fail, Room: n.room, Tight: func() bool { return n.store.Tight(keepTight) },
	})
	n.machine.onChange = n.wake
	n.host.Store(h)
	h.Start()
	h.LookForRoom()
	n.groups.wake()
	n.cluster.Store(&cluster)
	n.gossip.SetMeta(n.gossipMeta())
	n.wake()
	return nil
}

// machineOf makes the state machine of a group that is no data partition.
func (n *Node) machineOf(g record.GroupID, kind partition.MachineKind) partition.StateMachine {
	switch kind {
	case partition.MetadataLog:
		return n.machine
	case partition.GroupsLog:
		return n.groups.machine(g)
	}
	return nil
}

// outbox gives the Core's frames to the peer connections.
type outbox struct{ t *peer.Transport }

func (o outbox) Send(to record.NodeID, class partition.Class, payload [][]byte) bool {
	c := peer.Control
	if class == partition.Data {
		c = peer.Data
	}
	return o.t.Send(to, 0, c, payload) // every frame names the boot it is for
}
