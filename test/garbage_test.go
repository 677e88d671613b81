//go:build linux

package test

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// garbage is what a port may get from scanners, lost clients and the curious.
func garbage(t testing.TB) map[string][]byte {
	noise := make([]byte, 64<<10)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	length := func(n uint32, rest ...byte) []byte { return append(binary.BigEndian.AppendUint32(nil, n), rest...) }
	return map[string][]byte{
		"noise":                  noise,
		"zeros":                  make([]byte, 4096),
		"ones":                   bytes.Repeat([]byte{0xff}, 4096),
		"HTTP":                   []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"TLS":                    {0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03},
		"length 0":               length(0),
		"length 2 GiB":           length(1<<31, 0x94),
		"length 4 GiB - 1":       length(1<<32-1, 0x94),
		"length 1 MiB, then end": length(1<<20, 0x94),
		"array of 4 Gi":          length(5, 0xdd, 0xff, 0xff, 0xff, 0xff),
		"string of 4 Gi":         length(8, 0x94, 0x01, 0x01, 0xdb, 0xff, 0xff, 0xff, 0xff),
		"nested arrays":          length(1024, bytes.Repeat([]byte{0x91}, 1024)...),
		"peer magic alone":       []byte("EDGP"),
		"peer magic, noise":      append([]byte("EDGP"), noise[:4096]...),
		"peer magic, 4 GiB":      append([]byte("EDGP"), length(1<<32-1)...),
		"peer magic, 8 MiB":      append([]byte("EDGP"), length(8<<20, noise[:1000]...)...),
		"memberlist label":       append([]byte{244, 255}, noise[:300]...),
		"memberlist push/pull":   append([]byte{6}, noise[:300]...),
		"one byte":               {0},
	}
}

// Whatever comes in at any port, the node closes what it cannot understand, counts it, and goes
// on serving, with no more memory than before.
func TestGarbage_onEveryPortIsClosedAndCounted(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	c.createTopic("t", 3, nil)
	l := c.startLoad("t", loadConfig{})
	l.awaitAcks(50)
	n := c.nodes[0]
	before, bad := n.rss(), n.metric("edged_bad_frames_total")
	for name, bytes := range garbage(t) {
		for port, addr := range map[string]string{"native": n.addr.Native, "gossip": n.addr.Gossip, "http": n.addr.HTTP, "kafka": n.addr.Kafka} {
			if addr == "" {
				continue
			}
			for range 3 {
				poke(t, port+": "+name, addr, bytes)
			}
		}
		datagram(t, n.addr.Gossip, bytes)
	}
	if now := n.metric("edged_bad_frames_total"); now < bad+10 {
		t.Errorf("bad frames counted: %v before, %v after", bad, now)
	}
	if grown := n.rss() - before; grown > 64<<20 && !raced {
		t.Errorf("the node has grown by %d MiB", grown>>20)
	}
	l.awaitAcks(100)
	c.awaitWhole("t")
	r := l.finish()
	t.Log(r)
	if len(r.errs) > 0 {
		t.Errorf("%d records failed, the first: %v", len(r.errs), r.errs[0])
	}
}

// poke writes bytes, ends its side, and waits for the node to end the other.
func poke(t *testing.T, what, addr string, b []byte) {
	t.Helper()
	nc, err := net.DialTimeout("tcp", addr, rawTimeout)
	if err != nil {
		t.Fatalf("%s: the port is closed: %v", what, err)
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(15 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Write(b); err != nil {
		return // closed already
	}
	_ = nc.(*net.TCPConn).CloseWrite() // fails if the node has closed already
	if _, err := io.Copy(io.Discard, nc); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: the connection stays open", what)
	}
}

func datagram(t *testing.T, addr string, b []byte) {
	t.Helper()
	nc, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_, _ = nc.Write(b[:min(len(b), 1400)]) // nobody has to take it
}

// A connection that says nothing, or half of something, is closed in time; requests that are
// wrong get an error that names what is wrong, and the connection lives.
func TestGarbage_nativeProtocolNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	n := newNode(t, "n")
	n.start()
	eventually(t, "ready", n.ready)
	silent, err := net.Dial("tcp", n.addr.Native)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	began := time.Now()
	raw, err := dialRaw(n.addr.Native)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.close()
	for _, wrong := range []struct {
		api  int
		body []any
		code string
		says string
	}{
		{99, nil, "unsupported_version", "99"},
		{rawProduce, []any{"t"}, "corrupt_batch", "0 bytes"},
		{rawProduce, []any{"t", 0, -1, -1, 0, oneBatch(t, []byte("x"))}, "unknown_topic", `"t"`},
		{rawProduce, []any{7, 0, -1, -1, 0, []byte("x")}, "invalid_request", "produce"},
		{rawProduce, []any{"t", 0, -1, -1, 0, []byte("x")}, "corrupt_batch", ""},
		{rawProduce, []any{"t", 0, 5, -1, 0, oneBatch(t, []byte("x"))}, "invalid_request", "acks"},
		{rawFetch, []any{"nope", 0, -1, 0, 1, 1, 0}, "unknown_topic", `"nope"`},
		{rawOffsets, []any{"nope", 0, -1}, "unknown_topic", `"nope"`},
		{rawMetadata, []any{strings.Repeat("x", 5)}, "invalid_request", "metadata"},
	} {
		_, err := raw.call(wrong.api, wrong.body...)
		var refused *rawError
		if !errors.As(err, &refused) || refused.code != wrong.code || !strings.Contains(refused.message, wrong.says) {
			t.Errorf("api %d with %.60v: %v, want %s that says %q", wrong.api, wrong.body, err, wrong.code, wrong.says)
		}
	}
	if _, err := raw.status(); err != nil {
		t.Errorf("the connection does not live on: %v", err)
	}
	if err := silent.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, silent); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection that says nothing is open after %v", time.Since(began))
	}
}
