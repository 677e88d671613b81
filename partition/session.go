package partition

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"edged/record"

	pb "go.etcd.io/raft/v3/raftpb"
)

// session is what this node knows of the life of one peer. It is the only source of liveness for
// elections: gossip is seconds late and hears third parties.
type session struct {
	node record.NodeID
	boot record.BootID // of the life we are connected to; 0 before the first
	up   bool          // the control connection stands
	dead bool          // silent for too long, or its address refuses connections
	// heard and limit: the peer is dead when nothing came for limit. It says itself how soon
	// it will speak again.
	heard, limit Time
	sent         Time // last control frame to it
	upSince      Time

	control, data frame
	// disputed counts beats in a row whose digest of led groups was not ours.
	disputed int
	slowDisk bool // its last beat said so
	why      string
}

const (
	beatSlowDisk = 1 << 0
	// maxListed bounds the groups of one claims or wake item.
	maxListed = 1 << 16
	// disputes is how many beats in a row must disagree before the list is asked for: groups
	// that change hands disagree for a moment.
	disputes = 2
)

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
	half := func(voters []record.ReplicaID) bool {
		n := 0
		for _, v := range voters {
			if c.live(v.Node()) {
				n++
			}
		}
		return len(voters) == 0 || n > len(voters)/2
	}
	return len(g.conf.Voters) > 0 && half(g.conf.Voters) && half(g.conf.VotersOutgoing)
}

func (c *Core) peerUp(ev PeerUp) {
	s := c.session(ev.Node)
	if s.boot != ev.Boot && s.boot != 0 && !s.dead {
		s.why = "it was restarted"
		c.declareDead(s) // leaderships of the old life are void
	}
	s.control, s.data = frame{}, frame{}
	s.boot, s.up, s.dead, s.disputed = ev.Boot, true, false, 0
	s.heard, s.upSince, s.limit = c.now, c.now, c.cfg.Timing.DeadIdle
	s.sent = 0 // beat at once
	c.wakeLed(ev.Node)
}

// wakeLed wakes the groups led here that a node has a replica of: it may have missed entries.
func (c *Core) wakeLed(n record.NodeID) {
	for _, g := range c.order {
		if g.role == RoleLeader && g.onNode(n) {
			c.wakeGroup(g)
		}
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
		if g.role == RoleLeader {
			if g.onNode(s.node) {
				c.wakeGroup(g) // it may have lost its majority
			}
			continue
		}
		if g.lead != 0 && g.lead.Node() == s.node {
			lost++
			c.orphan(g, "node "+s.node.String()+": "+s.why)
		}
	}
	c.log.Info("peer lost", "node", s.node, "why", s.why, "groups_led", lost)
}

// orphan makes a follower forget its leader, so that it grants votes, and stand for election in its turn.
func (c *Core) orphan(g *group, why string) {
	if g.damaged != nil || g.role == RoleLeader {
		return
	}
	g.reason = why
	c.guard(g, func() { _ = g.rn.ForgetLeader() })
	c.touch(g, true)
	c.setLeaderless(g, true)
}

