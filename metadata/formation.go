package metadata

import (
	"fmt"
	"slices"
	"strings"

	"edged/record"
)

// Formation decides once, before there is any metadata group, which nodes make a new
// cluster: those N that were told bootstrap_expect = N, all of them or none. It is pure:
// [Formation.Step] takes an event and says what to store and to send.
//
// The protocol. The lowest of N nodes that see each other proposes {ballot, cluster id,
// members}. A node accepts a proposal durably if it holds no other and has promised
// nothing higher, else it refuses it, durably too: what it refused it never accepts. A
// node that holds a proposal asks every member for its acceptance, again and again; with
// all N it knows that the proposal is final.
//
// Why there is never a second cluster with a shared member: the first member that refused
// a proposal had not accepted it before and never will, so one refusal proves that nobody
// will ever count N acceptances. Only with this proof does a node let go of what it
// holds. So of two proposals that share a member, one at most becomes final.
//
// The price of "all of N": a member that accepted and then loses its disk can neither
// confirm nor refuse, and the others wait until a person lets [Abandon] go to each of
// them. A majority could go on alone, but then a member cut off with a final proposal in
// hand would be a cluster of its own. And N nodes that never meet N others form two
// clusters, so N should be more than half of the nodes that will ever be started.
type Formation struct {
	self   record.NodeID
	expect int

	// Durable. held is a proposal that this node accepted and that is not proven dead; it
	// is nil while waiting. promised is at least the ballot of every proposal ever held or
	// refused, and nothing up to it is accepted anew.
	promised Ballot
	held     *Proposal
	state    FormationState
	joined   record.ClusterID // in Joined, the cluster that let this node in

	// Forgotten at a restart.
	accepts []record.NodeID // members known to have accepted held
	seen    uint32          // highest round heard of
}

// FormationState is how far a node has come.
type FormationState uint8

const (
	Waiting  FormationState = iota // for enough nodes, and for a proposal
	Accepted                       // holds a proposal that may become final anywhere
	Final                          // the cluster exists and this node is a member
	Joined                         // this node was let into a cluster that others formed
)

func (s FormationState) String() string {
	return [...]string{"waiting", "accepted", "final", "joined"}[s]
}

// MaxExpect is the greatest bootstrap_expect.
const MaxExpect = 32

// Ballot orders proposals and names them: a node never uses one twice.
type Ballot struct {
	Round uint32
	Node  record.NodeID // that made the proposal
}

// Less orders ballots by round, then node.
func (b Ballot) Less(c Ballot) bool {
	return b.Round < c.Round || b.Round == c.Round && b.Node < c.Node
}

// Proposal is a cluster that may come to be. Members are sorted.
type Proposal struct {
	Ballot
	Cluster record.ClusterID
	Members []record.NodeID
}

// FoundingVoters are the members that vote in the metadata group from the start, an odd
// number; the others begin as learners. All members find the same.
func (p *Proposal) FoundingVoters() []record.NodeID {
	return slices.Clone(p.Members[:voterCount(len(p.Members))])
}

// MessageKind is what a message says.
type MessageKind uint8

const (
	Propose MessageKind = iota + 1 // do you accept the proposal?
	Accept                         // I hold it
	Refuse                         // I do not hold it and never shall (again)
	Commit                         // it is final
)

func (k MessageKind) String() string {
	if k < Propose || k > Commit {
		return "unknown"
	}
	return [...]string{"propose", "accept", "refuse", "commit"}[k-1]
}

// Message goes from one node to another about one proposal. Propose is a request; the
// other kinds answer it, and go nowhere but to the one who asked.
type Message struct {
	Kind     MessageKind
	Proposal Proposal
	Promised Ballot           // with Refuse: ballots up to it are refused
	Cluster  record.ClusterID // with Refuse: the cluster that the sender is in, if it is in one
}

// Peer is a node that this one is connected to, so that the two have confirmed who they
// are. A name heard by gossip is not enough.
type Peer struct {
	Node    record.NodeID
	Expect  int              // its bootstrap_expect, 0 if it has none
	Cluster record.ClusterID // zero if it is in none yet
}

// Event is what can happen: [Tick], [Received], [LetIn] or [Abandon].
type Event interface{ event() }

// Tick comes from a timer, about once a second.
type Tick struct {
	Peers []Peer
	Fresh record.ClusterID // a new random id, for a proposal if one is made
}

