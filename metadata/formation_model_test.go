package metadata

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"edged/record"
)

// The model check walks every state that N nodes can reach with a few given proposals,
// each made by its node whenever it may, whatever that node sees of the others; when any
// message may be lost, repeated or come late in any order, and any node may restart at
// any moment. Ballots are only compared, so all orders of them and all ways to share the
// proposals among the nodes are all there is.
//
// Messages are kept as facts that, once sent, can be delivered to anybody at any time and
// any number of times. Loss is never delivering; a crash between storing and sending is
// the same; a crash before storing is the step that was not made. Nodes are asked about
// every proposal all the time, and their answers may reach every member and not only the
// one who asked, which is more than nodes do and makes fewer states.
type model struct {
	t         *testing.T
	expect    int
	nodes     int
	proposals []Proposal // Cluster[0] is the number of each, Round too
	states    map[string]bool
	restarts  map[string]Formation
	finals    int // states with a cluster
	let       int // states in which a proposal was let go of
}

type world struct {
	nodes []Formation
	facts uint64 // eight bits for each proposal: see fact
}

// fact is the bit of a message: who says it matters to answers only.
func fact(from record.NodeID, m Message) int {
	n := 8 * int(m.Proposal.Cluster[0])
	switch m.Kind {
	case Propose:
		return n
	case Accept:
		return n + int(from)
	case Refuse:
		return n + 3 + int(from)
	}
	return n + 7
}

// message is the reverse of fact: a message that node to can get.
func (m *model) message(fact int, to record.NodeID) Received {
	p := m.proposals[fact/8]
	kinds := [8]MessageKind{Propose, Accept, Accept, Accept, Refuse, Refuse, Refuse, Commit}
	from := record.NodeID((fact%8-1)%3 + 1)
	if k := kinds[fact%8]; k == Propose || k == Commit { // the same from any other member
		from = other(p.Members, to)
	}
	return Received{from, Message{Kind: kinds[fact%8], Proposal: p}}
}

func (m *model) start() world {
	w := world{}
	for i := range m.nodes {
		f, err := NewFormation(record.NodeID(i+1), m.expect, nil)
		if err != nil {
			m.t.Fatal(err)
		}
		w.nodes = append(w.nodes, *f)
	}
	return w
}

func (w world) clone() world {
	w.nodes = slices.Clone(w.nodes)
	for i := range w.nodes {
		w.nodes[i].accepts = slices.Clone(w.nodes[i].accepts)
	}
	return w
}

// key is everything that a state consists of.
func (w world) key() string {
	b := make([]byte, 0, 32)
	for i := range w.nodes {
		f := &w.nodes[i]
		var accepts, held byte
		for _, a := range f.accepts {
			accepts |= 1 << a
		}
		if f.held != nil {
			held = f.held.Cluster[0] + 1
		}
		b = append(b, byte(f.state)<<4|held, byte(f.promised.Round), accepts)
	}
	return string(binary.LittleEndian.AppendUint64(b, w.facts))
}

// step lets node i do something and takes what it sends into the facts.
func (m *model) step(w world, i int, do func(*Formation) Effects) world {
	w = w.clone()
	f := &w.nodes[i]
	before := *f
	out := do(f)
	if !out.Store && (f.state != before.state || f.promised != before.promised || f.held != before.held) {
		m.t.Fatal("a step changed what is durable without asking to store it")
	}
	for _, e := range out.Send {
		w.facts |= 1 << fact(f.self, e.Message)
	}
	for n := range m.proposals {
		if w.facts&(1<<(8*n)) != 0 {
			w.ask(m.proposals[n])
		}
	}
	return w
}

// ask takes in the answers of all nodes that can answer without a change.
func (w *world) ask(p Proposal) {
	for i := range w.nodes {
		f := w.nodes[i]
		if out := f.Step(Received{other(p.Members, f.self), Message{Kind: Propose, Proposal: p}}); !out.Store {
			for _, e := range out.Send {
				w.facts |= 1 << fact(f.self, e.Message)
			}
		}
		w.nodes[i].seen = 0 // it only chooses rounds, which are given here
	}
}

// other is any of nodes but n.
func other(nodes []record.NodeID, n record.NodeID) record.NodeID {
	if nodes[0] != n {
		return nodes[0]
	}
	return nodes[1]
}

// restarted is what is left of node i when it comes back.
func (m *model) restarted(f Formation) Formation {
	k := fmt.Sprint(f.self, f.state, f.promised, f.held)
	if _, ok := m.restarts[k]; !ok {
		g, err := NewFormation(f.self, m.expect, f.Stored())
		if err != nil {
			m.t.Fatal(err)
		}
		if fmt.Sprint(g.self, g.state, g.promised, g.held) != k {
			m.t.Fatalf("%+v came back as %+v", f, *g)
		}
		m.restarts[k] = *g
	}
	return m.restarts[k]
}

