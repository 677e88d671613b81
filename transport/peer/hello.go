package peer

import (
	"encoding/binary"
	"fmt"

	"edged/record"
)

const (
	version  = 1       // of the handshake and everything after it
	maxHello = 4 << 10 // bytes of any frame before the other side is known
	maxName  = 64      // bytes of a cluster name
)

// purpose says what a connection is for.
type purpose byte

const (
	forControl purpose = iota
	forData
	forCall
	forKnock
)

// isLink tells that connections of this purpose join two members of one cluster.
func (p purpose) isLink() bool { return p != forCall }

// hello is what each side says first.
type hello struct {
	purpose purpose
	id      Identity
}

const helloFixed = 1 + 1 + 16 + 16 + 4 + 8 + 8 + 1

func (h hello) encode() []byte {
	b := make([]byte, 0, helloFixed+len(h.id.ClusterName))
	b = append(b, version, byte(h.purpose))
	b = append(b, h.id.Cluster[:]...)
	b = append(b, h.id.Instance[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(h.id.Node))
	b = binary.BigEndian.AppendUint64(b, uint64(h.id.Boot))
	b = binary.BigEndian.AppendUint64(b, h.id.BootCounter)
	return appendShort(b, h.id.ClusterName)
}

// parseHello reads a hello. Bytes behind the known fields are left for later versions that
// stay compatible with this one.
func parseHello(b []byte) (hello, error) {
	if len(b) > 0 && b[0] != version {
		return hello{}, fmt.Errorf("%w: it speaks version %d between nodes, this node %d", ErrVersion, b[0], version)
	}
	if len(b) < helloFixed {
		return hello{}, fmt.Errorf("a hello of %d bytes is shorter than %d", len(b), helloFixed)
	}
	h := hello{purpose: purpose(b[1])}
	copy(h.id.Cluster[:], b[2:])
	copy(h.id.Instance[:], b[18:])
	h.id.Node = record.NodeID(binary.BigEndian.Uint32(b[34:]))
	h.id.Boot = record.BootID(binary.BigEndian.Uint64(b[38:]))
	h.id.BootCounter = binary.BigEndian.Uint64(b[46:])
	name, _, ok := cutShort(b[54:])
	switch {
	case !ok || len(name) > maxName:
		return hello{}, fmt.Errorf("the cluster name in a hello is cut off or longer than %d bytes", maxName)
	case h.purpose > forKnock:
		return hello{}, fmt.Errorf("a hello with unknown purpose %d", h.purpose)
	case h.id.Node <= 0 || h.id.Boot == 0:
		return hello{}, fmt.Errorf("a hello with node id %d and boot id %d, which must be above 0", h.id.Node, h.id.Boot)
	}
	h.id.ClusterName = name
	return h, nil
}

// appendShort adds a string of at most 255 bytes behind its length; a longer one is cut.
func appendShort(b []byte, s string) []byte {
	s = s[:min(len(s), 255)]
	return append(append(b, byte(len(s))), s...)
}

func cutShort(b []byte) (s string, rest []byte, ok bool) {
	if len(b) == 0 || len(b)-1 < int(b[0]) {
		return "", nil, false
	}
	n := 1 + int(b[0])
	return string(b[1:n]), b[n:], true
}
