package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"edged/record"
	"edged/transport/wire"
)

func ctxFor(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func mustProduce(t *testing.T, p *Producer, topic, value string) Ack {
	t.Helper()
	a, err := p.ProduceSync(ctxFor(t, time.Minute), Record{Topic: topic, Value: []byte(value)})
	if err != nil {
		t.Fatalf("%q: %v", value, err)
	}
	return a
}

func TestProduce_findsTheLeaderAndFollowsIt(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 1)
		cl := c.client(2) // does not lead
		p := cl.NewProducer(ProducerConfig{})
		if a := mustProduce(t, p, "t", "one"); a.Offset != 0 || a.Epoch != 1 || a.Durability != "fake" || a.Topic != "t" {
			t.Errorf("%+v", a)
		}
		if s := cl.Stats(); s.Redirects != 0 {
			t.Errorf("metadata knew the leader, and yet: %+v", s)
		}
		c.partition("t", 0).move(1)
		began := time.Now()
		if a := mustProduce(t, p, "t", "two"); a.Offset != 1 || a.Epoch != 2 {
			t.Errorf("%+v", a)
		}
		if s := cl.Stats(); s.Redirects != 1 || time.Since(began) > 20*time.Millisecond {
			t.Errorf("%+v after %v", s, time.Since(began))
		}
	})
}

func TestProduce_leaderKilled(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 1)
		cl := c.client()
		p := cl.NewProducer(ProducerConfig{})
		mustProduce(t, p, "t", "one")
		part := c.partition("t", 0)
		began := time.Now()
		part.move(-1)
		c.nodes[0].kill()
		time.AfterFunc(100*time.Millisecond, func() { part.move(2) }) // the election
		mustProduce(t, p, "t", "two")
		if took := time.Since(began); took > 300*time.Millisecond {
			t.Errorf("%v from the kill to the next ack", took)
		}
	})
}

// A leader that is stopped or cut off answers nothing and refuses nothing.
func TestProduce_leaderSilent(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 1)
		cl := c.client()
		p := cl.NewProducer(ProducerConfig{})
		mustProduce(t, p, "t", "one")
		c.net.Cut("client", "n0")
		time.AfterFunc(600*time.Millisecond, func() { c.partition("t", 0).move(1) })
		began := time.Now()
		mustProduce(t, p, "t", "two")
		if took := time.Since(began); took > 1500*time.Millisecond {
			t.Errorf("%v until another node was asked", took)
		}
		c.net.Heal("client", "n0")
	})
}

// A slow disk is no reason to send everything again: the node answers signs of life, and
// the others say that it still leads.
func TestProduce_slowLeaderIsWaitedFor(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 1)
		cl := c.client()
		p := cl.NewProducer(ProducerConfig{})
		mustProduce(t, p, "t", "one")
		c.mu.Lock()
		c.commit = 7 * time.Second
		c.mu.Unlock()
		mustProduce(t, p, "t", "two")
		if c.produces() != 2 || cl.Stats().Lost != 0 {
			t.Errorf("%d produces, %+v", c.produces(), cl.Stats())
		}
	})
}

// A leader that is deposed and never answers: the others know the new one.
func TestProduce_deposedLeaderThatDoesNotAnswer(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 1)
		cl := c.client()
		p := cl.NewProducer(ProducerConfig{})
		mustProduce(t, p, "t", "one")
		c.mu.Lock()
		c.commit = time.Hour
		c.mu.Unlock()
		part := c.partition("t", 0)
		time.AfterFunc(300*time.Millisecond, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.commit = 5 * time.Millisecond
			part.pending = nil // nobody tells the client
			part.moveLocked(1)
		})
		began := time.Now()
		mustProduce(t, p, "t", "two")
		if took := time.Since(began); took > 1500*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

