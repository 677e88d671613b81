package client

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"edged/record"
	"edged/transport/wire"
)

// drain polls until n messages have come, and checks that each partition's follow each
// other. It gives the values.
func drain(t *testing.T, co *Consumer, n int, next map[int32]record.Offset) []string {
	t.Helper()
	var out []string
	for len(out) < n {
		ms, err := co.Poll(ctxFor(t, time.Minute))
		if err != nil {
			t.Fatalf("after %d messages: %v", len(out), err)
		}
		for _, m := range ms {
			if m.Offset != next[m.Partition] {
				t.Fatalf("partition %d: offset %d, wanted %d", m.Partition, m.Offset, next[m.Partition])
			}
			next[m.Partition]++
			out = append(out, string(m.Value))
		}
	}
	return out
}

// fillTopic produces n records to partition 0, many in a batch.
func fillTopic(t *testing.T, cl *Client, topic string, n int) {
	t.Helper()
	p := cl.NewProducer(ProducerConfig{BatchBytes: 300, Linger: time.Second})
	defer p.Close()
	for i := range n {
		if err := p.ProduceTo(t.Context(), 0, Record{Topic: topic, Value: []byte(fmt.Sprint("v", i))}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(ctxFor(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
}

func consume(t *testing.T, cl *Client, cfg ConsumerConfig) *Consumer {
	t.Helper()
	co, err := cl.NewConsumer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { co.Close() })
	return co
}

func TestConsume_startsWhereItIsTold(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 1)
		cl := c.client(1) // does not lead
		fillTopic(t, cl, "t", 100)
		for _, s := range []struct {
			start Start
			first record.Offset
		}{
			{From("t", 0, wire.AtStart), 0},
			{Start{Topic: "t", Offset: 37}, 37}, // inside of a batch
			{From("t", 0, wire.AtEnd), 100},
		} {
			co := consume(t, cl, ConsumerConfig{Partitions: []Start{s.start}})
			next := map[int32]record.Offset{0: s.first}
			drain(t, co, 100-int(s.first), next)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			if ms, err := co.Poll(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("at the end: %d messages, %v", len(ms), err)
			}
			cancel()
			co.Close()
			if _, err := co.Poll(t.Context()); !errors.Is(err, ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
		}
	})
}

// Nothing is missed and nothing comes twice, whoever leads and whatever dies.
func TestConsume_followsTheLeader(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 2)
		cl := c.client()
		p := cl.NewProducer(ProducerConfig{BatchBytes: 200})
		co := consume(t, cl, ConsumerConfig{Partitions: []Start{{Topic: "t"}, {Topic: "t", Partition: 1}}})
		next := map[int32]record.Offset{}
		for round := range 60 {
			for i := range 10 {
				if err := p.ProduceTo(t.Context(), int32(i%2), Record{Topic: "t", Value: []byte(fmt.Sprint(round, i))}, nil); err != nil {
					t.Fatal(err)
				}
			}
			part := c.partition("t", int32(round%2))
			switch round % 4 {
			case 0:
				part.move(-1)
				time.Sleep(50 * time.Millisecond)
				part.move(c.rand.IntN(3))
			case 1:
				part.move(c.rand.IntN(3))
			case 2:
				n := c.nodes[round%3]
				n.kill()
				n.start()
			}
			if err := p.Flush(ctxFor(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			drain(t, co, 10, next)
		}
		if next[0] != 300 || next[1] != 300 {
			t.Errorf("%v", next)
		}
	})
}

// New records arrive by long poll, not by asking again and again.
func TestConsume_waitsAtTheEnd(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 1)
		cl := c.client()
		co := consume(t, cl, ConsumerConfig{Partitions: []Start{{Topic: "t"}}, MaxWait: 10 * time.Second})
		time.Sleep(35 * time.Second)
		c.mu.Lock()
		fetches := c.stats.fetches
		c.mu.Unlock()
		if fetches > 4 || cl.Stats().Lost != 0 {
			t.Errorf("%d fetches, %+v", fetches, cl.Stats())
		}
		fillTopic(t, cl, "t", 1)
		began := time.Now()
		drain(t, co, 1, map[int32]record.Offset{})
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

// A consumer that nobody polls stops fetching.
func TestConsume_stopsWhileNobodyPolls(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 1)
		cl := c.client()
		fillTopic(t, cl, "t", 2000)
		co := consume(t, cl, ConsumerConfig{Partitions: []Start{{Topic: "t"}}, FetchBytes: 1000})
		time.Sleep(time.Minute)
		c.mu.Lock()
		fetches := c.stats.fetches
		c.mu.Unlock()
		if fetches != 1 {
			t.Errorf("%d fetches", fetches)
		}
		drain(t, co, 2000, map[int32]record.Offset{})
	})
}

func TestConsume_offsetThatIsGone(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 1)
		cl := c.client()
		fillTopic(t, cl, "t", 100)
		part := c.partition("t", 0)
		c.mu.Lock()
		part.start = 60
		c.mu.Unlock()
		for _, s := range []struct {
			reset Reset
			next  record.Offset
		}{{ResetNone, 0}, {ResetStart, 60}, {ResetEnd, 100}} {
			co := consume(t, cl, ConsumerConfig{Partitions: []Start{{Topic: "t", Offset: 3}}, Reset: s.reset})
			_, err := co.Poll(ctxFor(t, time.Minute))
			if s.reset == ResetNone {
				if !errors.Is(err, record.ErrOffsetOutOfRange) {
					t.Errorf("%v", err)
				}
				continue
			}
			if !errors.Is(err, ErrSkipped) {
				t.Errorf("reset %d: %v", s.reset, err)
			}
			next := map[int32]record.Offset{0: s.next}
			drain(t, co, 100-int(s.next), next)
			co.Close()
		}
	})
}