// Received is a message of another node, which the connection has identified as From.
type Received struct {
	From    record.NodeID
	Message Message
}

// LetIn says that a cluster formed by others would let this node join. It takes effect
// unless the node holds a proposal; ask [Formation.State] whether it did.
type LetIn struct{ Cluster record.ClusterID }

// Abandon lets go of a held proposal by order of a person, who knows that a member has
// lost its disk and that none is final. It must go to every other member.
type Abandon struct{}

func (Tick) event()     {}
func (Received) event() {}
func (LetIn) event()    {}
func (Abandon) event()  {}

// Envelope is a message to send.
type Envelope struct {
	To      record.NodeID
	Message Message
}

// Effects is what a step asks for. If Store is set, what [Formation.Stored] gives has to
// be on the disk before anything in Send leaves and before Final is acted upon. If it
// cannot be stored the Formation is ahead of the disk, would repeat an answer that is not
// durable, and must not be stepped again: make a new one from what is on the disk.
type Effects struct {
	Store bool
	Send  []Envelope
	Final *Proposal // set once, by the step in which this node learns that it is final
}

// NewFormation starts or, with what was stored, goes on. expect is 1 to MaxExpect; with 1
// the node forms a cluster of its own at the first tick.
func NewFormation(self record.NodeID, expect int, stored []byte) (*Formation, error) {
	if expect < 1 || expect > MaxExpect {
		return nil, fmt.Errorf("bootstrap_expect is %d, outside 1 to %d: %w", expect, MaxExpect, record.ErrInvalidConfig)
	}
	f := &Formation{self: self, expect: expect}
	if len(stored) > 0 {
		if err := f.restore(stored); err != nil {
			return nil, fmt.Errorf("the stored cluster formation of node %d: %w", self, err)
		}
	}
	return f, nil
}

// State tells how far this node has come.
func (f *Formation) State() FormationState { return f.state }

// Proposal is what the node holds, in Accepted, or is a member of, in Final; else nil.
func (f *Formation) Proposal() *Proposal { return f.held }

// Step takes one event.
func (f *Formation) Step(ev Event) Effects {
	switch ev := ev.(type) {
	case Tick:
		return f.tick(ev)
	case Received:
		return f.receive(ev.From, ev.Message)
	case LetIn:
		if f.state == Waiting && !ev.Cluster.IsZero() {
			f.state, f.joined = Joined, ev.Cluster
			return Effects{Store: true}
		}
	case Abandon:
		if f.state == Accepted {
			f.release()
			return Effects{Store: true}
		}
	}
	return Effects{}
}

// tick proposes if it is this node's turn, and asks the members that have not answered.
func (f *Formation) tick(ev Tick) Effects {
	proposed := false
	if f.state == Waiting {
		members := f.members(ev.Peers)
		round := max(f.promised.Round, f.seen) + 1
		// Round 0 comes after the last one there is; no honest node gets that far.
		if len(members) == 0 || members[0] != f.self || ev.Fresh.IsZero() || round == 0 {
			return Effects{}
		}
		f.hold(Proposal{Ballot{round, f.self}, ev.Fresh, members})
		proposed = true
	}
	if f.state != Accepted {
		return Effects{}
	}
	return f.maybeFinal(Effects{Store: proposed, Send: f.requests()})
}

// requests asks the members that are not known to have accepted.
func (f *Formation) requests() []Envelope {
	var out []Envelope
	for _, m := range f.held.Members {
		if !slices.Contains(f.accepts, m) {
			out = append(out, Envelope{m, Message{Kind: Propose, Proposal: *f.held}})
		}
	}
	return out
}

// members gives the lowest expect nodes among this one and its peers that want the same,
// or nothing if there are too few or a peer is in a cluster already, which it should let
// this node join.
func (f *Formation) members(peers []Peer) []record.NodeID {
	nodes := []record.NodeID{f.self}
	for _, p := range peers {
		if !p.Cluster.IsZero() {
			return nil
		}
		if p.Expect == f.expect && !slices.Contains(nodes, p.Node) {
			nodes = append(nodes, p.Node)
		}
	}
	if len(nodes) < f.expect {
		return nil
	}
	slices.Sort(nodes)
	return nodes[:f.expect]
}

