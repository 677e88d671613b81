package record

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// golden is one batch of every kind of field, byte by byte. kmsg makes the same (below).
const golden = "" +
	"0000000000000000" + // base offset
	"00000055" + // length of what follows
	"ffffffff" + // leader epoch: none
	"02" + // magic
	"8a8e5940" + // CRC32C, calculated bit by bit apart from this code
	"0000" + // attributes
	"00000001" + // last offset delta
	"0000018bcfe56800" + // base timestamp
	"0000018bcfe56805" + // max timestamp
	"0000000000000fa1" + // producer id 4001
	"0003" + // producer epoch
	"00000011" + // base sequence
	"00000002" + // records
	"2a" + "00" + "00" + "00" + "02" + "6b" + "0a" + "76616c7565" + "02" + "06" + "6b6579" + "08" + "61626364" +
	"1a" + "00" + "0a" + "02" + "01" + "0a" + "7061727432" + "02" + "00" + "01"

func goldenBatch(t testing.TB) Batch {
	t.Helper()
	b := NewBuilder(None, 1000)
	b.SetProducer(4001, 3, 17)
	const at = 1_700_000_000_000
	if !b.Append(at, []byte("k"), []byte("value"), []Header{{Key: "key", Value: []byte("abcd")}}) ||
		!b.Append(at+5, nil, []byte("part2"), []Header{{Key: ""}}) {
		t.Fatal("a record was not taken")
	}
	return b.Build()
}

func TestBuild_givesTheGoldenBytes(t *testing.T) {
	if got := hex.EncodeToString(goldenBatch(t)); got != golden {
		t.Fatalf("got  %s\nwant %s", got, golden)
	}
}

// kmsgBatch encodes records with another implementation of the format.
func kmsgBatch(records []Record, producer int64, epoch int16, sequence int32) []byte {
	var body []byte
	latest := records[0].Timestamp
	for i, r := range records {
		k := kmsg.Record{TimestampDelta64: r.Timestamp - records[0].Timestamp, OffsetDelta: int32(i), Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
		}
		k.Length = int32(len(k.AppendTo(nil)) - 1) // without the one byte that a length of 0 takes
		body = k.AppendTo(body)
		latest = max(latest, r.Timestamp)
	}
	batch := kmsg.RecordBatch{
		Length: int32(BatchHeaderSize - 12 + len(body)), PartitionLeaderEpoch: -1, Magic: 2,
		LastOffsetDelta: int32(len(records) - 1), FirstTimestamp: records[0].Timestamp, MaxTimestamp: latest,
		ProducerID: producer, ProducerEpoch: epoch, FirstSequence: sequence, NumRecords: int32(len(records)), Records: body,
	}
	out := Batch(batch.AppendTo(nil))
	out.setCRC() // kmsg leaves the CRC to its caller; the golden bytes hold ours to account
	return out
}

func TestBuild_equalsKmsg(t *testing.T) {
	records := slices.Collect(func(yield func(Record) bool) {
		for r := range goldenBatch(t).Records() {
			if !yield(r) {
				return
			}
		}
	})
	if got := hex.EncodeToString(kmsgBatch(records, 4001, 3, 17)); got != golden {
		t.Errorf("kmsg gives %s\ngolden is %s", got, golden)
	}
	many := sampleRecords(300)
	if !bytes.Equal(kmsgBatch(many, -1, -1, -1), sample(t, None, 300)) {
		t.Error("300 records: other bytes than kmsg")
	}
}

func TestAccessors_readWhatKmsgReads(t *testing.T) {
	b := goldenBatch(t)
	b.SetBase(1<<40, 7)
	binary.BigEndian.PutUint16(b[posAttributes:], attrTransactional|attrControl|uint16(Zstd))
	var k kmsg.RecordBatch
	if err := k.ReadFrom(b); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		field     string
		got, want any
	}{
		{"BaseOffset", b.BaseOffset(), Offset(k.FirstOffset)},
		{"BaseOffset set", b.BaseOffset(), Offset(1 << 40)},
		{"Length", b.Length(), int(k.Length) + 12},
		{"Length and bytes", b.Length(), len(b)},
		{"Epoch", b.Epoch(), Epoch(k.PartitionLeaderEpoch)},
		{"Epoch set", b.Epoch(), Epoch(7)},
		{"Attributes", b.Attributes(), k.Attributes},
		{"Codec", b.Codec(), Zstd},
		{"LastOffsetDelta", b.LastOffsetDelta(), k.LastOffsetDelta},
		{"Count", b.Count(), k.NumRecords},
		{"Span", b.Span(), int32(2)},
		{"NextOffset", b.NextOffset(), Offset(1<<40 + 2)},
		{"BaseTimestamp", b.BaseTimestamp(), k.FirstTimestamp},
		{"MaxTimestamp", b.MaxTimestamp(), k.MaxTimestamp},
		{"ProducerID", b.ProducerID(), k.ProducerID},
		{"ProducerEpoch", b.ProducerEpoch(), k.ProducerEpoch},
		{"BaseSequence", b.BaseSequence(), k.FirstSequence},
		{"IsTransactional", b.IsTransactional(), true},
		{"IsControl", b.IsControl(), true},
		{"LogAppendTime", b.LogAppendTime(), false},
	} {
		if c.got != c.want {
			t.Errorf("%s is %v, want %v", c.field, c.got, c.want)
		}
	}
}

