package groups

import (
	"slices"

	"edged/record"
)

// phase is where a group stands between two generations.
type phase uint8

const (
	empty      phase = iota // no members
	preparing               // waits for all members to join the next generation
	completing              // all have joined, waits for the leader's assignment
	stable
)

// String gives Kafka's word.
func (p phase) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"}[p]
}

// Dead is what Kafka calls a group that there is not.
const Dead = "Dead"

// group is a group with members, or one that is just getting or losing them. Groups without
// members live in the State alone.
type group struct {
	name         string
	phase        phase
	generation   int32
	protocolType string
	protocol     string
	leader       string
	emptySince   int64
	members      []*member // in the order in which they came
	byID         map[string]*member
	instances    map[string]*member
	pending      map[string]Time // ids given out, and until when they have to be used

	// While preparing: joinBy is when the generation begins without those who are missing. The first
	// generation waits all of the time, so that members who start together come into it together;
	// a newcomer makes it wait again, out of spare.
	joinBy   Time
	initial  bool
	newcomer bool
	spare    Time

	syncBy  Time  // when those who have not asked for their assignment are dropped; 0 if all have
	saving  int32 // the generation whose assignment is on its way into the log
	unsaved bool  // that the group is empty is not in the log yet
	saveAt  Time  // when that is tried again; 0 while it is under way

	wake  Time // no later than the first of all deadlines
	place int  // in the coordinator's heap, -1 outside
}

// member is one member. Its Assignment is that of the last generation it was given one in.
type member struct {
	Member
	joining  func(JoinResult) // it waits for the next generation
	syncing  func(SyncResult) // it waits for its assignment
	fresh    bool             // it has been in no generation yet
	synced   bool             // it has asked for its assignment in this generation
	deadline Time             // of its session, or of its first join
}

func newGroup(name string) *group {
	return &group{
		name: name, byID: map[string]*member{}, instances: map[string]*member{}, pending: map[string]Time{},
		saving: -1, wake: never, place: -1,
	}
}

// loadGroup makes a group of what the state holds. Its members have all of their time again.
func loadGroup(s Group, now Time) *group {
	g := newGroup(s.Name)
	g.protocolType, g.generation, g.protocol, g.leader, g.emptySince = s.ProtocolType, s.Generation, s.Protocol, s.Leader, s.EmptySince
	for _, m := range s.Members {
		g.insert(&member{Member: m, synced: true, deadline: now + ms(m.SessionMs)})
	}
	if len(g.members) > 0 {
		g.phase = stable
		if g.byID[g.leader] == nil {
			g.leader = g.members[0].ID
		}
	}
	return g
}

// stored is the group as the log is to hold it.
func (g *group) stored() Group {
	s := Group{Name: g.name, ProtocolType: g.protocolType, Generation: g.generation, Protocol: g.protocol, Leader: g.leader, EmptySince: g.emptySince}
	for _, m := range g.members {
		s.Members = append(s.Members, m.Member)
	}
	return s
}

func (g *group) insert(m *member) {
	g.members = append(g.members, m)
	g.byID[m.ID] = m
	if m.Instance != "" {
		g.instances[m.Instance] = m
	}
	if g.leader == "" {
		g.leader = m.ID
	}
}

// cut takes a member out. The longest-standing of the others leads then.
func (g *group) cut(m *member) {
	g.members = slices.DeleteFunc(g.members, func(o *member) bool { return o == m })
	delete(g.byID, m.ID)
	if m.Instance != "" {
		delete(g.instances, m.Instance)
	}
	if g.leader == m.ID {
		if g.leader = ""; len(g.members) > 0 {
			g.leader = g.members[0].ID
		}
	}
	m.answerJoin(JoinResult{Err: record.ErrUnknownMember})
	m.answerSync(SyncResult{Err: record.ErrUnknownMember})
}

// answerJoin ends the wait for the next generation, if there is one.
func (m *member) answerJoin(r JoinResult) {
	if done := m.joining; done != nil {
		m.joining = nil
		if r.Err != nil {
			r.Generation, r.Member = NoGeneration, m.ID
		}
		done(r)
	}
}

func (m *member) answerSync(r SyncResult) {
	if done := m.syncing; done != nil {
		m.syncing = nil
		done(r)
	}
}

// timed tells whether the member can be late: one that waits for an answer of ours cannot,
// except at its first join, which nobody may hold up for ever.
func (m *member) timed() bool { return m.fresh || m.joining == nil && m.syncing == nil }

func (m *member) metadata(protocol string) []byte {
	for _, p := range m.Protocols {
		if p.Name == protocol {
			return p.Metadata
		}
	}
	return nil
}

func sameProtocols(a, b []Protocol) bool {
	return slices.EqualFunc(a, b, func(p, q Protocol) bool { return p.Name == q.Name && slices.Equal(p.Metadata, q.Metadata) })
}

// rebalance is how long the members may take to join again.
func (g *group) rebalance() Time {
	var most Time
	for _, m := range g.members {
		most = max(most, ms(m.RebalanceMs))
	}
	return most
}

// supports tells whether a member with these protocols fits in: one of them must be known to all.
func (g *group) supports(protocolType string, protocols []Protocol) bool {
	if protocolType == "" || len(protocols) == 0 {
		return false
	}
	if len(g.members) == 0 {
		return true
	}
	return protocolType == g.protocolType && slices.ContainsFunc(protocols, func(p Protocol) bool { return g.allKnow(p.Name) })
}

func (g *group) allKnow(protocol string) bool {
	return !slices.ContainsFunc(g.members, func(m *member) bool {
		return !slices.ContainsFunc(m.Protocols, func(p Protocol) bool { return p.Name == protocol })
	})
}

// choose gives the protocol with most votes. Each member votes for the first of its own that all
// know; of equals the one that was voted for first wins.
func (g *group) choose() string {
	votes := map[string]int{}
	best := ""
	for _, m := range g.members {
		for _, p := range m.Protocols {
			if g.allKnow(p.Name) {
				votes[p.Name]++
				break
			}
		}
	}
	for _, m := range g.members {
		for _, p := range m.Protocols {
			if votes[p.Name] > votes[best] {
				best = p.Name
			}
		}
	}
	return best
}

// check finds the member that speaks. An instance that another member has taken over is fenced.
func (g *group) check(id Identity) (*member, error) {
	if id.Instance != "" {
		switch m := g.instances[id.Instance]; {
		case m == nil:
			return nil, record.ErrUnknownMember
		case m.ID != id.Member:
			return nil, record.ErrFencedInstance
		}
	}
	if m := g.byID[id.Member]; m != nil {
		return m, nil
	}
	return nil, record.ErrUnknownMember
}

// checkGeneration is check, and the generation must be the present one.
func (g *group) checkGeneration(id Identity) (*member, error) {
	m, err := g.check(id)
	if err == nil && id.Generation != g.generation {
		err = record.ErrIllegalGeneration
	}
	return m, err
}

// idle tells that nothing of the group is worth being kept in memory.
func (g *group) idle() bool {
	return g.phase == empty && len(g.members) == 0 && len(g.pending) == 0 && !g.unsaved
}

// brought is the size of what the members brought.
func (g *group) brought() int {
	n := 0
	for _, m := range g.members {
		n += m.broughtSize()
	}
	return n
}
