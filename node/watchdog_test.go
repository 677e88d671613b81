package node

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"edged/partition"
)

// pipeListener gives out connections on demand.
type pipeListener struct{ conns chan net.Conn }

func (l pipeListener) Accept() (net.Conn, error) {
	c, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (l pipeListener) Close() error   { return nil }
func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7400} }

// A listener is alive while somebody waits for its next connection, though none comes for a day; it is
// not when whoever took the last one does not come back, or has given up.
func TestAlive_aListenerThatNobodyServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := pipeListener{make(chan net.Conn)}
		l := &watched{Listener: inner, setting: "native-addr", epoch: time.Now()}
		n := &Node{listeners: []*watched{l}}
		back := make(chan struct{})
		go func() {
			for {
				if _, err := l.Accept(); err != nil {
					return
				}
				<-back
			}
		}()
		well := func(when string, want bool) {
			t.Helper()
			if err := n.Alive(t.Context()); (err == nil) != want {
				t.Errorf("%s: %v", when, err)
			}
		}
		time.Sleep(24 * time.Hour)
		well("nobody has come", true)
		inner.conns <- nil
		time.Sleep(stuckAfter)
		well("10 s with one connection", true)
		time.Sleep(time.Second)
		well("more than that", false)
		back <- struct{}{}
		synctest.Wait()
		well("it waits again", true)
		close(inner.conns)
		time.Sleep(stuckAfter + time.Second)
		well("it has given up", false)
		if err := n.Alive(t.Context()); !strings.Contains(err.Error(), "native-addr") {
			t.Errorf("the error does not say which: %v", err)
		}
	})
}

func TestAlive_aCoreThatTakesNoTurn(t *testing.T) {
	tn := startNode(t, 0)
	await(t, "the node to serve", func() bool { return tn.unready() == nil })
	if err := tn.Alive(t.Context()); err != nil {
		t.Errorf("a node that serves: %v", err)
	}
	release, held := make(chan struct{}), make(chan struct{})
	go tn.host.Load().Inspect(func(*partition.Core) { close(held); <-release })
	<-held
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- tn.Alive(ctx) }()
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("the core stands still, and Alive says %v", err)
	}
	close(release)
	if err := tn.Alive(t.Context()); err != nil {
		t.Errorf("the core goes on: %v", err)
	}
}