// Answers are lost on the way; the batches are not sent a second time into the log.
func TestProduce_lostAnswers(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 1)
		cl := c.client()
		p := cl.NewProducer(ProducerConfig{BatchBytes: 200})
		part := c.partition("t", 0)
		var h history
		for i := range 200 {
			v := fmt.Sprint("v", i)
			if err := p.Produce(t.Context(), Record{Topic: "t", Value: []byte(v)}, h.expect(v)); err != nil {
				t.Fatal(err)
			}
			if i%20 == 19 { // appended, not answered
				time.Sleep(3 * time.Millisecond)
				c.nodes[0].kill()
				c.nodes[0].start()
			}
		}
		if err := p.Flush(ctxFor(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		if acked, failed := h.check(t, part); acked != 200 || failed != 0 {
			t.Errorf("%d acked, %d failed", acked, failed)
		}
	})
}

// The whole promise: pipelined batches, random leader changes that cut off what is not
// committed, nodes that die and come back, and every record stands in the log once and in order.
func TestProduce_onceAndInOrderOverRandomLeaderChanges(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, c *fakeCluster) { leaderChanges(t, c, seed) })
		})
	}
}

func leaderChanges(t *testing.T, c *fakeCluster, seed uint64) {
	const changes = 100
	for range seed {
		c.rand.Uint64()
	}
	c.addTopic("t", 2)
	cl := c.client()
	p := cl.NewProducer(ProducerConfig{BatchBytes: 400, Acks: AcksAll})
	var hs [2]history
	produced := 0
	for done := 0; done < changes; {
		for range c.rand.IntN(40) {
			part := int32(c.rand.IntN(2))
			v := fmt.Sprint("v", produced)
			if err := p.ProduceTo(t.Context(), part, Record{Topic: "t", Value: []byte(v)}, hs[part].expect(v)); err != nil {
				t.Fatal(err)
			}
			produced++
		}
		time.Sleep(time.Duration(c.rand.IntN(15)) * time.Millisecond)
		part := c.partition("t", int32(c.rand.IntN(2)))
		switch c.rand.IntN(6) {
		case 0: // an election that takes a while
			part.move(-1)
			time.Sleep(time.Duration(c.rand.IntN(100)) * time.Millisecond)
			part.move(c.rand.IntN(3))
		case 1: // a node dies and comes back
			n := c.nodes[c.rand.IntN(3)]
			n.kill()
			for i := range int32(2) {
				if q := c.partition("t", i); q.leader == n.at {
					q.move((n.at + 1) % 3)
				}
			}
			n.start()
		default:
			part.move(c.rand.IntN(3))
		}
		done++
	}
	if err := p.Flush(ctxFor(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	for i := range hs {
		acked, failed := hs[i].check(t, c.partition("t", int32(i)))
		if failed != 0 || acked == 0 {
			t.Errorf("partition %d: %d acked, %d failed", i, acked, failed)
		}
	}
	if s := cl.Stats(); s.Redirects == 0 || s.Retries == 0 {
		t.Errorf("nothing happened: %+v", s)
	}
}

// The same promise where records are given up: times that are too short, batches that are
// refused, producers that are forgotten. Nothing stands in the log twice, and what failed
// for sure does not stand there.
func TestProduce_whatIsGivenUpIsNotThereTwice(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, c *fakeCluster) { givingUp(t, c, seed) })
		})
	}
}

