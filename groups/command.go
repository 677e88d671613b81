package groups

import (
	"fmt"
	"math"

	"edged/record"
)

// CommandVersion is the newest command format that this software writes and reads. It rises with
// every new kind and every new field. A cluster may write a newer one only when all its nodes
// read it: a node that skips a command has another state than the others from there on.
const CommandVersion = 1

// kind is the number of a command in the log. Numbers are never given twice.
type kind uint8

const (
	kindBegin kind = iota + 1
	kindPutGroup
	kindCommitOffsets
	kindDropOffsets
	kindDeleteGroup
)

// Command is one change of the state. The commands are the exported structs that [Encode] takes,
// by pointer.
type Command interface {
	kind() kind
	fields(x *codec)
	apply(s *State, index uint64) error // by the coordinator of the present epoch
}

func newCommand(k kind) Command {
	switch k {
	case kindBegin:
		return &Begin{}
	case kindPutGroup:
		return &PutGroup{}
	case kindCommitOffsets:
		return &CommitOffsets{}
	case kindDropOffsets:
		return &DropOffsets{}
	case kindDeleteGroup:
		return &DeleteGroup{}
	}
	return nil
}

// Begin begins the epoch of a coordinator. A new leader proposes it first: when it is applied, so is
// everything that earlier coordinators had proposed, and nothing of theirs that comes later will be.
type Begin struct{}

func (*Begin) kind() kind                 { return kindBegin }
func (*Begin) fields(*codec)              {}
func (*Begin) apply(*State, uint64) error { return nil }

// Group is what is kept of a group beside its offsets: its last stable generation, or that it has
// no members. A Group in the state is never written again.
type Group struct {
	Name         string
	ProtocolType string // "consumer", "connect", ...; empty for a group that never had members
	Generation   int32
	Protocol     string // the way of assigning that the members chose
	Leader       string // id of a member, empty without members
	EmptySince   int64  // ms since 1970, 0 while there are members or if no clock told
	Members      []Member
}

// Member is one member of a stable generation.
type Member struct {
	ID                   string
	Instance             string // of a static member, else empty
	ClientID, ClientHost string
	SessionMs            int32 // how long it may be silent
	RebalanceMs          int32 // how long it may take to join again
	Protocols            []Protocol
	Assignment           []byte
}

// Protocol is one way of assigning that a member knows.
type Protocol struct {
	Name     string
	Metadata []byte
}

func (g *Group) fields(x *codec) {
	x.str("group", &g.Name, 1, MaxNameBytes)
	x.str("protocol type", &g.ProtocolType, 0, MaxNameBytes)
	number(x, "generation", &g.Generation, math.MaxInt32)
	x.str("protocol", &g.Protocol, 0, MaxNameBytes)
	x.str("leader", &g.Leader, 0, MaxNameBytes)
	number(x, "time", &g.EmptySince, math.MaxInt64)
	list(x, "members", &g.Members, MaxMembers, 9, func(m *Member) {
		x.str("member", &m.ID, 1, MaxNameBytes)
		x.str("instance", &m.Instance, 0, MaxNameBytes)
		x.str("client", &m.ClientID, 0, maxClientBytes)
		x.str("host", &m.ClientHost, 0, maxClientBytes)
		number(x, "session timeout", &m.SessionMs, math.MaxInt32)
		number(x, "rebalance timeout", &m.RebalanceMs, math.MaxInt32)
		list(x, "protocols", &m.Protocols, maxProtocols, 2, func(p *Protocol) {
			x.str("protocol", &p.Name, 1, MaxNameBytes)
			x.bytes("protocol metadata", &p.Metadata, MaxMembersBytes)
		})
		x.bytes("assignment", &m.Assignment, MaxAssignmentBytes)
	})
}

// PutGroup puts a group in place of what is known of it. Its offsets stay.
type PutGroup struct{ Group }

func (*PutGroup) kind() kind { return kindPutGroup }

// CommitOffsets keeps offsets, and makes the group if there is none.
type CommitOffsets struct {
	Group  string
	At     int64         // ms since 1970, 0 if no clock told
	Topics []TopicCommit // by name, each once
}

// TopicCommit is the part of a commit for one topic. First is the Raft group of the topic's first
// partition: it tells a topic from another one that had its name before.
type TopicCommit struct {
	Name  string
	First record.GroupID
	Parts []Commit
}

