package groups

import (
	"encoding/binary"
	"fmt"

	"edged/record"
)

// codec carries values to or from bytes, so that each struct describes its layout and its bounds
// once, for both directions. Numbers are varints; strings and lists carry their length in front,
// which is checked before memory is taken. The first fault sticks and the rest does nothing.
// Encoding writes to no value, so that others may read them meanwhile.
type codec struct {
	out    []byte
	in     []byte
	decode bool
	err    error
}

func encoder() *codec         { return &codec{} }
func decoder(b []byte) *codec { return &codec{in: b, decode: true} }

// fail records the first fault; what names the field.
func (x *codec) fail(what, format string, args ...any) {
	if x.err == nil {
		x.err = fmt.Errorf("%s %s: %w", what, fmt.Sprintf(format, args...), record.ErrInvalidRequest)
	}
}

// end checks that decoding has used every byte.
func (x *codec) end() {
	if x.err == nil && len(x.in) > 0 {
		x.fail("the end", "is followed by %d more bytes", len(x.in))
	}
}

// uint carries an unsigned number of at most hi. A number has one encoding only, so that equal
// bytes and equal values are the same.
func (x *codec) uint(what string, v *uint64, hi uint64) {
	if x.err != nil {
		return
	}
	if x.decode {
		n, size := binary.Uvarint(x.in)
		if size <= 0 || size > 1 && x.in[size-1] == 0 {
			x.fail(what, "is not a number")
			return
		}
		x.in, *v = x.in[size:], n
	}
	if *v > hi {
		x.fail(what, "is %d, more than %d", *v, hi)
	} else if !x.decode {
		x.out = binary.AppendUvarint(x.out, *v)
	}
}

// number carries any number type between 0 and hi.
func number[T ~uint8 | ~int32 | ~int64 | ~uint64](x *codec, what string, v *T, hi T) {
	n := uint64(*v)
	if x.uint(what, &n, uint64(hi)); x.decode {
		*v = T(n)
	}
}

// signed carries any signed number, small ones in few bytes.
func signed[T ~int32 | ~int64](x *codec, what string, v *T) {
	n := uint64(*v)<<1 ^ uint64(int64(*v)>>63)
	x.uint(what, &n, 1<<64-1)
	if !x.decode {
		return
	}
	m := int64(n>>1) ^ -int64(n&1)
	if *v = T(m); int64(*v) != m {
		x.fail(what, "is %d, too large", m)
	}
}

// length carries a length between lo and hi and checks that a decoder has as many bytes.
func (x *codec) length(what string, n, lo, hi int) int {
	u := uint64(n)
	x.uint(what, &u, uint64(hi))
	switch {
	case x.err != nil:
	case u < uint64(lo):
		x.fail(what, "has %d bytes, fewer than %d", u, lo)
	case x.decode && u > uint64(len(x.in)):
		x.fail(what, "is cut short")
	}
	return int(u)
}

// str carries a string of lo to hi bytes, whatever they are: clients choose them.
func (x *codec) str(what string, v *string, lo, hi int) {
	n := x.length(what, len(*v), lo, hi)
	switch {
	case x.err != nil:
	case x.decode:
		*v, x.in = string(x.in[:n]), x.in[n:]
	default:
		x.out = append(x.out, *v...)
	}
}

// ascends checks that names stand in order, each once.
func (x *codec) ascends(last *string, name string) {
	if x.err == nil && name <= *last {
		x.fail("topic", "%.80q is not in order", name)
	}
	*last = name
}

// bytes carries up to hi bytes. Decoded ones are a copy: what an entry came in lives shorter.
func (x *codec) bytes(what string, v *[]byte, hi int) {
	n := x.length(what, len(*v), 0, hi)
	switch {
	case x.err != nil:
	case x.decode:
		*v, x.in = append([]byte{}, x.in[:n]...), x.in[n:]
	default:
		x.out = append(x.out, *v...)
	}
}

// list carries up to hi elements of least bytes and more, so that no memory is taken for more
// elements than the input can hold.
func list[T any](x *codec, what string, v *[]T, hi, least int, each func(*T)) {
	n := uint64(len(*v))
	x.uint(what, &n, uint64(hi))
	if x.err != nil {
		return
	}
	if x.decode {
		if n > uint64(len(x.in)/least) {
			x.fail(what, "is cut short")
			return
		}
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