func givingUp(t *testing.T, c *fakeCluster, seed uint64) {
	for range seed {
		c.rand.Uint64()
	}
	c.addTopic("t", 1)
	busy := rand.New(rand.NewPCG(seed, 1))
	for _, n := range c.nodes {
		n.produce = func(r wire.ProduceRequest) error {
			switch {
			case strings.Contains(string(r.Batch), "bad"):
				return record.ErrInvalidTimestamp
			case busy.IntN(30) == 0:
				return record.ErrBusy
			}
			return nil
		}
	}
	cl := c.client()
	p := cl.NewProducer(ProducerConfig{BatchBytes: 300, DeliveryTimeout: 120 * time.Millisecond})
	part := c.partition("t", 0)
	var h history
	for i := range 1500 {
		v := fmt.Sprint("v", i)
		if c.rand.IntN(40) == 0 {
			v = fmt.Sprint("bad", i)
		}
		if err := p.Produce(t.Context(), Record{Topic: "t", Value: []byte(v)}, h.expect(v)); err != nil {
			t.Fatal(err)
		}
		switch c.rand.IntN(60) {
		case 0:
			part.move(-1)
			time.Sleep(time.Duration(c.rand.IntN(250)) * time.Millisecond)
			part.move(c.rand.IntN(3))
		case 1: // a cluster forgets only those that have been quiet
			if err := p.Flush(ctxFor(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			part.forget()
		case 2:
			n := c.nodes[c.rand.IntN(3)]
			n.kill()
			n.start()
		case 3:
			part.move(c.rand.IntN(3))
		case 4, 5, 6, 7:
			time.Sleep(time.Duration(c.rand.IntN(10)) * time.Millisecond)
		}
	}
	if err := p.Flush(ctxFor(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	acked, failed := h.check(t, part)
	if acked+failed != 1500 || acked < 100 || failed < 20 {
		t.Errorf("%d acked, %d failed", acked, failed)
	}
}

func TestProduce_unknownTopicAtOnce(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, c *fakeCluster) {
		cl := c.client()
		p := cl.NewProducer(ProducerConfig{})
		began := time.Now()
		_, err := p.ProduceSync(ctxFor(t, time.Minute), Record{Topic: "none"})
		if !errors.Is(err, record.ErrUnknownTopic) || time.Since(began) > 100*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if len(cl.mu.topics) != 0 {
			t.Error("the client remembers a topic that does not exist")
		}
		// One node has not heard of a topic yet; the metadata leader has.
		c.addTopic("new", 1)
		c.nodes[1].behind["new"] = true
		only := c.client(1)
		q := only.NewProducer(ProducerConfig{})
		mustProduce(t, q, "new", "x")
		if err := q.ProduceTo(t.Context(), 5, Record{Topic: "new"}, nil); !errors.Is(err, record.ErrUnknownPartition) {
			t.Errorf("partition 5: %v", err)
		}
		cl.Close()
	})
}

func TestProduce_topicDeletedMeanwhile(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 1)
		cl := c.client()
		p := cl.NewProducer(ProducerConfig{})
		mustProduce(t, p, "t", "one")
		c.mu.Lock()
		delete(c.topics, "t")
		c.mu.Unlock()
		if _, err := p.ProduceSync(ctxFor(t, time.Minute), Record{Topic: "t"}); !errors.Is(err, record.ErrUnknownTopic) {
			t.Errorf("%v", err)
		}
		// Another topic under the old name: its epochs begin anew.
		c.addTopic("t", 1)
		if a := mustProduce(t, p, "t", "two"); a.Offset != 0 {
			t.Errorf("%+v", a)
		}
	})
}

// A batch that is refused for good fails alone; those that were sent behind it follow.
func TestProduce_refusedBatchDoesNotTakeOthersAlong(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 1)
		for _, n := range c.nodes {
			n.produce = func(r wire.ProduceRequest) error {
				if strings.Contains(string(r.Batch), "bad") {
					return record.ErrInvalidTimestamp
				}
				return nil
			}
		}
		cl := c.client()
		p := cl.NewProducer(ProducerConfig{BatchBytes: 1}) // each record in a batch of its own
		var h history
		for i := range 30 {
			v := fmt.Sprint("v", i)
			if i%7 == 3 {
				v = fmt.Sprint("bad", i)
			}
			if err := p.Produce(t.Context(), Record{Topic: "t", Value: []byte(v)}, h.expect(v)); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Flush(ctxFor(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		if acked, failed := h.check(t, c.partition("t", 0)); acked != 26 || failed != 4 {
			t.Errorf("%d acked, %d failed", acked, failed)
		}
	})
}

