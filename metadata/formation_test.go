package metadata

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"edged/record"
)

func formation(t *testing.T, self record.NodeID, expect int, stored []byte) *Formation {
	t.Helper()
	f, err := NewFormation(self, expect, stored)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFormation_oneNodeFormsAtOnce(t *testing.T) {
	f := formation(t, 7, 1, nil)
	if out := f.Step(Tick{}); out.Store || out.Final != nil {
		t.Fatalf("formed without a cluster id: %+v", out)
	}
	out := f.Step(Tick{Fresh: record.ClusterID{1}})
	if out.Final == nil || !out.Store || len(out.Send) != 0 || f.State() != Final {
		t.Fatalf("got %+v in state %v", out, f.State())
	}
	if again := f.Step(Tick{Fresh: record.ClusterID{2}}); again.Final != nil || again.Store || len(again.Send) > 0 {
		t.Fatalf("formed twice: %+v", again)
	}
	g := formation(t, 7, 1, f.Stored())
	if g.State() != Final || g.Proposal().Cluster != (record.ClusterID{1}) {
		t.Fatalf("after a restart: %v %+v", g.State(), g.Proposal())
	}
}

func TestFormation_lowestProposes(t *testing.T) {
	peers := func(nodes ...record.NodeID) (ps []Peer) {
		for _, n := range nodes {
			ps = append(ps, Peer{Node: n, Expect: 3})
		}
		return ps
	}
	for _, c := range []struct {
		name    string
		self    record.NodeID
		peers   []Peer
		members []record.NodeID // of the proposal; nil for none
	}{
		{"too few", 1, peers(2), nil},
		{"enough", 1, peers(3, 2), []record.NodeID{1, 2, 3}},
		{"seen twice", 1, peers(2, 2), nil},
		{"not the lowest", 2, peers(1, 3), nil},
		{"more than enough", 1, peers(9, 8, 7, 2), []record.NodeID{1, 2, 7}},
		{"left over", 9, peers(1, 2, 3), nil},
		{"other expectations", 1, []Peer{{Node: 2, Expect: 3}, {Node: 3, Expect: 5}}, nil},
		{"a cluster exists", 1, append(peers(2, 3), Peer{Node: 4, Expect: 3, Cluster: record.ClusterID{9}}), nil},
	} {
		f := formation(t, c.self, 3, nil)
		out := f.Step(Tick{c.peers, record.ClusterID{1}})
		if c.members == nil {
			if out.Store || len(out.Send) > 0 || f.State() != Waiting {
				t.Errorf("%s: %+v", c.name, out)
			}
		} else if f.Proposal() == nil || !slices.Equal(f.Proposal().Members, c.members) || !out.Store || len(out.Send) != len(c.members)-1 {
			t.Errorf("%s: %+v", c.name, out)
		}
	}
}

// held gives two nodes of which the first holds its own proposal for the two.
func held(t *testing.T) (a, b *Formation, ask Message) {
	a, b = formation(t, 1, 2, nil), formation(t, 2, 2, nil)
	out := a.Step(Tick{[]Peer{{Node: 2, Expect: 2}}, record.ClusterID{1}})
	return a, b, out.Send[0].Message
}

func TestFormation_letInOrBound(t *testing.T) {
	a, b, ask := held(t)
	if out := a.Step(LetIn{record.ClusterID{9}}); out.Store || a.State() != Accepted {
		t.Fatal("a node that holds a proposal was let into another cluster")
	}
	if out := b.Step(LetIn{record.ClusterID{9}}); !out.Store || b.State() != Joined {
		t.Fatalf("a waiting node was not let in: %+v", out)
	}
	b = formation(t, 2, 2, b.Stored())
	out := b.Step(Received{1, ask})
	if len(out.Send) != 1 || out.Send[0].Message.Kind != Refuse || out.Send[0].Message.Cluster != (record.ClusterID{9}) {
		t.Fatalf("a member of another cluster answered %+v", out)
	}
	if out := a.Step(Received{2, out.Send[0].Message}); !out.Store || a.State() != Waiting {
		t.Fatalf("refused by a member, and still %v", a.State())
	}
}

func TestFormation_expectationsDiffer(t *testing.T) {
	_, _, ask := held(t)
	c := formation(t, 2, 3, nil)
	out := c.Step(Received{1, ask})
	if len(out.Send) != 1 || out.Send[0].Message.Kind != Refuse || !out.Store {
		t.Fatalf("a node that expects 3 answered a proposal of 2 with %+v", out)
	}
}

func TestFormation_abandonByOrder(t *testing.T) {
	a, b, ask := held(t)
	b.Step(Received{1, ask}) // and then its disk is lost
	for range 3 {
		if out := a.Step(Tick{nil, record.ClusterID{2}}); len(out.Send) != 1 || a.State() != Accepted {
			t.Fatalf("a held proposal was let go of without proof: %+v", out)
		}
	}
	if s := a.Status(nil); !strings.Contains(s, "waiting for node 2") {
		t.Fatalf("status is %q", s)
	}
	if out := a.Step(Abandon{}); !out.Store || a.State() != Waiting {
		t.Fatalf("%+v", out)
	}
	if out := a.Step(Received{2, Message{Kind: Accept, Proposal: ask.Proposal}}); out.Final != nil {
		t.Fatal("a late answer revived an abandoned proposal")
	}
	out := a.Step(Tick{[]Peer{{Node: 3, Expect: 2}}, record.ClusterID{2}})
	if len(out.Send) != 1 || !ask.Proposal.Less(out.Send[0].Message.Proposal.Ballot) {
		t.Fatalf("the next proposal is %+v", out)
	}
}

func TestFormation_strangersAreIgnored(t *testing.T) {
	_, b, ask := held(t)
	bad := func(change func(*Message)) Message {
		m := ask
		m.Proposal.Members = slices.Clone(m.Proposal.Members)
		change(&m)
		return m
	}
	for name, ev := range map[string]Received{
		"from a node that is no member": {5, ask},
		"from itself":                   {2, ask},
		"unsorted members":              {1, bad(func(m *Message) { slices.Reverse(m.Proposal.Members) })},
		"members twice":                 {1, bad(func(m *Message) { m.Proposal.Members = []record.NodeID{1, 2, 2} })},
		"not a member itself":           {1, bad(func(m *Message) { m.Proposal.Members = []record.NodeID{1, 3} })},
		"proposer no member":            {1, bad(func(m *Message) { m.Proposal.Node = 4 })},
		"no cluster id":                 {1, bad(func(m *Message) { m.Proposal.Cluster = record.ClusterID{} })},
		"no members":                    {1, bad(func(m *Message) { m.Proposal.Members = nil })},
		"no kind":                       {1, bad(func(m *Message) { m.Kind = 0 })},
	} {
		if out := b.Step(ev); out.Store || len(out.Send) > 0 || out.Final != nil || b.State() != Waiting {
			t.Errorf("%s: %+v", name, out)
		}
	}
}

// TestFormation_lastRound: a peer that names the last round there is can keep others from
// proposing, but not make one use a ballot twice.
func TestFormation_lastRound(t *testing.T) {
	_, b, ask := held(t)
	ask.Proposal.Round = 1<<32 - 1
	b.Step(Received{1, ask})
	b.Step(Abandon{})
	if out := b.Step(Tick{[]Peer{{Node: 3, Expect: 2}}, record.ClusterID{5}}); out.Store {
		t.Fatalf("%+v", out)
	}
}

func TestFormation_status(t *testing.T) {
	f := formation(t, 1, 3, nil)
	for want, peers := range map[string][]Peer{
		"2 of the 3 expected nodes":      {{Node: 2, Expect: 3}},
		"node 3 expects 5":               {{Node: 3, Expect: 5}},
		"waiting to be let in":           {{Node: 4, Cluster: record.ClusterID{1}}},
		"1 of the 3 expected nodes are ": nil,
	} {
		if got := f.Status(peers); !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("status is %q, want %q", got, want)
		}
	}
}

