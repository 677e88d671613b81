package groups

import (
	"encoding/binary"
	"slices"
)

// Metadata and assignments are the clients' own business. Only groups of the protocol type that
// Kafka's consumers use are looked into: to know which topics a group reads, and for people.

// consumerType is that protocol type.
const consumerType = "consumer"

// clientReader reads what clients send to each other. ok stays true as long as there were enough bytes.
type clientReader struct {
	b  []byte
	ok bool
}

func (r *clientReader) take(n int) []byte {
	if !r.ok || n < 0 || n > len(r.b) {
		r.ok = false
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *clientReader) i16() int {
	if v := r.take(2); v != nil {
		return int(int16(binary.BigEndian.Uint16(v)))
	}
	return 0
}

func (r *clientReader) i32() int {
	if v := r.take(4); v != nil {
		return int(int32(binary.BigEndian.Uint32(v)))
	}
	return 0
}

// count reads the length of a list whose elements take least bytes and more.
func (r *clientReader) count(least int) int {
	n := r.i32()
	if n < 0 || n > len(r.b)/least {
		r.ok = false
		return 0
	}
	return n
}

// subscription reads the topics that a consumer wants, in order.
func subscription(metadata []byte) (topics []string, ok bool) {
	r := clientReader{metadata, true}
	r.i16() // version; what newer ones add comes behind
	for range r.count(2) {
		topics = append(topics, string(r.take(r.i16())))
	}
	slices.Sort(topics)
	return slices.Compact(topics), r.ok
}

// ReadAssignment reads what a consumer was assigned: partitions by topic. false if it is something else.
func ReadAssignment(assignment []byte) (map[string][]int32, bool) {
	r := clientReader{assignment, true}
	r.i16()
	out := map[string][]int32{}
	for range r.count(6) {
		topic := string(r.take(r.i16()))
		for range r.count(4) {
			out[topic] = append(out[topic], int32(r.i32()))
		}
	}
	return out, r.ok
}

// sameSubscription tells whether two lives of a member ask for the same. What else is in the
// metadata of a consumer changes with each join and says nothing.
func sameSubscription(protocolType string, a, b []byte) bool {
	if protocolType == consumerType {
		ta, okA := subscription(a)
		tb, okB := subscription(b)
		if okA && okB {
			return slices.Equal(ta, tb)
		}
	}
	return slices.Equal(a, b)
}

// reads tells which topics the group's members want; ok is false if that cannot be told.
func (g *group) reads() (topics map[string]bool, ok bool) {
	if g.protocolType != consumerType {
		return nil, false
	}
	topics = map[string]bool{}
	for _, m := range g.members {
		for _, p := range m.Protocols {
			ts, ok := subscription(p.Metadata)
			if !ok {
				return nil, false
			}
			for _, t := range ts {
				topics[t] = true
			}
		}
	}
	return topics, true
}
