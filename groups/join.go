package groups

import (
	"fmt"
	"slices"
	"time"

	"edged/record"
)

// NoGeneration is the generation of who is in none.
const NoGeneration int32 = -1

// Identity is who speaks for a member. Instance is empty for a dynamic one.
type Identity struct {
	Group, Member, Instance string
	Generation              int32
}

// JoinRequest enters a group, or its next generation.
type JoinRequest struct {
	Group, Member, Instance string // Member is empty at the first time
	ClientID, ClientHost    string
	ProtocolType            string
	Protocols               []Protocol
	Session, Rebalance      time.Duration
	NeedsMemberID           bool   // it knows the step of joining again with the id it is given
	CanSkipAssignment       bool   // as a leader it may be told that the assignment still holds
	Reason                  string // for people
}

// JoinResult tells the member its place. Members are there for the leader only.
type JoinResult struct {
	Err                    error
	Generation             int32
	ProtocolType, Protocol string
	Leader, Member         string
	SkipAssignment         bool
	Members                []JoinedMember
}

// JoinedMember is a member as the group's leader sees it.
type JoinedMember struct {
	Member, Instance string
	Metadata         []byte
}

// Join brings a member into the next generation of its group; done is called when that begins.
func (c *Coordinator) Join(req JoinRequest, done func(JoinResult)) {
	g := c.find(req.Group)
	err := c.checkJoin(&req)
	if err == nil && g == nil {
		switch {
		case req.Member != "":
			err = record.ErrUnknownMember
		case len(c.groups) >= MaxGroups:
			err = fmt.Errorf("%d groups have members, the most the coordinator can have: %w", MaxGroups, record.ErrLimit)
		default:
			g = newGroup(req.Group)
		}
	}
	if err == nil {
		c.hold(g)
		err = c.join(g, &req, done)
		if err == nil {
			c.maybeBegin(g)
		}
		c.settle(g)
	}
	if err != nil {
		done(JoinResult{Err: err, Generation: NoGeneration, Member: req.Member})
	}
}

// checkJoin holds the request against the bounds, and fits in what only has to be sensible.
func (c *Coordinator) checkJoin(req *JoinRequest) error {
	t := &c.cfg.Timing
	if req.Group == "" || len(req.Group) > MaxNameBytes {
		return fmt.Errorf("a group's name of %d bytes, 1 to %d are allowed: %w", len(req.Group), MaxNameBytes, record.ErrInvalidGroup)
	}
	if req.Session < t.MinSession || req.Session > t.MaxSession {
		return fmt.Errorf("a session timeout of %v, %v to %v are allowed: %w", req.Session, t.MinSession, t.MaxSession, record.ErrSessionTimeout)
	}
	if req.Rebalance <= 0 {
		req.Rebalance = req.Session
	}
	if len(req.Member) > MaxNameBytes {
		return record.ErrUnknownMember
	}
	if len(req.Instance) > maxGivenBytes || len(req.ProtocolType) > MaxNameBytes || len(req.Protocols) > maxProtocols {
		return fmt.Errorf("an instance of %d bytes (at most %d), a protocol type of %d (at most %d), %d protocols (at most %d): %w",
			len(req.Instance), maxGivenBytes, len(req.ProtocolType), MaxNameBytes, len(req.Protocols), maxProtocols, record.ErrInvalidRequest)
	}
	for i, p := range req.Protocols {
		if p.Name == "" || len(p.Name) > MaxNameBytes || slices.ContainsFunc(req.Protocols[:i], func(q Protocol) bool { return q.Name == p.Name }) {
			return fmt.Errorf("protocol %.80q is empty, too long or there twice: %w", p.Name, record.ErrInvalidRequest)
		}
	}
	req.ClientID = req.ClientID[:min(len(req.ClientID), maxClientBytes)]
	req.ClientHost = req.ClientHost[:min(len(req.ClientHost), maxClientBytes)]
	return nil
}

func (c *Coordinator) join(g *group, req *JoinRequest, done func(JoinResult)) error {
	_, waiting := g.pending[req.Member]
	var m *member
	if req.Member != "" && !waiting {
		var err error
		if m, err = g.check(Identity{Member: req.Member, Instance: req.Instance}); err != nil {
			return err
		}
	} else if req.Instance != "" {
		m = g.instances[req.Instance]
	}
	if !g.supports(req.ProtocolType, req.Protocols) {
		return record.ErrGroupProtocol
	}
	if err := c.checkRoom(g, m, req); err != nil {
		return err
	}
	delete(g.pending, req.Member)
	switch {
	case m != nil && req.Member == m.ID:
		c.joinAgain(g, m, req, done)
	case m != nil:
		c.replace(g, m, req, done)
	case waiting:
		c.enter(g, req.Member, req, done)
	case req.Instance != "":
		c.enter(g, c.cfg.MemberID(req.Instance), req, done)
	case req.NeedsMemberID:
		id := c.cfg.MemberID(req.ClientID)
		until := c.now + req.Session
		g.pending[id] = until
		c.arm(g, until)
		done(JoinResult{Err: record.ErrMemberIDRequired, Generation: NoGeneration, Member: id})
	default:
		c.enter(g, c.cfg.MemberID(req.ClientID), req, done)
	}
	return nil
}

