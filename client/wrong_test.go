package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// dialWrong is a network with an address whose name does not resolve, with ports of a node that are not its
// native one, with a stopped node, with one that is being killed, and with nothing elsewhere.
func dialWrong(cut *int) func(context.Context, string) (net.Conn, error) {
	return func(_ context.Context, addr string) (net.Conn, error) {
		host, _, _ := net.SplitHostPort(addr)
		here, there := net.Pipe()
		answer := func(f func(said []byte) []byte) (net.Conn, error) {
			go func() {
				b := make([]byte, 1000)
				n, _ := there.Read(b)
				_, _ = there.Write(f(b[:n]))
				_ = there.Close()
			}()
			return here, nil
		}
		silent := func() { _, _ = io.Copy(io.Discard, there) } // until the client hangs up
		switch host {
		case "unknown":
			return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}}
		case "proxy":
			return answer(func([]byte) []byte { return []byte("HTTP/1.1 400 Bad Request\r\n\r\n") })
		case "http": // waits for the end of the line
			return answer(func(said []byte) []byte {
				if !bytes.HasPrefix(said, []byte("GET ")) {
					silent()
				}
				return []byte("HTTP/1.0 200 OK\r\n\r\nok")
			})
		case "kafka":
			return answer(func(said []byte) []byte {
				if len(said) < 14 || said[5] != 18 {
					return nil
				}
				return append(append([]byte{0, 0, 0, 10}, said[8:12]...), make([]byte, 6)...)
			})
		case "gossip":
			return answer(func([]byte) []byte { return nil })
		case "stopped":
			return answer(func([]byte) []byte { silent(); return nil })
		case "killed":
			if *cut++; *cut <= 3 {
				return answer(func([]byte) []byte { return nil })
			}
		}
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}
}

// With StopAtWrongNodes a request ends at once if no address can be right, and only then.
func TestStopAtWrongNodes(t *testing.T) {
	for _, c := range []struct {
		name  string
		nodes []string
		stop  bool
		soon  bool
		says  string
	}{
		{"no name resolves", []string{"unknown:7400", "unknown:7401"}, true, true, "no such host"},
		{"another protocol", []string{"proxy:80"}, true, true, "does not speak edged's native protocol"},
		{"HTTP", []string{"http:7480"}, true, true, "it is an HTTP port"},
		{"Kafka", []string{"kafka:9092"}, true, true, "it is a port for Kafka clients"},
		{"gossip", []string{"gossip:7946"}, true, true, "as a gossip port does"},
		{"both", []string{"proxy:7480", "unknown:7400"}, true, true, ""},
		{"one may come back", []string{"unknown:7400", "away:7400"}, true, false, ""},
		{"stopped", []string{"stopped:7400"}, true, false, "does not answer"},
		{"killed", []string{"killed:7400"}, true, false, "refused"},
		{"not asked for", []string{"unknown:7400"}, false, false, ""},
		{"nor this", []string{"gossip:7946"}, false, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl, err := New(Config{Nodes: c.nodes, Dial: dialWrong(new(int)), StopAtWrongNodes: c.stop})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = cl.Close() }()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				began := time.Now()
				_, err = cl.PartitionCount(ctx, "t")
				var lost *ConnError
				if took := time.Since(began); !errors.As(err, &lost) || (took < 3*time.Second) != c.soon || c.soon && !wrongAddress(err) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
}

func TestNew_refusesPortsThatThereAreNot(t *testing.T) {
	for addr, ok := range map[string]bool{"pi1:7400": true, "pi1:65535": true, "pi1:99999": false, "pi1:0": false, "pi1:": false, "pi1:-1": false, "pi1:seven": false} {
		c, err := New(Config{Nodes: []string{addr}})
		if (err == nil) != ok {
			t.Errorf("%s: %v", addr, err)
		}
		if c != nil {
			_ = c.Close()
		}
	}
}
