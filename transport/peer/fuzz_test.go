package peer

import (
	"bytes"
	"errors"
	"net"
	"testing"
	"time"

	"edged/record"
)

// A hello that is accepted says the same when it is written again.
func FuzzParseHello(f *testing.F) {
	f.Add(hello{forControl, identity(1, 1)}.encode())
	f.Add(append(hello{forKnock, identity(7, 3)}.encode(), "of a later version"...))
	f.Add([]byte{version + 1})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHello(b)
		if err != nil {
			return
		}
		if h.id.Node <= 0 || h.id.Boot == 0 || len(h.id.ClusterName) > maxName {
			t.Fatalf("accepted %+v", h)
		}
		if again := h.encode(); !bytes.HasPrefix(b, again) {
			t.Fatalf("read %x, wrote %x", b, again)
		}
	})
}

// An error that is accepted fits a log line and keeps code, retriability and leader when it is sent on.
func FuzzParseError(f *testing.F) {
	f.Add(appendError(nil, record.ErrBusy))
	f.Add(appendError(nil, errors.New("plain")))
	f.Add(appendError(nil, &record.NotLeaderError{Leader: 3, Addr: "a:1", KafkaAddr: "a:2", Epoch: 9}))
	f.Fuzz(func(t *testing.T, b []byte) {
		err, ok := parseError(b)
		if !ok {
			return
		}
		again, ok := parseError(appendError(nil, err))
		if !ok || again.Error() != err.Error()[:min(len(err.Error()), maxErrorText)] && len(err.Error()) < maxErrorText/2 {
			t.Fatalf("read %q, sent on %q", err, again)
		}
		if record.Retriable(again) != record.Retriable(err) {
			t.Fatalf("retriable %v, sent on %v", record.Retriable(err), record.Retriable(again))
		}
	})
}

func FuzzParseCallAndReply(f *testing.F) {
	f.Add(byte(frameCall), callFrame(f.Context(), 1, []byte("x")).body[0])
	f.Add(byte(frameFault), append(make([]byte, 8), appendError(nil, record.ErrBusy)...))
	f.Add(byte(frameAnswer), []byte("12345678rest"))
	f.Fuzz(func(t *testing.T, typ byte, b []byte) {
		if _, patience, payload, err := parseCall(b); err == nil && (patience < 0 || patience > maxPatience || len(payload)+callHead != len(b)) {
			t.Fatalf("patience %v, payload %d of %d", patience, len(payload), len(b))
		}
		if _, r, err := parseReply(typ, b); err == nil && r.payload != nil && r.err != nil {
			t.Fatal("an answer and an error")
		}
	})
}

// script is a connection that brings given bytes and then the end.
type script struct{ bytes.Reader }

func (*script) Write(b []byte) (int, error)      { return len(b), nil }
func (*script) Close() error                     { return nil }
func (*script) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*script) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*script) SetDeadline(time.Time) error      { return nil }
func (*script) SetReadDeadline(time.Time) error  { return nil }
func (*script) SetWriteDeadline(time.Time) error { return nil }

// Whatever follows the magic, reading ends, and no frame above the limit or with a wrong
// checksum comes out.
func FuzzStream(f *testing.F) {
	one := newFrame(frameMessage, []byte("payload"))
	f.Add(append(one.appendHeader(nil), "payload"...), 100)
	f.Add([]byte("\xff\xff\xff\xff\x04garbage"), 1<<20)
	f.Fuzz(func(t *testing.T, b []byte, limit int) {
		limit = max(0, min(limit, 1<<20))
		tr := New(Config{Identity: func() Identity { return identity(1, 1) }, Handler: &recorder{}})
		sc := &script{}
		sc.Reset(b)
		c, err := tr.open(sc)
		if err != nil {
			t.Fatal(err)
		}
		for {
			typ, payload, err := c.next(limit, 0, nil)
			if err != nil {
				break
			}
			if len(payload) > limit || typ < frameHello || typ > frameOpen {
				t.Fatalf("type %d, %d bytes", typ, len(payload))
			}
		}
		_ = tr.Close()
	})
}

// Whatever a stranger says, and whatever an accepted peer says after its handshake, Accept returns.
func FuzzAccept(f *testing.F) {
	f.Add(byte(forControl), []byte{})
	f.Add(byte(forCall), append(callFrame(f.Context(), 1, nil).appendHeader(nil), callFrame(f.Context(), 1, nil).body[0]...))
	f.Add(byte(forData), newFrame(framePing).appendHeader(nil))
	f.Fuzz(func(t *testing.T, p byte, rest []byte) {
		tr := New(Config{Identity: func() Identity { return identity(2, 1) }, Handler: &recorder{}, Logger: quiet})
		h := newFrame(frameHello, hello{purpose(p % 5), identity(1, 1)}.encode())
		sc := &script{}
		sc.Reset(append(newFrame(frameReady).appendHeader(append(h.appendHeader([]byte(Magic)), h.body[0]...)), rest...))
		tr.Accept(sc) // which may be the link's from here on
		bare := &script{}
		bare.Reset(rest)
		tr.Accept(bare)
		_ = tr.Close()
	})
}