// With StopAtError nothing that came after the first refused record gets into its partition.
func TestProduce_stopsAtTheFirstError(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 2)
		for _, n := range c.nodes {
			n.produce = func(r wire.ProduceRequest) error {
				if strings.Contains(string(r.Batch), "bad") {
					return record.ErrInvalidTimestamp
				}
				return nil
			}
		}
		p := c.client().NewProducer(ProducerConfig{BatchBytes: 1, StopAtError: true})
		var errs []error
		for i := range 30 {
			v := fmt.Sprint("v", i)
			if i == 10 {
				v = "bad"
			}
			if err := p.ProduceTo(t.Context(), 0, Record{Topic: "t", Value: []byte(v)}, func(a Ack) { errs = append(errs, a.Err) }); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Flush(ctxFor(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		for i, err := range errs {
			switch {
			case i < 10 && err != nil, i == 10 && !errors.Is(err, record.ErrInvalidTimestamp), i > 10 && !errors.Is(err, ErrStopped):
				t.Errorf("record %d: %v", i, err)
			}
		}
		if got := c.partition("t", 0).values(); len(errs) != 30 || len(got) != 10 {
			t.Errorf("%d answers, the log holds %q", len(errs), got)
		}
		if err := p.ProduceTo(t.Context(), 1, Record{Topic: "t"}, nil); !errors.Is(err, ErrStopped) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// The same where the client itself finds that a record is larger than any node takes.
func TestProduce_stopsAtTheFirstRecordThatNoNodeTakes(t *testing.T) {
	for name, before := range map[string]time.Duration{"at once": 0, "alone": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, c *fakeCluster) {
				c.addTopic("t", 1)
				p := c.client().NewProducer(ProducerConfig{StopAtError: true, Linger: 50 * time.Millisecond})
				var errs []error
				for _, v := range [][]byte{[]byte("ok1"), make([]byte, wire.DefaultMaxFrame), []byte("ok2"), []byte("ok3")} {
					if err := p.ProduceTo(t.Context(), 0, Record{Topic: "t", Value: v}, func(a Ack) { errs = append(errs, a.Err) }); err != nil {
						t.Fatal(err)
					}
					if string(v) == "ok1" {
						time.Sleep(before)
					}
				}
				if err := p.Flush(ctxFor(t, time.Minute)); err != nil {
					t.Fatal(err)
				}
				if len(errs) != 4 || errs[0] != nil || !errors.Is(errs[1], record.ErrTooLarge) || !errors.Is(errs[2], ErrStopped) || !errors.Is(errs[3], ErrStopped) {
					t.Errorf("%v", errs)
				}
				if got := c.partition("t", 0).values(); len(got) != 1 || got[0] != "ok1" {
					t.Errorf("the log holds %q", got)
				}
			})
		})
	}
}

// Records share batches only as far as the topic takes them: the one that is too large fails alone.
func TestProduce_batchesAreAsLargeAsTheTopicTakes(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *fakeCluster) {
		c.configs = map[string]string{"max.message.bytes": "1000"}
		c.addTopic("t", 1)
		c.nodes[0].produce = func(r wire.ProduceRequest) error {
			if len(r.Batch) > 1000 {
				return record.ErrTooLarge
			}
			return nil
		}
		cl := c.client()
		p := cl.NewProducer(ProducerConfig{})
		failed := 0
		for i := range 60 {
			size := 100
			if i == 30 {
				size = 2000
			}
			err := p.Produce(t.Context(), Record{Topic: "t", Value: make([]byte, size)}, func(a Ack) {
				if a.Err != nil {
					failed++
					if i != 30 || !errors.Is(a.Err, record.ErrTooLarge) {
						t.Errorf("record %d: %v", i, a.Err)
					}
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Flush(ctxFor(t, time.Minute)); err != nil || failed != 1 {
			t.Errorf("%d failed, %v", failed, err)
		}
	})
}

func TestProduce_forgottenProducerTakesAnotherIdentity(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 1)
		cl := c.client()
		p := cl.NewProducer(ProducerConfig{})
		for i := range 5 {
			mustProduce(t, p, "t", fmt.Sprint("v", i))
			c.partition("t", 0).forget()
		}
		if got := c.partition("t", 0).values(); len(got) != 5 || c.lastID != 5 {
			t.Errorf("%q, %d identities", got, c.lastID)
		}
	})
}

