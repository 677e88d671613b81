package client

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edged/record"
	"edged/transport/wire"
)

// A node that owes an answer is asked for a sign of life, and given up when it gives none.
func TestConn_silenceIsNoticed(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, c *fakeCluster) {
		cl := c.client(0)
		cn, err := cl.connect(t.Context(), "n0:7400")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // idle: nothing is sent, nothing is missed
		c.net.Cut("client", "n0")
		began := time.Now()
		err = cn.call(t.Context(), wire.APIStatus, &wire.StatusRequest{}, &wire.Status{})
		if took := time.Since(began); !errors.Is(err, errSilent) || took != DefaultSilence {
			t.Errorf("%v after %v", err, took)
		}
		if got := cl.peer("n0:7400").silenceLimit(); got != 2*DefaultSilence {
			t.Errorf("limit is %v", got)
		}
		if cn2, err := cl.connect(ctxFor(t, time.Minute), "n0:7400"); err == nil || cn2 == cn {
			t.Errorf("a node that is cut off was reached")
		}
		c.net.Heal("client", "n0")
		time.Sleep(redialPause * 2)
		if _, err := cl.connect(t.Context(), "n0:7400"); err != nil {
			t.Error(err)
		}
		for range 20 {
			if _, err := cl.Admin().Status(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := cl.peer("n0:7400").silenceLimit(); got != DefaultSilence {
			t.Errorf("limit is %v after many answers", got)
		}
	})
}

