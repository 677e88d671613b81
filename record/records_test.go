package record

import (
	"encoding/hex"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestRecords_giveBackWhatWasAppended(t *testing.T) {
	for _, codec := range allCodecs {
		for _, n := range []int{1, 2, 20, 1000} {
			b := sample(t, codec, n)
			if err := b.VerifyProduced(); err != nil {
				t.Fatalf("%v: %v", codec, err)
			}
			if n >= 20 && b.Codec() != codec {
				t.Errorf("%v, %d records: written with %v", codec, n, b.Codec())
			}
			const base = 1 << 41
			b.SetBase(base, 5)
			got, err := collect(b)
			want := sampleRecords(n)
			for i := range want {
				want[i].Offset += base
			}
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%v, %d records: got %d back, error %v", codec, n, len(got), err)
			}
		}
	}
}

func TestRecords_canStopEarly(t *testing.T) {
	seen := 0
	for range sample(t, Zstd, 10).Records() {
		if seen++; seen == 3 {
			break
		}
	}
	if seen != 3 {
		t.Errorf("%d records after a break at 3", seen)
	}
}

// body makes a batch of count records from raw record bytes, with a fitting CRC.
func bodyBatch(codec Codec, count int32, body []byte) Batch {
	b := append(make(Batch, BatchHeaderSize), body...)
	field(posLength, 4, int64(len(b)-notCounted))(b)
	field(posMagic, 1, magicV2)(b)
	field(posAttributes, 2, int64(codec))(b)
	field(posCount, 4, int64(count))(b)
	return field(posLastDelta, 4, int64(count)-1)(b)
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	out, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRecords_endWithOneErrorOnDamage(t *testing.T) {
	const good = "0e 00 00 00 00 02 61 00 " // length 7, null-length key "", value "a", no headers
	for _, c := range []struct {
		name  string
		count int32
		body  string
		sound int
		says  string
	}{
		{"nothing", 1, "", 0, "record 1 of 1 does not parse"},
		{"length past the end", 1, "10 00 00 00 00 02 61 00", 0, "does not parse"},
		{"negative length", 1, "01 00 00 00 00 02 61 00", 0, "does not parse"},
		{"length wider than 32 bits", 1, "ff ff ff ff ff 7f 00", 0, "does not parse"},
		{"a varint that does not end", 1, "ff ff ff ff ff ff ff ff ff ff ff 00", 0, "does not parse"},
		{"key past the record", 1, "0e 00 00 00 7e 02 61 00", 0, "does not parse"},
		{"key of length -2", 1, "0e 00 00 00 03 02 61 00", 0, "does not parse"},
		{"value past the record", 1, "0e 00 00 00 00 08 61 00", 0, "does not parse"},
		{"negative header count", 1, "0e 00 00 00 00 02 61 01", 0, "does not parse"},
		{"headers that are not there", 1, "0e 00 00 00 00 02 61 04", 0, "does not parse"},
		{"null header key", 1, "12 00 00 00 00 02 61 02 01 01", 0, "does not parse"},
		{"bytes left in the record", 1, "10 00 00 00 00 02 61 00 00", 0, "does not parse"},
		{"fewer records than counted", 2, good, 1, "record 2 of 2 does not parse"},
		{"more records than counted", 1, good + good, 1, "8 bytes follow its 1 records"},
		{"an offset twice", 2, good + good, 1, "offset delta 0 after 0"},
		{"an offset past the last", 2, good + "0e 00 00 04 00 02 61 00", 1, "delta 2 after 0, the last allowed is 1"},
		{"a negative offset", 1, "0e 00 00 01 00 02 61 00", 0, "delta -1 after -1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sound, failed := 0, 0
			for _, err := range bodyBatch(None, c.count, unhex(t, c.body)).Records() {
				if err == nil {
					sound++
					continue
				}
				failed++
				if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("got %q, want %q", err, c.says)
				}
			}
			if sound != c.sound || failed != 1 {
				t.Errorf("%d records and %d errors, want %d and 1", sound, failed, c.sound)
			}
		})
	}
}

func TestRecords_refuseABatchThatIsNone(t *testing.T) {
	for name, b := range map[string]Batch{
		"nothing":       nil,
		"half a header": make(Batch, 40),
		"cut":           sample(t, None, 3)[:70],
		"no count":      bodyBatch(None, 0, nil),
		"codec 6":       bodyBatch(6, 1, []byte("x")),
	} {
		if got, err := collect(b); err == nil || len(got) != 0 {
			t.Errorf("%s: %d records, error %v", name, len(got), err)
		}
	}
}

// A compacted log has gaps: offsets inside a batch only have to rise.
func TestRecords_takeGaps(t *testing.T) {
	b := bodyBatch(None, 2, unhex(t, "0e 00 00 02 00 02 61 00  0e 00 00 08 00 02 62 00"))
	field(posLastDelta, 4, 9)(b)
	got, err := collect(b)
	if err != nil || len(got) != 2 || got[0].Offset != 1 || got[1].Offset != 4 {
		t.Errorf("%v, error %v", got, err)
	}
}

func TestRecords_keepNullAndEmptyApart(t *testing.T) {
	b := NewBuilder(None, 1000)
	b.Append(1, nil, []byte{}, []Header{{Key: "null"}, {Key: "empty", Value: []byte{}}})
	b.Append(1, []byte{}, nil, nil)
	got, err := collect(b.Build())
	want := []Record{
		{Offset: 0, Timestamp: 1, Key: nil, Value: []byte{}, Headers: []Header{{Key: "null"}, {Key: "empty", Value: []byte{}}}},
		{Offset: 1, Timestamp: 1, Key: []byte{}, Value: nil},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v, error %v", got, err)
	}
}

