package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"edged/record"
)

// Every value carries a CRC32C over its key and itself. The key is part of it, so that
// bytes that were right elsewhere are wrong here.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const crcLen = 4

// Limits of what is stored. They exist so that a damaged length cannot make a reader allocate.
const (
	MaxEntryBytes      = 32 << 20 // of Entry.Data
	MaxCheckpointBytes = 32 << 20 // of an encoded Checkpoint
	maxConfMembers     = 1 << 10  // of each list of a ConfState
	maxConfs           = 1 << 16  // of a Checkpoint
)

// batchHeaderBytes is how much of a batch Headers gives: a record batch's own header.
const batchHeaderBytes = 61

// noTimestamp stands where no batch gave one.
const noTimestamp = -1

var (
	errChecksum = errors.New("wrong checksum")
	errTorn     = errors.New("malformed value")
)

func checksum(key, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, body)
}

// seal puts the checksum behind a meta value.
func seal(key, body []byte) []byte {
	return binary.BigEndian.AppendUint32(body, checksum(key, body))
}

// unseal checks a meta value and gives its body.
func unseal(key, v []byte) ([]byte, error) {
	if len(v) < crcLen {
		return nil, errTorn
	}
	body := v[:len(v)-crcLen]
	if binary.BigEndian.Uint32(v[len(body):]) != checksum(key, body) {
		return nil, errChecksum
	}
	return body, nil
}

// stored is an entry as it stands in its bucket. Beside the entry it says what stood before it
// in the group's part of the bucket, so that any entry found by a seek is a place to resume.
type stored struct {
	Kind        Kind
	Term        uint64
	Pos         record.Offset // next offset before the entry; its base offset if it is a batch
	Count       int32
	MaxTs       int64
	BucketBytes uint64 // payload of the group in this bucket, up to and with this entry
	BucketMaxTs int64  // newest timestamp of the group in this bucket, up to and with this entry
	Data        []byte
}

func (h *stored) end() record.Offset { return h.Pos + record.Offset(h.Count) }

// entry is h as readers know it. Data is shared, not copied.
func (h *stored) entry(index uint64) Entry {
	e := Entry{Index: index, Term: h.Term, Kind: h.Kind, Data: h.Data}
	if h.Kind == KindBatch {
		e.BaseOffset, e.Count, e.MaxTimestamp = h.Pos, h.Count, h.MaxTs
	}
	return e
}

// maxStoredOverhead bounds what encodeEntry adds to Data.
const maxStoredOverhead = crcLen + 1 + 6*binary.MaxVarintLen64

// appendStored encodes h behind b: checksum, kind, varints, data.
func appendStored(b, key []byte, h *stored) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0, byte(h.Kind))
	b = binary.AppendUvarint(b, h.Term)
	b = binary.AppendUvarint(b, uint64(h.Pos))
	if h.Kind == KindBatch {
		b = binary.AppendUvarint(b, uint64(uint32(h.Count)))
		b = binary.AppendVarint(b, h.MaxTs)
		b = binary.AppendUvarint(b, uint64(h.BucketMaxTs-h.MaxTs)) // never negative as uint64
	} else {
		b = binary.AppendVarint(b, h.BucketMaxTs)
	}
	b = binary.AppendUvarint(b, h.BucketBytes)
	b = append(b, h.Data...)
	binary.BigEndian.PutUint32(b[start:], checksum(key, b[start+crcLen:]))
	return b
}

// decodeStored checks and decodes an entry's value. Data points into v.
func decodeStored(key, v []byte) (h stored, err error) {
	if len(v) < crcLen+1 {
		return h, errTorn
	}
	if binary.BigEndian.Uint32(v) != checksum(key, v[crcLen:]) {
		return h, errChecksum
	}
	d := decoder{b: v[crcLen:]}
	h.Kind = Kind(d.byte())
	h.Term = d.uvarint()
	h.Pos = d.offset()
	if h.Kind == KindBatch {
		n := d.uvarint()
		if n == 0 || n > 1<<31-1 {
			d.fail()
		}
		h.Count = int32(n)
		h.MaxTs = d.varint()
		h.BucketMaxTs = h.MaxTs + int64(d.uvarint())
	} else {
		h.BucketMaxTs = d.varint()
	}
	h.BucketBytes = d.uvarint()
	h.Data = d.b
	if h.Kind >= kindEnd || len(h.Data) > MaxEntryBytes || h.end() < h.Pos {
		d.fail()
	}
	return h, d.err
}

// point is one place of the sparse index: the batch at Index begins at the offset in the
// point's key, and so much of the group stood before it in this bucket.
type point struct {
	Index       uint64
	BytesBefore uint64
	MaxTsBefore int64
}

func appendPoint(b, key []byte, p point) []byte {
	start := len(b)
	b = binary.AppendUvarint(b, p.Index)
	b = binary.AppendUvarint(b, p.BytesBefore)
	b = binary.AppendVarint(b, p.MaxTsBefore)
	return binary.BigEndian.AppendUint32(b, checksum(key, b[start:]))
}

