package node

import (
	"bytes"
	"testing"

	"edged/metadata"
	"edged/record"
	"edged/transport/wire"
)

// What another node asks or answers is decoded or refused, whatever it is. What was taken is written again and
// taken again as the same.
func FuzzDecodeBody(f *testing.F) {
	bodies := func() []any {
		return []any{new(infoAnswer), new(welcome), new(proposeAnswer), new(transferCall), new(transferAnswer), new(trimCall),
			new(metadata.NodeInfo), new(wire.NodeDescription), new(wire.EventsRequest), new([]wire.NodeEvent)}
	}
	for _, full := range []any{
		infoAnswer{Expect: 3}, welcome{Voters: []record.NodeID{1, 2, 3}}, trimCall{Group: 4, Keep: 9},
		metadata.NodeInfo{ID: 7, Name: "n7", NativeAddr: "10.0.0.7:7400"}, wire.NodeDescription{Problems: []string{"disk"}},
	} {
		b, err := encodeCall(opJoin, full)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[1:])
	}
	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff}) // an array that claims to be very long
	f.Fuzz(func(t *testing.T, b []byte) {
		for i, into := range bodies() {
			if decodeBody(b, into) != nil {
				continue
			}
			once, err := encodeCall(opJoin, into)
			if err != nil {
				t.Fatalf("%T: %v", into, err)
			}
			again := bodies()[i]
			if err := decodeBody(once[1:], again); err != nil {
				t.Fatalf("%T: %x is not taken again: %v", into, once, err)
			}
			twice, err := encodeCall(opJoin, again)
			if err != nil || !bytes.Equal(once, twice) {
				t.Fatalf("%T: %x is %x when written again, %v", into, once, twice, err)
			}
		}
	})
}

// A list that claims to be very long costs nothing.
func TestDecodeBody_claimedLengthCostsNothing(t *testing.T) {
	var list []wire.NodeEvent
	if decodeBody([]byte{0xdd, 0xff, 0xff, 0xff, 0xff}, &list) == nil || cap(list) > 0 {
		t.Errorf("room for %d was made", cap(list))
	}
}
