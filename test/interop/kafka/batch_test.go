package kafka

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"hash/crc32"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// rec is one record of a batch: its key (null if empty), its value, and its time since the first one's.
type rec struct {
	key, value string
	delta      int64
}

// batchOf is a batch as a client sends it, with three records stamped 1000, 1001 and 1002 unless
// told otherwise. The changes are made before the checksum is taken.
func batchOf(changes ...func(*kmsg.RecordBatch)) []byte {
	return batchWith([]rec{{value: "a"}, {value: "b", delta: 1}, {value: "c", delta: 2}}, changes...)
}

func batchWith(records []rec, changes ...func(*kmsg.RecordBatch)) []byte {
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, LastOffsetDelta: int32(len(records) - 1), FirstTimestamp: 1000, MaxTimestamp: 1000,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(len(records)),
	}
	for i, r := range records {
		kr := kmsg.Record{TimestampDelta64: r.delta, OffsetDelta: int32(i), Value: []byte(r.value)}
		if r.key != "" {
			kr.Key = []byte(r.key)
		}
		body := kr.AppendTo(nil)[1:] // without the length, which is 0 so far: one byte
		kr.Length = int32(len(body))
		b.Records = kr.AppendTo(b.Records)
		b.MaxTimestamp = max(b.MaxTimestamp, b.FirstTimestamp+r.delta)
	}
	for _, change := range changes {
		change(&b)
	}
	return seal(b)
}

// seal encodes a batch and puts in its length and checksum.
func seal(b kmsg.RecordBatch) []byte {
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	return checksummed(raw)
}

func checksummed(raw []byte) []byte {
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// from makes a batch one of an idempotent producer.
func from(producer int64, epoch int16, sequence int32) func(*kmsg.RecordBatch) {
	return func(b *kmsg.RecordBatch) { b.ProducerID, b.ProducerEpoch, b.FirstSequence = producer, epoch, sequence }
}

// gzipped compresses the records.
func gzipped(b *kmsg.RecordBatch) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(b.Records) // into memory
	_ = w.Close()
	b.Records, b.Attributes = out.Bytes(), b.Attributes|1
}

// attributes sets bits of the attributes.
func attributes(bits int16) func(*kmsg.RecordBatch) {
	return func(b *kmsg.RecordBatch) { b.Attributes |= bits }
}

// oldSet is a message set of magic 0 or 1 with one message.
func oldSet(magic byte) []byte {
	m := []byte{magic, 0}
	if magic == 1 {
		m = binary.BigEndian.AppendUint64(m, 1000)
	}
	m = binary.BigEndian.AppendUint32(m, 0xffffffff)     // null key
	m = append(binary.BigEndian.AppendUint32(m, 1), 'a') // value
	out := binary.BigEndian.AppendUint64(nil, 0)         // offset
	out = binary.BigEndian.AppendUint32(out, uint32(len(m)+4))
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(m))
	return append(out, m...)
}
