package metadata

import (
	"bytes"
	"fmt"
	"math"

	"edged/record"
)

// formationVersion is the format of both messages and what is stored.
const formationVersion = 1

// Encode gives the bytes for the wire.
func (m Message) Encode() []byte {
	return formationEncode(func(x *codec) { m.fields(x) })
}

// DecodeMessage reads a message. Newer formats are ErrUnsupported, damage is
// ErrInvalidRequest.
func DecodeMessage(data []byte) (Message, error) {
	var m Message
	err := formationDecode(data, m.fields)
	return m, err
}

// Stored gives what has to be on the disk, a few hundred bytes.
func (f *Formation) Stored() []byte {
	return formationEncode(f.fields)
}

func (f *Formation) restore(data []byte) error {
	if err := formationDecode(data, f.fields); err != nil {
		return err
	}
	if f.state == Accepted {
		f.accepts = []record.NodeID{f.self}
	}
	return nil
}

func formationEncode(fields func(*codec)) []byte {
	var buf bytes.Buffer
	x := encoder(&buf)
	version := uint8(formationVersion)
	x.u8("version", &version)
	fields(x)
	if x.err != nil {
		panic(x.err) // it was checked when it came in
	}
	return buf.Bytes()
}

func formationDecode(data []byte, fields func(*codec)) error {
	x := decoder(data)
	var version uint8
	x.u8("version", &version)
	if x.err == nil && version != formationVersion {
		return fmt.Errorf("cluster formation in format %d, this software knows %d: %w", version, formationVersion, record.ErrUnsupported)
	}
	fields(x)
	x.end()
	return x.err
}

func (m *Message) fields(x *codec) {
	kind := uint64(m.Kind)
	x.uint("message kind", &kind, uint64(Propose), uint64(Commit))
	m.Kind = MessageKind(kind)
	m.Proposal.fields(x)
	m.Promised.fields(x)
	x.id16("cluster id", (*[16]byte)(&m.Cluster))
}

func (b *Ballot) fields(x *codec) {
	unsigned(x, "round", &b.Round)
	signed(x, "ballot node", &b.Node, 0, math.MaxInt32)
}

func (p *Proposal) fields(x *codec) {
	p.Ballot.fields(x)
	x.id16("cluster id", (*[16]byte)(&p.Cluster))
	list(x, "members", &p.Members, MaxExpect, func(n *record.NodeID) { x.node("node id", n) })
	if x.err == nil {
		if err := p.check(); err != nil {
			x.err = err
		}
	}
}

func (f *Formation) fields(x *codec) {
	state := uint64(f.state)
	x.uint("state", &state, uint64(Waiting), uint64(Joined))
	f.state = FormationState(state)
	f.promised.fields(x)
	x.id16("cluster id", (*[16]byte)(&f.joined))
	if f.state == Accepted || f.state == Final {
		if f.held == nil {
			f.held = &Proposal{}
		}
		f.held.fields(x)
	}
}