// A reader may append to a key: the value behind it has to stay.
func TestRecords_doNotLendEachOthersBytes(t *testing.T) {
	b := NewBuilder(None, 1000)
	b.Append(1, []byte("key"), []byte("value"), nil)
	for r := range b.Build().Records() {
		_ = append(r.Key, "xxxxxxxxxx"...)
		if string(r.Value) != "value" {
			t.Errorf("value is now %q", r.Value)
		}
	}
}

func TestRecords_keepWhatTheyGaveAfterTheCoderIsUsedAgain(t *testing.T) {
	for _, codec := range allCodecs {
		got, err := collect(sample(t, codec, 50))
		if err != nil {
			t.Fatal(err)
		}
		kept := slices.Clone(got[7].Value)
		for range 10 {
			other := NewBuilder(codec, 1<<20)
			for range 50 {
				other.Append(0, nil, []byte(strings.Repeat("other", 20)), nil)
			}
			if _, err := collect(other.Build()); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(kept, got[7].Value) {
			t.Errorf("%v: a record changed after it was given", codec)
		}
	}
}

func TestBuilder_neverPassesMaxBytes(t *testing.T) {
	noise := make([]byte, 300)
	for i := range noise {
		noise[i] = byte(i*i*31 + i>>2*7) // little in it for a codec
	}
	for _, codec := range allCodecs {
		for maxBytes := 60; maxBytes < 900; maxBytes += 7 {
			b := NewBuilder(codec, maxBytes)
			for n := 0; b.Append(int64(n), noise[:n%4], noise[n%50:n%50+n%90], []Header{{Key: "h", Value: noise[:n%3]}}); n++ {
			}
			if b.Len() > maxBytes && b.Count() > 0 {
				t.Fatalf("%v: %d bytes of %d", codec, b.Len(), maxBytes)
			}
			batch := b.Build()
			if len(batch) > maxBytes {
				t.Fatalf("%v: a batch of %d bytes, %d allowed", codec, len(batch), maxBytes)
			}
			if (batch == nil) != (b.Count() == 0) {
				t.Fatalf("%v: %d records gave a batch of %d bytes", codec, b.Count(), len(batch))
			}
			if codec == None && batch != nil && len(batch) != b.Len() {
				t.Fatalf("Len says %d, the batch has %d", b.Len(), len(batch))
			}
		}
	}
}

func TestBuilder_fillsMaxBytesToTheLastByte(t *testing.T) {
	probe := NewBuilder(None, 1000)
	probe.Append(5, []byte("key"), make([]byte, 100), nil)
	exact := probe.Len()
	if !NewBuilder(None, exact).Append(5, []byte("key"), make([]byte, 100), nil) {
		t.Errorf("a record of exactly %d bytes was refused", exact)
	}
	if NewBuilder(None, exact-1).Append(5, []byte("key"), make([]byte, 100), nil) {
		t.Error("a record one byte too large was taken")
	}
}

func TestBuilder_aRefusedRecordChangesNothing(t *testing.T) {
	b := NewBuilder(None, 200)
	b.Append(100, []byte("k"), []byte("v"), nil)
	before := b.Build()
	if b.Append(50, nil, make([]byte, 500), nil) {
		t.Fatal("500 bytes went into 200")
	}
	if !slices.Equal(before, b.Build()) || b.Count() != 1 {
		t.Error("the batch changed")
	}
}

func TestBuilder_isEmptyAfterReset(t *testing.T) {
	b := NewBuilder(Snappy, 1000)
	b.SetProducer(1, 2, 3)
	b.Append(9_999, []byte("k"), []byte("old"), nil)
	old := b.Build()
	b.Reset()
	if b.Count() != 0 || b.Len() != BatchHeaderSize || b.Build() != nil {
		t.Errorf("after Reset: %d records, %d bytes", b.Count(), b.Len())
	}
	b.Append(1, []byte("k"), []byte("new"), nil)
	fresh := b.Build()
	if fresh.MaxTimestamp() != 1 || fresh.BaseTimestamp() != 1 || fresh.ProducerID() != NoProducerID ||
		fresh.ProducerEpoch() != NoProducerEpoch || fresh.BaseSequence() != NoSequence {
		t.Error("the new batch remembers the old one")
	}
	if got, err := collect(old); err != nil || string(got[0].Value) != "old" {
		t.Errorf("the old batch changed: %v, %v", got, err)
	}
}

func TestBuilder_takesAnyTimestampAndStillVerifies(t *testing.T) {
	for _, at := range [][2]int64{{0, 0}, {-1, 5}, {5, -1}, {math.MinInt64, 7}, {math.MaxInt64, 0}, {0, math.MaxInt64}, {-1, math.MaxInt64}} {
		b := NewBuilder(None, 1000)
		b.Append(at[0], nil, nil, nil)
		b.Append(at[1], nil, nil, nil)
		batch := b.Build()
		if err := batch.Verify(); err != nil {
			t.Errorf("%v: %v", at, err)
		}
		got, err := collect(batch)
		if err != nil || got[0].Timestamp != max(at[0], -1) || got[1].Timestamp != max(at[1], -1) {
			t.Errorf("%v came back as %v, error %v", at, got, err)
		}
		if want := max(at[0], at[1], -1); batch.MaxTimestamp() != want {
			t.Errorf("%v: max timestamp %d, want %d", at, batch.MaxTimestamp(), want)
		}
	}
}