func TestSetBase_leavesTheCRCValid(t *testing.T) {
	for _, codec := range allCodecs {
		b := sample(t, codec, 20)
		b.SetBase(math.MaxInt64-100, math.MaxInt32)
		if err := b.Verify(); err != nil {
			t.Errorf("%v: %v", codec, err)
		}
	}
}

func TestSetLogAppendTime_countsForAllRecordsAndVerifies(t *testing.T) {
	b := sample(t, Zstd, 20)
	b.SetLogAppendTime(1234)
	if err := b.Verify(); err != nil {
		t.Fatal(err)
	}
	if !b.LogAppendTime() || b.MaxTimestamp() != 1234 || b.Codec() != Zstd {
		t.Errorf("append time %v, max %d, codec %v", b.LogAppendTime(), b.MaxTimestamp(), b.Codec())
	}
	for r, err := range b.Records() {
		if err != nil || r.Timestamp != 1234 {
			t.Fatalf("offset %d: timestamp %d, error %v", r.Offset, r.Timestamp, err)
		}
	}
}

// field writes one header field and makes the CRC fit again, as a wrong producer would.
func field(pos, size int, value int64) func(Batch) Batch {
	return func(b Batch) Batch {
		var raw [8]byte
		binary.BigEndian.PutUint64(raw[:], uint64(value))
		copy(b[pos:pos+size], raw[8-size:])
		b.setCRC()
		return b
	}
}

func TestVerify_refuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(Batch) Batch
		is     error
		says   string
	}{
		{"nothing", func(Batch) Batch { return nil }, ErrCorrupt, "0 bytes left, its header takes 61"},
		{"half a header", func(b Batch) Batch { return b[:60] }, ErrCorrupt, "60 bytes left"},
		{"a cut end", func(b Batch) Batch { return b[:len(b)-1] }, ErrCorrupt, "its length field says"},
		{"a longer end", func(b Batch) Batch { return append(b, 0) }, ErrCorrupt, "1 bytes follow its end"},
		{"a negative length", field(posLength, 4, -1), ErrCorrupt, "says 11 bytes"},
		{"the smallest length", field(posLength, 4, math.MinInt32), ErrCorrupt, "less than its header"},
		{"the largest length", field(posLength, 4, math.MaxInt32), ErrCorrupt, "says 2147483659 bytes"},
		{"magic 1", field(posMagic, 1, 1), ErrUnsupportedMagic, "not v1"},
		{"magic 3", field(posMagic, 1, 3), ErrUnsupportedMagic, "not v3"},
		{"a short batch of magic 0", func(Batch) Batch { return make(Batch, 30) }, ErrUnsupportedMagic, "not v0"},
		{"codec 5", field(posAttributes, 2, 5), ErrCorrupt, "unknown compression codec 5"},
		{"codec 7", field(posAttributes, 2, 7), ErrCorrupt, "unknown compression codec 7"},
		{"no records", field(posCount, 4, 0), ErrCorrupt, "count is 0"},
		{"negative count", field(posCount, 4, -5), ErrCorrupt, "count is -5"},
		{"count and delta apart", field(posCount, 4, 19), ErrCorrupt, "19 records, but the last offset delta is 19"},
		{"negative delta", field(posLastDelta, 4, -1), ErrCorrupt, "delta is -1"},
		{"delta that wraps", field(posLastDelta, 4, math.MaxInt32), ErrCorrupt, "delta is 2147483647"},
		{"more records than bytes", func(b Batch) Batch {
			return field(posLastDelta, 4, 9999)(field(posCount, 4, 10000)(b))
		}, ErrCorrupt, "10000 records do not fit"},
		{"base timestamp -2", field(posBaseTimestamp, 8, -2), ErrCorrupt, "negative timestamp"},
		{"max timestamp far back", field(posMaxTimestamp, 8, math.MinInt64), ErrCorrupt, "negative timestamp"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.change(sample(t, None, 20)).Verify()
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %q, want %v with %q", err, c.is, c.says)
			}
			if Code(err) != c.is.(*Error).Code {
				t.Errorf("wire code %q, want %q", Code(err), c.is.(*Error).Code)
			}
		})
	}
}

