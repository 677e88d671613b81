package partition

import (
	"encoding/binary"
	"errors"
	"fmt"

	"edged/record"
	"edged/storage"

	pb "go.etcd.io/raft/v3/raftpb"
)

// A frame between two Cores (all integers big-endian, uvarint as in encoding/binary):
//
//	version u8 | cluster 16 bytes | from u32 | from boot u64 | to u32 | to boot u64 | items
//
// An item is a kind u8 and its body. The head stands in every frame because connections come
// and go: what was meant for an earlier life of either side is dropped (multi-raft's lost
// vote: a grant to a process that no longer has the log it asked with).
const (
	frameVersion  = 1
	frameHeadSize = 1 + 16 + 4 + 8 + 4 + 8

	itemRaft      = 1 // one Raft message
	itemBeat      = 2 // period u16 ms, flags u8, when it left u32 ms of the sender's clock, groups led u32, digest u64
	itemAskClaims = 3 // empty: send me the groups you lead
	itemClaims    = 4 // count u32, then group u64 and term u64 each
	itemWake      = 5 // count u32, then group u64 each: I do not follow you there

	// inlineData is the size up to which entry data is copied into the frame; longer data is
	// sent from where it lies.
	inlineData = 512
	// maxEntries bounds the entries of one message: what Limits.Message holds of the smallest ones,
	// and more.
	maxEntries = 1 << 16
)

var errFrame = errors.New("damaged frame from a peer")

// envelope is the head of a frame.
type envelope struct {
	cluster          record.ClusterID
	from, to         record.NodeID
	fromBoot, toBoot record.BootID
}