// While one dial is under way, or has just failed, nobody dials again.
func TestPeer_dialsOnceForAll(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *fakeCluster) {
		cl := c.client()
		c.nodes[0].kill()
		errs := make(chan error)
		for range 50 {
			go func() {
				_, err := cl.connect(t.Context(), "n0:7400")
				errs <- err
			}()
		}
		for range 50 {
			if err := <-errs; err == nil {
				t.Error("a dead node was reached")
			}
		}
		if s := cl.Stats(); s.Dials != 1 {
			t.Errorf("%+v", s)
		}
		c.nodes[0].start()
		time.Sleep(redialPause * 2)
		for range 50 {
			go func() {
				_, err := cl.connect(t.Context(), "n0:7400")
				errs <- err
			}()
		}
		for range 50 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if s := cl.Stats(); s.Dials != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// Whatever answers that is no node is an error and not a crash.
func TestConn_garbageFromTheOtherSide(t *testing.T) {
	for name, says := range map[string]string{
		"http":         "HTTP/1.1 400 Bad Request\r\n\r\n",
		"empty frame":  "\x00\x00\x00\x00",
		"no answer":    "\x00\x00\x00\x02\x91\x01",
		"no such type": "\x00\x00\x00\x04\x93\x01\xc0\x07",
		"closes":       "",
		"max frame 0":  "\x00\x00\x00\x09\x93\x01\xc0\x95\x07\xa0\xa0\xc3\x00",
		"other answer": "\x00\x00\x00\x04\x93\x09\xc0\x90",
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 0, func(t *testing.T, c *fakeCluster) {
				ln, err := c.net.Host("odd").Listen(1)
				if err != nil {
					t.Fatal(err)
				}
				defer ln.Close()
				go func() {
					for {
						nc, err := ln.Accept()
						if err != nil {
							return
						}
						_, _ = nc.Write([]byte(says))
						_ = nc.Close()
					}
				}()
				cl, err := New(Config{Nodes: []string{"odd:1"}, Dial: c.net.Host("client").Dial})
				if err != nil {
					t.Fatal(err)
				}
				defer cl.Close()
				_, err = cl.Admin().Status(ctxFor(t, 500*time.Millisecond))
				var lost *ConnError
				if !errors.As(err, &lost) {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

// An answer that comes twice, or to nothing that was asked, is passed over.
func TestConn_answersThatNobodyWaitsFor(t *testing.T) {
	inBubble(t, 0, func(t *testing.T, c *fakeCluster) {
		ln, err := c.net.Host("odd").Listen(1)
		if err != nil {
			t.Fatal(err)
		}
		var served sync.WaitGroup
		served.Go(func() {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			defer nc.Close()
			for correlation := byte(1); ; correlation++ {
				if _, err := wire.ReadFrame(nc, wire.DefaultMaxFrame); err != nil {
					return
				}
				body := []byte{0x92, 0xa0, 0xa0} // of a status
				if correlation == 1 {
					body = []byte{0x95, 0x07, 0xa0, 0xa0, 0xc3, 0xce, 0, 0x11, 0, 0} // of a hello
				}
				answer := append([]byte{0, 0, 0, byte(3 + len(body)), 0x93, correlation, 0xc0}, body...)
				stray := append([]byte{0, 0, 0, byte(3 + len(body)), 0x93, 99, 0xc0}, body...)
				for _, b := range [][]byte{answer, stray, answer} {
					if _, err := nc.Write(b); err != nil {
						return
					}
				}
			}
		})
		cl, err := New(Config{Nodes: []string{"odd:1"}, Dial: c.net.Host("client").Dial})
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if _, err := cl.Admin().Status(ctxFor(t, 500*time.Millisecond)); err != nil {
				t.Error(err)
			}
		}
		if s := cl.Stats(); s.Dials != 1 || s.Lost != 0 {
			t.Errorf("%+v", s)
		}
		cl.Close()
		ln.Close()
		served.Wait()
	})
}

func TestClient_closedIsClosed(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 1)
		cl := c.client()
		p := cl.NewProducer(ProducerConfig{})
		mustProduce(t, p, "t", "x")
		waiting := make(chan error)
		c.partition("t", 0).move(-1)
		go func() {
			_, err := cl.Offsets(context.Background(), "t", 0, wire.AtEnd)
			waiting <- err
		}()
		time.Sleep(time.Second)
		cl.Close()
		if err := <-waiting; !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
		if _, err := cl.Admin().Status(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
		if _, err := cl.NewConsumer(ConsumerConfig{Partitions: []Start{{Topic: "t"}}}); !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
		if err := p.Produce(t.Context(), Record{Topic: "t"}, nil); !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
		cl.Close()
		synctest.Wait()
	})
}

// The ordinary way: TCP.
func TestDial_tcp(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &fakeCluster{t: t, topics: map[string][]*fakePartition{}}
	n := &fakeNode{c: c, id: 100}
	c.nodes = []*fakeNode{n}
	s := wire.NewServer(wire.Config{Broker: n})
	served := make(chan struct{})
	go func() {
		defer close(served)
		if nc, err := ln.Accept(); err == nil {
			s.Handle(nc)
		}
	}()
	cl, err := New(Config{Nodes: []string{ln.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	if st, err := cl.Admin().Status(t.Context()); err != nil || st.Nodes != 1 {
		t.Errorf("%+v, %v", st, err)
	}
	cl.Close()
	ln.Close()
	<-served
	s.Close()
}

func TestBackoff_growsAndIsSpread(t *testing.T) {
	var b backoff
	for _, most := range []time.Duration{10, 20, 40, 80, 160, 160, 160} {
		most *= time.Millisecond
		if d := b.pause(); d > most || d <= most/2 {
			t.Errorf("%v, wanted up to %v", d, most)
		}
	}
	for i := range maxJumps + 1 {
		if b.jump() != (i < maxJumps) {
			t.Errorf("redirect %d in a row", i+1)
		}
	}
	b.pause()
	if !b.jump() {
		t.Error("after a pause they are again")
	}
}

// What is believed of a leader never goes back in epochs.
func TestPartition_believes(t *testing.T) {
	now := time.Unix(1000, 0)
	p := partition{leader: record.NoNode, epoch: record.NoEpoch}
	for i, s := range []struct {
		claim   claim
		suspect bool // of the address believed in, before the claim
		addr    string
		trusted bool
	}{
		{claim{1, "a", 3}, false, "a", true},
		{claim{2, "b", 2}, false, "a", true},            // older
		{claim{record.NoNode, "", 3}, false, "a", true}, // does not know
		{claim{1, "a", 3}, true, "a", false},            // repeats what failed
		{claim{1, "a2", 3}, false, "a2", true},          // moved house
		{claim{2, "b", 4}, true, "b", true},             // newer
		{claim{record.NoNode, "", 5}, false, "", false}, // an election
		{claim{2, "b", 4}, false, "", false},            // older than the election
		{claim{3, "", 6}, false, "", false},             // address not known
		{claim{3, "c", 6}, false, "c", true},            // and now it is
		{claim{3, "c", 7}, true, "c", true},             // elected again
	} {
		if s.suspect {
			p.suspect = now.Add(suspicion)
		}
		if got := p.believe(s.claim, now); got != s.trusted || p.addr != s.addr {
			t.Errorf("%d: %+v: trusted %v, address %q", i, s.claim, got, p.addr)
		}
	}
	p.suspect = now.Add(suspicion)
	if p.trusted(now) || !p.trusted(now.Add(suspicion)) {
		t.Error("suspicion does not pass")
	}
}
