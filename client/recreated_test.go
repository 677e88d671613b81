package client

import (
	"errors"
	"testing"
	"time"

	"edged/record"
	"edged/transport/wire"
)

// A record that was sent to a topic and not acknowledged does not land in a topic that is made under
// the old name while it is being sent again. What is produced after that does.
func TestProduce_recordOfADeletedTopicStaysOutOfItsSuccessor(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 1)
		cl := c.client()
		p := cl.NewProducer(ProducerConfig{})
		mustProduce(t, p, "t", "one")
		c.partition("t", 0).move(-1) // nobody takes it
		errs := make(chan error, 2)
		for range cap(errs) {
			if err := p.Produce(t.Context(), Record{Topic: "t", Value: []byte("two")}, func(a Ack) { errs <- a.Err }); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		c.addTopic("t", 1)
		for range cap(errs) {
			if err := <-errs; !errors.Is(err, record.ErrUnknownTopicID) {
				t.Errorf("a record of the old topic: %v", err)
			}
		}
		mustProduce(t, p, "t", "three")
		part := c.partition("t", 0)
		c.mu.Lock()
		defer c.mu.Unlock()
		if part.high != 1 {
			t.Errorf("the new topic holds %d records", part.high)
		}
	})
}

// The epochs of a topic that is made under an old name begin anew: where it begins and ends is believed at once.
func TestOffsets_ofATopicMadeAnewAreBelievedAtOnce(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 1)
		cl := c.client()
		for range 5 {
			c.partition("t", 0).move(1)
		}
		if _, err := cl.Offsets(t.Context(), "t", 0, wire.AtEnd); err != nil {
			t.Fatal(err)
		}
		c.addTopic("t", 1)
		c.partition("t", 0).move(1)
		began := time.Now()
		r, err := cl.Offsets(t.Context(), "t", 0, wire.AtEnd)
		if err != nil || r.Epoch != c.partition("t", 0).epoch {
			t.Errorf("%+v, %v", r, err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// A leader that has not heard of the new topic yet is waited for.
func TestProduce_nodeThatOnlyKnowsTheOldTopicIsWaitedFor(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 1)
		p := c.client().NewProducer(ProducerConfig{})
		n, refused := c.nodes[0], 0
		n.produce = func(wire.ProduceRequest) error {
			if refused++; refused < 5 {
				return record.ErrUnknownTopicID
			}
			return nil
		}
		mustProduce(t, p, "t", "one")
		if refused != 5 {
			t.Errorf("asked %d times", refused)
		}
	})
}

// A consumer does not go on in another topic of the name.
func TestConsume_endsWithItsTopic(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		c.addTopic("t", 1)
		cl := c.client()
		fillTopic(t, cl, "t", 10)
		co := consume(t, cl, ConsumerConfig{Partitions: []Start{{Topic: "t"}}})
		drain(t, co, 10, map[int32]record.Offset{})
		c.addTopic("t", 1)
		fillTopic(t, c.client(), "t", 20)
		if ms, err := co.Poll(ctxFor(t, time.Minute)); !errors.Is(err, record.ErrUnknownTopicID) {
			t.Errorf("%d messages, %v", len(ms), err)
		}
	})
}
