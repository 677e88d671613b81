package metadata

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"unicode"
	"unicode/utf8"

	"edged/record"

	"github.com/vmihailenco/msgpack/v5"
)

// codec carries values to or from msgpack, so that each struct describes its layout and
// its bounds once, for both directions. The first fault sticks and the rest does nothing.
//
// It uses the library's single values rather than its struct reflection: that takes
// memory for a list as long as the list says it is, before it has seen an element.
type codec struct {
	enc *msgpack.Encoder // set when encoding
	dec *msgpack.Decoder // set when decoding
	in  *bytes.Reader    // what dec reads
	err error
}

func encoder(buf *bytes.Buffer) *codec {
	x := &codec{enc: msgpack.NewEncoder(buf)}
	x.enc.UseCompactInts(true)
	return x
}

func decoder(data []byte) *codec {
	in := bytes.NewReader(data)
	return &codec{dec: msgpack.NewDecoder(in), in: in}
}

// fail records the first fault; what names the field.
func (x *codec) fail(what, format string, args ...any) {
	if x.err == nil {
		x.err = fmt.Errorf("%s %s: %w", what, fmt.Sprintf(format, args...), record.ErrInvalidRequest)
	}
}

// failed records err, which came from the library.
func (x *codec) failed(what string, err error) bool {
	if err != nil {
		x.fail(what, "cannot be read: %v", err)
	}
	return x.err != nil
}

// end checks that decoding has used every byte.
func (x *codec) end() {
	if x.err == nil && x.in.Len() > 0 {
		x.fail("the end", "is followed by %d more bytes", x.in.Len())
	}
}

func (x *codec) uint(what string, v *uint64, lo, hi uint64) {
	if x.err != nil {
		return
	}
	if x.dec != nil {
		n, err := x.dec.DecodeUint64()
		if x.failed(what, err) {
			return
		}
		*v = n
	}
	if *v < lo || *v > hi {
		x.fail(what, "is %d, outside %d to %d", *v, lo, hi)
	} else if x.enc != nil {
		x.failed(what, x.enc.EncodeUint(*v))
	}
}

func (x *codec) int(what string, v *int64, lo, hi int64) {
	if x.err != nil {
		return
	}
	if x.dec != nil {
		n, err := x.dec.DecodeInt64()
		if x.failed(what, err) {
			return
		}
		*v = n
	}
	if *v < lo || *v > hi {
		x.fail(what, "is %d, outside %d to %d", *v, lo, hi)
	} else if x.enc != nil {
		x.failed(what, x.enc.EncodeInt(*v))
	}
}

// unsigned carries any unsigned number type, whole range.
func unsigned[T ~uint8 | ~uint32 | ~uint64](x *codec, what string, v *T) {
	n := uint64(*v)
	x.uint(what, &n, 0, uint64(^T(0)))
	if x.dec != nil { // what is encoded is shared with readers
		*v = T(n)
	}
}

// signed carries any signed number type between lo and hi.
func signed[T ~int16 | ~int32 | ~int64](x *codec, what string, v *T, lo, hi T) {
	n := int64(*v)
	x.int(what, &n, int64(lo), int64(hi))
	if x.dec != nil {
		*v = T(n)
	}
}

func (x *codec) u8(what string, v *uint8) { unsigned(x, what, v) }

func (x *codec) node(what string, v *record.NodeID) { signed(x, what, v, 1, math.MaxInt32) }

// group carries the id of a partition's group. The bound keeps sums of ids and counts
// from going round.
func (x *codec) group(what string, v *record.GroupID) {
	n := uint64(*v)
	x.uint(what, &n, uint64(firstGroup), 1<<62)
	if x.dec != nil {
		*v = record.GroupID(n)
	}
}

func (x *codec) replica(what string, v *record.ReplicaID) {
	unsigned(x, what, v)
	if x.err == nil && (v.Node() < 1 || v.Attempt() == 0) {
		x.fail(what, "is %v, not a replica id", *v)
	}
}

func (x *codec) time(what string, v *int64) { x.int(what, v, 0, math.MaxInt64) }

func (x *codec) bool(what string, v *bool) {
	if x.err != nil {
		return
	}
	if x.enc != nil {
		x.failed(what, x.enc.EncodeBool(*v))
		return
	}
	b, err := x.dec.DecodeBool()
	x.failed(what, err)
	*v = b
}

// raw carries a string of bytes between lo and hi long, whose length is checked before
// memory is taken.
func (x *codec) raw(what string, v *[]byte, lo, hi int) {
	if x.err != nil {
		return
	}
	n := len(*v)
	if x.dec != nil {
		var err error
		if n, err = x.dec.DecodeBytesLen(); x.failed(what, err) {
			return
		}
	}
	if n < lo || n > hi {
		x.fail(what, "has %d bytes, outside %d to %d", n, lo, hi)
		return
	}
	if x.enc != nil {
		x.failed(what, x.enc.EncodeBytes(*v))
		return
	}
	*v = make([]byte, n)
	x.failed(what, x.dec.ReadFull(*v))
}

// str carries text for people and scripts: UTF-8 without control characters, so that it
// can stand in a log line and a terminal as it is.
func (x *codec) str(what string, v *string, lo, hi int) {
	b := []byte(*v)
	x.raw(what, &b, lo, hi)
	if x.err != nil {
		return
	}
	if x.dec != nil {
		*v = string(b)
	}
	if !utf8.Valid(b) || bytes.ContainsFunc(b, unicode.IsControl) {
		x.fail(what, "%.40q has control characters or is not UTF-8", b)
	}
}

func (x *codec) id16(what string, v *[16]byte) {
	b := v[:]
	x.raw(what, &b, 16, 16)
	if x.err == nil && x.dec != nil {
		*v = [16]byte(b)
	}
}

// list carries up to hi elements; no memory is taken for more.
func list[T any](x *codec, what string, v *[]T, hi int, each func(*T)) {
	if x.err != nil {
		return
	}
	n := len(*v)
	if x.dec != nil {
		var err error
		if n, err = x.dec.DecodeArrayLen(); x.failed(what, err) {
			return
		}
	}
	if n < 0 || n > hi {
		x.fail(what, "has %d elements, outside 0 to %d", n, hi)
		return
	}
	if x.enc != nil && x.failed(what, x.enc.EncodeArrayLen(n)) {
		return
	}
	if x.dec != nil {
		*v = nil
		if n > 0 {
			*v = make([]T, n)
		}
	}
	for i := range *v {
		if x.err == nil {
			each(&(*v)[i])
		}
	}
}

// settings carries a map, in the order of its keys so that equal maps are equal bytes.
func (x *codec) settings(what string, v *map[string]string) {
	type setting struct{ key, value string }
	var s []setting
	for k, val := range *v {
		s = append(s, setting{k, val})
	}
	slices.SortFunc(s, func(a, b setting) int { return bytes.Compare([]byte(a.key), []byte(b.key)) })
	list(x, what, &s, maxSettings, func(e *setting) {
		x.str(what, &e.key, 1, maxSettingBytes)
		x.str(what, &e.value, 0, maxSettingBytes)
	})
	if x.err != nil || x.dec == nil {
		return
	}
	*v = nil
	for i, e := range s {
		if i > 0 && e.key <= s[i-1].key {
			x.fail(what, "are not in order: %.40q after %.40q", e.key, s[i-1].key)
			return
		}
		if *v == nil {
			*v = make(map[string]string, len(s))
		}
		(*v)[e.key] = e.value
	}
}