func TestFormation_settings(t *testing.T) {
	for _, n := range []int{-1, 0, MaxExpect + 1} {
		if _, err := NewFormation(1, n, nil); !errors.Is(err, record.ErrInvalidConfig) {
			t.Errorf("expect %d: %v", n, err)
		}
	}
	f := formation(t, 1, 1, nil)
	f.Step(Tick{Fresh: record.ClusterID{1}})
	stored := f.Stored()
	for n := range len(stored) {
		if _, err := NewFormation(1, 1, stored[:n]); n > 0 && err == nil {
			t.Errorf("the first %d of %d stored bytes were taken", n, len(stored))
		}
	}
	newer := slices.Clone(stored)
	newer[0]++
	if _, err := NewFormation(1, 1, newer); !errors.Is(err, record.ErrUnsupported) {
		t.Errorf("newer format: %v", err)
	}
}

func TestFoundingVoters(t *testing.T) {
	var members []record.NodeID
	for n := 1; n <= 9; n++ {
		members = append(members, record.NodeID(n))
		p := Proposal{Members: members}
		if got := len(p.FoundingVoters()); got%2 == 0 || got > n || got < 1 {
			t.Errorf("%d members have %d voters", n, got)
		}
	}
}

func FuzzFormation(f *testing.F) {
	a, err := NewFormation(1, 2, nil)
	if err != nil {
		f.Fatal(err)
	}
	out := a.Step(Tick{[]Peer{{Node: 2, Expect: 2}}, record.ClusterID{1}})
	f.Add(out.Send[0].Message.Encode())
	f.Add(Message{Kind: Refuse, Proposal: *a.Proposal(), Promised: Ballot{3, 4}, Cluster: record.ClusterID{1}}.Encode())
	f.Add(a.Stored())
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := DecodeMessage(data); err == nil {
			again, err := DecodeMessage(m.Encode())
			if err != nil || !bytes.Equal(again.Encode(), m.Encode()) {
				t.Fatalf("%+v came back as %+v, %v", m, again, err)
			}
			b, _ := NewFormation(2, 2, nil)
			b.Step(Received{1, m})
			if _, err := NewFormation(2, 2, b.Stored()); err != nil {
				t.Fatal(err)
			}
		}
		if g, err := NewFormation(1, 2, data); err == nil && len(data) > 0 {
			g.Step(Tick{[]Peer{{Node: 2, Expect: 2}}, record.ClusterID{1}})
			_ = g.Status(nil)
			if _, err := NewFormation(1, 2, g.Stored()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