func (e envelope) append(b []byte) []byte {
	b = append(b, frameVersion)
	b = append(b, e.cluster[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(e.from))
	b = binary.BigEndian.AppendUint64(b, uint64(e.fromBoot))
	b = binary.BigEndian.AppendUint32(b, uint32(e.to))
	return binary.BigEndian.AppendUint64(b, uint64(e.toBoot))
}

func decodeEnvelope(b []byte) (envelope, []byte, error) {
	var e envelope
	if len(b) < frameHeadSize {
		return e, nil, errFrame
	}
	if b[0] != frameVersion {
		return e, nil, fmt.Errorf("%w: version %d, this node speaks %d", errFrame, b[0], frameVersion)
	}
	copy(e.cluster[:], b[1:])
	e.from = record.NodeID(binary.BigEndian.Uint32(b[17:]))
	e.fromBoot = record.BootID(binary.BigEndian.Uint64(b[21:]))
	e.to = record.NodeID(binary.BigEndian.Uint32(b[29:]))
	e.toBoot = record.BootID(binary.BigEndian.Uint64(b[33:]))
	return e, b[frameHeadSize:], nil
}

// frame gathers items for one peer and class. Bytes already handed to parts are never written again.
type frame struct {
	parts [][]byte
	buf   []byte
	mark  int // buf[mark:] is not in parts yet
	size  int64
}

func (f *frame) empty() bool { return f.size == 0 }

func (f *frame) begin(e envelope) {
	f.buf = e.append(make([]byte, 0, 512))
	f.size = frameHeadSize
}

func (f *frame) data(d []byte) {
	f.buf = binary.AppendUvarint(f.buf, uint64(len(d)))
	if len(d) <= inlineData {
		f.buf = append(f.buf, d...)
		return
	}
	f.parts = append(f.parts, f.buf[f.mark:len(f.buf):len(f.buf)], d)
	f.mark = len(f.buf)
}

func (f *frame) finish() [][]byte {
	parts := f.parts
	if f.mark < len(f.buf) {
		parts = append(parts, f.buf[f.mark:])
	}
	*f = frame{}
	return parts
}

const (
	flagReject   = 1 << 0
	flagSnapshot = 1 << 1
)

// raft adds one Raft message. Entries follow the message's index one by one, so their index is not sent.
func (f *frame) raft(g record.GroupID, m *pb.Message) {
	b := append(f.buf, itemRaft)
	b = binary.BigEndian.AppendUint64(b, uint64(g))
	b = binary.BigEndian.AppendUint64(b, m.GetFrom())
	b = binary.BigEndian.AppendUint64(b, m.GetTo())
	flags := byte(0)
	if m.GetReject() {
		flags |= flagReject
	}
	if m.Snapshot != nil {
		flags |= flagSnapshot
	}
	b = append(b, byte(m.GetType()), flags)
	for _, v := range [...]uint64{m.GetTerm(), m.GetLogTerm(), m.GetIndex(), m.GetCommit(), m.GetVote(), m.GetRejectHint()} {
		b = binary.AppendUvarint(b, v)
	}
	b = binary.AppendUvarint(b, uint64(len(m.GetEntries())))
	f.buf = b
	f.data(m.GetContext())
	f.size += 64
	for _, e := range m.GetEntries() {
		f.buf = append(f.buf, byte(e.GetType()))
		f.buf = binary.AppendUvarint(f.buf, e.GetTerm())
		f.data(e.GetData())
		f.size += int64(entrySize(e))
	}
	if m.Snapshot != nil {
		meta := m.Snapshot.GetMetadata()
		f.buf = binary.AppendUvarint(f.buf, meta.GetIndex())
		f.buf = binary.AppendUvarint(f.buf, meta.GetTerm())
		f.buf = appendConf(f.buf, meta.GetConfState())
		f.data(m.Snapshot.GetData())
		f.size += int64(len(m.Snapshot.GetData()))
	}
}

func appendConf(b []byte, c *pb.ConfState) []byte {
	for _, ids := range [...][]uint64{c.GetVoters(), c.GetLearners(), c.GetVotersOutgoing(), c.GetLearnersNext()} {
		b = binary.AppendUvarint(b, uint64(len(ids)))
		for _, id := range ids {
			b = binary.BigEndian.AppendUint64(b, id)
		}
	}
	if c.GetAutoLeave() {
		return append(b, 1)
	}
	return append(b, 0)
}

// frameReader walks a frame. After the first fault it yields zeroes and err is set.
type frameReader struct {
	b   []byte
	err error
}

func (r *frameReader) take(n uint64) []byte {
	if r.err != nil || n > uint64(len(r.b)) {
		r.err = errFrame
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *frameReader) u8() byte {
	if v := r.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (r *frameReader) u16() uint16 {
	if v := r.take(2); v != nil {
		return binary.BigEndian.Uint16(v)
	}
	return 0
}

func (r *frameReader) u32() uint32 {
	if v := r.take(4); v != nil {
		return binary.BigEndian.Uint32(v)
	}
	return 0
}

func (r *frameReader) u64() uint64 {
	if v := r.take(8); v != nil {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

func (r *frameReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if r.err != nil || n <= 0 {
		r.err = errFrame
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count reads how many items of at least size bytes follow: never more than the frame can hold.
func (r *frameReader) count(v uint64, size int) int {
	if r.err != nil || v > uint64(len(r.b)/size) {
		r.err = errFrame
		return 0
	}
	return int(v)
}

// netMessage is a Raft message with room for what its pointers name: one allocation, not ten.
type netMessage struct {
	pb.Message
	typ    pb.MessageType
	ids    [2]uint64
	fields [6]uint64
	reject bool
}

// netEntry is an entry in the same way.
type netEntry struct {
	pb.Entry
	typ         pb.EntryType
	term, index uint64
}

// raft reads one Raft message; entry data aliases the frame.
func (r *frameReader) raft() (record.GroupID, *pb.Message) {
	g := record.GroupID(r.u64())
	n := &netMessage{ids: [2]uint64{r.u64(), r.u64()}, reject: true}
	m := &n.Message
	m.From, m.To, m.Type = &n.ids[0], &n.ids[1], &n.typ
	n.typ = pb.MessageType(r.u8())
	flags := r.u8()
	if flags&flagReject != 0 {
		m.Reject = &n.reject
	}
	for i, p := range [...]**uint64{&m.Term, &m.LogTerm, &m.Index, &m.Commit, &m.Vote, &m.RejectHint} {
		if n.fields[i] = r.uvarint(); n.fields[i] != 0 {
			*p = &n.fields[i]
		}
	}
	count := r.count(r.uvarint(), 3)
	if count > maxEntries {
		r.err = errFrame
	}
	if c := r.take(r.uvarint()); len(c) > 0 {
		m.Context = c
	}
	if count > 0 && r.err == nil {
		m.Entries = r.entries(count, m.GetIndex())
	}
	if flags&flagSnapshot != 0 {
		m.Snapshot = &pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: new(r.uvarint()), Term: new(r.uvarint()), ConfState: r.conf()}}
		m.Snapshot.Data = r.take(r.uvarint())
	}
	return g, m
}

// entries reads the entries that follow the one at index.
func (r *frameReader) entries(count int, index uint64) []*pb.Entry {
	room, out := make([]netEntry, count), make([]*pb.Entry, count)
	for i := range room {
		e := &room[i]
		e.typ, e.term, e.index = pb.EntryType(r.u8()), r.uvarint(), index+1+uint64(i)
		e.Type, e.Term, e.Index = &e.typ, &e.term, &e.index
		if d := r.take(r.uvarint()); len(d) > 0 {
			e.Data = d
		}
		out[i] = &e.Entry
	}
	return out
}

func (r *frameReader) conf() *pb.ConfState {
	c := &pb.ConfState{}
	for _, ids := range [...]*[]uint64{&c.Voters, &c.Learners, &c.VotersOutgoing, &c.LearnersNext} {
		for range r.count(r.uvarint(), 8) {
			*ids = append(*ids, r.u64())
		}
	}
	c.AutoLeave = new(r.u8() == 1)
	return c
}

// fromNetwork are the messages that a peer may send. Others are Raft's own business and
// would let a broken peer act as this node's disk or clock.
func fromNetwork(t pb.MessageType) bool {
	switch t {
	case pb.MsgApp, pb.MsgAppResp, pb.MsgVote, pb.MsgVoteResp, pb.MsgPreVote, pb.MsgPreVoteResp,
		pb.MsgSnap, pb.MsgHeartbeat, pb.MsgHeartbeatResp, pb.MsgTimeoutNow, pb.MsgReadIndex, pb.MsgReadIndexResp:
		return true
	}
	return false
}

// The data of a base record (a Raft snapshot of this system): version u8, next offset i64, log
// start i64, state index u64, state. The state may be newer than the base: entries up to
// state index are not applied to it again.
const (
	baseVersion  = 1
	baseHeadSize = 1 + 8 + 8 + 8
)

type baseRecord struct {
	next, logStart record.Offset
	stateIndex     uint64
	state          []byte
}

func (r baseRecord) encode() []byte {
	b := make([]byte, 1, baseHeadSize+len(r.state))
	b[0] = baseVersion
	b = binary.BigEndian.AppendUint64(b, uint64(r.next))
	b = binary.BigEndian.AppendUint64(b, uint64(r.logStart))
	b = binary.BigEndian.AppendUint64(b, r.stateIndex)
	return append(b, r.state...)
}

func decodeBaseRecord(b []byte) (baseRecord, error) {
	if len(b) < baseHeadSize || b[0] != baseVersion {
		return baseRecord{}, errors.New("damaged base record")
	}
	r := baseRecord{
		next:       record.Offset(binary.BigEndian.Uint64(b[1:])),
		logStart:   record.Offset(binary.BigEndian.Uint64(b[9:])),
		stateIndex: binary.BigEndian.Uint64(b[17:]),
		state:      b[baseHeadSize:],
	}
	if r.next < 0 || r.logStart < r.next {
		return baseRecord{}, fmt.Errorf("base record with log start %d before offset %d", r.logStart, r.next)
	}
	return r, nil
}

// What a checkpoint keeps of a group beside its state: flags u8 (bit 0: relaxed; from bit 1 the kind
// of machine), the index that the state is of u64, the term of who gave it while the
// log is not as far u64, the commit index that was known u64, then the
// state.
const checkpointHead = 1 + 8 + 8 + 8

type checkpointState struct {
	kind        MachineKind
	relaxed     bool
	index, term uint64
	commit      uint64
	state       []byte
}

func (s checkpointState) encode() []byte {
	b := make([]byte, 1, checkpointHead+len(s.state))
	b[0] = byte(s.kind) << 1
	if s.relaxed {
		b[0] |= 1
	}
	b = binary.BigEndian.AppendUint64(b, s.index)
	b = binary.BigEndian.AppendUint64(b, s.term)
	b = binary.BigEndian.AppendUint64(b, s.commit)
	return append(b, s.state...)
}

// kindOfCheckpoint reads the kind alone: the machine has to be there before its state is read.
func kindOfCheckpoint(b []byte) MachineKind {
	if len(b) == 0 {
		return DataPartition
	}
	return MachineKind(b[0] >> 1)
}

func decodeCheckpointState(b []byte) (checkpointState, error) {
	if len(b) < checkpointHead || MachineKind(b[0]>>1) > GroupsLog {
		return checkpointState{}, errors.New("damaged checkpoint")
	}
	return checkpointState{
		kind: MachineKind(b[0] >> 1), relaxed: b[0]&1 == 1,
		index: binary.BigEndian.Uint64(b[1:]), term: binary.BigEndian.Uint64(b[9:]), commit: binary.BigEndian.Uint64(b[17:]), state: b[checkpointHead:],
	}, nil
}

// newBase makes the beginning that all initial replicas of a group share. It is not 0 so that a
// replica that starts empty is always behind it and gets a base record.
func newBase() storage.Base { return storage.Base{Index: 10, Term: 1} }