// next calls visit with every state that can follow w.
func (m *model) next(w world, visit func(world)) {
	for i := range w.nodes {
		self := w.nodes[i].self
		if w.nodes[i].state == Waiting {
			for _, p := range m.proposals {
				if p.Node == self && w.nodes[i].promised.Less(p.Ballot) {
					visit(m.step(w, i, func(f *Formation) Effects {
						f.hold(p)
						return Effects{Store: true, Send: f.requests()}
					}))
				}
			}
		} else {
			visit(m.step(w, i, func(f *Formation) Effects { return f.Step(Tick{}) }))
		}
		for n := range 8 * len(m.proposals) {
			if w.facts&(1<<n) != 0 {
				if ev := m.message(n, self); ev.From != self {
					visit(m.step(w, i, func(f *Formation) Effects { return f.Step(ev) }))
				}
			}
		}
		v := w.clone()
		v.nodes[i] = m.restarted(v.nodes[i])
		visit(v)
	}
}

// check asserts law 10, and that the state is no dead end.
func (m *model) check(w world) {
	var final *Proposal
	for i := range w.nodes {
		f := &w.nodes[i]
		if f.state == Waiting && f.promised.Node == f.self {
			m.let++
		}
		if f.state != Final {
			continue
		}
		if final != nil && final.Cluster != f.held.Cluster {
			m.t.Fatalf("two clusters: %v and %v\n%+v", *final, *f.held, w)
		}
		final = f.held
	}
	if final == nil {
		m.checkAlive(w)
		return
	}
	m.finals++
	for _, n := range final.Members {
		if f := &w.nodes[n-1]; f.held == nil || f.held.Cluster != final.Cluster {
			m.t.Fatalf("%v is final and member %d does not hold it\n%+v", *final, n, w)
		}
	}
}

// checkAlive lets all nodes see and hear each other from here on: a cluster must come out.
func (m *model) checkAlive(w world) {
	w = w.clone()
	for round := range 12 {
		for i := range w.nodes {
			converse(w.nodes, i, record.ClusterID{0xff, byte(round), byte(i)})
		}
		if slices.ContainsFunc(w.nodes, func(f Formation) bool { return f.state == Final }) {
			return
		}
	}
	m.t.Fatalf("stuck for ever:\n%+v", w.nodes)
}

// converse ticks node i and carries its requests and their answers at once.
func converse(nodes []Formation, i int, fresh record.ClusterID) {
	var peers []Peer
	for j := range nodes {
		if j != i {
			p := Peer{Node: nodes[j].self, Expect: nodes[j].expect}
			if nodes[j].state == Final {
				p.Cluster = nodes[j].held.Cluster
			}
			peers = append(peers, p)
		}
	}
	for _, ask := range nodes[i].Step(Tick{peers, fresh}).Send {
		j := slices.IndexFunc(nodes, func(f Formation) bool { return f.self == ask.To })
		for _, answer := range nodes[j].Step(Received{nodes[i].self, ask.Message}).Send {
			nodes[i].Step(Received{ask.To, answer.Message})
		}
	}
}

func (m *model) run() {
	first := m.start()
	m.states = map[string]bool{first.key(): true}
	for todo := []world{first}; len(todo) > 0; {
		w := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		m.check(w)
		m.next(w, func(v world) {
			if k := v.key(); !m.states[k] {
				m.states[k] = true
				todo = append(todo, v)
			}
		})
	}
}

// each calls do with every way to share n proposals among the nodes, up to exchanging
// nodes for each other, and with every choice of members.
func (m *model) each(n int, do func()) {
	if len(m.proposals) == n {
		do()
		return
	}
	used := record.NodeID(0)
	for _, p := range m.proposals {
		used = max(used, p.Node)
		if m.expect < m.nodes {
			used = max(used, p.Members[len(p.Members)-1])
		}
	}
	number := byte(len(m.proposals))
	for proposer := record.NodeID(1); proposer <= min(used+1, record.NodeID(m.nodes)); proposer++ {
		for skipped := record.NodeID(1); skipped <= record.NodeID(m.nodes); skipped++ {
			p := Proposal{Ballot: Ballot{uint32(number) + 1, proposer}, Cluster: record.ClusterID{number, 1}}
			for n := record.NodeID(1); n <= record.NodeID(m.nodes); n++ {
				if m.expect == m.nodes || n != skipped {
					p.Members = append(p.Members, n)
				}
			}
			if !slices.Contains(p.Members, proposer) {
				continue
			}
			m.proposals = append(m.proposals, p)
			m.each(n, do)
			m.proposals = m.proposals[:number]
			if m.expect == m.nodes {
				break
			}
		}
	}
}

func TestFormation_everySchedule(t *testing.T) {
	for _, c := range []struct{ nodes, expect, proposals int }{
		{2, 2, 6},
		{3, 3, 3},
		{3, 2, 3}, // members that overlap in one node
	} {
		t.Run(fmt.Sprintf("%d nodes expect %d, %d proposals", c.nodes, c.expect, c.proposals), func(t *testing.T) {
			t.Parallel()
			m := &model{t: t, nodes: c.nodes, expect: c.expect, restarts: map[string]Formation{}}
			states, shares := 0, 0
			m.each(c.proposals, func() {
				m.run()
				states += len(m.states)
				shares++
			})
			t.Logf("%d ways to share the proposals, %d states, %d with a cluster", shares, states, m.finals)
			if m.finals == 0 || m.let == 0 {
				t.Fatal("no schedule came to an end, or no proposal was ever let go of")
			}
		})
	}
}
