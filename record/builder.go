package record

import (
	"encoding/binary"
	"math/bits"
)

// Builder makes a batch record by record. It belongs to one goroutine.
type Builder struct {
	codec    Codec
	maxBytes int

	records []byte // plain records, one after the other
	scratch []byte // compressed records of the last Build
	count   int32
	base    int64 // timestamp of the first record
	latest  int64 // largest timestamp

	producerID    int64
	producerEpoch int16
	baseSequence  int32
}

// NewBuilder makes a builder whose batches are never larger than maxBytes, header
// included and counted before compression. A maxBytes above MaxDecompressed is taken
// as that: nobody could read more.
func NewBuilder(codec Codec, maxBytes int) *Builder {
	b := &Builder{codec: codec, maxBytes: min(maxBytes, MaxDecompressed)}
	b.Reset()
	return b
}

// Reset empties the builder and forgets the producer. It keeps its memory.
func (b *Builder) Reset() {
	b.records = b.records[:0]
	b.count = 0
	b.SetProducer(NoProducerID, NoProducerEpoch, NoSequence)
}

// SetProducer names the idempotent producer and the sequence of the batch's first record.
func (b *Builder) SetProducer(id int64, epoch int16, sequence int32) {
	b.producerID, b.producerEpoch, b.baseSequence = id, epoch, sequence
}

// Len is the size in bytes that the batch has before compression, with its header.
func (b *Builder) Len() int { return BatchHeaderSize + len(b.records) }

// Count is how many records are in the batch.
func (b *Builder) Count() int32 { return b.count }

// Append adds a record; timestamp is in ms since 1970 and NoTimestamp if negative, nil
// key and value are null. It copies what it is given. False means that the record does not fit and nothing was
// changed: send the batch first; if the builder is empty the record is too large for any.
func (b *Builder) Append(timestamp int64, key, value []byte, headers []Header) bool {
	timestamp = max(timestamp, NoTimestamp)
	base := b.base
	if b.count == 0 {
		base = timestamp
	}
	delta := timestamp - base
	size := recordSize(delta, b.count, key, value, headers)
	if int64(b.Len()+varintSize(size))+size > int64(b.maxBytes) {
		return false
	}
	if b.count == 0 {
		b.base, b.latest = timestamp, timestamp
	}
	b.latest = max(b.latest, timestamp)

	out := binary.AppendVarint(b.records, size)
	out = append(out, 0) // attributes: no bit is in use
	out = binary.AppendVarint(out, delta)
	out = binary.AppendVarint(out, int64(b.count))
	out = appendNullable(out, key)
	out = appendNullable(out, value)
	out = binary.AppendVarint(out, int64(len(headers)))
	for _, h := range headers {
		out = binary.AppendVarint(out, int64(len(h.Key)))
		out = append(out, h.Key...)
		out = appendNullable(out, h.Value)
	}
	b.records = out
	b.count++
	return true
}

// Build gives the batch of what was appended, in memory of its own, with base offset 0
// and no epoch. It is nil if there are no records. The builder stays as it is until
// Reset. Records that compression does not make smaller are left plain, which keeps the
// promise of maxBytes and saves every reader the work.
func (b *Builder) Build() Batch {
	if b.count == 0 {
		return nil
	}
	body, codec := b.records, None
	if b.codec != None {
		small, err := compress(b.codec, b.scratch[:0], b.records)
		if err == nil && len(small) < len(body) {
			b.scratch, body, codec = small, small, b.codec
		}
	}
	out := make(Batch, BatchHeaderSize+len(body))
	copy(out[BatchHeaderSize:], body)
	binary.BigEndian.PutUint32(out[posLength:], uint32(len(out)-notCounted))
	out.SetBase(0, NoEpoch)
	out[posMagic] = magicV2
	binary.BigEndian.PutUint16(out[posAttributes:], uint16(codec))
	binary.BigEndian.PutUint32(out[posLastDelta:], uint32(b.count-1))
	binary.BigEndian.PutUint64(out[posBaseTimestamp:], uint64(b.base))
	binary.BigEndian.PutUint64(out[posMaxTimestamp:], uint64(b.latest))
	binary.BigEndian.PutUint64(out[posProducerID:], uint64(b.producerID))
	binary.BigEndian.PutUint16(out[posProducerEpoch:], uint16(b.producerEpoch))
	binary.BigEndian.PutUint32(out[posBaseSequence:], uint32(b.baseSequence))
	binary.BigEndian.PutUint32(out[posCount:], uint32(b.count))
	out.setCRC()
	return out
}

// recordSize is what a record takes without the length in front of it.
func recordSize(timestampDelta int64, offsetDelta int32, key, value []byte, headers []Header) int64 {
	n := int64(1 + varintSize(timestampDelta) + varintSize(int64(offsetDelta)))
	n += nullableSize(key) + nullableSize(value)
	n += int64(varintSize(int64(len(headers))))
	for _, h := range headers {
		n += int64(varintSize(int64(len(h.Key)))) + int64(len(h.Key)) + nullableSize(h.Value)
	}
	return n
}

func nullableSize(b []byte) int64 {
	if b == nil {
		return 1
	}
	return int64(varintSize(int64(len(b)))) + int64(len(b))
}

func appendNullable(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}

// varintSize is how many bytes v takes as a zigzag varint of seven bits a byte.
func varintSize(v int64) int {
	zigzag := uint64(v)<<1 ^ uint64(v>>63)
	return (bits.Len64(zigzag|1) + 6) / 7
}
