package metadata

import (
	"bytes"
	"fmt"

	"edged/record"
)

// CommandVersion is the newest command format that this software writes and reads. It
// rises with every new kind and every new field, so that older software says that it
// does not know a command instead of applying a part of it.
const CommandVersion = 1

// kind is the number of a command on the wire. Numbers are never given twice.
type kind uint8

const (
	kindInitCluster kind = iota + 1
	kindRegisterNode
	kindNodeLeft
	kindRemoveNode
	kindCreateTopic
	kindDeleteTopic
	kindAlterTopic
	kindSetReplicas
	kindReplicasChanged
	kindTombstoneDone
	kindAllocProducerIDs
)

// Command is one change of the cluster's metadata. The commands are the exported
// structs of this package that [Encode] takes, by pointer.
type Command interface {
	kind() kind
	fields(x *codec) // the layout and the bounds of every field, for both directions
	apply(p *Picture) (next *Picture, result any, err error)
}

// newCommand makes an empty command to decode into, nil for a kind not known here.
func newCommand(k kind) Command {
	switch k {
	case kindInitCluster:
		return &InitCluster{}
	case kindRegisterNode:
		return &RegisterNode{}
	case kindNodeLeft:
		return &NodeLeft{}
	case kindRemoveNode:
		return &RemoveNode{}
	case kindCreateTopic:
		return &CreateTopic{}
	case kindDeleteTopic:
		return &DeleteTopic{}
	case kindAlterTopic:
		return &AlterTopic{}
	case kindSetReplicas:
		return &SetReplicas{}
	case kindReplicasChanged:
		return &ReplicasChanged{}
	case kindTombstoneDone:
		return &TombstoneDone{}
	case kindAllocProducerIDs:
		return &AllocProducerIDs{}
	}
	return nil
}

// Encode gives the bytes to propose: a msgpack stream of version, kind and the fields in
// order. It fails with ErrInvalidRequest, naming the field, where a bound is broken.
func Encode(c Command) ([]byte, error) {
	var buf bytes.Buffer
	x := encoder(&buf)
	version, k := uint8(CommandVersion), uint8(c.kind())
	x.u8("version", &version)
	x.u8("kind", &k)
	c.fields(x)
	if x.err == nil && buf.Len() > MaxCommandBytes {
		x.fail("the command", "has %d bytes, more than %d", buf.Len(), MaxCommandBytes)
	}
	if x.err != nil {
		return nil, fmt.Errorf("%T: %w", c, x.err)
	}
	return buf.Bytes(), nil
}

// Decode reads a command. A version or kind of newer software is ErrUnsupported, and
// anything damaged or out of bounds is ErrInvalidRequest.
func Decode(data []byte) (Command, error) {
	if len(data) > MaxCommandBytes {
		return nil, fmt.Errorf("metadata command of %d bytes, more than %d: %w", len(data), MaxCommandBytes, record.ErrInvalidRequest)
	}
	x := decoder(data)
	var version, k uint8
	x.u8("version", &version)
	x.u8("kind", &k)
	if x.err != nil {
		return nil, fmt.Errorf("metadata command: %w", x.err)
	}
	c := newCommand(kind(k))
	if version < 1 || version > CommandVersion || c == nil {
		return nil, fmt.Errorf("metadata command kind %d of format %d, this software knows formats up to %d; update this node: %w",
			k, version, CommandVersion, record.ErrUnsupported)
	}
	c.fields(x)
	x.end()
	if x.err != nil {
		return nil, fmt.Errorf("%T: %w", c, x.err)
	}
	return c, nil
}
