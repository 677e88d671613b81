package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"edged/metadata"
	"edged/record"
	"edged/transport/wire"

	"github.com/twmb/franz-go/pkg/kgo"
)

// clusterOfFour has a topic t of three replicas on nodes that are registered with all.
func clusterOfFour(t *testing.T) []*testNode {
	t.Helper()
	nodes := startCluster(t, 3)
	nodes = append(nodes, startNodeIn(t, t.TempDir(), 0, nodes[0].Addrs().Gossip))
	for _, n := range nodes {
		await(t, "four nodes", func() bool {
			return n.caughtUp() && len(n.machine.Picture().NodesSorted()) == 4 && len(n.up()) == 4
		})
	}
	return nodes
}

func remove(t *testing.T, at *testNode, req wire.RemoveNodeRequest) (wire.RemoveNodeResponse, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return broker{at.Node}.RemoveNode(ctx, req)
}

// awaitOn waits until every partition of t has its replicas on exactly these nodes.
func awaitOn(t *testing.T, at *testNode, nodes []*testNode) {
	t.Helper()
	var want []record.NodeID
	for _, n := range nodes {
		want = append(want, n.ident.Get().Node)
	}
	slices.Sort(want)
	await(t, "the replicas are on the nodes that are left", func() bool {
		for _, p := range at.machine.Picture().Topic("t").Partitions {
			on := nodesOf(p.Replicas)
			slices.Sort(on)
			if !slices.Equal(on, want) || len(p.Adding)+len(p.Removing) > 0 {
				return false
			}
		}
		return true
	})
}

// ended waits for a node to end by itself, and gives its error.
func (tn *testNode) ended(t *testing.T) (err error) {
	t.Helper()
	await(t, "the node ends", func() bool {
		select {
		case err = <-tn.done:
			tn.done <- err
			return true
		default:
			return false
		}
	})
	return err
}

// A node that is away is removed, and what it held is made anew on others. If it comes back it ends at
// once and says why. One that is alive stays.
func TestRemove_aNodeThatIsAway(t *testing.T) {
	t.Parallel()
	nodes := clusterOfFour(t)
	// The one with the greatest id goes: of two nodes the lower one connects, and none will with it.
	slices.SortFunc(nodes, func(a, b *testNode) int { return int(a.ident.Get().Node) - int(b.ident.Get().Node) })
	id := nodes[3].ident.Get().Node
	if _, err := remove(t, nodes[0], wire.RemoveNodeRequest{Node: id}); !errors.Is(err, record.ErrRefused) || !strings.Contains(err.Error(), "use --force") {
		t.Errorf("a node that is alive: %v", err)
	}
	if _, err := remove(t, nodes[0], wire.RemoveNodeRequest{Node: id + 1000}); !errors.Is(err, record.ErrUnknownNode) {
		t.Errorf("a node that there is not: %v", err)
	}
	if nodes[0].machine.Picture().Node(id).Leaving {
		t.Error("a refused removal has begun")
	}
	dir := nodes[3].cfg.DataDir
	nodes[3].stop()
	left := nodes[:3]
	await(t, "it is away", func() bool { return !nodes[0].up()[id] })
	for range 2 { // a repeated request is answered alike
		if r, err := remove(t, nodes[0], wire.RemoveNodeRequest{Node: id}); err != nil || !r.Removed || r.Missing+r.Moving > 0 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	awaitOn(t, nodes[0], left)
	if nodes[0].machine.Picture().Node(id) != nil {
		t.Error("the node is still registered")
	}
	for _, n := range left {
		await(t, "the event of its removal", func() bool {
			events, _ := n.notes.after(0)
			return slices.ContainsFunc(events, func(e event) bool {
				return e.Kind == eventMembership && e.Text == fmt.Sprintf("node %d (test) was removed from the cluster for good", id)
			})
		})
	}
	// Nobody connects with it any more, and what it tries itself fails at first: it still finds out.
	back := startNodeWith(t, dir, func(_ *Config, o *Options) {
		dial, began := o.Dial, time.Now()
		o.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			if time.Since(began) < 2*time.Second {
				return nil, errDead
			}
			return dial(ctx, addr)
		}
	}, 0, nodes[0].Addrs().Gossip)
	var ce *ConfigError
	if err := back.ended(t); !errors.As(err, &ce) || !strings.Contains(err.Error(), "removed from its cluster") {
		t.Errorf("the removed node ended with %v", err)
	}
}

