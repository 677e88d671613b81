package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"net"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

// fill puts something into every field of a request, so that every part of it is on the wire.
func fill(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		fill(v.Elem(), depth)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && v.Type().Field(i).Name != "Version" && v.Type().Field(i).Name != "UnknownTags" {
				fill(v.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(batch(record.None, "a"))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i), depth+1)
		}
	case reflect.String:
		v.SetString("t")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	}
}

// requestBytes is a whole request of a key in a version, as a client sends it.
func requestBytes(key, version int16) []byte {
	req := kmsg.RequestForKey(key)
	req.SetVersion(version)
	fill(reflect.ValueOf(req), 0)
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("fuzz")).AppendRequest(nil, req, 1)
}

// converse sends bytes to a server over a connection in memory and reads all that comes back, until
// the server closes it or everything is answered.
func converse(s *Server, in []byte) []byte {
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() { s.Handler("")(theirs); close(done) }()
	var out bytes.Buffer
	read, through := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(read)
		told := false
		for buf := make([]byte, 4<<10); ; {
			n, err := ours.Read(buf)
			out.Write(buf[:n])
			if !told && bytes.Contains(out.Bytes(), []byte{0, 0, 0, 99, 0, 0}) {
				told = true
				close(through)
			}
			if err != nil {
				return
			}
		}
	}()
	_ = ours.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	_, _ = ours.Write(in)
	// One more request that is sound: its answer means that all before it is through.
	_, _ = ours.Write([]byte{0, 0, 0, 10, 0, keyApiVersions, 0, 0, 0, 0, 0, 99, 255, 255})
	select {
	case <-read:
	case <-through:
	case <-time.After(20 * time.Millisecond):
	}
	_ = ours.Close()
	<-read
	<-done
	return out.Bytes()
}

// FuzzConversation: whatever bytes a client sends, the server neither panics nor hangs nor keeps
// memory, and what it answers is framed.
func FuzzConversation(f *testing.F) {
	for key := range int16(maxKey + 1) {
		if a := apis[key]; a.serve != nil {
			f.Add(requestBytes(key, a.min))
			f.Add(requestBytes(key, a.max))
		}
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	many := kmsg.NewPtrCreatePartitionsRequest()
	many.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "t", Count: 1 << 30}}
	f.Add(kmsg.NewRequestFormatter().AppendRequest(nil, many, 1))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, largest := range []int32{0, 64} { // as a whole, and in parts
			fuzzConversation(t, in, largest)
		}
	})
}

func fuzzConversation(t *testing.T, in []byte, maxRequest int32) {
	broker := newFake()
	broker.topic("t", 2).parts[0].add(batch(record.None, "v"))
	s := NewServer(Config{Broker: broker, Groups: &fakeGroups{}, AutoCreate: true, MaxRequest: maxRequest, Logger: slog.New(slog.DiscardHandler)})
	out := converse(s, in)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if m := s.Metrics(); m.RequestBytes != 0 || m.ResponseBytes != 0 || m.Connections != 0 {
		t.Fatalf("left behind: %+v", m)
	}
	for len(out) > 0 {
		if len(out) < 8 || int(binary.BigEndian.Uint32(out)) > len(out)-4 {
			return // cut off by the end of the conversation
		}
		out = out[4+binary.BigEndian.Uint32(out):]
	}
}

// FuzzDecode: no body of a request takes more memory than is counted for it.
func FuzzDecode(f *testing.F) {
	for key := range int16(maxKey + 1) {
		if a := apis[key]; a.serve != nil {
			for v := a.min; v <= a.max; v++ {
				f.Add(key, v, requestBytes(key, v)[12:])
			}
		}
	}
	s := NewServer(Config{Broker: newFake(), Groups: &fakeGroups{}, Logger: slog.New(slog.DiscardHandler)})
	f.Fuzz(func(t *testing.T, key, version int16, rest []byte) {
		decodeWithin(t, s, key, version, rest)
	})
}

// decodeWithin decodes a request and measures what that took.
func decodeWithin(t testing.TB, s *Server, key, version int16, rest []byte) {
	frame := binary.BigEndian.AppendUint16(nil, uint16(key))
	frame = binary.BigEndian.AppendUint16(frame, uint16(version))
	frame = append(append(frame, 0, 0, 0, 1), rest...)
	q := &call{conn: &conn{s: s, ctx: context.Background()}, size: int32(len(frame))}
	if len(frame) < minRequest || q.identify(frame) != nil || key == keyApiVersions && version > q.api.max {
		return
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := q.decode(frame)
	runtime.ReadMemStats(&after)
	factor := plainFactor
	if err != nil {
		factor = decodeFactor
	}
	limit := uint64(requestCost + factor*len(frame) + 16<<10) // and what the test itself takes
	if got := after.TotalAlloc - before.TotalAlloc; got > limit {
		t.Fatalf("%s version %d: %d bytes take %d in memory, counted are %d (%v)", q.api.name, version, len(frame), got, limit, err)
	}
}

// TestDecode_memoryOfHugeCounts: the counts that cost most, in every place where a count stands.
func TestDecode_memoryOfHugeCounts(t *testing.T) {
	s := NewServer(Config{Broker: newFake(), Groups: &fakeGroups{}, Logger: slog.New(slog.DiscardHandler)})
	for key := range int16(maxKey + 1) {
		a := apis[key]
		if a.serve == nil {
			continue
		}
		for _, v := range []int16{a.min, a.max} {
			whole := requestBytes(key, v)[12:]
			for at := range whole {
				for _, count := range [][]byte{{0x7f, 0xff, 0xff, 0xff}, {0, 0, 0x20, 0}, {0, 1, 0, 0}, {0xff, 0xff, 0xff, 0xff, 7}, {0x80, 0x80, 4}, {0x80, 0x80, 1}} {
					bad := append(append([]byte{}, whole[:at]...), count...)
					bad = append(bad, make([]byte, 64<<10)...)
					decodeWithin(t, s, key, v, bad)
				}
				if at > 80 {
					break
				}
			}
		}
	}
}
