package wire

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// Bounds on what a message may hold, checked before anything is allocated for it.
const (
	// MaxString bounds a string in bytes: names, addresses, setting values, error messages.
	MaxString = 4096
	// maxRequestElements bounds the elements of all lists and maps of one request together.
	// The size of the frame alone is no bound: one byte can claim an element of 100.
	maxRequestElements = 16 << 10
	// maxResponseElements is the same for a client: partitions of a large cluster times replicas.
	maxResponseElements = 1 << 20
	// maxSkipDepth bounds how deeply values that we do not know may be nested.
	maxSkipDepth = 16
	// maxErrorFields bounds the map that an error is.
	maxErrorFields = 32
	// inlineBlob is the size in bytes from which a blob is passed on without a copy.
	inlineBlob = 1024
	// maxFields is what the one byte in front of a message can count.
	maxFields = 15
)

// Message is a request or an answer: an array of fields in a fixed order.
//
// walk names the fields in that order, once for both directions, so that encoder and
// decoder cannot differ. Fields are only ever appended: a reader skips those it does not
// know, and leaves at zero those that an older writer did not send.
type Message interface {
	walk(w *walker)
}

// walker writes or reads the fields of messages. After the first error it does nothing.
type walker struct {
	err    error
	fields int // writing: fields of this message so far. Reading: fields that are left

	enc   *msgpack.Encoder // nil while reading
	out   bytes.Buffer
	blobs []blob

	dec      *msgpack.Decoder
	src      bytes.Reader
	frame    []byte // all that src reads
	elements int    // list elements that may still be allocated
}

// blob is data that stands at a place of the output without being copied into it.
type blob struct {
	at   int
	data []byte
}

func newWriter() *walker {
	w := &walker{}
	w.enc = msgpack.NewEncoder(&w.out)
	return w
}

func newReader(frame []byte, elements int) *walker {
	w := &walker{frame: frame, elements: elements}
	w.src.Reset(frame)
	w.dec = msgpack.NewDecoder(&w.src)
	return w
}

func (w *walker) fail(err error) {
	if w.err != nil || err == nil {
		return
	}
	if w.enc == nil {
		err = fmt.Errorf("at byte %d: %w", len(w.frame)-w.src.Len(), err)
	}
	w.err = err
}

// next tells whether the walker is to write or read one more field. When reading it is
// false once the sender's fields are used up: the rest stays as it is.
func (w *walker) next() bool {
	switch {
	case w.err != nil:
		return false
	case w.enc != nil:
		w.fields++
		return true
	case w.fields <= 0:
		return false
	}
	w.fields--
	return true
}

// message is a whole message: its length and its fields.
func (w *walker) message(m Message) {
	if w.err != nil {
		return
	}
	outer := w.fields
	if w.enc != nil {
		at := w.out.Len()
		w.out.WriteByte(msgpcode.FixedArrayLow)
		w.fields = 0
		m.walk(w)
		if w.fields > maxFields {
			w.fail(fmt.Errorf("%T has %d fields, more than %d", m, w.fields, maxFields))
		}
		w.out.Bytes()[at] |= byte(w.fields)
	} else {
		w.fields = w.arrayLength()
		m.walk(w)
		w.skip(w.fields, maxSkipDepth)
	}
	w.fields = outer
}

// nested is a message that is a field of another.
func (w *walker) nested(m Message) {
	if w.next() {
		w.message(m)
	}
}

// arrayLength reads an array's length. nil counts as empty.
func (w *walker) arrayLength() int { return w.length(w.dec.DecodeArrayLen) }

// length reads a length and checks it against the bytes that are left. nil is looked for
// here: the library's -1 for it is also what 4 Gi become on 32 bits.
func (w *walker) length(read func() (int, error)) int {
	if w.err != nil {
		return 0
	}
	if w.peekNil() {
		w.fail(w.dec.DecodeNil())
		return 0
	}
	n, err := read()
	if err != nil {
		w.fail(err)
		return 0
	}
	if n < 0 || n > w.src.Len() {
		w.fail(fmt.Errorf("a list claims %d elements, %d bytes are left", uint32(n), w.src.Len()))
		return 0
	}
	return n
}

// list reads or writes a list whose elements each handles. Read lists are never nil.
func list[T any](w *walker, xs *[]T, each func(*T)) {
	if !w.next() {
		return
	}
	if w.enc != nil {
		w.fail(w.enc.EncodeArrayLen(len(*xs)))
		for i := range *xs {
			w.element(func() { each(&(*xs)[i]) })
		}
		return
	}
	n := w.arrayLength()
	if w.elements -= n; w.elements < 0 {
		w.fail(fmt.Errorf("the message has too many list elements"))
		return
	}
	*xs = make([]T, 0, min(n, 64))
	for range n {
		if w.err != nil {
			return
		}
		var x T
		w.element(func() { each(&x) })
		*xs = append(*xs, x)
	}
}

// element makes one value outside of the count of the message's fields.
func (w *walker) element(each func()) {
	outer := w.fields
	w.fields = 1
	each()
	w.fields = outer
}

// nullableList is list where nil and empty mean different things.
func nullableList[T any](w *walker, xs *[]T, each func(*T)) {
	if w.enc == nil && w.fields > 0 && w.peekNil() {
		w.next()
		w.fail(w.dec.DecodeNil())
		*xs = nil
		return
	}
	if w.enc != nil && *xs == nil {
		w.next()
		w.fail(w.enc.EncodeNil())
		return
	}
	list(w, xs, each)
}

func (w *walker) peekNil() bool {
	c, err := w.dec.PeekCode()
	return err == nil && c == msgpcode.Nil
}

