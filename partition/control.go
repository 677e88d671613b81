package partition

import (
	"encoding/binary"
	"fmt"

	"edged/record"
	"edged/storage"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// The data of a partition's entries is a record batch as clients see it, or a control entry.
// A batch starts with its base offset, which is never negative, so its first byte is below
// 0x80; a control entry starts with a byte from 0xC0 on.
const (
	controlMin      byte = 0xC0
	controlLogStart byte = 0xC1
	controlAnew     byte = 0xC2 // the same, and the producer table is empty from here on
	logStartSize         = 1 + 8 + 8 + 8
)

// logStart is the control entry that moves a partition's beginning. The leader decides it
// and every replica applies it at the same place of the log, so all agree on it.
type logStart struct {
	keep   uint64        // index of the first entry to keep
	base   record.Offset // its base offset
	offset record.Offset // first offset for readers, >= base
	anew   bool          // see startAnew
}

func (l logStart) encode() []byte {
	b := make([]byte, 1, logStartSize)
	if b[0] = controlLogStart; l.anew {
		b[0] = controlAnew
	}
	b = binary.BigEndian.AppendUint64(b, l.keep)
	b = binary.BigEndian.AppendUint64(b, uint64(l.base))
	return binary.BigEndian.AppendUint64(b, uint64(l.offset))
}

func decodeLogStart(b []byte) (logStart, error) {
	if len(b) != logStartSize || b[0] != controlLogStart && b[0] != controlAnew {
		return logStart{}, fmt.Errorf("control entry of %d bytes is not a log start", len(b))
	}
	l := logStart{
		keep:   binary.BigEndian.Uint64(b[1:]),
		base:   record.Offset(binary.BigEndian.Uint64(b[9:])),
		offset: record.Offset(binary.BigEndian.Uint64(b[17:])),
		anew:   b[0] == controlAnew,
	}
	if l.base < 0 || l.offset < l.base {
		return logStart{}, fmt.Errorf("log start %d before its batch at %d", l.offset, l.base)
	}
	return l, nil
}

// toStored gives a Raft entry the form the store keeps. machine tells that the group is a
// state machine's and not a data partition.
func toStored(e *pb.Entry, machine bool) (storage.Entry, error) {
	s := storage.Entry{Index: e.GetIndex(), Term: e.GetTerm(), Data: e.GetData()}
	switch e.GetType() {
	case pb.EntryConfChange:
		s.Kind = storage.KindConfChange
	case pb.EntryConfChangeV2:
		s.Kind = storage.KindConfChangeV2
	default:
		switch {
		case len(s.Data) == 0:
			s.Kind = storage.KindEmpty
		case machine:
			s.Kind = storage.KindCommand
		case s.Data[0] >= controlMin:
			s.Kind = storage.KindControl
		default:
			if len(s.Data) < record.BatchHeaderSize {
				return s, fmt.Errorf("entry %d has %d bytes: too few for a record batch", s.Index, len(s.Data))
			}
			b := record.Batch(s.Data)
			s.Kind = storage.KindBatch
			s.BaseOffset, s.Count, s.MaxTimestamp = b.BaseOffset(), b.Span(), b.MaxTimestamp()
			if s.BaseOffset < 0 || s.Count <= 0 {
				return s, fmt.Errorf("entry %d holds a record batch at offset %d that spans %d", s.Index, s.BaseOffset, s.Count)
			}
		}
	}
	return s, nil
}

func toRaft(s *storage.Entry) *pb.Entry {
	e := &pb.Entry{Index: new(s.Index), Term: new(s.Term), Data: s.Data}
	switch s.Kind {
	case storage.KindConfChange:
		e.Type = pb.EntryConfChange.Enum()
	case storage.KindConfChangeV2:
		e.Type = pb.EntryConfChangeV2.Enum()
	default:
		e.Type = pb.EntryNormal.Enum()
	}
	return e
}

func isConf(k storage.Kind) bool { return k == storage.KindConfChange || k == storage.KindConfChangeV2 }

// confChange reads a configuration change entry.
func confChange(e *pb.Entry) (*pb.ConfChangeV2, error) {
	if e.GetType() == pb.EntryConfChange {
		var cc pb.ConfChange
		if err := proto.Unmarshal(e.GetData(), &cc); err != nil {
			return nil, err
		}
		return cc.AsV2(), nil
	}
	cc := new(pb.ConfChangeV2)
	if err := proto.Unmarshal(e.GetData(), cc); err != nil {
		return nil, err
	}
	return cc, nil
}

func confToRaft(c storage.ConfState) *pb.ConfState {
	return &pb.ConfState{
		Voters: raftIDs(c.Voters), Learners: raftIDs(c.Learners),
		VotersOutgoing: raftIDs(c.VotersOutgoing), LearnersNext: raftIDs(c.LearnersNext),
		AutoLeave: new(c.AutoLeave),
	}
}

func confFromRaft(c *pb.ConfState) storage.ConfState {
	return storage.ConfState{
		Voters: replicaIDs(c.GetVoters()), Learners: replicaIDs(c.GetLearners()),
		VotersOutgoing: replicaIDs(c.GetVotersOutgoing()), LearnersNext: replicaIDs(c.GetLearnersNext()),
		AutoLeave: c.GetAutoLeave(),
	}
}

func raftIDs(ids []record.ReplicaID) []uint64 {
	out := make([]uint64, len(ids))
	for i, id := range ids {
		out[i] = uint64(id)
	}
	return out
}

func replicaIDs(ids []uint64) []record.ReplicaID {
	out := make([]record.ReplicaID, len(ids))
	for i, id := range ids {
		out[i] = record.ReplicaID(id)
	}
	return out
}
