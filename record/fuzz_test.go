package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"testing"
)

// known tells whether err is one of those that a reader of batches promises.
func known(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrUnsupportedMagic)
}

func seeds(f *testing.F) {
	for _, codec := range allCodecs {
		f.Add([]byte(sample(f, codec, 7)))
	}
	f.Add(append([]byte(sample(f, None, 1)), sample(f, Zstd, 2)...))
	f.Add([]byte(goldenBatch(f)))
	f.Add([]byte(nil))
	f.Add(make([]byte, BatchHeaderSize))
	f.Add(bytes.Repeat([]byte{0xff}, 100))
}

// What comes from strangers: any bytes give batches that lie end to end in the input, or
// a known error. Reading on after a failed check must do no harm either.
func FuzzParseBatch(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		before := bytes.Clone(in)
		total := 0
		for b, err := range SplitBatches(in) {
			if err != nil {
				if !known(err) || b != nil {
					t.Fatalf("batch of %d bytes with error %v", len(b), err)
				}
				break
			}
			if b.Length() != len(b) || !bytes.Equal(b, in[total:total+len(b)]) {
				t.Fatalf("batch at %d is not what stands there", total)
			}
			total += len(b)
			checkBatch(t, b)
		}
		if !bytes.Equal(before, in) {
			t.Fatal("reading changed the input")
		}
	})
}

// FuzzRecords gets past the checks of the header: body and codec are free, all else fits.
func FuzzRecords(f *testing.F) {
	for _, codec := range allCodecs {
		b := sample(f, codec, 7)
		f.Add(uint8(codec), int32(7), []byte(b[BatchHeaderSize:]))
		f.Add(uint8(codec)|attrLogAppendTime, int32(1<<30), []byte(b[BatchHeaderSize:]))
	}
	for _, c := range foreign {
		f.Add(uint8(c.codec), int32(1), unhex(f, c.hex))
	}
	f.Fuzz(func(t *testing.T, attributes uint8, count int32, body []byte) {
		b := bodyBatch(Codec(attributes&attrCodec), count, body)
		field(posAttributes, 2, int64(attributes))(b)
		checkBatch(t, b)
	})
}

func checkBatch(t *testing.T, b Batch) {
	sound := b.Verify()
	if sound != nil && !known(sound) {
		t.Fatalf("Verify: %v", sound)
	}
	count, failed, previous := int32(0), error(nil), b.BaseOffset()-1
	for r, err := range b.Records() {
		if failed != nil {
			t.Fatal("records go on after an error")
		}
		if failed = err; err != nil {
			if !known(err) {
				t.Fatalf("Records: %v", err)
			}
			continue
		}
		if sound == nil && (r.Offset <= previous || r.Offset >= b.NextOffset()) && b.NextOffset() > b.BaseOffset() {
			t.Fatalf("offset %d after %d in a batch of [%d, %d)", r.Offset, previous, b.BaseOffset(), b.NextOffset())
		}
		previous = r.Offset
		count++
	}
	if failed == nil && count != b.Count() {
		t.Fatalf("%d records of %d and no error", count, b.Count())
	}
}

// FuzzBuilder cuts records out of data: what goes in comes out, in every codec, and is
// what another implementation would have written.
func FuzzBuilder(f *testing.F) {
	f.Add(uint8(0), uint16(1000), []byte("some bytes to cut records out of"))
	f.Add(uint8(4), uint16(70), bytes.Repeat([]byte{1, 0, 200, 3}, 60))
	f.Fuzz(func(t *testing.T, codec uint8, maxBytes uint16, data []byte) {
		b := NewBuilder(Codec(codec%5), int(maxBytes))
		var want []Record
		for len(data) > 0 && len(want) < 200 {
			r := Record{Offset: Offset(len(want))}
			r, data = cutRecord(r, data)
			if !b.Append(r.Timestamp, r.Key, r.Value, r.Headers) {
				break
			}
			want = append(want, r)
		}
		batch := b.Build()
		if batch == nil {
			if len(want) != 0 {
				t.Fatal("records and no batch")
			}
			return
		}
		if len(batch) > int(maxBytes) {
			t.Fatalf("%d bytes, %d allowed", len(batch), maxBytes)
		}
		if err := batch.VerifyProduced(); err != nil {
			t.Fatal(err)
		}
		if got, err := collect(batch); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %v, error %v, want %v", got, err, want)
		}
	})
}

func cutRecord(r Record, data []byte) (Record, []byte) {
	take := func() []byte {
		if len(data) == 0 {
			return nil
		}
		n := int(data[0])
		data = data[1:]
		if n == 255 {
			return nil
		}
		n = min(n, len(data))
		out := append([]byte{}, data[:n]...)
		data = data[n:]
		return out
	}
	var raw [8]byte
	data = data[copy(raw[:], data):]
	r.Timestamp = max(int64(binary.BigEndian.Uint64(raw[:])), NoTimestamp)
	r.Key, r.Value = take(), take()
	for range raw[0] % 3 {
		r.Headers = append(r.Headers, Header{Key: string(take()), Value: take()})
	}
	return r, data
}
