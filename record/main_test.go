package record

import (
	"fmt"
	"testing"

	"edged/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

var allCodecs = []Codec{None, Gzip, Snappy, LZ4, Zstd}

// sample is a batch of n records that compress well, with keys, nulls and headers.
func sample(t testing.TB, codec Codec, n int) Batch {
	t.Helper()
	b := NewBuilder(codec, 1<<20)
	for _, r := range sampleRecords(n) {
		if !b.Append(r.Timestamp, r.Key, r.Value, r.Headers) {
			t.Fatalf("record of offset %d was not taken", r.Offset)
		}
	}
	return b.Build()
}

func sampleRecords(n int) []Record {
	out := make([]Record, n)
	for i := range out {
		out[i] = Record{
			Offset:    Offset(i),
			Timestamp: 1_700_000_000_000 + int64(i%7) - 3, // neither sorted nor starting with the largest
			Value:     fmt.Appendf(nil, "temperature=21.5 humidity=40 room=kitchen seq=%d", i),
		}
		if i%2 == 0 {
			out[i].Key = fmt.Appendf(nil, "sensor-%d", i%4)
		}
		if i%3 == 0 {
			out[i].Headers = []Header{{Key: "unit", Value: []byte("C")}, {Key: "", Value: nil}}
		}
		if i%5 == 4 {
			out[i].Value = nil
		}
	}
	return out
}

// collect gives all records and the error with which they end.
func collect(b Batch) (out []Record, err error) {
	for r, e := range b.Records() {
		if e != nil {
			return out, e
		}
		out = append(out, r)
	}
	return out, nil
}