func TestVerify_takesWhatRealClientsSend(t *testing.T) {
	for name, change := range map[string]func(Batch) Batch{
		"no timestamps":                field(posBaseTimestamp, 8, -1),
		"no max timestamp":             field(posMaxTimestamp, 8, -1),
		"max timestamp before base":    field(posMaxTimestamp, 8, 5),
		"epoch 0 from the client":      field(posEpoch, 4, 0),
		"transactional":                field(posAttributes, 2, attrTransactional),
		"producer without a sequence":  field(posProducerID, 8, 9),
		"a flag that is not in use":    field(posAttributes, 2, 1<<9),
		"control, as brokers write it": field(posAttributes, 2, attrControl),
	} {
		if err := change(sample(t, None, 20)).Verify(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestVerify_seesEveryFlippedBit(t *testing.T) {
	for _, codec := range allCodecs {
		whole := sample(t, codec, 6)
		for bit := range len(whole) * 8 {
			if pos := bit / 8; pos < posLength || pos >= posEpoch && pos < posMagic {
				continue // base offset and epoch are not under the CRC: they change after it was made
			}
			b := slices.Clone(whole)
			b[bit/8] ^= 1 << (bit % 8)
			if b.Verify() == nil {
				t.Fatalf("%v: bit %d flipped and not seen", codec, bit)
			}
		}
	}
}

func TestVerifyProduced_refusesWhatOnlyBrokersWrite(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(Batch) Batch
		is     error
	}{
		{"base offset", field(posBaseOffset, 8, 5), ErrInvalidRequest},
		{"control", field(posAttributes, 2, attrControl), ErrInvalidRequest},
		{"append time", field(posAttributes, 2, attrLogAppendTime), ErrInvalidTimestamp},
		{"producer id without sequence", func(b Batch) Batch {
			return field(posProducerEpoch, 2, 0)(field(posProducerID, 8, 9)(b))
		}, ErrInvalidRequest},
		{"producer id without epoch", func(b Batch) Batch {
			return field(posBaseSequence, 4, 0)(field(posProducerID, 8, 9)(b))
		}, ErrInvalidRequest},
		{"producer id -2", field(posProducerID, 8, -2), ErrInvalidRequest},
		{"damage", func(b Batch) Batch { b[70] ^= 1; return b }, ErrCorrupt},
	} {
		if err := c.change(sample(t, None, 20)).VerifyProduced(); !errors.Is(err, c.is) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.is)
		}
	}
	idempotent := field(posBaseSequence, 4, 0)(field(posProducerEpoch, 2, 0)(field(posProducerID, 8, 9)(sample(t, Zstd, 3))))
	for _, good := range []Batch{sample(t, None, 1), idempotent} {
		if err := good.VerifyProduced(); err != nil {
			t.Error(err)
		}
	}
}

func TestVerify_allocatesNothing(t *testing.T) {
	b := sample(t, Zstd, 100)
	if n := testing.AllocsPerRun(100, func() {
		if b.Verify() != nil || b.VerifyProduced() != nil {
			t.Fatal("does not verify")
		}
		b.SetBase(9, 9)
		b.SetBase(0, 9)
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func TestSplitBatches_givesEachAndEndsWithTheFirstError(t *testing.T) {
	var joined []byte
	var want []Batch
	for _, codec := range allCodecs {
		b := sample(t, codec, 9)
		want, joined = append(want, b), append(joined, b...)
	}
	split := func(in []byte) (got []Batch, errs []error) {
		for b, err := range SplitBatches(in) {
			if err != nil {
				errs = append(errs, err)
				continue
			}
			got = append(got, b)
		}
		return got, errs
	}
	if got, errs := split(joined); len(errs) != 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("%d batches, errors %v", len(got), errs)
	}
	got, errs := split(joined[:len(joined)-1])
	if len(got) != len(want)-1 || len(errs) != 1 || !errors.Is(errs[0], ErrCorrupt) {
		t.Errorf("cut: %d batches, errors %v", len(got), errs)
	}
	if got, errs := split(nil); len(got)+len(errs) != 0 {
		t.Errorf("empty: %d batches, errors %v", len(got), errs)
	}
	for range SplitBatches(joined) {
		break // must not go on after the loop ended
	}
}

// A batch must end where its capacity ends: an append to it may not reach the next one.
func TestParseBatch_doesNotLendTheNextBatch(t *testing.T) {
	one := sample(t, None, 1)
	joined := append(slices.Clone([]byte(one)), one...)
	first, rest, err := ParseBatch(joined)
	if err != nil || len(rest) != len(one) {
		t.Fatalf("rest %d, error %v", len(rest), err)
	}
	_ = append(first, 0xff)
	if !bytes.Equal(rest, one) {
		t.Error("an append to the first batch wrote into the second")
	}
}
