package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy/xerial"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codec is how the records of a batch are compressed. The numbers are Kafka's.
type Codec int8

// All codecs there are. Snappy is written in the xerial framing, as Java clients do,
// and read with and without it; LZ4 is the frame format.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

func (c Codec) String() string {
	switch c {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return fmt.Sprintf("codec %d", int8(c))
}

func (c Codec) known() bool { return c >= None && c <= Zstd }

// MaxDecompressed bounds in bytes what the records of one batch may decompress to. A
// few KiB from a stranger can claim gigabytes; a small node has to survive reading them.
const MaxDecompressed = 32 << 20

var (
	errTooLong = fmt.Errorf("more than %d bytes come out", MaxDecompressed)
	errWindow  = fmt.Errorf("its window is larger than %d bytes; compress at level 20 or below", MaxDecompressed)
)

// Coders hold tens of KiB to MiB of tables each, so they are kept for the next batch and
// left to the garbage collector when a node falls quiet. None of them has goroutines.
var (
	gzipWriters = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}
	gzipReaders = sync.Pool{New: func() any { return new(gzip.Reader) }}
	lz4Writers  = sync.Pool{New: func() any { return newLZ4Writer() }}
	lz4Readers  = sync.Pool{New: func() any { return lz4.NewReader(nil) }}
	zstdWriters = sync.Pool{New: func() any { return newZstdWriter() }}
	zstdReaders = sync.Pool{New: func() any { return newZstdReader() }}
)

// newLZ4Writer uses small blocks to keep memory low, and no checksum: the batch has its CRC.
func newLZ4Writer() *lz4.Writer {
	w := lz4.NewWriter(nil)
	must(w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false)))
	return w
}

// zstdWindow is how far back the encoder looks. More costs memory and gains little on
// batches of at most a few MiB.
const zstdWindow = 1 << 20

func newZstdWriter() *zstd.Encoder {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
		zstd.WithWindowSize(zstdWindow), zstd.WithEncoderCRC(false))
	must(err)
	return w
}

// newZstdReader accepts no window above MaxDecompressed either, which is that of level 20:
// the library has one limit for both.
func newZstdReader() *zstd.Decoder {
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(MaxDecompressed))
	must(err)
	return r
}

// must is for settings that are constants here: they are wrong always or never.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// compress appends src in the codec's format to dst, which has to be empty.
func compress(c Codec, dst, src []byte) ([]byte, error) {
	switch c {
	case Gzip:
		w := gzipWriters.Get().(*gzip.Writer)
		defer gzipWriters.Put(w)
		return writeAll(w, dst, src)
	case Snappy:
		return xerial.Encode(dst, src), nil
	case LZ4:
		w := lz4Writers.Get().(*lz4.Writer)
		defer lz4Writers.Put(w)
		return writeAll(w, dst, src)
	case Zstd:
		w := zstdWriters.Get().(*zstd.Encoder)
		defer zstdWriters.Put(w)
		return w.EncodeAll(src, dst), nil
	}
	return nil, fmt.Errorf("unknown compression codec %d", int8(c))
}

func writeAll(w interface {
	io.WriteCloser
	Reset(io.Writer)
}, dst, src []byte) ([]byte, error) {
	out := bytes.NewBuffer(dst)
	w.Reset(out)
	if _, err := w.Write(src); err != nil {
		return nil, err
	}
	err := w.Close()
	w.Reset(nil) // the pool must not keep the buffer
	return out.Bytes(), err
}

// decompress gives the plain bytes in memory of their own, at most MaxDecompressed.
// Memory grows with what really comes out, never with what a header claims.
func decompress(c Codec, src []byte) ([]byte, error) {
	if len(src) > MaxDecompressed {
		return nil, errTooLong
	}
	in := bytes.NewReader(src)
	defer in.Reset(nil) // the pool must not keep src
	switch c {
	case Gzip:
		r := gzipReaders.Get().(*gzip.Reader)
		defer gzipReaders.Put(r)
		if err := r.Reset(in); err != nil {
			return nil, err
		}
		return readAll(r, len(src))
	case Snappy:
		return decompressSnappy(src)
	case LZ4:
		r := lz4Readers.Get().(*lz4.Reader)
		defer lz4Readers.Put(r)
		r.Reset(in)
		return readAll(r, len(src))
	case Zstd:
		r := zstdReaders.Get().(*zstd.Decoder)
		defer zstdReaders.Put(r)
		out, err := r.DecodeAll(src, nil)
		switch {
		case errors.Is(err, zstd.ErrDecoderSizeExceeded):
			err = errTooLong
		case errors.Is(err, zstd.ErrWindowSizeExceeded):
			err = errWindow
		}
		return out, err
	}
	return nil, fmt.Errorf("unknown compression codec %d", int8(c))
}

// firstGuess is how many times larger than its input a buffer for plain bytes starts.
const firstGuess = 4

func readAll(r io.Reader, compressed int) ([]byte, error) {
	out := bytes.NewBuffer(make([]byte, 0, firstGuess*compressed+bytes.MinRead))
	n, err := out.ReadFrom(io.LimitReader(r, MaxDecompressed+1))
	if err == nil && n > MaxDecompressed {
		err = errTooLong
	}
	return out.Bytes(), err
}

// snappyDensest is what Snappy can gain at most, in bytes out per byte in: its densest
// element makes 64 bytes of 3. A claim above it is a lie and gets no memory.
const snappyDensest = 22

// decompressSnappy does not trust the length in front of the data. The buffer grows from
// a guess until it is larger than the format could fill from so few bytes.
func decompressSnappy(src []byte) ([]byte, error) {
	most := min(snappyDensest*len(src), MaxDecompressed)
	for size := firstGuess * len(src); ; size *= 2 {
		size = min(size, most)
		out, err := xerial.DecodeCapped(make([]byte, 0, size), src)
		switch {
		case !errors.Is(err, xerial.ErrDstTooSmall):
			return out, err
		case size == MaxDecompressed:
			return nil, errTooLong
		case size == most:
			return nil, xerial.ErrMalformed
		}
	}
}