// checkRoom tells whether the group can take the member, or what m brings now.
func (c *Coordinator) checkRoom(g *group, m *member, req *JoinRequest) error {
	_, waiting := g.pending[req.Member]
	if m == nil && !waiting && len(g.members)+len(g.pending) >= MaxMembers {
		return fmt.Errorf("%d members are the most a group can have: %w", MaxMembers, record.ErrGroupFull)
	}
	next := Member{Protocols: req.Protocols, Instance: req.Instance, ClientID: req.ClientID, ClientHost: req.ClientHost}
	grow := next.broughtSize() + MaxNameBytes
	if m != nil {
		grow -= m.broughtSize()
	}
	if g.brought()+grow > MaxMembersBytes {
		return fmt.Errorf("what the members bring takes more than %d bytes: %w", MaxMembersBytes, record.ErrGroupFull)
	}
	if c.bytes+grow > MaxLiveBytes {
		return fmt.Errorf("what the members of all groups bring takes more than %d bytes: %w", MaxLiveBytes, record.ErrLimit)
	}
	return nil
}

// take notes what a member brings.
func (c *Coordinator) take(m *member, req *JoinRequest) {
	m.Instance, m.ClientID, m.ClientHost = req.Instance, req.ClientID, req.ClientHost
	m.SessionMs, m.RebalanceMs = millis(req.Session), millis(req.Rebalance)
	m.Protocols = req.Protocols
}

func millis(d time.Duration) int32 {
	return int32(min(max(d.Milliseconds(), 1), 1<<31-1))
}

// enter adds a new member.
func (c *Coordinator) enter(g *group, id string, req *JoinRequest, done func(JoinResult)) {
	m := &member{Member: Member{ID: id}, fresh: true, joining: done, deadline: c.now + c.cfg.Timing.FirstJoin}
	c.take(m, req)
	c.bytes += m.broughtSize()
	if len(g.members) == 0 {
		g.protocolType = req.ProtocolType
	}
	g.insert(m)
	c.arm(g, m.deadline)
	g.newcomer = true
	c.notice(g, "member %s joins%s", id, because(req.Reason))
	c.prepare(g)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return fmt.Sprintf(" (%.80q)", reason)
}

// joinAgain is for a member that the group knows. If it only missed an answer it gets that again.
func (c *Coordinator) joinAgain(g *group, m *member, req *JoinRequest, done func(JoinResult)) {
	same := sameProtocols(m.Protocols, req.Protocols)
	if same && (g.phase == completing || g.phase == stable && g.leader != m.ID) {
		c.refresh(g, m)
		done(g.joined(m))
		return
	}
	m.answerJoin(JoinResult{Err: record.ErrRebalance}) // it has asked twice
	c.bytes -= m.broughtSize()
	instance := m.Instance // a member does not change its instance
	c.take(m, req)
	m.Instance = instance
	c.bytes += m.broughtSize()
	m.joining = done
	c.prepare(g)
}

// replace puts a new life of a static member in place of the old one, under a new id. In a stable
// group the assignment goes on to hold, if nothing that it was made from has changed.
func (c *Coordinator) replace(g *group, m *member, req *JoinRequest, done func(JoinResult)) {
	oldID, led := m.ID, g.leader == m.ID
	m.answerJoin(JoinResult{Err: record.ErrFencedInstance})
	m.answerSync(SyncResult{Err: record.ErrFencedInstance})
	before := m.metadata(g.protocol)
	c.bytes -= m.broughtSize()
	delete(g.byID, oldID)
	m.ID = c.cfg.MemberID(m.Instance)
	g.byID[m.ID] = m
	if led {
		g.leader = m.ID
	}
	c.take(m, req)
	c.bytes += m.broughtSize()
	m.fresh = false
	c.refresh(g, m)
	c.notice(g, "member %s takes the place of %s", m.ID, oldID)
	if g.phase != stable || g.choose() != g.protocol || !sameSubscription(g.protocolType, before, m.metadata(g.protocol)) {
		m.joining = done
		c.prepare(g)
		return
	}
	r := g.joined(m)
	if !req.CanSkipAssignment {
		r.Members = nil
		if led {
			r.Leader = oldID // the client must not take itself for the leader: it would assign anew
		}
	} else {
		r.SkipAssignment = led
	}
	c.propose(&PutGroup{g.stored()}, func(err error) {
		switch {
		case err != nil:
			r = JoinResult{Err: err, Generation: NoGeneration}
		case g.byID[r.Member] != m:
			r = JoinResult{Err: record.ErrUnknownMember, Generation: NoGeneration}
		}
		done(r)
	})
}