// A leader that was replaced while it stood still answers once more. That its log ends earlier moves no reader.
func TestConsume_leaderOfAnEarlierEpochMovesNobody(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 1)
		cl := c.client()
		part := c.partition("t", 0)
		part.move(0)
		fillTopic(t, cl, "t", 100)
		co := consume(t, cl, ConsumerConfig{Partitions: []Start{{Topic: "t"}}, Reset: ResetStart})
		next := map[int32]record.Offset{0: 0}
		drain(t, co, 100, next)
		stale := func(by record.Epoch, high record.Offset) {
			c.mu.Lock()
			part.epoch, part.high = part.epoch+by, part.high+high
			part.wakeLocked()
			c.mu.Unlock()
		}
		stale(-1, -50)
		time.Sleep(5 * time.Second)
		stale(1, 50)
		fillTopic(t, cl, "t", 10)
		drain(t, co, 10, next)
	})
}

// Whoever was told by a leader that his offset is gone has heard of its epoch: the leader before it, which does not
// know yet that it was replaced, then moves him neither by where its log begins or ends nor by what it lacks.
func TestConsume_errorOfANewerEpochIsHeardToo(t *testing.T) {
	for _, reset := range []struct {
		to   Reset
		next record.Offset
	}{{ResetStart, 60}, {ResetEnd, 100}} {
		inBubble(t, 1, func(t *testing.T, c *fakeCluster) {
			c.addTopic("t", 1)
			cl := c.client()
			part := c.partition("t", 0)
			part.move(0)
			fillTopic(t, cl, "t", 100)
			c.mu.Lock()
			part.start = 60
			newer := part.epoch + 1 // of which no metadata has told
			part.epoch = newer
			c.refused = func() { // from here on the one before it answers
				part.epoch, part.start, part.high = newer-1, 0, 50
				time.AfterFunc(record.Doubt, func() {
					c.mu.Lock()
					defer c.mu.Unlock()
					part.epoch, part.start, part.high = newer, 60, 100
					part.wakeLocked()
				})
			}
			c.mu.Unlock()
			co := consume(t, cl, ConsumerConfig{Partitions: []Start{{Topic: "t", Offset: 3}}, Reset: reset.to})
			if _, err := co.Poll(ctxFor(t, time.Minute)); !errors.Is(err, ErrSkipped) {
				t.Fatalf("reset %d: %v", reset.to, err)
			}
			fillTopic(t, cl, "t", 10)
			next := map[int32]record.Offset{0: reset.next}
			drain(t, co, 110-int(reset.next), next)
		})
	}
}

func TestConsume_whatDoesNotExist(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 1)
		cl := c.client()
		co := consume(t, cl, ConsumerConfig{Partitions: []Start{{Topic: "none"}, {Topic: "t", Partition: 7}}})
		began := time.Now()
		var topic, partition bool
		for range 2 {
			_, err := co.Poll(ctxFor(t, time.Minute))
			topic = topic || errors.Is(err, record.ErrUnknownTopic)
			partition = partition || errors.Is(err, record.ErrUnknownPartition)
		}
		if !topic || !partition || time.Since(began) > 100*time.Millisecond {
			t.Errorf("topic %v, partition %v after %v", topic, partition, time.Since(began))
		}
		if _, err := cl.NewConsumer(ConsumerConfig{}); err == nil {
			t.Error("a consumer of nothing")
		}
	})
}

// Whoever polls in vain hears why.
func TestConsume_tellsWhatStandsInTheWay(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 1)
		cl := c.client()
		co := consume(t, cl, ConsumerConfig{Partitions: []Start{{Topic: "t"}}})
		synctest.Wait()
		c.nodes[0].kill()
		_, err := co.Poll(ctxFor(t, 3*time.Second))
		var lost *ConnError
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &lost) || lost.Addr != "n0:7400" {
			t.Errorf("%v", err)
		}
		c.nodes[0].start()
		fillTopic(t, cl, "t", 3)
		drain(t, co, 3, map[int32]record.Offset{})
	})
}

// A batch that comes damaged again and again ends the partition; one that comes damaged
// once is asked for again. A gap counts as damage: offsets are dense.
func TestConsume_damage(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 1)
		cl := c.client()
		fillTopic(t, cl, "t", 100)
		part := c.partition("t", 0)
		spoil := func() {
			c.mu.Lock()
			part.log[2][70] ^= 1
			c.mu.Unlock()
		}
		spoil()
		co := consume(t, cl, ConsumerConfig{Partitions: []Start{{Topic: "t"}}})
		time.AfterFunc(250*time.Millisecond, spoil) // it heals
		drain(t, co, 100, map[int32]record.Offset{})
		co.Close()

		c.mu.Lock()
		part.log = append(part.log[:2:2], part.log[3:]...)
		c.mu.Unlock()
		co = consume(t, cl, ConsumerConfig{Partitions: []Start{{Topic: "t"}}})
		for {
			_, err := co.Poll(ctxFor(t, time.Minute))
			if err != nil {
				if !errors.Is(err, record.ErrCorrupt) {
					t.Errorf("%v", err)
				}
				break
			}
		}
	})
}

func TestConsumerConfig_sharesTheBuffer(t *testing.T) {
	cfg := ConsumerConfig{Partitions: make([]Start, 64), BufferBytes: 16 << 20}.withDefaults()
	if cfg.FetchBytes != 256<<10 {
		t.Errorf("%d", cfg.FetchBytes)
	}
	if cfg = (ConsumerConfig{Partitions: make([]Start, 10000)}).withDefaults(); cfg.FetchBytes != minFetchBytes {
		t.Errorf("%d", cfg.FetchBytes)
	}
}
