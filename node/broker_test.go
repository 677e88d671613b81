package node

import (
	"context"
	"errors"
	"testing"

	"edged/record"
	"edged/transport/wire"
)

// A node that stops takes nothing on, but goes on telling who leads: clients ask it at just that time, and
// believe it that a topic is missing.
func TestBroker_stoppingNodeStillTellsWhoLeads(t *testing.T) {
	t.Parallel()
	n := startCluster(t, 3)[0]
	n.stopping.Store(true)
	md, err := broker{n.Node}.Metadata(t.Context(), nil)
	if err != nil || len(md.Topics) != 1 || md.Topics[0].Partitions[0].Leader == record.NoNode {
		t.Errorf("native: %+v, %v", md, err)
	}
	topics := kafkaBroker{n.Node}.Topics(t.Context())
	if len(topics) != 1 || topics[0].Partitions[0].Leader == record.NoNode {
		t.Errorf("kafka: %+v", topics)
	}
	if _, err := (broker{n.Node}).CreateTopic(t.Context(), wire.CreateTopicRequest{Name: "u"}); !errors.Is(err, record.ErrShuttingDown) {
		t.Errorf("a new topic: %v", err)
	}
}

// A request that names a topic's id is for that topic and no other of its name.
func TestBroker_topicIDIsHeldTo(t *testing.T) {
	t.Parallel()
	n := startCluster(t, 1)[0]
	b := broker{n.Node}
	id := n.machine.Picture().Topic("t").ID.String()
	for named, want := range map[string]error{
		"": nil, id: nil,
		record.NewTopicID().String(): record.ErrUnknownTopicID,
		id[:30]:                      record.ErrUnknownTopicID,
		id + "00":                    record.ErrUnknownTopicID,
		"not hex":                    record.ErrUnknownTopicID,
	} {
		batch := record.NewBuilder(record.None, 1<<10)
		batch.Append(1, nil, []byte("x"), nil)
		done := make(chan wire.ProduceResponse, 1)
		b.Produce(wire.ProduceRequest{Topic: "t", TopicID: named, Acks: wire.AcksAll, Epoch: record.NoEpoch, Batch: batch.Build()}, func(r wire.ProduceResponse) { done <- r })
		if r := <-done; !errors.Is(r.Err, want) || want == nil && r.Err != nil {
			t.Errorf("produce for the topic %q: %v", named, r.Err)
		}
		r := b.Fetch(context.Background(), wire.FetchRequest{Topic: "t", TopicID: named, Epoch: record.NoEpoch})
		if !errors.Is(r.Err, want) || want == nil && r.Err != nil {
			t.Errorf("fetch of the topic %q: %v", named, r.Err)
		}
	}
}

// An offset that the leader's log does not have is refused, and one that it has and that is not committed yet
// is waited for.
func TestBroker_offsetBeyondTheEnd(t *testing.T) {
	t.Parallel()
	b := broker{startCluster(t, 1)[0].Node}
	batch := record.NewBuilder(record.None, 1<<10)
	batch.Append(1, nil, []byte("x"), nil)
	done := make(chan wire.ProduceResponse, 1)
	b.Produce(wire.ProduceRequest{Topic: "t", Acks: wire.AcksAll, Epoch: record.NoEpoch, Batch: batch.Build()}, func(r wire.ProduceResponse) { done <- r })
	if r := <-done; r.Err != nil {
		t.Fatal(r.Err)
	}
	for offset, want := range map[record.Offset]error{1: nil, 2: record.ErrOffsetOutOfRange, -1: record.ErrOffsetOutOfRange} {
		r := b.Fetch(t.Context(), wire.FetchRequest{Topic: "t", Epoch: record.NoEpoch, Offset: offset, MaxBytes: 1 << 10})
		if !errors.Is(r.Err, want) || r.HighWatermark != 1 || r.Epoch == record.NoEpoch {
			t.Errorf("offset %d: %+v", offset, r)
		}
	}
}

// A producer's sequence that does not follow is refused.
func TestBroker_sequenceThatDoesNotFollow(t *testing.T) {
	t.Parallel()
	b := broker{startCluster(t, 1)[0].Node}
	send := func(producer int64, sequence int32) error {
		batch := record.NewBuilder(record.None, 1<<10)
		batch.Append(1, nil, []byte("x"), nil)
		batch.SetProducer(producer, 0, sequence)
		done := make(chan wire.ProduceResponse, 1)
		b.Produce(wire.ProduceRequest{Topic: "t", Acks: wire.AcksAll, Epoch: record.NoEpoch, Batch: batch.Build()}, func(r wire.ProduceResponse) { done <- r })
		return (<-done).Err
	}
	if err := send(77, 0); err != nil {
		t.Fatal(err)
	}
	for _, refused := range []struct {
		producer int64
		want     error
	}{{77, record.ErrOutOfOrder}, {78, record.ErrUnknownProducer}} {
		if err := send(refused.producer, 9); !errors.Is(err, refused.want) {
			t.Errorf("producer %d, a sequence that does not follow: %v", refused.producer, err)
		}
	}
	if err := send(77, 1); err != nil {
		t.Errorf("the one that follows: %v", err)
	}
}
