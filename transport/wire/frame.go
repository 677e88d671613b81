package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"edged/record"
	"edged/transport"
)

// Sizes of frames in bytes.
const (
	// FrameSlack is what a frame needs beside the batch or batches that it carries.
	FrameSlack = 64 << 10
	// DefaultMaxFrame takes a batch of the default max.message.bytes, which is also the largest:
	// 1 MiB and Kafka's 12 bytes around it.
	DefaultMaxFrame = 1<<20 + 12 + FrameSlack
	// MaxFrameLimit bounds what a node may be configured to and what a client believes.
	MaxFrameLimit = 128 << 20

	lengthSize = 4
)

// Version is the version of every API so far.
const Version int16 = 1

// FrameSizeError tells of a length that no frame can have. Whatever follows it on the
// connection cannot be understood.
type FrameSizeError struct {
	Size, Limit uint32
}

func (e *FrameSizeError) Error() string {
	return fmt.Sprintf("a frame of %d bytes, this connection takes 1 to %d; is the other side speaking edged's native protocol?", e.Size, e.Limit)
}

// readLength reads the length in front of a frame and checks it.
func readLength(r io.Reader, limit int32) (int32, error) {
	var b [lengthSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, err
	}
	n := binary.BigEndian.Uint32(b[:])
	if n == 0 || n > uint32(limit) {
		return 0, &FrameSizeError{Size: n, Limit: uint32(limit)}
	}
	return int32(n), nil
}

// ReadFrame reads one frame of at most limit bytes, without its length.
// Errors are *FrameSizeError and those of r.
func ReadFrame(r io.Reader, limit int32) ([]byte, error) {
	n, err := readLength(r, limit)
	if err != nil {
		return nil, err
	}
	frame := make([]byte, n)
	if _, err := io.ReadFull(r, frame); err != nil {
		return nil, unexpected(err)
	}
	return frame, nil
}

// unexpected says that a frame ended in its middle.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Frame is a whole frame, ready to be written: pieces that follow each other. Pieces may
// alias the batches of the message, which must not change until it is written.
type Frame struct {
	Pieces net.Buffers
	Size   int64 // of all pieces
}

// finish puts the length in front and cuts the output around its blobs.
func (w *walker) finish() (Frame, error) {
	if w.err != nil {
		return Frame{}, w.err
	}
	out := w.out.Bytes()
	f := Frame{Size: int64(len(out))}
	from := 0
	for _, b := range w.blobs {
		f.Pieces = append(f.Pieces, out[from:b.at], b.data)
		f.Size += int64(len(b.data))
		from = b.at
	}
	if from < len(out) {
		f.Pieces = append(f.Pieces, out[from:])
	}
	if f.Size-lengthSize > MaxFrameLimit {
		return Frame{}, fmt.Errorf("%w: a frame of %d bytes, the most is %d", record.ErrTooLarge, f.Size, MaxFrameLimit)
	}
	binary.BigEndian.PutUint32(out, uint32(f.Size-lengthSize))
	return f, nil
}

// EncodeRequest makes the frame of a request. Correlation comes back with the answer and
// is not 0: that stands for the connection itself.
func EncodeRequest(api API, correlation uint32, body Message) (Frame, error) {
	w := newWriter()
	w.out.Write(make([]byte, lengthSize))
	w.fail(w.enc.EncodeArrayLen(4))
	w.fail(w.enc.EncodeInt(int64(api)))
	w.fail(w.enc.EncodeInt(int64(Version)))
	w.fail(w.enc.EncodeInt(int64(correlation)))
	w.message(body)
	f, err := w.finish()
	if err != nil {
		return Frame{}, fmt.Errorf("%w: %s: %w", record.ErrInvalidRequest, api, err)
	}
	return f, nil
}

// encodeResponse makes the frame of an answer. A nil body is nil on the wire.
func encodeResponse(correlation uint32, failure error, body Message) (Frame, error) {
	w := newWriter()
	w.out.Write(make([]byte, lengthSize))
	w.fail(w.enc.EncodeArrayLen(3))
	w.fail(w.enc.EncodeInt(int64(correlation)))
	w.writeFault(failure)
	if body == nil {
		w.fail(w.enc.EncodeNil())
	} else {
		w.message(body)
	}
	return w.finish()
}

// requestHeader is what stands in front of a request's body.
type requestHeader struct {
	api         API
	version     int16
	correlation uint32
	extra       int // values behind the body, of a newer client
}

// parseRequest reads the header and leaves the walker at the body.
func parseRequest(frame []byte) (requestHeader, *walker, error) {
	w := newReader(frame, maxRequestElements)
	var h requestHeader
	n := w.arrayLength()
	if w.err == nil && n < 4 {
		w.fail(fmt.Errorf("an array of %d values, a request has 4: api, version, correlation, body", n))
	}
	correlation := int64(0)
	w.fields = 3
	num(w, &h.api)
	num(w, &h.version)
	num(w, &correlation)
	if w.err == nil && (correlation <= 0 || correlation > maxCorrelation) {
		w.fail(fmt.Errorf("the correlation is %d, it is 1 to %d", correlation, uint32(maxCorrelation)))
	}
	h.correlation, h.extra = uint32(correlation), n-4
	return h, w, w.err
}

const maxCorrelation = 1<<32 - 1

// Response is an answer whose body has not been read yet. It aliases its frame.
type Response struct {
	Correlation uint32 // of the request, 0 if the node could not tell which one failed
	Err         error  // what the node answered: *record.Error or *record.NotLeaderError
	body        *walker
}

// ParseResponse reads the head of an answer. After an error the connection is of no use.
func ParseResponse(frame []byte) (*Response, error) {
	w := newReader(frame, maxResponseElements)
	n := w.arrayLength()
	if w.err == nil && n < 3 {
		w.fail(fmt.Errorf("an array of %d values, an answer has 3: correlation, error, body", n))
	}
	correlation := int64(0)
	r := &Response{body: w}
	w.fields = 2
	num(w, &correlation)
	w.fault(&r.Err)
	if w.err == nil && (correlation < 0 || correlation > maxCorrelation) {
		w.fail(fmt.Errorf("the correlation is %d", correlation))
	}
	if w.err != nil {
		return nil, fmt.Errorf("damaged answer: %w", w.err)
	}
	r.Correlation = uint32(correlation)
	return r, nil
}

// Decode reads the body. A node may send one with an error too; what it did not send
// stays zero. Byte slices in it alias the frame. Call it once.
func (r *Response) Decode(body Message) error {
	r.body.message(body)
	if r.body.err != nil {
		return fmt.Errorf("damaged answer: %w", r.body.err)
	}
	return nil
}

// WritePieces is transport.WritePieces, for the client.
func WritePieces(nc net.Conn, pieces net.Buffers, chunk int, timeout time.Duration, moved func(n int64)) error {
	return transport.WritePieces(nc, pieces, chunk, timeout, moved)
}