// A partition that lost what it had acked is not papered over.
func TestProduce_lostAckedDataIsTold(t *testing.T) {
	for _, acks := range []Acks{AcksAll, AcksLeader} {
		inBubble(t, 1, func(t *testing.T, c *fakeCluster) {
			c.addTopic("t", 1)
			cl := c.client()
			p := cl.NewProducer(ProducerConfig{Acks: acks})
			mustProduce(t, p, "t", "one")
			mustProduce(t, p, "t", "two")
			part := c.partition("t", 0)
			c.mu.Lock()
			part.high = 1
			part.cutLocked()
			c.mu.Unlock()
			_, err := p.ProduceSync(ctxFor(t, time.Minute), Record{Topic: "t", Value: []byte("three")})
			if errors.Is(err, record.ErrOutOfOrder) != (acks == AcksAll) {
				t.Errorf("acks %v: %v", acks, err)
			}
			mustProduce(t, p, "t", "four")
		})
	}
}

func TestProduce_givesUpInTime(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 1)
		cl := c.client()
		p := cl.NewProducer(ProducerConfig{DeliveryTimeout: 3 * time.Second})
		mustProduce(t, p, "t", "one")
		part := c.partition("t", 0)
		part.move(-1)
		began := time.Now()
		_, err := p.ProduceSync(ctxFor(t, time.Minute), Record{Topic: "t", Value: []byte("two")})
		// In doubt only if a node owed an answer at that moment.
		if took := time.Since(began); took != 3*time.Second || !(errors.Is(err, record.ErrTimeout) || errors.Is(err, context.DeadlineExceeded)) {
			t.Errorf("never taken by a leader: %v after %v", err, took)
		}
		part.move(0)
		c.mu.Lock()
		c.commit = time.Hour
		c.mu.Unlock()
		if _, err = p.ProduceSync(ctxFor(t, time.Minute), Record{Topic: "t", Value: []byte("three")}); !errors.Is(err, record.ErrTimeout) {
			t.Errorf("sent and not answered: %v", err)
		}
		c.mu.Lock()
		c.commit = time.Millisecond
		c.mu.Unlock()
		part.move(1)
		mustProduce(t, p, "t", "four")
	})
}

func TestProduce_boundsWhatItHolds(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 1)
		cl := c.client()
		p := cl.NewProducer(ProducerConfig{BufferBytes: 10 * (1000 + recordCost)})
		mustProduce(t, p, "t", "x")
		c.partition("t", 0).move(-1)
		var answered atomic.Int64
		rec := Record{Topic: "t", Value: make([]byte, 1000)}
		for range 10 {
			if err := p.Produce(t.Context(), rec, func(Ack) { answered.Add(1) }); err != nil {
				t.Fatal(err)
			}
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Produce(short, rec, nil); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, record.ErrBusy) {
			t.Errorf("the eleventh: %v", err)
		}
		c.partition("t", 0).move(0)
		if err := p.Produce(t.Context(), rec, nil); err != nil { // waits for room
			t.Error(err)
		}
		if err := p.Flush(t.Context()); err != nil || answered.Load() != 10 {
			t.Errorf("%v, %d answered", err, answered.Load())
		}
	})
}

