package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"
)

// BatchHeaderSize is the size in bytes of a batch's header. The records follow it.
const BatchHeaderSize = 61

// Where the fields of the header stand. The length field counts what follows it;
// the CRC covers all from the attributes on, so base offset and epoch can be
// written by the broker without touching it.
const (
	posBaseOffset    = 0
	posLength        = 8
	posEpoch         = 12
	posMagic         = 16
	posCRC           = 17
	posAttributes    = 21
	posLastDelta     = 23
	posBaseTimestamp = 27
	posMaxTimestamp  = 35
	posProducerID    = 43
	posProducerEpoch = 51
	posBaseSequence  = 53
	posCount         = 57

	// notCounted is what the length field leaves out: base offset and itself.
	notCounted = posEpoch
	magicV2    = 2

	// minRecordSize is the smallest record there is: seven fields of one byte each.
	// It unmasks a count that no uncompressed batch of this size can hold.
	minRecordSize = 7
)

// Bits of the attributes beside the codec.
const (
	attrCodec         = 0x07
	attrLogAppendTime = 1 << 3
	attrTransactional = 1 << 4
	attrControl       = 1 << 5
)

// NoTimestamp, NoProducerID, NoProducerEpoch and NoSequence stand in a batch that has none.
const (
	NoTimestamp     int64 = -1
	NoProducerID    int64 = -1
	NoProducerEpoch int16 = -1
	NoSequence      int32 = -1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch is one whole record batch of Kafka's format v2, as on the wire and on disk.
// The accessors read the header in place and need BatchHeaderSize bytes, which
// ParseBatch and Builder give; what they return is only worth trust after Verify.
type Batch []byte

func (b Batch) i16(pos int) int16 { return int16(binary.BigEndian.Uint16(b[pos:])) }
func (b Batch) i32(pos int) int32 { return int32(binary.BigEndian.Uint32(b[pos:])) }
func (b Batch) i64(pos int) int64 { return int64(binary.BigEndian.Uint64(b[pos:])) }

// BaseOffset is the offset of the first record: 0 from a producer, given by the leader.
func (b Batch) BaseOffset() Offset { return Offset(b.i64(posBaseOffset)) }

// Length is the size of the whole batch in bytes as its header says it.
func (b Batch) Length() int { return notCounted + int(b.i32(posLength)) }

// Epoch is the leader epoch in which the batch was appended. Not to be trusted from a producer.
func (b Batch) Epoch() Epoch { return Epoch(b.i32(posEpoch)) }

// Attributes are the raw flag bits.
func (b Batch) Attributes() int16 { return b.i16(posAttributes) }

// Codec tells how the records are compressed.
func (b Batch) Codec() Codec { return Codec(b.Attributes() & attrCodec) }

// LastOffsetDelta is the distance from the first offset to the last.
func (b Batch) LastOffsetDelta() int32 { return b.i32(posLastDelta) }

// Count is how many records the batch holds.
func (b Batch) Count() int32 { return b.i32(posCount) }

// Span is how many offsets the batch takes. At least 1 in a verified batch.
func (b Batch) Span() int32 { return b.LastOffsetDelta() + 1 }

// NextOffset is the offset that follows the batch.
func (b Batch) NextOffset() Offset { return b.BaseOffset() + Offset(b.Span()) }

// BaseTimestamp is what the records' timestamps are counted from, in ms since 1970.
func (b Batch) BaseTimestamp() int64 { return b.i64(posBaseTimestamp) }

// MaxTimestamp is the largest timestamp of the records in ms since 1970, or the
// time of append. NoTimestamp from some old clients.
func (b Batch) MaxTimestamp() int64 { return b.i64(posMaxTimestamp) }

// ProducerID is NoProducerID unless the producer is idempotent.
func (b Batch) ProducerID() int64 { return b.i64(posProducerID) }

// ProducerEpoch is NoProducerEpoch unless the producer is idempotent.
func (b Batch) ProducerEpoch() int16 { return b.i16(posProducerEpoch) }

// BaseSequence is the producer's sequence of the first record, NoSequence if it keeps none.
func (b Batch) BaseSequence() int32 { return b.i32(posBaseSequence) }

// IsTransactional tells that the batch belongs to a transaction.
func (b Batch) IsTransactional() bool { return b.Attributes()&attrTransactional != 0 }

// IsControl tells that the records are markers for brokers and not data.
func (b Batch) IsControl() bool { return b.Attributes()&attrControl != 0 }

// LogAppendTime tells that all records carry MaxTimestamp, the time of append.
func (b Batch) LogAppendTime() bool { return b.Attributes()&attrLogAppendTime != 0 }

// ParseBatch takes the first batch off b by its header alone: magic and length are
// sound, nothing else is checked. The batch and the rest share b's memory.
// Errors are ErrUnsupportedMagic and ErrCorrupt.
func ParseBatch(b []byte) (batch Batch, rest []byte, err error) {
	// The old formats have their magic at the same place and can be shorter than our
	// header: naming them comes first.
	if len(b) > posMagic && b[posMagic] != magicV2 {
		return nil, b, fmt.Errorf("%w, not v%d: use a client of Kafka 0.11 or newer", ErrUnsupportedMagic, int8(b[posMagic]))
	}
	if len(b) < BatchHeaderSize {
		return nil, b, corrupt("%d bytes left, its header takes %d", len(b), BatchHeaderSize)
	}
	// int64: on 32 bits the sum can overflow an int.
	size := notCounted + int64(Batch(b).i32(posLength))
	if size < BatchHeaderSize {
		return nil, b, corrupt("its length field says %d bytes, less than its header", size)
	}
	if size > int64(len(b)) {
		return nil, b, corrupt("its length field says %d bytes, %d are there", size, len(b))
	}
	return Batch(b[:size:size]), b[size:], nil
}

// SplitBatches goes through batches that stand one after the other. After an error
// it ends: where the next batch begins is not known.
func SplitBatches(b []byte) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for len(b) > 0 {
			batch, rest, err := ParseBatch(b)
			if !yield(batch, err) || err != nil {
				return
			}
			b = rest
		}
	}
}