func decodePoint(key, v []byte) (p point, err error) {
	body, err := unseal(key, v)
	if err != nil {
		return p, err
	}
	d := decoder{b: body}
	p = point{Index: d.uvarint(), BytesBefore: d.uvarint(), MaxTsBefore: d.varint()}
	return p, d.end()
}

// dirEntry says that a group's entries from first on stand in a bucket, up to the next
// dirEntry's first. Never changed once it is published: readers share the slices.
//
//	dirs[i].first < dirs[i+1].first, dirs[i].bucket < dirs[i+1].bucket
type dirEntry struct {
	first  uint64
	offset record.Offset // next offset before first
	// What the dirEntry before this one holds in its own range; 0 and noTimestamp if there is none.
	prevMaxTs int64
	prevBytes uint32
	slot      slot
}

// dirVersion leads each directory value.
const dirVersion = 1

// encodeDir also names the bucket of the entry before, so that a lost key is noticed.
func encodeDir(key []byte, d *dirEntry, prev slot, hasPrev bool) []byte {
	b := make([]byte, 0, 64)
	b = append(b, dirVersion, d.slot.class())
	b = binary.AppendUvarint(b, d.first)
	b = binary.AppendUvarint(b, uint64(d.offset))
	if hasPrev {
		b = append(b, 1)
		b = binary.AppendUvarint(b, uint64(prev))
		b = binary.AppendUvarint(b, uint64(d.prevBytes))
		b = binary.AppendVarint(b, d.prevMaxTs)
	} else {
		b = append(b, 0)
	}
	return seal(key, b)
}

// storedDir is a directory entry as read.
type storedDir struct {
	dirEntry
	prev    slot
	hasPrev bool
	err     error // it could not be read
}

func decodeDir(key, v []byte, bucket uint32) (s storedDir, err error) {
	s.slot = makeSlot(0, bucket)
	body, err := unseal(key, v)
	if err != nil {
		return s, err
	}
	d := decoder{b: body}
	if d.byte() != dirVersion {
		d.fail()
	}
	class := d.byte()
	if class >= NumClasses {
		d.fail()
	}
	s.first = d.uvarint()
	s.offset = d.offset()
	s.prevMaxTs = noTimestamp
	switch d.byte() {
	case 0:
	case 1:
		s.hasPrev = true
		s.prev = slot(d.uint32())
		s.prevBytes = d.uint32()
		s.prevMaxTs = d.varint()
	default:
		d.fail()
	}
	s.slot = makeSlot(class&(NumClasses-1), bucket)
	return s, d.end()
}

func encodeGroupInfo(key []byte, replica record.ReplicaID, class uint8) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(replica))
	return seal(key, append(b, class))
}

func decodeGroupInfo(key, v []byte) (replica record.ReplicaID, class uint8, err error) {
	body, err := unseal(key, v)
	if err != nil {
		return 0, 0, err
	}
	if len(body) != 9 || body[8] >= NumClasses {
		return 0, 0, errTorn
	}
	return record.ReplicaID(binary.BigEndian.Uint64(body)), body[8], nil
}

func encodeHardState(key []byte, hs HardState) []byte {
	b := binary.BigEndian.AppendUint64(nil, hs.Term)
	return seal(key, binary.BigEndian.AppendUint64(b, uint64(hs.Vote)))
}

func decodeHardState(key, v []byte) (hs HardState, err error) {
	body, err := unseal(key, v)
	if err != nil {
		return hs, err
	}
	if len(body) != 16 {
		return hs, errTorn
	}
	hs.Term = binary.BigEndian.Uint64(body)
	hs.Vote = record.ReplicaID(binary.BigEndian.Uint64(body[8:]))
	return hs, nil
}

// storedBase is a base with what else must be known of a log's beginning.
type storedBase struct {
	Base
	headBytes uint64 // payload at or before the base in the first bucket
	since     uint32 // directory entries of buckets below it are not this log's
}

func encodeBase(key []byte, s storedBase) []byte {
	var b []byte
	for _, n := range []uint64{s.Index, s.Term, uint64(s.NextOffset), uint64(s.LogStart), s.headBytes} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return seal(key, binary.BigEndian.AppendUint32(b, s.since))
}

func decodeBase(key, v []byte) (s storedBase, err error) {
	body, err := unseal(key, v)
	if err != nil {
		return s, err
	}
	if len(body) != 44 {
		return s, errTorn
	}
	n := func(i int) uint64 { return binary.BigEndian.Uint64(body[8*i:]) }
	s.Base = Base{Index: n(0), Term: n(1), NextOffset: record.Offset(n(2)), LogStart: record.Offset(n(3))}
	s.headBytes = n(4)
	s.since = binary.BigEndian.Uint32(body[40:])
	if s.Index >= pointBit || s.NextOffset < 0 || s.LogStart < s.NextOffset {
		return s, errTorn
	}
	return s, nil
}