func TestProduce_closeAnswersEverything(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 2)
		cl := c.client()
		p := cl.NewProducer(ProducerConfig{Linger: time.Hour})
		sent, lingers := make(chan Ack, 1), make(chan Ack, 1)
		c.mu.Lock()
		c.commit = time.Hour
		c.mu.Unlock()
		if err := p.ProduceTo(t.Context(), 0, Record{Topic: "t"}, func(a Ack) { sent <- a }); err != nil {
			t.Fatal(err)
		}
		go p.Flush(ctxFor(t, time.Second))
		time.Sleep(2 * time.Second)
		if err := p.ProduceTo(t.Context(), 1, Record{Topic: "t"}, func(a Ack) { lingers <- a }); err != nil {
			t.Fatal(err)
		}
		p.Close()
		if a := <-sent; !errors.Is(a.Err, ErrClosed) || !errors.Is(a.Err, record.ErrInterrupted) {
			t.Errorf("sent: %v", a.Err)
		}
		if a := <-lingers; !errors.Is(a.Err, ErrClosed) || errors.Is(a.Err, record.ErrInterrupted) {
			t.Errorf("never sent: %v", a.Err)
		}
		if err := p.Produce(t.Context(), Record{Topic: "t"}, nil); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestProduce_lingersAndShares(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 1)
		cl := c.client()
		p := cl.NewProducer(ProducerConfig{Linger: 50 * time.Millisecond, Codec: record.Zstd})
		began := time.Now()
		for range 20 {
			if err := p.Produce(t.Context(), Record{Topic: "t", Value: []byte("same same same")}, nil); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if c.produces() != 0 {
			t.Error("it did not linger")
		}
		time.Sleep(60 * time.Millisecond)
		if c.produces() != 1 {
			t.Errorf("%d produces", c.produces())
		}
		if err := p.Produce(t.Context(), Record{Topic: "t"}, nil); err != nil {
			t.Fatal(err)
		}
		if err := p.Flush(t.Context()); err != nil || time.Since(began) > 80*time.Millisecond {
			t.Errorf("flush: %v after %v", err, time.Since(began))
		}
		if got := len(c.partition("t", 0).values()); got != 21 {
			t.Errorf("%d records", got)
		}
	})
}

// A record that no node could take is refused without costing the connection.
func TestProduce_recordLargerThanAFrame(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 1)
		cl := c.client()
		p := cl.NewProducer(ProducerConfig{})
		_, err := p.ProduceSync(ctxFor(t, time.Minute), Record{Topic: "t", Value: make([]byte, 2<<20)})
		if !errors.Is(err, record.ErrTooLarge) {
			t.Errorf("%v", err)
		}
		if err := p.Produce(t.Context(), Record{Topic: "t", Value: make([]byte, MaxRecordBytes)}, nil); !errors.Is(err, record.ErrTooLarge) {
			t.Errorf("%v", err)
		}
		big := mustProduce(t, p, "t", strings.Repeat("x", 1_000_000)) // more than a batch of this producer
		if big.Offset != 0 || cl.Stats().Lost != 0 {
			t.Errorf("%+v, %+v", big, cl.Stats())
		}
	})
}

func TestPartitionForKey_asKafkasClientsDo(t *testing.T) {
	for key, want := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string":                       -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := int32(murmur2([]byte(key))); got != want {
			t.Errorf("%q: %d, wanted %d", key, got, want)
		}
	}
}

func TestProduce_spreadsRecordsWithoutKey(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 4)
		cl := c.client()
		p := cl.NewProducer(ProducerConfig{})
		for i := range 40 {
			mustProduce(t, p, "t", fmt.Sprint(i))
		}
		for i := range int32(4) {
			if n := len(c.partition("t", i).values()); n != 10 {
				t.Errorf("partition %d has %d", i, n)
			}
		}
		keyed, err := p.ProduceSync(t.Context(), Record{Topic: "t", Key: []byte("foobar")})
		if err != nil || keyed.Partition != PartitionForKey([]byte("foobar"), 4) {
			t.Errorf("%+v, %v", keyed, err)
		}
	})
}