// Commit is where a group has read a partition up to. An offset below 0 takes back what was kept.
type Commit struct {
	Partition int32
	Offset    record.Offset
	Epoch     record.Epoch
	Metadata  string
}

func (*CommitOffsets) kind() kind { return kindCommitOffsets }

func (c *CommitOffsets) fields(x *codec) {
	x.str("group", &c.Group, 1, MaxNameBytes)
	number(x, "time", &c.At, math.MaxInt64)
	last := ""
	list(x, "topics", &c.Topics, MaxCommitPartitions, 4, func(t *TopicCommit) {
		x.str("topic", &t.Name, 1, maxTopicNameBytes)
		x.ascends(&last, t.Name)
		number(x, "first partition", &t.First, math.MaxInt64)
		list(x, "partitions", &t.Parts, MaxCommitPartitions, 4, func(p *Commit) {
			number(x, "partition", &p.Partition, maxPartition)
			signed(x, "offset", &p.Offset)
			signed(x, "epoch", &p.Epoch)
			x.str("metadata", &p.Metadata, 0, MaxMetadataBytes)
		})
	})
}

// DropOffsets forgets offsets that were committed at UpTo or before: one that came later was not
// known to whoever decided.
type DropOffsets struct {
	Group  string
	UpTo   uint64
	Topics []TopicDrop // by name, each once
}

// TopicDrop names partitions of a topic.
type TopicDrop struct {
	Name  string
	Parts []int32
}

func (*DropOffsets) kind() kind { return kindDropOffsets }

func (c *DropOffsets) fields(x *codec) {
	x.str("group", &c.Group, 1, MaxNameBytes)
	number(x, "index", &c.UpTo, math.MaxUint64)
	last := ""
	list(x, "topics", &c.Topics, MaxCommitPartitions, 3, func(t *TopicDrop) {
		x.str("topic", &t.Name, 1, maxTopicNameBytes)
		x.ascends(&last, t.Name)
		list(x, "partitions", &t.Parts, maxPartition, 1, func(p *int32) { number(x, "partition", p, maxPartition) })
	})
}

// DeleteGroup forgets a group without members, with its offsets, unless something of it changed
// after UpTo. It fails with record.ErrUnknownGroup or record.ErrGroupNotEmpty.
type DeleteGroup struct {
	Group string
	UpTo  uint64
}

func (*DeleteGroup) kind() kind { return kindDeleteGroup }

func (c *DeleteGroup) fields(x *codec) {
	x.str("group", &c.Group, 1, MaxNameBytes)
	number(x, "index", &c.UpTo, math.MaxUint64)
}

// Encode gives the bytes to propose: version, kind, the epoch in which the coordinator leads, and the
// fields in order. It fails with record.ErrInvalidRequest, naming the field, where a bound is broken.
func Encode(epoch record.Epoch, c Command) ([]byte, error) {
	x := encoder()
	x.out = append(x.out, CommandVersion, byte(c.kind()))
	number(x, "epoch", &epoch, math.MaxInt32)
	c.fields(x)
	if x.err == nil && len(x.out) > MaxCommandBytes {
		x.fail("the command", "has %d bytes, more than %d", len(x.out), MaxCommandBytes)
	}
	if x.err != nil {
		return nil, fmt.Errorf("%T: %w", c, x.err)
	}
	return x.out, nil
}

// Decode reads a command. One of newer software is record.ErrUnsupported, and anything damaged or
// out of bounds is record.ErrInvalidRequest.
func Decode(data []byte) (record.Epoch, Command, error) {
	if len(data) < 2 || len(data) > MaxCommandBytes {
		return 0, nil, fmt.Errorf("group command of %d bytes: %w", len(data), record.ErrInvalidRequest)
	}
	c := newCommand(kind(data[1]))
	if v := data[0]; v < 1 || v > CommandVersion || c == nil {
		return 0, nil, fmt.Errorf("group command %d of format %d, this software knows formats up to %d; update this node: %w",
			data[1], v, CommandVersion, record.ErrUnsupported)
	}
	x := decoder(data[2:])
	var epoch record.Epoch
	number(x, "epoch", &epoch, math.MaxInt32)
	c.fields(x)
	x.end()
	if x.err != nil {
		return 0, nil, fmt.Errorf("%T: %w", c, x.err)
	}
	return epoch, c, nil
}
