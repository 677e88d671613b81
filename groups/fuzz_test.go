package groups

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"edged/record"
)

// FuzzApply gives a state commands of any bytes. What is taken is what would be written, and the
// state stays one that can be carried to another node.
func FuzzApply(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for i := range uint64(30) {
		if data, err := Encode(0, randomCommand(r, i)); err == nil {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		epoch, cmd, err := Decode(data)
		if err != nil {
			return
		}
		again, err := Encode(epoch, cmd)
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("%x is decoded and encoded %x (%v)", data, again, err)
		}
		s := New()
		for i := range uint64(5) {
			s.Apply(i+1, mustEncode(t, 0, randomCommand(rand.New(rand.NewPCG(i, 9)), i)))
		}
		s.Apply(9, data)
		other := New()
		if err := other.Restore(s.Snapshot()); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(other.Snapshot(), s.Snapshot()) || other.Bytes() != s.Bytes() {
			t.Fatal("another state was restored")
		}
	})
}

func mustEncode(t testing.TB, epoch record.Epoch, c Command) []byte {
	t.Helper()
	data, err := Encode(epoch, c)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// FuzzRestore gives a state snapshots of any bytes, with the right checksum.
func FuzzRestore(f *testing.F) {
	s := New()
	r := rand.New(rand.NewPCG(1, 1))
	f.Add(s.Snapshot()[snapshotHead:])
	for i := range uint64(40) {
		s.Apply(i+1, mustEncode(f, 0, randomCommand(r, i)))
	}
	f.Add(s.Snapshot()[snapshotHead:])
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > MaxStateBytes {
			return
		}
		data := append([]byte{snapshotVersion, 0, 0, 0, 0}, body...)
		binary.BigEndian.PutUint32(data[1:], crc32.Checksum(body, castagnoli))
		s := New()
		if s.Restore(data) == nil && !bytes.Equal(s.Snapshot(), data) {
			t.Fatalf("%x was restored as %x", data, s.Snapshot())
		}
	})
}

// FuzzClientBytes reads what clients send to each other.
func FuzzClientBytes(f *testing.F) {
	f.Add(consumer("t", "u"))
	f.Fuzz(func(t *testing.T, b []byte) {
		topics, ok := subscription(b)
		if ok && len(topics) > len(b)/2 {
			t.Fatalf("%d topics of %d bytes", len(topics), len(b))
		}
		ReadAssignment(b)
	})
}
