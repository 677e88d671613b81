package record

import (
	"fmt"
	"testing"
)

// benchBatch is about 11 KiB of plain records: what a producer with a short linger sends.
func benchBatch(b *testing.B, codec Codec) Batch { return sample(b, codec, 200) }

func BenchmarkVerify(b *testing.B) {
	for _, n := range []int{1, 10, 200, 2000} {
		batch := sample(b, None, n)
		b.Run(fmt.Sprintf("%dB", len(batch)), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(batch)))
			for b.Loop() {
				if err := batch.Verify(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkParseAndSetBase(b *testing.B) {
	batch := benchBatch(b, None)
	b.ReportAllocs()
	for b.Loop() {
		one, _, err := ParseBatch(batch)
		if err != nil {
			b.Fatal(err)
		}
		one.SetBase(7, 3)
	}
}

func BenchmarkRecords(b *testing.B) {
	for _, codec := range allCodecs {
		batch := benchBatch(b, codec)
		b.Run(codec.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for _, err := range batch.Records() {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func BenchmarkBuild(b *testing.B) {
	records := sampleRecords(200)
	for _, codec := range allCodecs {
		b.Run(codec.String(), func(b *testing.B) {
			builder := NewBuilder(codec, 1<<20)
			b.ReportAllocs()
			for b.Loop() {
				builder.Reset()
				for _, r := range records {
					builder.Append(r.Timestamp, r.Key, r.Value, r.Headers)
				}
				if builder.Build() == nil {
					b.Fatal("no batch")
				}
			}
		})
	}
}
