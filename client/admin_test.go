package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"edged/record"
	"edged/transport/wire"
)

func TestAdmin_findsTheMetadataLeader(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		c.metaLeader = 2
		cl := c.client(0)
		a := cl.Admin()
		ctx := ctxFor(t, time.Minute)
		if resp, err := a.CreateTopic(ctx, wire.CreateTopicRequest{Name: "t", Partitions: 2}); err != nil || resp.Partitions != 2 {
			t.Fatalf("%+v, %v", resp, err)
		}
		if s := cl.Stats(); s.Redirects != 1 {
			t.Errorf("%+v", s)
		}
		if _, err := a.CreateTopic(ctx, wire.CreateTopicRequest{Name: "t", Partitions: 2}); !errors.Is(err, record.ErrTopicExists) {
			t.Errorf("again: %v", err)
		}
		topic, err := a.Topic(ctx, "t")
		if err != nil || len(topic.Partitions) != 2 || topic.Partitions[1].Leader != 101 {
			t.Errorf("%+v, %v", topic, err)
		}
		tr, err := a.TransferLeader(ctx, wire.TransferLeaderRequest{Topic: "t", Partition: 1, To: 102})
		if err != nil || tr.Leader != 102 {
			t.Errorf("%+v, %v", tr, err)
		}
		if off, err := a.Offsets(ctx, "t", 1, wire.AtEnd); err != nil || off.Epoch != 2 {
			t.Errorf("%+v, %v", off, err)
		}
		md, err := a.Metadata(ctx, nil)
		if err != nil || len(md.Nodes) != 3 || len(md.Topics) != 1 {
			t.Errorf("%+v, %v", md, err)
		}
		if st, err := a.Status(ctx); err != nil || st.Nodes != 3 {
			t.Errorf("%+v, %v", st, err)
		}
		if h, err := a.LeaderHistory(ctx, wire.LeaderHistoryRequest{Partition: -1}); err != nil || len(h.Changes) != 1 || h.Changes[0].At.UnixMilli() != 5 || h.Node < 100 {
			t.Errorf("%+v, %v", h, err)
		}
		if r, err := a.RemoveNode(ctx, wire.RemoveNodeRequest{Node: 102, Force: true}); err != nil || !r.Removed {
			t.Errorf("%+v, %v", r, err)
		}
		if _, err := a.DescribeNode(ctx, 999); !errors.Is(err, record.ErrUnknownNode) {
			t.Errorf("%v", err)
		}
		if err := a.AlterTopic(ctx, wire.AlterTopicRequest{Name: "t"}); err != nil {
			t.Error(err)
		}
		if err := a.DeleteTopic(ctx, "t"); err != nil {
			t.Error(err)
		}
		if err := a.DeleteTopic(ctx, "t"); !errors.Is(err, record.ErrUnknownTopic) {
			t.Errorf("again: %v", err)
		}
		if _, err := a.Topic(ctx, "t"); !errors.Is(err, record.ErrUnknownTopic) {
			t.Errorf("%v", err)
		}
	})
}

// The request took effect and its answer was lost: the repetition must not look like a failure.
func TestAdmin_lostAnswers(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, c *fakeCluster) {
		first := true
		c.nodes[0].asked = func(string) (bool, error) {
			lose := first
			first = false
			return lose, nil
		}
		a := c.client().Admin()
		ctx := ctxFor(t, time.Minute)
		if resp, err := a.CreateTopic(ctx, wire.CreateTopicRequest{Name: "t", Partitions: 2}); err != nil || resp.Partitions != 2 {
			t.Errorf("%+v, %v", resp, err)
		}
		first = true
		if err := a.DeleteTopic(ctx, "t"); err != nil {
			t.Error(err)
		}
		// Somebody else's topic of that name is not taken for ours.
		c.addTopic("other", 7)
		first = true
		c.nodes[0].asked = func(string) (bool, error) {
			if first {
				first = false
				return false, record.ErrInterrupted
			}
			return false, nil
		}
		if _, err := a.CreateTopic(ctx, wire.CreateTopicRequest{Name: "other", Partitions: 2}); !errors.Is(err, record.ErrTopicExists) {
			t.Errorf("%v", err)
		}
	})
}

func TestAdmin_nobodyThere(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, c *fakeCluster) {
		c.nodes[0].kill()
		c.nodes[1].kill()
		began := time.Now()
		_, err := c.client().Admin().Status(ctxFor(t, 2*time.Second))
		var lost *ConnError
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &lost) || time.Since(began) != 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestNew_wantsAnAddress(t *testing.T) {
	for _, nodes := range [][]string{nil, {"edge1"}, {"edge1:7400", ""}} {
		if _, err := New(Config{Nodes: nodes}); err == nil {
			t.Errorf("%q was taken", nodes)
		}
	}
}