// With force a node that is alive is emptied, removed, and ends, be it the one that leads the metadata,
// and with records that it alone had.
func TestRemove_aLiveNodeByForce(t *testing.T) {
	t.Parallel()
	nodes := clusterOfFour(t)
	id := nodes[0].metadataLeader()
	slices.SortFunc(nodes, func(a, b *testNode) int { // it comes last
		if a.ident.Get().Node == id {
			return 1
		}
		return -1
	})
	if _, err := (broker{nodes[0].Node}).CreateTopic(t.Context(), wire.CreateTopicRequest{Name: "one", Partitions: 4, Replication: 1}); err != nil {
		t.Fatal(err)
	}
	c := kafkaClient(t, nodes, kgo.DefaultProduceTopic("one"))
	for i := range 40 {
		if err := c.ProduceSync(within(t), kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := remove(t, nodes[0], wire.RemoveNodeRequest{Node: id, Force: true}); err != nil || !r.Removed {
		t.Fatalf("%+v, %v", r, err)
	}
	awaitOn(t, nodes[0], nodes[:3])
	if got := consume(t, nodes[:3], "one", 40); len(got) != 40 {
		t.Errorf("%d records are left", len(got))
	}
	if err := nodes[3].ended(t); err == nil || !strings.Contains(err.Error(), "removed from its cluster") {
		t.Errorf("the removed node ended with %v", err)
	}
}

// A live node whose replicas no other node can take stays, and the mark can be taken back. Once it is
// away it is removed, and what it held is made when there is a node again.
func TestRemove_replicasWithNowhereToGo(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	if _, err := (broker{nodes[0].Node}).CreateTopic(t.Context(), wire.CreateTopicRequest{Name: "three", Partitions: 2, Replication: 3}); err != nil {
		t.Fatal(err)
	}
	id := nodes[2].ident.Get().Node
	// The mark stays, so the refusal says so and how to take it back.
	_, err := remove(t, nodes[0], wire.RemoveNodeRequest{Node: id, Force: true})
	if !errors.Is(err, record.ErrRefused) || !strings.Contains(err.Error(), "is leaving and not removed") || !strings.Contains(err.Error(), "when a node joins") || !strings.Contains(err.Error(), "--cancel takes the leaving back") {
		t.Errorf("%v", err)
	}
	if !nodes[0].machine.Picture().Node(id).Leaving {
		t.Error("the refusal says that the node is leaving, and it is not")
	}
	if _, err := remove(t, nodes[0], wire.RemoveNodeRequest{Node: id, Cancel: true}); err != nil {
		t.Error(err)
	}
	await(t, "the mark is taken back", func() bool { return !nodes[0].machine.Picture().Node(id).Leaving })
	await(t, "t has three replicas again", func() bool {
		return !slices.ContainsFunc(nodes[0].machine.Picture().Topic("t").Partitions, func(p *metadata.Partition) bool {
			return len(p.Replicas) != 3 || len(p.Adding)+len(p.Removing) > 0
		})
	})
	nodes[2].stop()
	await(t, "it is away", func() bool { return !nodes[0].up()[id] })
	if r, err := remove(t, nodes[0], wire.RemoveNodeRequest{Node: id}); err != nil || !r.Removed || r.Missing != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	startNodeIn(t, t.TempDir(), 0, nodes[0].Addrs().Gossip)
	await(t, "the new node has taken what was missing", func() bool {
		return !slices.ContainsFunc(nodes[0].machine.Picture().Topic("three").Partitions, func(p *metadata.Partition) bool {
			return slices.Contains(nodesOf(p.Replicas), id) || len(p.Adding)+len(p.Removing) > 0
		})
	})
}

// A node without which a partition can decide nothing is removed by force only.
func TestRemove_aNodeThatIsNeeded(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	if _, err := (broker{nodes[0].Node}).CreateTopic(t.Context(), wire.CreateTopicRequest{Name: "one", Partitions: 3, Replication: 1}); err != nil {
		t.Fatal(err)
	}
	id := nodes[2].ident.Get().Node
	nodes[2].stop()
	await(t, "it is away", func() bool { return !nodes[0].up()[id] })
	if _, err := remove(t, nodes[0], wire.RemoveNodeRequest{Node: id}); !errors.Is(err, record.ErrRefused) || !strings.Contains(err.Error(), "one/") || !strings.Contains(err.Error(), "With --force they cannot be read") {
		t.Errorf("%v", err)
	}
	var needed record.GroupID
	for _, held := range nodes[0].machine.Picture().ReplicasOn(id) {
		if held.Topic.Name == "one" {
			needed = held.Partition.Group
		}
	}
	if text := nodes[0].noLeader(needed).Error(); !strings.Contains(text, "start again") {
		t.Error(text)
	}
	if r, err := remove(t, nodes[0], wire.RemoveNodeRequest{Node: id, Force: true}); err != nil || !r.Removed || r.Missing != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if text := nodes[0].noLeader(needed).Error(); strings.Contains(text, "start again") || !strings.Contains(text, "was removed with force") {
		t.Error(text)
	}
}