// num is any whole number; what does not fit the field is an error.
func num[T ~int16 | ~int32 | ~int64 | ~uint16 | ~uint64](w *walker, v *T) {
	if !w.next() {
		return
	}
	if w.enc != nil {
		w.fail(w.enc.EncodeInt(int64(*v)))
		return
	}
	n, err := w.dec.DecodeInt64()
	if err == nil && (int64(T(n)) != n || (n < 0) != (T(n) < 0)) {
		err = fmt.Errorf("%d does not fit the field", n)
	}
	w.fail(err)
	if w.err == nil {
		*v = T(n)
	}
}

func (w *walker) boolean(v *bool) {
	if !w.next() {
		return
	}
	if w.enc != nil {
		w.fail(w.enc.EncodeBool(*v))
		return
	}
	b, err := w.dec.DecodeBool()
	w.fail(err)
	*v = b
}

// time is a point in time as ms since 1970; the zero time is 0.
func (w *walker) time(t *time.Time) {
	var ms int64
	if w.enc != nil && !t.IsZero() {
		ms = t.UnixMilli()
	}
	num(w, &ms)
	if w.enc == nil && w.err == nil && ms != 0 {
		*t = time.UnixMilli(ms).UTC()
	}
}

func (w *walker) str(s *string) {
	if !w.next() {
		return
	}
	if w.enc != nil {
		if len(*s) > MaxString {
			w.fail(fmt.Errorf("a string of %d bytes, the most is %d", len(*s), MaxString))
			return
		}
		w.fail(w.enc.EncodeString(*s))
		return
	}
	*s = string(w.take(MaxString))
}

// blob is raw bytes. When reading they alias the frame.
func (w *walker) blob(b *[]byte) {
	if !w.next() {
		return
	}
	if w.enc == nil {
		*b = w.take(len(w.frame))
		return
	}
	w.fail(w.enc.EncodeBytesLen(len(*b)))
	if len(*b) < inlineBlob {
		w.out.Write(*b)
		return
	}
	w.blobs = append(w.blobs, blob{at: w.out.Len(), data: *b})
}

// take reads a string or binary of at most limit bytes and gives them in place.
func (w *walker) take(limit int) []byte {
	if w.err != nil {
		return nil
	}
	if w.peekNil() {
		w.fail(w.dec.DecodeNil())
		return nil
	}
	n, err := w.dec.DecodeBytesLen()
	switch {
	case err != nil:
		w.fail(err)
	case n < 0 || n > w.src.Len():
		w.fail(fmt.Errorf("a value claims %d bytes, %d are left", uint32(n), w.src.Len()))
	case n > limit:
		w.fail(fmt.Errorf("a string of %d bytes, the most is %d", n, limit))
	default:
		at := len(w.frame) - w.src.Len()
		_, err = w.src.Seek(int64(n), io.SeekCurrent)
		w.fail(err)
		return w.frame[at : at+n : at+n]
	}
	return nil
}

// stringMap is a map of settings. It is written in the order of its keys.
func (w *walker) stringMap(m *map[string]string) {
	if !w.next() {
		return
	}
	if w.enc != nil {
		w.fail(w.enc.EncodeMapLen(len(*m)))
		for _, k := range slices.Sorted(maps.Keys(*m)) {
			v := (*m)[k]
			w.element(func() { w.str(&k); w.str(&v) })
		}
		return
	}
	n := w.mapLength()
	if w.elements -= n; w.elements < 0 {
		w.fail(fmt.Errorf("the message has too many list elements"))
		return
	}
	*m = make(map[string]string, min(n, 64))
	for range n {
		k, v := string(w.take(MaxString)), string(w.take(MaxString))
		if w.err != nil {
			return
		}
		(*m)[k] = v
	}
}

// mapLength reads a map's length. The library would also take an extension in front of it.
func (w *walker) mapLength() int {
	if w.err != nil {
		return 0
	}
	if c, err := w.dec.PeekCode(); err != nil || msgpcode.IsExt(c) {
		w.fail(fmt.Errorf("a map was expected"))
		return 0
	}
	return w.length(w.dec.DecodeMapLen)
}

// skip passes over n values of any kind.
func (w *walker) skip(n, depth int) {
	for range n {
		if w.err != nil {
			return
		}
		w.skipOne(depth)
	}
}

// skipOne does not leave the walking to the library: that recurses as deeply as a
// stranger likes and allocates what it skips.
func (w *walker) skipOne(depth int) {
	c, err := w.dec.PeekCode()
	switch {
	case err != nil:
		w.fail(err)
	case depth == 0:
		w.fail(fmt.Errorf("values nested more than %d deep", maxSkipDepth))
	case msgpcode.IsFixedArray(c) || c == msgpcode.Array16 || c == msgpcode.Array32:
		w.skip(w.arrayLength(), depth-1)
	case msgpcode.IsFixedMap(c) || c == msgpcode.Map16 || c == msgpcode.Map32:
		n := w.mapLength()
		w.skip(n, depth-1)
		w.skip(n, depth-1)
	case msgpcode.IsString(c) || msgpcode.IsBin(c):
		w.take(len(w.frame))
	case msgpcode.IsExt(c):
		_, n, err := w.dec.DecodeExtHeader()
		if err == nil && (n < 0 || n > w.src.Len()) {
			err = fmt.Errorf("an extension claims %d bytes, %d are left", uint32(n), w.src.Len())
		}
		w.fail(err)
		if w.err == nil {
			_, err = w.src.Seek(int64(n), io.SeekCurrent)
			w.fail(err)
		}
	default:
		w.fail(w.dec.Skip())
	}
}
