package client

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// scripted dials: an address whose name does not resolve, one where HTTP answers, one where nobody is.
func dialWrong(_ context.Context, addr string) (net.Conn, error) {
	switch host, _, _ := net.SplitHostPort(addr); host {
	case "unknown":
		return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}}
	case "http":
		here, there := net.Pipe()
		go func() {
			b := make([]byte, 1000)
			_, _ = there.Read(b)
			_, _ = there.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			_ = there.Close()
		}()
		return here, nil
	}
	return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
}

// With StopAtWrongNodes a request ends at once if no address can be right, and only then.
func TestStopAtWrongNodes(t *testing.T) {
	for _, c := range []struct {
		name  string
		nodes []string
		stop  bool
		soon  bool
	}{
		{"no name resolves", []string{"unknown:7400", "unknown:7401"}, true, true},
		{"another protocol", []string{"http:7480"}, true, true},
		{"both", []string{"http:7480", "unknown:7400"}, true, true},
		{"one may come back", []string{"unknown:7400", "away:7400"}, true, false},
		{"not asked for", []string{"unknown:7400"}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl, err := New(Config{Nodes: c.nodes, Dial: dialWrong, StopAtWrongNodes: c.stop})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = cl.Close() }()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				began := time.Now()
				_, err = cl.PartitionCount(ctx, "t")
				var lost *ConnError
				if took := time.Since(began); !errors.As(err, &lost) || (took < 2*time.Second) != c.soon || c.soon && !wrongAddress(err) {
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
