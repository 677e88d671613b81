package storage

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"edged/record"
)

func exampleStored() []stored {
	return []stored{
		{Kind: KindEmpty, Term: 1, BucketMaxTs: noTimestamp},
		{Kind: KindBatch, Term: 7, Pos: 100, Count: 3, MaxTs: 1_700_000_000_000, BucketBytes: 5000, BucketMaxTs: 1_700_000_000_500, Data: []byte("a batch")},
		{Kind: KindBatch, Term: math.MaxUint64, Pos: 1 << 40, Count: math.MaxInt32, MaxTs: math.MinInt64, BucketBytes: 1, BucketMaxTs: math.MaxInt64, Data: []byte{1}},
		{Kind: KindConfChangeV2, Term: 3, Pos: 9, BucketBytes: 77, BucketMaxTs: 12345, Data: bytes.Repeat([]byte("x"), 300)},
	}
}

// TestStoredRoundTrip: what is encoded is decoded, and no entry is taken for another one's, with
// any of its bits turned, or cut short.
func TestStoredRoundTrip(t *testing.T) {
	key := appendLogKey(nil, makeSlot(3, 17), 5, 99)
	other := appendLogKey(nil, makeSlot(3, 17), 5, 100)
	for _, h := range exampleStored() {
		v := appendStored(nil, key, &h)
		got, err := decodeStored(key, v)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(h) {
			t.Errorf("%+v became %+v, %v", h, got, err)
		}
		if len(v) > len(h.Data)+maxStoredOverhead {
			t.Errorf("%d bytes for %d", len(v), len(h.Data))
		}
		if _, err := decodeStored(other, v); err == nil {
			t.Error("taken under another key")
		}
		for i := range v {
			for bit := range 8 {
				v[i] ^= 1 << bit
				if _, err := decodeStored(key, v); err == nil {
					t.Fatalf("byte %d bit %d turned and nobody notices", i, bit)
				}
				v[i] ^= 1 << bit
			}
			if _, err := decodeStored(key, v[:i]); err == nil {
				t.Fatalf("cut at %d and nobody notices", i)
			}
		}
	}
}

// TestKeysSortAsTheyMust and are parsed back.
func TestKeysSortAsTheyMust(t *testing.T) {
	keys := [][]byte{
		appendNoteKey(nil, 1), appendDirKey(nil, 1, 0), appendDirKey(nil, 1, math.MaxUint64), appendNoteKey(nil, 2), formatKey(),
		appendMetaKey(nil, 0, metaGroup), appendMetaKey(nil, 0, metaHardState), appendRunKey(nil, 0, 1), appendRunKey(nil, 0, 300),
		appendMetaKey(nil, 0, metaEnd), appendMetaKey(nil, 1, metaGroup),
		appendSlotKey(nil, 0, 1), appendLogKey(nil, makeSlot(0, 1), 0, 1), appendLogKey(nil, makeSlot(0, 1), 0, 2),
		appendLogKey(nil, makeSlot(0, 1), 0, pointBit), appendLogKey(nil, makeSlot(0, 1), 1, 1), appendLogKey(nil, makeSlot(0, 2), 0, 1),
		appendLogKey(nil, makeSlot(7, maxBucket), math.MaxUint64, math.MaxUint64),
	}
	for i := 1; i < len(keys); i++ {
		if bytes.Compare(keys[i-1], keys[i]) >= 0 {
			t.Errorf("%x is not before %x", keys[i-1], keys[i])
		}
	}
	for _, k := range keys {
		if end := cutAfter(k); bytes.Compare(k, end) >= 0 {
			t.Errorf("%x is cut at %x", k, end)
		}
	}
	sl, g, index, ok := parseLogKey(keys[len(keys)-1])
	if !ok || sl.class() != 7 || sl.bucket() != maxBucket || g != math.MaxUint64 || index != math.MaxUint64 {
		t.Error(sl, g, index, ok)
	}
}

// FuzzStored: any bytes behind a right checksum are an error or an entry that encodes to the same meaning.
func FuzzStored(f *testing.F) {
	key := appendLogKey(nil, makeSlot(0, 1), 1, 1)
	for _, h := range exampleStored() {
		f.Add(appendStored(nil, key, &h)[crcLen:])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		sum := checksum(key, body)
		v := append([]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}, body...)
		h, err := decodeStored(key, v)
		if err != nil {
			return
		}
		if h.Pos < 0 || h.end() < h.Pos || h.Kind >= kindEnd || h.Kind == KindBatch && h.Count <= 0 {
			t.Fatalf("%+v was taken", h)
		}
		again, err := decodeStored(key, appendStored(nil, key, &h))
		if err != nil || fmt.Sprint(again) != fmt.Sprint(h) {
			t.Fatalf("%+v became %+v, %v", h, again, err)
		}
	})
}

// FuzzCheckpoint: the same for checkpoints; a count never makes the decoder allocate for what is not there.
func FuzzCheckpoint(f *testing.F) {
	key := appendMetaKey(nil, 1, metaCheckpoint)
	c := Checkpoint{Applied: 9, NextOffset: 4, State: []byte("state"), Confs: []ConfAt{
		{Index: 1, Conf: ConfState{Voters: []record.ReplicaID{1, 2}, AutoLeave: true}},
		{Index: 5, Conf: ConfState{Learners: []record.ReplicaID{3}, VotersOutgoing: []record.ReplicaID{1}, LearnersNext: []record.ReplicaID{2}}}}}
	b := encodeCheckpoint(key, &c)
	f.Add(b[:len(b)-crcLen])
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := decodeCheckpoint(key, seal(key, bytes.Clone(body)))
		if err != nil {
			return
		}
		again, err := decodeCheckpoint(key, encodeCheckpoint(key, &c))
		if err != nil || fmt.Sprint(again) != fmt.Sprint(c) {
			t.Fatalf("%+v became %+v, %v", c, again, err)
		}
	})
}

// FuzzMeta: the small values and all keys: an error or a value, never a panic.
func FuzzMeta(f *testing.F) {
	f.Add([]byte("some bytes"))
	f.Add(appendDirKey(nil, 3, 4))
	f.Add(appendLogKey(nil, makeSlot(1, 2), 3, 4))
	f.Fuzz(func(t *testing.T, b []byte) {
		key := []byte("k")
		v := seal(key, bytes.Clone(b))
		_, _, _ = decodeGroupInfo(key, v)
		_, _ = decodeHardState(key, v)
		_, _ = decodeBase(key, v)
		_, _ = decodeRun(key, v, 1)
		_, _ = decodePoint(key, v)
		_, _ = decodeDir(key, v, 1)
		_, _, _, _ = parseLogKey(b)
		_, _, _, _ = parseMetaKey(b)
		_, _, _, _ = parseDirKey(b)
		if end := cutAfter(b); len(b) > 0 && b[0] < prefixEnd && bytes.Compare(b, end) >= 0 && !(len(b) > 1 && b[0] == prefixLog && b[1] >= NumClasses) {
			t.Fatalf("%x is cut at %x", b, end)
		}
	})
}
