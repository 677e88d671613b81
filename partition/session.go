package partition

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"edged/record"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// session is what this node knows of the life of one peer. It is the only source of liveness for
// elections: gossip is seconds late and hears third parties.
type session struct {
	node    record.NodeID
	boot    record.BootID // of the life we are connected to; 0 before the first
	bornSeq uint64        // Core.saveSeq when that life was first met
	up      bool          // the control connection stands
	dead    bool          // silent for too long, or its address refuses connections
	// heard and limit: the peer is dead when nothing came for limit. It says itself how soon
	// it will speak again.
	heard, limit Time
	upSince      Time
	pauses       pauses
	pause        Time // the longest pause of its link, where the link pauses
	// beatAt is when the last beat left for it, and said the period that the beat named.
	beatAt, said  Time
	control, data frame
	fullUntil     Time // it took no frame: what is not urgent waits
	// led sums up the groups led here that the peer has a replica of, followed those here
	// that follow the peer, awake counts the groups awake here that it has a replica of.
	led, followed claim
	awake         int
	dispute       dispute
	slowDisk      bool // its last beat said so
	fullDisk      bool // the same
	why           string
}

// claim sums up groups and the terms they are led in: their number, and the exclusive or of
// their hashes.
type claim struct {
	count  uint32
	digest uint64
}

func (cl *claim) add(g record.GroupID, term uint64) {
	cl.count++
	cl.digest ^= claimHash(g, term)
}

func (cl *claim) remove(g record.GroupID, term uint64) {
	cl.count--
	cl.digest ^= claimHash(g, term)
}