// joined is the answer to a member of the present generation.
func (g *group) joined(m *member) JoinResult {
	r := JoinResult{Generation: g.generation, ProtocolType: g.protocolType, Protocol: g.protocol, Leader: g.leader, Member: m.ID}
	if m.ID == g.leader {
		for _, o := range g.members {
			r.Members = append(r.Members, JoinedMember{o.ID, o.Instance, o.metadata(g.protocol)})
		}
	}
	return r
}

// prepare starts a rebalance unless one is under way.
func (c *Coordinator) prepare(g *group) {
	if g.phase == preparing {
		return
	}
	t := c.cfg.Timing.InitialDelay
	switch {
	case g.phase == empty && t > 0:
		g.initial, g.newcomer = true, false
		g.joinBy, g.spare = c.now+t, max(g.rebalance()-t, 0)
	default:
		g.joinBy = c.now + g.rebalance()
	}
	if g.phase == completing {
		g.failSync(record.ErrRebalance)
	}
	g.phase, g.syncBy = preparing, 0
	c.arm(g, g.joinBy)
}

// failSync tells everybody who waits for an assignment that there will be none.
func (g *group) failSync(err error) {
	for _, m := range g.members {
		m.Assignment = nil
		m.answerSync(SyncResult{Err: err})
	}
}

// maybeBegin begins the next generation when nobody is missing.
func (c *Coordinator) maybeBegin(g *group) {
	if g.phase != preparing || g.initial || len(g.pending) > 0 {
		return
	}
	if !slices.ContainsFunc(g.members, func(m *member) bool { return m.joining == nil }) {
		c.begin(g)
	}
}

// joinTimeout begins the next generation without those who are missing, or waits once more: for
// members that may come right behind the last one.
func (c *Coordinator) joinTimeout(g *group) {
	if g.initial && g.newcomer && g.spare > 0 {
		more := min(c.cfg.Timing.InitialDelay, g.spare)
		g.newcomer, g.spare, g.joinBy = false, g.spare-more, c.now+more
		return
	}
	c.begin(g)
}

// begin begins the next generation. Dynamic members that have not joined are dropped; static ones
// keep their place until their session ends.
func (c *Coordinator) begin(g *group) {
	g.initial = false
	someone := false
	for _, m := range slices.Clone(g.members) {
		if m.joining != nil {
			someone = true
		} else if m.Instance == "" {
			c.notice(g, "member %s did not join again in time", m.ID)
			c.remove(g, m)
		}
	}
	if len(g.members) > 0 && !someone { // nobody would make the assignment
		g.joinBy = c.now + g.rebalance()
		c.arm(g, g.joinBy)
		return
	}
	g.generation++
	if len(g.members) == 0 {
		c.becomeEmpty(g)
		return
	}
	if l := g.byID[g.leader]; l.joining == nil {
		g.leader = g.members[slices.IndexFunc(g.members, func(m *member) bool { return m.joining != nil })].ID
	}
	g.phase, g.protocol = completing, g.choose()
	g.syncBy = c.now + g.rebalance()
	c.arm(g, g.syncBy)
	c.notice(g, "generation %d begins with %d members, protocol %s", g.generation, len(g.members), g.protocol)
	for _, m := range g.members {
		m.synced, m.fresh = false, false
		c.refresh(g, m)
		m.answerJoin(g.joined(m))
	}
}

// becomeEmpty ends the last generation. It is written down so that the members do not come to life
// again with the next coordinator, and that the time of the offsets runs.
func (c *Coordinator) becomeEmpty(g *group) {
	g.phase, g.protocol, g.leader = empty, "", ""
	g.emptySince = c.cfg.Wall()
	c.notice(g, "no members are left")
	c.saveEmpty(g)
}

func (c *Coordinator) saveEmpty(g *group) {
	g.unsaved, g.saveAt = true, 0
	c.propose(&PutGroup{g.stored()}, func(err error) {
		switch {
		case err == nil || g.phase != empty: // later generations write themselves down
			g.unsaved = false
		default:
			g.saveAt = c.now + c.cfg.Timing.SaveAgain
			c.arm(g, g.saveAt)
		}
		c.settle(g)
	})
}