func encodeRun(key []byte, r TermRun) []byte {
	b := binary.BigEndian.AppendUint64(nil, r.Term)
	return seal(key, binary.BigEndian.AppendUint64(b, uint64(r.Offset)))
}

func decodeRun(key, v []byte, index uint64) (r TermRun, err error) {
	body, err := unseal(key, v)
	if err != nil {
		return r, err
	}
	if len(body) != 16 {
		return r, errTorn
	}
	r = TermRun{Index: index, Term: binary.BigEndian.Uint64(body), Offset: record.Offset(binary.BigEndian.Uint64(body[8:]))}
	if r.Offset < 0 {
		return r, errTorn
	}
	return r, nil
}

// checkpointVersion leads each checkpoint value.
const checkpointVersion = 1

func encodeCheckpoint(key []byte, c *Checkpoint) []byte {
	b := make([]byte, 0, 64+len(c.State))
	b = append(b, checkpointVersion)
	b = binary.AppendUvarint(b, c.Applied)
	b = binary.AppendUvarint(b, uint64(c.NextOffset))
	b = binary.AppendUvarint(b, uint64(len(c.Confs)))
	for i := range c.Confs {
		b = appendConf(b, &c.Confs[i])
	}
	b = binary.AppendUvarint(b, uint64(len(c.State)))
	return seal(key, append(b, c.State...))
}

func appendConf(b []byte, c *ConfAt) []byte {
	b = binary.AppendUvarint(b, c.Index)
	leave := byte(0)
	if c.Conf.AutoLeave {
		leave = 1
	}
	b = append(b, leave)
	for _, list := range [][]record.ReplicaID{c.Conf.Voters, c.Conf.Learners, c.Conf.VotersOutgoing, c.Conf.LearnersNext} {
		b = binary.AppendUvarint(b, uint64(len(list)))
		for _, id := range list {
			b = binary.BigEndian.AppendUint64(b, uint64(id))
		}
	}
	return b
}

func decodeCheckpoint(key, v []byte) (c Checkpoint, err error) {
	body, err := unseal(key, v)
	if err != nil {
		return c, err
	}
	d := decoder{b: body}
	if d.byte() != checkpointVersion {
		d.fail()
	}
	c.Applied = d.uvarint()
	c.NextOffset = d.offset()
	n := d.count(maxConfs, 6)
	for range n {
		c.Confs = append(c.Confs, d.conf())
		if d.err != nil {
			break
		}
	}
	if state := d.bytes(MaxCheckpointBytes); len(state) > 0 {
		c.State = append([]byte(nil), state...)
	}
	return c, d.end()
}

// decoder reads varints from b; after the first fault it gives zeros and keeps err.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail() {
	if d.err == nil {
		d.err = errTorn
	}
	d.b = nil
}

// end also wants nothing to be left.
func (d *decoder) end() error {
	if d.err == nil && len(d.b) != 0 {
		d.err = fmt.Errorf("%w: %d bytes too many", errTorn, len(d.b))
	}
	return d.err
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail()
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *decoder) uvarint() uint64 {
	n, size := binary.Uvarint(d.b)
	if size <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[size:]
	return n
}

func (d *decoder) varint() int64 {
	n, size := binary.Varint(d.b)
	if size <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[size:]
	return n
}

func (d *decoder) offset() record.Offset {
	n := d.uvarint()
	if n >= pointBit {
		d.fail()
		return 0
	}
	return record.Offset(n)
}

func (d *decoder) uint32() uint32 {
	n := d.uvarint()
	if n > 1<<32-1 {
		d.fail()
	}
	return uint32(n)
}

func (d *decoder) uint64() uint64 {
	if len(d.b) < 8 {
		d.fail()
		return 0
	}
	n := binary.BigEndian.Uint64(d.b)
	d.b = d.b[8:]
	return n
}

// count reads how many items follow, each of at least itemBytes.
func (d *decoder) count(limit, itemBytes uint64) uint64 {
	n := d.uvarint()
	if n > limit || n*itemBytes > uint64(len(d.b)) {
		d.fail()
		return 0
	}
	return n
}

func (d *decoder) bytes(limit uint64) []byte {
	n := d.count(limit, 1)
	b := d.b[:n:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) conf() (c ConfAt) {
	c.Index = d.uvarint()
	switch d.byte() {
	case 0:
	case 1:
		c.Conf.AutoLeave = true
	default:
		d.fail()
	}
	for _, list := range []*[]record.ReplicaID{&c.Conf.Voters, &c.Conf.Learners, &c.Conf.VotersOutgoing, &c.Conf.LearnersNext} {
		for range d.count(maxConfMembers, 8) {
			*list = append(*list, record.ReplicaID(d.uint64()))
		}
	}
	return c
}