// claimHash mixes a group and a term (the finalizer of splitmix64).
func claimHash(g record.GroupID, term uint64) uint64 {
	x := uint64(g)*0x9e3779b97f4a7c15 + term
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// dispute is what came of a peer's claims that were not what this node believes.
type dispute struct {
	theirs, ours claim // at the last list
	beats        int   // in a row that disagreed, since the list was asked for
	askAt        int   // how many of them until it is asked for
	unanswered   int
	askedAt      Time // for the first of those
}

const (
	beatSlowDisk = 1 << 0
	beatFullDisk = 1 << 1
	// maxListed bounds the groups of one claims or wake item.
	maxListed = 1 << 16
	// disputes is how many beats in a row must disagree before the list is asked for: groups
	// that change hands disagree for a moment. After a list that settled nothing the wait doubles
	// up to maxDisputes: a replica that is out of service is disputed for ever.
	disputes    = 2
	maxDisputes = 64
	// maxUnanswered is how many times a peer may not answer before its claims count as the list of
	// nothing: it cannot hear, and who cannot hear does not lead.
	maxUnanswered = 3
)

// standing is what the sessions count of a group.
type standing struct {
	term     uint64
	nodes    []record.NodeID // of a group led here, its other nodes
	followed record.NodeID   // of a group that follows, its leader's node, else 0
}

// stand brings the sums of the sessions up to date with a group.
func (c *Core) stand(g *group) {
	now := standing{term: g.term}
	switch {
	case g.role == RoleLeader:
		now.nodes = g.nodes
	case g.role == RoleFollower && g.lead != 0:
		now.followed = g.lead.Node()
	}
	old := &g.stood
	if old.term == now.term && old.followed == now.followed && slices.Equal(old.nodes, now.nodes) {
		return
	}
	for _, n := range old.nodes {
		c.session(n).led.remove(g.id, old.term)
	}
	if old.followed != 0 {
		c.session(old.followed).followed.remove(g.id, old.term)
	}
	for _, n := range now.nodes {
		c.session(n).led.add(g.id, now.term)
	}
	if now.followed != 0 {
		c.session(now.followed).followed.add(g.id, now.term)
	}
	g.stood = now
}

func (c *Core) session(n record.NodeID) *session {
	s := c.sessions[n]
	if s == nil {
		s = &session{node: n, dead: true, heard: c.now, limit: c.cfg.Timing.DeadIdle}
		c.sessions[n] = s
		i, _ := slices.BinarySearchFunc(c.peers, n, func(s *session, n record.NodeID) int { return cmp.Compare(s.node, n) })
		c.peers = slices.Insert(c.peers, i, s)
	}
	return s
}

// live tells whether a node can take part in an election now.
func (c *Core) live(n record.NodeID) bool {
	if n == c.cfg.Node {
		return true
	}
	s := c.sessions[n]
	return s != nil && s.up && !s.dead
}

// quorumLive tells whether the live voters are a majority, of both halves of a joint configuration.
func (c *Core) quorumLive(g *group) bool {
	return len(g.conf.Voters) > 0 && c.mostLive(g.conf.Voters) && (len(g.conf.VotersOutgoing) == 0 || c.mostLive(g.conf.VotersOutgoing))
}

// mostLive tells whether most of the voters live.
func (c *Core) mostLive(voters []record.ReplicaID) bool {
	n := 0
	for _, v := range voters {
		if c.live(v.Node()) {
			n++
		}
	}
	return n > len(voters)/2
}

func (c *Core) peerUp(ev PeerUp) {
	s := c.session(ev.Node)
	if s.boot != ev.Boot {
		if s.boot != 0 && !s.dead {
			s.why = "it was restarted"
			c.declareDead(s) // leaderships of the old life are void
		}
		s.bornSeq = c.saveSeq
		s.pauses.newLife()
	}
	s.control, s.data = frame{}, frame{}
	s.boot, s.up = ev.Boot, true
	s.heard, s.limit = c.now, c.patience(s, c.cfg.Timing.DeadIdle)
	s.said, s.dispute = 0, dispute{} // beat at once
	c.alive(s)
}

// alive takes a peer that is back: its groups may go on, and it may have missed entries.
func (c *Core) alive(s *session) {
	s.dead, s.upSince, c.stirred = false, c.now, true
	if len(c.strays) > 0 {
		c.nextReturn = min(c.nextReturn, c.now+c.cfg.Timing.ReturnEvery)
	}
	for _, g := range c.order {
		if g.role != RoleLeader || !g.onNode(s.node) {
			continue
		}
		// What was on the way to it is lost, and it may not know who leads.
		for _, r := range g.members() {
			if r.Node() == s.node {
				c.guard(g, func() {
					g.rn.ReportUnreachable(uint64(r))
					g.rn.ReportSnapshot(uint64(r), raft.SnapshotFailure)
				})
			}
		}
		c.wakeGroup(g)
		c.sendHeartbeats(g)
	}
}

func (c *Core) peerDown(ev PeerDown) {
	s := c.sessions[ev.Node]
	if s == nil || s.boot != ev.Boot || !s.up {
		return
	}
	s.up = false
	s.control, s.data = frame{}, frame{}
	if ev.Refused {
		s.why = "its address refuses connections"
		c.declareDead(s)
	}
}

// declareDead gives up a peer: every group it led looks for another leader at once.
func (c *Core) declareDead(s *session) {
	if s.dead {
		return
	}
	s.dead = true
	lost := 0
	for _, g := range c.order {
		c.refresh(g) // it may have followed the peer in this very turn
		switch {
		case g.role == RoleLeader && g.onNode(s.node) && !c.quorumLive(g):
			c.wakeGroup(g) // its clock will end it
		case g.role == RoleFollower && g.lead != 0 && g.lead.Node() == s.node:
			lost++
			c.orphan(g, "node "+s.node.String()+": "+s.why)
		case g.role == RoleDamaged && g.lead != 0 && g.lead.Node() == s.node:
			g.lead = 0
			c.publish(g)
		}
	}
	c.log.Info("peer lost", "node", s.node, "why", s.why, "groups_led", lost)
}

// orphan makes a follower forget its leader, so that it grants votes, and stand for election in its turn.
func (c *Core) orphan(g *group, why string) {
	if g.damaged != nil || g.role != RoleFollower {
		return
	}
	g.reason = why
	c.guard(g, func() { _ = g.rn.ForgetLeader() })
	c.touch(g, true)
	c.setLeaderless(g, g.isVoter(g.replica))
}

// peerFrame takes a frame. What was meant for another life of either side is dropped (law 5), and
// what comes after the connection was lost: it would bring back a leader that was given up.
func (c *Core) peerFrame(ev PeerFrame) {
	e, items, err := decodeEnvelope(ev.Payload)
	if err != nil {
		c.stats.DroppedFrames++
		c.log.Warn("frame dropped", "node", ev.Node, "err", err)
		return
	}
	s := c.sessions[ev.Node]
	if c.failed != nil || s == nil || !s.up || e.from != ev.Node || e.to != c.cfg.Node || e.cluster != c.cfg.Cluster ||
		e.toBoot != c.cfg.Boot && !faultNoBootID || e.fromBoot != s.boot && !faultNoBootID {
		c.stats.DroppedFrames++
		return
	}
	s.heard = c.now
	if s.up && s.dead { // it stood still and goes on
		c.alive(s)
	}
	r := frameReader{b: items}
	for len(r.b) > 0 && r.err == nil {
		switch r.u8() {
		case itemRaft:
			if id, m := r.raft(); r.err == nil {
				c.peerRaft(s, id, m)
			}
		case itemBeat:
			c.beat(s, &r)
		case itemAskClaims:
			c.sendClaims(s)
		case itemClaims:
			c.claims(s, &r)
		case itemWake:
			for range r.count(uint64(r.u32()), 8) {
				if g := c.find(record.GroupID(r.u64())); g != nil && g.role == RoleLeader {
					c.wakeGroup(g)
					c.sendHeartbeats(g)
				}
			}
		default:
			r.err = errFrame
		}
	}
	if r.err != nil {
		c.stats.DroppedFrames++
		c.log.Warn("rest of a frame dropped", "node", ev.Node, "err", r.err)
	}
}

// peerRaft gives a group a message from one of its other replicas.
func (c *Core) peerRaft(s *session, id record.GroupID, m *pb.Message) {
	g := c.find(id)
	if g != nil && g.damaged != nil && record.ReplicaID(m.GetFrom()).Node() == s.node {
		c.hearLeader(g, m)
	}
	if g == nil || g.damaged != nil || m.GetTo() != uint64(g.replica) || !fromNetwork(m.GetType()) || m.GetTerm() == 0 && m.GetType() != pb.MsgReadIndex ||
		record.ReplicaID(m.GetFrom()).Node() != s.node {
		return
	}
	if why := c.contradicts(g, m); why != nil {
		if g.relaxed() {
			c.startOver(g, why)
		} else {
			c.damage(g, why)
			c.hearLeader(g, m)
		}
		return
	}
	if i, ok := slices.BinarySearch(g.nodes, s.node); ok {
		g.answered[i] = c.now
	}
	switch m.GetType() {
	case pb.MsgHeartbeat, pb.MsgHeartbeatResp: // not traffic, or nothing would ever sleep
	case pb.MsgVote, pb.MsgPreVote:
		c.refresh(g)
		c.wakeGroup(g)
		c.voteAsked(g, m)
	case pb.MsgApp:
		if len(m.GetEntries()) > 0 {
			if c.saveBytes > c.cfg.Limits.SaveQueue || c.disk.tight && g.holdsBatch(m.GetEntries()) {
				c.stats.DroppedAppends++
				return // the leader sends it again
			}
			c.wakeGroup(g)
		}
	case pb.MsgPreVoteResp:
		c.refresh(g)
		c.wakeGroup(g)
		if !c.longest(g, m) {
			return
		}
	case pb.MsgTimeoutNow:
		c.wakeGroup(g)
		g.reason = "node " + s.node.String() + " handed leadership over"
	default:
		c.wakeGroup(g)
	}
	if (m.GetType() == pb.MsgAppResp || m.GetType() == pb.MsgHeartbeatResp) && c.postpone(s, g, m) {
		return
	}
	c.step(g, m)
}

// hearLeader lets a damaged replica know who leads: clients are sent there, and it is given up only while
// there is somebody to fetch it from.
func (c *Core) hearLeader(g *group, m *pb.Message) {
	leads := m.GetType() == pb.MsgHeartbeat || m.GetType() == pb.MsgApp || m.GetType() == pb.MsgSnap
	if from := record.ReplicaID(m.GetFrom()); leads && m.GetTerm() >= g.term && (g.lead != from || m.GetTerm() > g.term) {
		g.lead, g.term = from, m.GetTerm()
		c.publish(g)
	}
}

// contradicts tells that a leader's log is not the continuation of what is committed here. Raft
// itself would believe that the logs agree when the leader asks below the commit index, and the
// two would differ for ever. It also tells that this replica has not got what it had once reported
// to be on its disk, where Raft would panic.
func (c *Core) contradicts(g *group, m *pb.Message) error {
	if m.GetType() == pb.MsgHeartbeat && m.GetTerm() >= g.term && m.GetCommit() > g.log.last {
		return fmt.Errorf("%w: node %d was told of %d entries, there are %d",
			ErrLostWrites, record.ReplicaID(m.GetFrom()).Node(), m.GetCommit(), g.log.last)
	}
	if m.GetTerm() < g.term || m.GetType() != pb.MsgApp && m.GetType() != pb.MsgSnap {
		return nil
	}
	differs := func(index, term uint64) error {
		if index > g.committed || index <= g.log.base.Index || g.log.term(index) == term {
			return nil
		}
		return fmt.Errorf("%w: node %d leads with entry %d of term %d where one of term %d is committed here",
			ErrDiverged, record.ReplicaID(m.GetFrom()).Node(), index, term, g.log.term(index))
	}
	if m.GetType() == pb.MsgSnap {
		return differs(m.GetSnapshot().GetMetadata().GetIndex(), m.GetSnapshot().GetMetadata().GetTerm())
	}
	if err := differs(m.GetIndex(), m.GetLogTerm()); err != nil {
		return err
	}
	for _, e := range m.GetEntries() {
		if e.GetIndex() <= g.stateIndex && g.stateTerm > 0 && e.GetTerm() > g.stateTerm {
			return fmt.Errorf("%w: node %d leads with entry %d of term %d where this replica's state knows one of a term up to %d",
				ErrDiverged, record.ReplicaID(m.GetFrom()).Node(), e.GetIndex(), e.GetTerm(), g.stateTerm)
		}
		if e.GetIndex() > max(g.committed, g.stateIndex) {
			break
		}
		if err := differs(e.GetIndex(), e.GetTerm()); err != nil {
			return err
		}
	}
	return nil
}

// send puts a Raft message into the frame to its peer. Appends go by the data connection so
// that beats and votes never wait behind them; empty ones too, or they would overtake.
func (c *Core) send(g *group, m *pb.Message) {
	if g.onlyCommit(m) {
		return
	}
	to := record.ReplicaID(m.GetTo())
	s := c.sessions[to.Node()]
	if s == nil || !s.up || c.failed != nil {
		c.notSent(g, m)
		return
	}
	f := &s.control
	switch m.GetType() {
	case pb.MsgApp, pb.MsgSnap:
		f = &s.data
	}
	if told := g.mayTell(); m.GetCommit() > told {
		m.Commit = new(told) // a heartbeat tells the rest
	}
	if f.empty() {
		f.begin(c.envelope(s))
	}
	if m.GetType() == pb.MsgSnap {
		nameMember(m)
	}
	f.raft(g.id, m)
	if m.GetType() == pb.MsgSnap {
		g.snapshots = append(g.snapshots, snapshotWait{to: to, index: m.GetSnapshot().GetMetadata().GetIndex(), until: c.now + c.cfg.Timing.SnapshotTimeout})
	}
	if f.size >= c.cfg.Limits.Frame {
		c.flushFrame(s, f)
	}
}

// onlyCommit tells that a message says nothing to a replica but how far a partition is committed. The
// next append or heartbeat says it as well, and only what serves reads or decides would need it
// earlier: a follower does neither. What Raft sends because of an answer to a heartbeat is more: it finds out
// about entries that were lost on their way.
func (g *group) onlyCommit(m *pb.Message) bool {
	if m.GetType() != pb.MsgApp || len(m.GetEntries()) > 0 || g.machine != nil || g.heartbeatAnswered {
		return false
	}
	pr, ok := g.progress(record.ReplicaID(m.GetTo()))
	return ok && pr.State == tracker.StateReplicate
}

// nameMember adds the receiver of a base record to its configuration. A replica that was added
// after the entry that the record is of would not be in it, and Raft takes no record that does not
// name its receiver. As a learner it changes no majority, and the entry that adds it adds it again.
func nameMember(m *pb.Message) {
	conf := m.GetSnapshot().GetMetadata().GetConfState()
	for _, ids := range [...][]uint64{conf.GetVoters(), conf.GetLearners(), conf.GetVotersOutgoing()} {
		if slices.Contains(ids, m.GetTo()) {
			return
		}
	}
	conf.Learners = append(conf.Learners, m.GetTo())
}

// notSent tells Raft that a message did not leave, so that it probes instead of waiting.
func (c *Core) notSent(g *group, m *pb.Message) {
	switch m.GetType() {
	case pb.MsgSnap:
		g.rn.ReportSnapshot(m.GetTo(), raft.SnapshotFailure)
	case pb.MsgApp:
		g.rn.ReportUnreachable(m.GetTo())
	}
}

func (c *Core) envelope(s *session) envelope {
	return envelope{cluster: c.cfg.Cluster, from: c.cfg.Node, fromBoot: c.cfg.Boot, to: s.node, toBoot: s.boot}
}

func (c *Core) flushFrames(s *session) {
	c.flushFrame(s, &s.control)
	c.flushFrame(s, &s.data)
}

func (c *Core) flushFrame(s *session, f *frame) {
	if f.empty() {
		return
	}
	class := Control
	if f == &s.data {
		class = Data
	}
	if !c.cfg.Outbox.Send(s.node, class, f.finish()) {
		c.stats.DroppedFrames++ // Raft finds out and repeats
		s.fullUntil = c.now + c.cfg.Timing.BeatBusy/2
	}
}

// beats sends each peer a beat when the period that the last one named is over, whatever else
// was sent: a beat also tells what this node leads. The Core itself makes them and no timer beside
// it: a Core that hangs must fall silent.
//
// When one is due, or an idle peer's has just come, those to other idle peers go with it if they are in the second
// half of their time: so all nodes that sleep wake at the same moments, and not once for each beat of each pair.
func (c *Core) beats() {
	together := c.beatHeard || c.nextBeat() <= c.now
	c.beatHeard = false
	if !together {
		return
	}
	for _, s := range c.peers {
		due := c.beatDue(s)
		if s.awake == 0 {
			due -= c.cfg.Timing.BeatIdle / 2
		}
		if !s.up || c.now < due {
			continue
		}
		flags := byte(0)
		if c.diskSlow() {
			flags |= beatSlowDisk
		}
		if c.disk.full {
			flags |= beatFullDisk
		}
		period := c.beatPeriod(s)
		b := make([]byte, 1, 20)
		b[0] = itemBeat
		b = binary.BigEndian.AppendUint16(b, uint16(period/time.Millisecond))
		b = append(b, flags)
		b = binary.BigEndian.AppendUint32(b, stamp32(c.now))
		b = binary.BigEndian.AppendUint32(b, s.led.count)
		c.addItem(s, binary.BigEndian.AppendUint64(b, s.led.digest))
		s.beatAt, s.said = c.now, period
	}
}

func (c *Core) beatPeriod(s *session) Time {
	if s.awake > 0 {
		return c.cfg.Timing.BeatBusy
	}
	return c.cfg.Timing.BeatIdle
}

// beatDue is when the next beat is due. A longer period is announced within the shorter one, or
// the peer would take the first pause for death.
func (c *Core) beatDue(s *session) Time { return s.beatAt + min(c.beatPeriod(s), s.said) }

// nextBeat is when the next beat to anybody is due.
func (c *Core) nextBeat() Time {
	next := never
	for _, s := range c.peers {
		if s.up {
			next = min(next, c.beatDue(s))
		}
	}
	return next
}

// beat takes a peer's beat: when it will speak again, and which groups it leads. A sleeping follower
// has no clock of its own, so a leader that no longer leads must be found out here.
func (c *Core) beat(s *session, r *frameReader) {
	period := Time(r.u16()) * time.Millisecond
	flags, left, theirs := r.u8(), r.u32(), claim{r.u32(), r.u64()}
	if r.err != nil {
		return
	}
	t := c.cfg.Timing
	s.slowDisk, s.fullDisk = flags&beatSlowDisk != 0, flags&beatFullDisk != 0
	c.learn(s, left)
	c.beatHeard = c.beatHeard || period >= c.cfg.Timing.BeatIdle
	s.limit = t.DeadIdle
	if period < t.BeatIdle {
		s.limit = max(t.DeadBusy, t.DeadIdle*period/t.BeatIdle)
	}
	s.limit = c.patience(s, s.limit)
	d := &s.dispute
	if theirs == s.followed || faultIgnoreClaims {
		*d = dispute{}
		return
	}
	same := theirs == d.theirs && s.followed == d.ours
	if !same {
		d.askAt = disputes
	}
	if d.beats++; d.beats < d.askAt {
		return
	}
	d.beats = 0
	if d.unanswered == 0 {
		d.askedAt = c.now
	}
	if d.unanswered++; d.unanswered > maxUnanswered && c.now-d.askedAt >= 2*s.pause {
		d.unanswered = 0
		c.takeClaims(s, nil)
	}
	c.addItem(s, []byte{itemAskClaims})
}

func (c *Core) addItem(s *session, item []byte) {
	if !s.up {
		return
	}
	if s.control.empty() {
		s.control.begin(c.envelope(s))
	}
	s.control.buf = append(s.control.buf, item...)
	s.control.size += int64(len(item))
}

// sendClaims lists the groups that this node leads and the peer has a replica of.
func (c *Core) sendClaims(s *session) {
	b, n := make([]byte, 5), uint32(0)
	b[0] = itemClaims
	for _, g := range c.order {
		if g.role == RoleLeader && g.onNode(s.node) && n < maxListed {
			b = binary.BigEndian.AppendUint64(b, uint64(g.id))
			b = binary.BigEndian.AppendUint64(b, g.term)
			n++
		}
	}
	binary.BigEndian.PutUint32(b[1:], n)
	c.addItem(s, b)
}

// claims takes a peer's list of what it leads.
func (c *Core) claims(s *session, r *frameReader) {
	led := map[record.GroupID]uint64{}
	theirs := claim{}
	for range r.count(uint64(r.u32()), 16) {
		id, term := record.GroupID(r.u64()), r.u64()
		if _, twice := led[id]; !twice {
			led[id] = term
			theirs.add(id, term)
		}
	}
	if r.err != nil {
		return
	}
	d := &s.dispute
	d.unanswered = 0
	if theirs == d.theirs && s.followed == d.ours { // the list settles nothing
		d.askAt = min(2*d.askAt, maxDisputes)
	} else {
		d.askAt = disputes
	}
	d.theirs, d.ours = theirs, s.followed
	c.takeClaims(s, led)
}

// takeClaims compares what a peer leads with what this node believes: a group it does not claim
// has lost its leader; a group it claims and we do not follow is to be woken there.
func (c *Core) takeClaims(s *session, led map[record.GroupID]uint64) {
	var wake []record.GroupID
	for _, g := range c.order {
		c.refresh(g)
		term, claimed := led[g.id]
		follows := g.role == RoleFollower && g.lead != 0 && g.lead.Node() == s.node
		// It leads and we do not follow, or it led and does not know that this is over: either
		// way a heartbeat of it sets that right.
		if claimed && g.damaged == nil && (!follows || g.term != term) && len(wake) < maxListed {
			wake = append(wake, g.id)
		}
		// A list may be older than an election that was won since: belief must have aged.
		if follows && (!claimed || term < g.term) && c.now-g.leadSince > c.patience(s, c.cfg.Timing.DeadBusy) {
			c.orphan(g, "node "+s.node.String()+" no longer leads it")
		}
	}
	if len(wake) > 0 {
		c.addItem(s, wakeItem(wake))
	}
}

// wakeItem asks a leader to be heard in these groups.
func wakeItem(groups []record.GroupID) []byte {
	b := make([]byte, 1, 5+8*len(groups))
	b[0] = itemWake
	b = binary.BigEndian.AppendUint32(b, uint32(len(groups)))
	for _, g := range groups {
		b = binary.BigEndian.AppendUint64(b, uint64(g))
	}
	return b
}
