package record

import (
	"encoding/binary"
	"iter"
	"math"
)

// Record is one record of a batch. Key, Value and header values are nil where they are
// null; they share memory with the batch or with what it was decompressed to, which
// nothing else writes to.
type Record struct {
	Offset    Offset
	Timestamp int64 // ms since 1970, NoTimestamp if it has none
	Key       []byte
	Value     []byte
	Headers   []Header
}

// Header is one header of a record. Keys may repeat.
type Header struct {
	Key   string
	Value []byte
}

// Records goes through the records in order. Compressed ones are decompressed first, to
// at most MaxDecompressed bytes. A damaged batch gives its sound records and then one
// error, ErrCorrupt or ErrUnsupportedMagic, with which it ends. The CRC is not checked
// here: that is Verify's part.
func (b Batch) Records() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		body, err := b.body()
		if err != nil {
			yield(Record{}, err)
			return
		}
		count, previous := b.Count(), int32(-1)
		for i := range count {
			rec, delta, rest, ok := b.parseRecord(body)
			if !ok {
				yield(Record{}, corrupt("record %d of %d does not parse", i+1, count))
				return
			}
			if delta <= previous || delta > b.LastOffsetDelta() {
				yield(Record{}, corrupt("record %d of %d has offset delta %d after %d, the last allowed is %d", i+1, count, delta, previous, b.LastOffsetDelta()))
				return
			}
			if !yield(rec, nil) {
				return
			}
			previous, body = delta, rest
		}
		if len(body) != 0 {
			yield(Record{}, corrupt("%d bytes follow its %d records", len(body), count))
		}
	}
}

// body gives the plain bytes of the records.
func (b Batch) body() ([]byte, error) {
	if err := b.verifyFrame(); err != nil {
		return nil, err
	}
	if count := b.Count(); count <= 0 {
		return nil, corrupt("its record count is %d", count)
	}
	body := b[BatchHeaderSize:]
	if b.Codec() == None {
		return body, nil
	}
	plain, err := decompress(b.Codec(), body)
	if err != nil {
		return nil, corrupt("decompressing %d bytes of %v: %v", len(body), b.Codec(), err)
	}
	return plain, nil
}

// parseRecord takes one record off src. Nothing is allocated by a length or count that
// was not compared with the bytes that are there.
func (b Batch) parseRecord(src []byte) (rec Record, delta int32, rest []byte, ok bool) {
	outer := cursor{b: src}
	c := cursor{b: outer.take(outer.varint())}
	if outer.bad {
		return Record{}, 0, nil, false
	}
	c.take(1) // attributes: no bit is in use
	timestamp := c.varlong()
	delta = c.varint()
	rec = Record{
		Offset:    b.BaseOffset() + Offset(delta),
		Timestamp: b.BaseTimestamp() + timestamp,
		Key:       c.nullable(),
		Value:     c.nullable(),
		Headers:   c.headers(),
	}
	if b.LogAppendTime() {
		rec.Timestamp = b.MaxTimestamp()
	}
	return rec, delta, outer.b, !c.bad && len(c.b) == 0
}

// cursor reads fields off b. After one that is not there it is bad and reads zeros.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) fail() {
	c.b, c.bad = nil, true
}

func (c *cursor) varlong() int64 {
	v, n := binary.Varint(c.b)
	if n <= 0 {
		c.fail()
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *cursor) varint() int32 {
	v := c.varlong()
	if v < math.MinInt32 || v > math.MaxInt32 {
		c.fail()
		return 0
	}
	return int32(v)
}

// take gives the next n bytes. Their capacity ends with them, so that an append to a
// key cannot reach the value behind it.
func (c *cursor) take(n int32) []byte {
	if n < 0 || int64(n) > int64(len(c.b)) {
		c.fail()
		return nil
	}
	out := c.b[:n:n]
	c.b = c.b[n:]
	return out
}

// nullable reads a length and that many bytes; length -1 is null.
func (c *cursor) nullable() []byte {
	n := c.varint()
	if n == -1 {
		return nil
	}
	return c.take(n)
}

// minHeaderSize is the smallest header: an empty key and a null value.
const minHeaderSize = 2

func (c *cursor) headers() []Header {
	n := c.varint()
	if n == 0 {
		return nil
	}
	if n < 0 || int64(n)*minHeaderSize > int64(len(c.b)) {
		c.fail()
		return nil
	}
	out := make([]Header, n)
	for i := range out {
		out[i] = Header{Key: string(c.take(c.varint())), Value: c.nullable()}
	}
	return out
}
