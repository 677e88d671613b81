package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// headerSize is the length of a frame's header: length u32, type u8, crc32c u32.
const headerSize = 9

const (
	frameHello byte = iota + 1
	frameRefuse
	frameReady
	frameMessage
	frameCall
	frameAnswer
	frameFault
	framePing
	framePong
	frameOpen
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errDamaged = errors.New("a frame is damaged: checksum mismatch")

// frame is one frame to be sent. Its parts are sent one after the other, uncopied.
type frame struct {
	typ  byte
	body [][]byte
	size int64 // header and body
}

func newFrame(typ byte, body ...[]byte) frame {
	f := frame{typ: typ, body: body, size: headerSize}
	for _, b := range body {
		f.size += int64(len(b))
	}
	return f
}

// appendHeader adds the header of f to buf. The checksum is taken here, by the writer, and not
// where the frame is queued: that may be the core.
func (f frame) appendHeader(buf []byte) []byte {
	sum := crc32.Update(0, castagnoli, []byte{f.typ})
	for _, b := range f.body {
		sum = crc32.Update(sum, castagnoli, b)
	}
	buf = binary.BigEndian.AppendUint32(buf, uint32(f.size-headerSize))
	buf = append(buf, f.typ)
	return binary.BigEndian.AppendUint32(buf, sum)
}

// header is the head of a frame that arrives.
type header struct {
	length int
	typ    byte
	sum    uint32
}

// parseHeader reads the headerSize bytes of b. limit is in bytes of payload.
func parseHeader(b []byte, limit int) (header, error) {
	n := binary.BigEndian.Uint32(b)
	if uint64(n) > uint64(limit) {
		return header{}, fmt.Errorf("a frame of %d bytes is longer than the limit of %d", n, limit)
	}
	h := header{length: int(n), typ: b[4], sum: binary.BigEndian.Uint32(b[5:])}
	if h.typ < frameHello || h.typ > frameOpen {
		return header{}, fmt.Errorf("unknown frame type %d", h.typ)
	}
	return h, nil
}

func (h header) check(payload []byte) error {
	if crc32.Update(crc32.Update(0, castagnoli, []byte{h.typ}), castagnoli, payload) != h.sum {
		return errDamaged
	}
	return nil
}
