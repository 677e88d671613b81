package peer

import (
	"encoding/binary"
	"errors"
	"strings"
	"unicode/utf8"

	"edged/record"
)

// Why two nodes do not talk. They cross the wire by code, so errors.Is works on both sides;
// the text names both parties.
var (
	ErrVersion      = &record.Error{Code: "peer_version", Message: "the node speaks another version of the protocol between nodes; upgrade the older one"}
	ErrClusterName  = &record.Error{Code: "cluster_name", Message: "the node is set up for a cluster of another name"}
	ErrOtherCluster = &record.Error{Code: "other_cluster", Message: "the node belongs to another cluster"}
	ErrClone        = &record.Error{Code: "clone", Message: "two nodes live under one identity: a cloned card or a restored backup; stop one of them and give it an empty data directory"}
	// ErrOldLife: the node comes with an earlier life than the last one that was seen, which is not connected.
	ErrOldLife   = &record.Error{Code: "old_life", Message: "the data of this node is older than what others have seen of it: a copied card, a backup that was put back, or a card that lost what it had confirmed"}
	ErrSelf      = &record.Error{Code: "self", Message: "the address is this node's own"}
	ErrWrongNode = &record.Error{Code: "wrong_node", Message: "another node answers at the address"}
)

// Why a call has no answer.
var (
	ErrNotConnected   = &record.Error{Code: "not_connected", Message: "there is no connection to the node right now; retry", Retriable: true}
	ErrConnectionLost = &record.Error{Code: "connection_lost", Message: "the connection to the node broke before the answer; the request may or may not have taken effect; retry", Retriable: true}
)

// RemoteRefusal is what the other side gave as its reason not to talk to us. A refusal without it is
// ours and says nothing against this node: ErrClone inside it means that this process is taken
// for the copy, and outside it that the other one is.
type RemoteRefusal struct{ Err error }

func (e *RemoteRefusal) Error() string { return e.Err.Error() }

// Unwrap gives the reason.
func (e *RemoteRefusal) Unwrap() error { return e.Err }

// refusal tells that err does not go away by itself.
func refusal(err error) bool {
	var e *record.Error
	return errors.As(err, &e) && !e.Retriable
}

const maxErrorText = 1024 // bytes of an error's text on the wire

// appendError writes err as the error layout of the package comment.
func appendError(b []byte, err error) []byte {
	var retriable byte
	if record.Retriable(err) {
		retriable = 1
	}
	nl := &record.NotLeaderError{Leader: record.NoNode, Epoch: record.NoEpoch}
	errors.As(err, &nl)
	b = appendShort(append(b, retriable), record.Code(err))
	b = binary.BigEndian.AppendUint32(b, uint32(nl.Leader))
	b = binary.BigEndian.AppendUint32(b, uint32(nl.Epoch))
	b = appendShort(appendShort(b, nl.Addr), nl.KafkaAddr)
	text := err.Error()
	text = text[:min(len(text), maxErrorText)]
	return append(binary.BigEndian.AppendUint16(b, uint16(len(text))), text...)
}

// parseError reads what appendError wrote: a *record.NotLeaderError or a *record.Error with
// the text of the other side. ok is false if the bytes are neither.
func parseError(b []byte) (err error, ok bool) {
	if len(b) < 1 {
		return nil, false
	}
	retriable := b[0] != 0
	code, b, ok := cutShort(b[1:])
	if !ok || code == "" || len(b) < 8 {
		return nil, false
	}
	nl := &record.NotLeaderError{Leader: record.NodeID(binary.BigEndian.Uint32(b)), Epoch: record.Epoch(binary.BigEndian.Uint32(b[4:]))}
	var okA, okB bool
	if nl.Addr, b, okA = cutShort(b[8:]); !okA {
		return nil, false
	}
	if nl.KafkaAddr, b, okB = cutShort(b); !okB || len(b) < 2 {
		return nil, false
	}
	n := int(binary.BigEndian.Uint16(b))
	if n > maxErrorText || len(b)-2 < n {
		return nil, false
	}
	if code == record.CodeNotLeader {
		return nl, true
	}
	return &record.Error{Code: printable(code), Message: printable(string(b[2 : 2+n])), Retriable: retriable}, true
}

// printable makes a string of the other side fit for one line of a log.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == utf8.RuneError {
			return '.'
		}
		return r
	}, s)
}