func (f *Formation) receive(from record.NodeID, m Message) Effects {
	p := m.Proposal
	if from == f.self || p.check() != nil || !slices.Contains(p.Members, f.self) || !slices.Contains(p.Members, from) {
		return Effects{} // of no concern, and no reason to speak
	}
	f.seen = max(f.seen, p.Round, m.Promised.Round)
	mine := f.held != nil && f.held.Ballot == p.Ballot && f.held.Cluster == p.Cluster
	switch m.Kind {
	case Propose:
		return f.answer(from, p, mine)
	case Accept:
		if mine && f.state == Accepted && !slices.Contains(f.accepts, from) {
			f.accepts = append(f.accepts, from)
			return f.maybeFinal(Effects{})
		}
	case Commit:
		if mine && f.state == Accepted {
			f.accepts = slices.Clone(f.held.Members)
			return f.maybeFinal(Effects{})
		}
	case Refuse:
		if mine && f.state == Accepted {
			f.release()
			return Effects{Store: true}
		}
	}
	return Effects{}
}

// answer is what Propose gets.
func (f *Formation) answer(from record.NodeID, p Proposal, mine bool) Effects {
	reply := func(m Message, store bool) Effects {
		m.Proposal = p
		return Effects{Store: store, Send: []Envelope{{from, m}}}
	}
	switch {
	case mine && f.state == Final:
		return reply(Message{Kind: Commit}, false)
	case mine:
		return reply(Message{Kind: Accept}, false)
	case f.state == Final:
		return reply(Message{Kind: Refuse, Promised: f.promised, Cluster: f.held.Cluster}, false)
	case f.state == Joined:
		return reply(Message{Kind: Refuse, Promised: f.promised, Cluster: f.joined}, false)
	case f.state == Waiting && f.promised.Less(p.Ballot) && len(p.Members) == f.expect:
		f.hold(p)
		return reply(Message{Kind: Accept}, true)
	}
	store := f.promised.Less(p.Ballot)
	if store {
		f.promised = p.Ballot // never to be accepted from now on
	}
	return reply(Message{Kind: Refuse, Promised: f.promised}, store)
}

// hold accepts a proposal.
func (f *Formation) hold(p Proposal) {
	f.state, f.held, f.promised = Accepted, &p, p.Ballot
	f.accepts = []record.NodeID{f.self}
}

// release lets go of the held proposal. Its ballot stays promised, so it cannot be
// accepted again.
func (f *Formation) release() {
	f.state, f.held, f.accepts = Waiting, nil, nil
}

// maybeFinal becomes final if every member has accepted.
func (f *Formation) maybeFinal(out Effects) Effects {
	if len(f.accepts) < len(f.held.Members) {
		return out
	}
	f.state = Final
	return Effects{Store: true, Final: f.held}
}

// Status says in one line what the node is waiting for. peers are those of the last tick.
func (f *Formation) Status(peers []Peer) string {
	switch f.state {
	case Final:
		return fmt.Sprintf("cluster %v is formed", f.held.Cluster)
	case Joined:
		return fmt.Sprintf("let into cluster %v", f.joined)
	case Accepted:
		var silent []string
		for _, m := range f.held.Members {
			if !slices.Contains(f.accepts, m) {
				silent = append(silent, m.String())
			}
		}
		return fmt.Sprintf("forming cluster %v: waiting for node %s to confirm", f.held.Cluster, strings.Join(silent, ", "))
	}
	same := 1
	var others []string
	for _, p := range peers {
		switch {
		case !p.Cluster.IsZero():
			return fmt.Sprintf("node %d is in cluster %v already: waiting to be let in", p.Node, p.Cluster)
		case p.Expect == f.expect:
			same++
		default:
			others = append(others, fmt.Sprintf("node %d expects %d", p.Node, p.Expect))
		}
	}
	s := fmt.Sprintf("waiting to form a cluster: %d of the %d expected nodes are connected", same, f.expect)
	if len(others) > 0 {
		s += "; not counted: " + strings.Join(others, ", ")
	}
	return s
}

// check tells whether a proposal is one that a node of this software can have made.
func (p *Proposal) check() error {
	sorted := slices.IsSorted(p.Members) && len(slices.Compact(slices.Clone(p.Members))) == len(p.Members)
	if n := len(p.Members); n < 1 || n > MaxExpect || !sorted || !slices.Contains(p.Members, p.Node) || p.Round == 0 || p.Cluster.IsZero() {
		return fmt.Errorf("not a proposal: %w", record.ErrInvalidRequest)
	}
	return nil
}
