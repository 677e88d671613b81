package node

import (
	"context"
	"errors"
	"testing"

	"edged/record"
	"edged/transport/wire"
)

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