// peerFrame takes a frame. What was meant for another life of either side is dropped (law 5).
func (c *Core) peerFrame(ev PeerFrame) {
	e, items, err := decodeEnvelope(ev.Payload)
	if err != nil {
		c.stats.DroppedFrames++
		c.log.Warn("frame dropped", "node", ev.Node, "err", err)
		return
	}
	s := c.sessions[ev.Node]
	if c.failed != nil || s == nil || e.from != ev.Node || e.to != c.cfg.Node || e.cluster != c.cfg.Cluster ||
		e.toBoot != c.cfg.Boot && !faultNoBootID || e.fromBoot != s.boot && !faultNoBootID {
		c.stats.DroppedFrames++
		return
	}
	s.heard = c.now
	if s.up && s.dead { // it stood still and goes on
		s.dead, s.upSince = false, c.now
		c.wakeLed(s.node)
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
	if g == nil || g.damaged != nil || m.GetTo() != uint64(g.replica) || !fromNetwork(m.GetType()) ||
		record.ReplicaID(m.GetFrom()).Node() != s.node {
		return
	}
	switch m.GetType() {
	case pb.MsgHeartbeat, pb.MsgHeartbeatResp: // not traffic, or nothing would ever sleep
	case pb.MsgVote, pb.MsgPreVote:
		c.wakeGroup(g)
		c.voteAsked(g, m)
	case pb.MsgApp:
		if len(m.GetEntries()) > 0 {
			if c.saveBytes > c.cfg.Limits.SaveQueue {
				c.stats.DroppedAppends++
				return // the leader sends it again
			}
			g.lastTraffic = c.now
		}
	case pb.MsgSnap:
		g.lastTraffic = c.now
	case pb.MsgTimeoutNow:
		c.wakeGroup(g)
		g.reason = "node " + s.node.String() + " handed leadership over"
	default:
		c.wakeGroup(g)
	}
	c.step(g, m)
}

// send puts a Raft message into the frame to its peer. Appends go by the data connection so
// that beats and votes never wait behind them; empty ones too, or they would overtake.
func (c *Core) send(g *group, m *pb.Message) {
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
	if f.empty() {
		f.begin(c.envelope(s))
	}
	f.raft(g.id, m)
	if m.GetType() == pb.MsgSnap {
		g.snapshots = append(g.snapshots, snapshotWait{to: to, until: c.now + c.cfg.Timing.SnapshotTimeout})
	}
	if f.size >= c.cfg.Limits.Frame {
		c.flushFrame(s, f)
	}
}

// notSent tells Raft that a message did not leave, so that it probes instead of waiting.
func (c *Core) notSent(g *group, m *pb.Message) {
	switch m.GetType() {
	case pb.MsgSnap:
		g.rn.ReportSnapshot(m.GetTo(), 2) // SnapshotFailure
		c.touch(g, true)
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
	} else {
		s.sent = c.now
	}
	if !c.cfg.Outbox.Send(s.node, class, f.finish()) {
		c.stats.DroppedFrames++
	}
}

// beats sends a beat to every peer that would otherwise hear nothing for too long. The Core itself
// makes them and no timer beside it: a Core that hangs must fall silent.
func (c *Core) beats() {
	for _, s := range c.peers {
		if !s.up {
			continue
		}
		period := c.cfg.Timing.BeatIdle
		if c.sharesAwake(s.node) {
			period = c.cfg.Timing.BeatBusy
		}
		if s.sent != 0 && c.now-s.sent < period {
			continue
		}
		if s.control.empty() {
			s.control.begin(c.envelope(s))
		}
		led, digest := c.claimDigest(s.node)
		flags := byte(0)
		if c.disk.slow {
			flags |= beatSlowDisk
		}
		b := append(s.control.buf, itemBeat)
		b = binary.BigEndian.AppendUint16(b, uint16(period/time.Millisecond))
		b = append(b, flags)
		b = binary.BigEndian.AppendUint32(b, led)
		s.control.buf = binary.BigEndian.AppendUint64(b, digest)
		s.control.size += 16
	}
}

func (c *Core) sharesAwake(n record.NodeID) bool {
	for _, g := range c.awake {
		if g.onNode(n) {
			return true
		}
	}
	return false
}

// nextBeat is when the next beat is due.
func (c *Core) nextBeat() Time {
	next := c.now + time.Hour
	for _, s := range c.peers {
		if !s.up {
			continue
		}
		period := c.cfg.Timing.BeatIdle
		if c.sharesAwake(s.node) {
			period = c.cfg.Timing.BeatBusy
		}
		next = min(next, s.sent+period)
	}
	return next
}

// claimDigest sums up the groups led here of which the peer has a replica: their number
// and the exclusive or of a hash of (group, term).
func (c *Core) claimDigest(n record.NodeID) (uint32, uint64) {
	count, digest := uint32(0), uint64(0)
	for _, g := range c.order {
		if g.role == RoleLeader && g.onNode(n) {
			count++
			digest ^= claimHash(g.id, g.term)
		}
	}
	return count, digest
}

// claimHash mixes a group and a term (the finalizer of splitmix64).
func claimHash(g record.GroupID, term uint64) uint64 {
	x := uint64(g)*0x9e3779b97f4a7c15 + term
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// beat takes a peer's beat: when it will speak again, and which groups it leads. A sleeping follower
// has no clock of its own, so a leader that no longer leads must be found out here.
func (c *Core) beat(s *session, r *frameReader) {
	period := Time(r.u16()) * time.Millisecond
	flags, led, digest := r.u8(), r.u32(), r.u64()
	if r.err != nil {
		return
	}
	t := c.cfg.Timing
	s.slowDisk = flags&beatSlowDisk != 0
	s.limit = min(max(t.DeadBusy, t.DeadIdle*period/t.BeatIdle), t.DeadIdle)
	count, mine := uint32(0), uint64(0)
	for _, g := range c.order {
		if g.lead != 0 && g.lead.Node() == s.node && g.role == RoleFollower {
			count++
			mine ^= claimHash(g.id, g.term)
		}
	}
	if count == led && mine == digest || faultIgnoreClaims {
		s.disputed = 0
		return
	}
	if s.disputed++; s.disputed >= disputes {
		s.disputed = 0
		c.addItem(s, []byte{itemAskClaims})
	}
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

// claims compares a peer's list with what this node believes: a group it does not claim has
// lost its leader; a group it claims and we do not follow is to be woken there.
func (c *Core) claims(s *session, r *frameReader) {
	led := map[record.GroupID]uint64{}
	wake := make([]byte, 5)
	wake[0] = itemWake
	n := uint32(0)
	for range r.count(uint64(r.u32()), 16) {
		id, term := record.GroupID(r.u64()), r.u64()
		led[id] = term
		g := c.find(id)
		// It leads and we do not follow, or it led and does not know that this is over: either
		// way a heartbeat of it sets that right.
		if g != nil && g.damaged == nil && (g.lead.Node() != s.node || g.term != term) && n < maxListed {
			wake = binary.BigEndian.AppendUint64(wake, uint64(id))
			n++
		}
	}
	if r.err != nil {
		return
	}
	for _, g := range c.order {
		// A list may be older than an election that was won since: belief must have aged.
		if g.role == RoleFollower && g.lead != 0 && g.lead.Node() == s.node && c.now-g.leadSince > c.cfg.Timing.DeadBusy {
			if term, ok := led[g.id]; !ok || term < g.term {
				c.orphan(g, "node "+s.node.String()+" no longer leads it")
			}
		}
	}
	if n > 0 {
		binary.BigEndian.PutUint32(wake[1:], n)
		c.addItem(s, wake)
	}
}