// Verify tells whether the batch is whole and its header makes sense: framing, CRC,
// codec, counts, timestamps. It neither decompresses nor allocates, so that every
// batch can be checked where it comes in and where it is read back. What the records
// themselves say shows only in Records. Errors are ErrUnsupportedMagic and ErrCorrupt.
func (b Batch) Verify() error {
	if err := b.verifyFrame(); err != nil {
		return err
	}
	if !b.CRCFits() {
		return corrupt("its CRC is %08x, which its bytes do not give", uint32(b.i32(posCRC)))
	}
	if c := b.Codec(); !c.known() {
		return corrupt("unknown compression codec %d", int8(c))
	}
	count, last := b.Count(), b.LastOffsetDelta()
	if count <= 0 {
		return corrupt("its record count is %d", count)
	}
	if last != count-1 {
		return corrupt("%d records, but the last offset delta is %d", count, last)
	}
	if space := len(b) - BatchHeaderSize; b.Codec() == None && int64(count)*minRecordSize > int64(space) {
		return corrupt("%d records do not fit in %d bytes", count, space)
	}
	// MaxTimestamp may lie before BaseTimestamp: some clients fill in the last one, some -1.
	if base, latest := b.BaseTimestamp(), b.MaxTimestamp(); base < NoTimestamp || latest < NoTimestamp {
		return corrupt("negative timestamp (base %d, max %d)", base, latest)
	}
	return nil
}

// CRCFits tells whether the bytes are those that the CRC was made of. b is one whole batch.
func (b Batch) CRCFits() bool {
	return uint32(b.i32(posCRC)) == crc32.Checksum(b[posAttributes:], castagnoli)
}

// VerifyProduced is Verify and what must also hold for a batch that comes from a
// client: it has no offset yet, is no marker, leaves the append time to the broker,
// and carries either a whole producer identity or none.
// Errors are also ErrInvalidRequest and ErrInvalidTimestamp.
func (b Batch) VerifyProduced() error {
	if err := b.Verify(); err != nil {
		return err
	}
	switch id, epoch, seq := b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(); {
	case b.BaseOffset() != 0:
		return fmt.Errorf("%w: a produced batch has base offset %d; only the leader gives offsets, send 0", ErrInvalidRequest, b.BaseOffset())
	case b.IsControl():
		return fmt.Errorf("%w: a produced batch is marked as a control batch; only brokers write those", ErrInvalidRequest)
	case b.LogAppendTime():
		return fmt.Errorf("%w: a produced batch claims the append time; only brokers set it", ErrInvalidTimestamp)
	case id >= 0 && (epoch < 0 || seq < 0):
		return fmt.Errorf("%w: producer id %d comes with epoch %d and sequence %d; both start at 0", ErrInvalidRequest, id, epoch, seq)
	case id < NoProducerID:
		return fmt.Errorf("%w: producer id %d is negative", ErrInvalidRequest, id)
	}
	return nil
}

// verifyFrame makes sure that b is exactly one batch of format v2 by its header.
func (b Batch) verifyFrame() error {
	_, rest, err := ParseBatch(b)
	if err == nil && len(rest) != 0 {
		return corrupt("%d bytes follow its end", len(rest))
	}
	return err
}

// SetBase writes the offset and leader epoch in place. Neither is under the CRC.
func (b Batch) SetBase(o Offset, e Epoch) {
	binary.BigEndian.PutUint64(b[posBaseOffset:], uint64(o))
	binary.BigEndian.PutUint32(b[posEpoch:], uint32(e))
}

// SetLogAppendTime stamps all records with the time of append in ms since 1970, in
// place, and makes the CRC anew: only to be called on a batch that was verified.
func (b Batch) SetLogAppendTime(ms int64) {
	binary.BigEndian.PutUint16(b[posAttributes:], uint16(b.Attributes()|attrLogAppendTime))
	binary.BigEndian.PutUint64(b[posMaxTimestamp:], uint64(ms))
	b.setCRC()
}

func (b Batch) setCRC() {
	binary.BigEndian.PutUint32(b[posCRC:], crc32.Checksum(b[posAttributes:], castagnoli))
}

// corrupt is an ErrCorrupt that says what is wrong.
func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}
