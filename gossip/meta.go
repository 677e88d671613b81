package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"edged/record"
)

// State says what a node is with regard to clusters.
type State uint8

const (
	StateWaiting State = iota // for the other nodes of a bootstrap
	StateJoining              // wants to be let into a cluster
	StateMember               // of the cluster that Meta names
	StateVirgin               // alone in a cluster of its own that nobody has used yet
	lastState    = StateVirgin
)

var stateNames = [...]string{"waiting", "joining", "member", "virgin"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "state " + strconv.Itoa(int(s))
}

// Bounds of the texts in a Meta, in bytes.
const (
	MaxName    = 64
	MaxVersion = 32
)

// Meta is what a node says of itself.
type Meta struct {
	Node        record.NodeID
	Instance    record.InstanceID
	BootCounter uint64
	Boot        record.BootID
	Cluster     record.ClusterID // zero: in none yet
	Name        string           // for people; at most MaxName bytes
	NativePort  uint16
	KafkaPort   uint16
	HTTPPort    uint16
	State       State
	Expect      uint8  // nodes that a bootstrap waits for; 0: not bootstrapping
	Version     string // of the software; at most MaxVersion bytes
	Moves       uint16 // how often this life has changed its address; Gossip counts them
}

const (
	metaFormat = 1
	metaFixed  = 1 + 4 + 16 + 8 + 8 + 16 + 2 + 2 + 2 + 1 + 1
	metaMoves  = 2
	maxMeta    = 512 // bytes; memberlist's limit
)

// The longest Meta fits memberlist's limit, with room for later fields.
var _ [maxMeta - (metaFixed + 1 + MaxName + 1 + MaxVersion + metaMoves) - 256]struct{}

// validate finds what would not be understood elsewhere.
func (m Meta) validate() error {
	switch {
	case m.Node <= 0:
		return fmt.Errorf("node id %d is not above 0", m.Node)
	case len(m.Name) > MaxName:
		return fmt.Errorf("a node name of %d bytes is longer than %d", len(m.Name), MaxName)
	case len(m.Version) > MaxVersion:
		return fmt.Errorf("a version of %d bytes is longer than %d", len(m.Version), MaxVersion)
	case m.State > lastState:
		return fmt.Errorf("state %d is unknown", m.State)
	case !printable(m.Name) || !printable(m.Version):
		return errors.New("a node name or version has characters that cannot be printed")
	}
	return nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// memberName is the node's name in memberlist, for this life at this address. The boot id is in it because a
// clone may have counted as many starts: memberlist keeps a name at its first address until that has been dead for long.
func (m Meta) memberName() string {
	name := fmt.Sprintf("%d.%d.%x", m.Node, m.BootCounter, uint64(m.Boot))
	if m.Moves > 0 {
		name += "." + strconv.FormatUint(uint64(m.Moves), 10)
	}
	return name
}

// newer tells which of two names of one node is the later one.
func (m Meta) newer(o Meta) bool {
	return m.BootCounter > o.BootCounter || m.BootCounter == o.BootCounter && m.Boot == o.Boot && m.Moves > o.Moves
}

// rivals tells that two names cannot both be the node: one is a clone that has counted as many starts.
func (m Meta) rivals(o Meta) bool {
	return m.Node == o.Node && m.BootCounter == o.BootCounter && m.Boot != o.Boot
}

// mixes tells that two nodes may know each other: they are of one cluster, or one of them is
// still to find its own.
func (m Meta) mixes(o Meta) bool {
	return m.Cluster == o.Cluster || m.Cluster.IsZero() || o.Cluster.IsZero() || m.State == StateVirgin || o.State == StateVirgin
}

func (m Meta) encode() []byte {
	b := make([]byte, 0, metaFixed+1+len(m.Name)+1+len(m.Version)+metaMoves)
	b = binary.BigEndian.AppendUint32(append(b, metaFormat), uint32(m.Node))
	b = append(b, m.Instance[:]...)
	b = binary.BigEndian.AppendUint64(b, m.BootCounter)
	b = binary.BigEndian.AppendUint64(b, uint64(m.Boot))
	b = append(b, m.Cluster[:]...)
	b = binary.BigEndian.AppendUint16(b, m.NativePort)
	b = binary.BigEndian.AppendUint16(b, m.KafkaPort)
	b = binary.BigEndian.AppendUint16(b, m.HTTPPort)
	b = append(b, byte(m.State), m.Expect)
	b = append(append(b, byte(len(m.Name))), m.Name...)
	b = append(append(b, byte(len(m.Version))), m.Version...)
	return binary.BigEndian.AppendUint16(b, m.Moves)
}

// parseMeta reads a Meta. Bytes behind the known fields are left for later versions.
func parseMeta(b []byte) (Meta, error) {
	if len(b) < metaFixed || len(b) > maxMeta {
		return Meta{}, fmt.Errorf("a member description of %d bytes, not %d to %d", len(b), metaFixed, maxMeta)
	}
	if b[0] != metaFormat {
		return Meta{}, fmt.Errorf("a member description of format %d; this node knows %d", b[0], metaFormat)
	}
	m := Meta{
		Node: record.NodeID(binary.BigEndian.Uint32(b[1:])), BootCounter: binary.BigEndian.Uint64(b[21:]),
		Boot: record.BootID(binary.BigEndian.Uint64(b[29:])), NativePort: binary.BigEndian.Uint16(b[53:]),
		KafkaPort: binary.BigEndian.Uint16(b[55:]), HTTPPort: binary.BigEndian.Uint16(b[57:]),
		State: State(b[59]), Expect: b[60],
	}
	copy(m.Instance[:], b[5:])
	copy(m.Cluster[:], b[37:])
	var okName, okVersion bool
	rest := b[metaFixed:]
	m.Name, rest, okName = cutShort(rest)
	m.Version, rest, okVersion = cutShort(rest)
	if len(rest) >= metaMoves { // earlier versions had none
		m.Moves = binary.BigEndian.Uint16(rest)
	}
	if !okName || !okVersion {
		return Meta{}, errors.New("a member description is cut off")
	}
	return m, m.validate()
}

func cutShort(b []byte) (s string, rest []byte, ok bool) {
	if len(b) == 0 || len(b)-1 < int(b[0]) {
		return "", nil, false
	}
	n := 1 + int(b[0])
	return string(b[1:n]), b[n:], true
}
