//go:build linux

package test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"edged/client"
	"edged/record"
	"edged/transport/wire"
)

// cluster is some nodes that know each other's gossip addresses.
type cluster struct {
	t     testing.TB
	nodes []*node
}

// newCluster makes size nodes that will form one cluster, and starts none.
func newCluster(t testing.TB, size int, args ...string) *cluster {
	c := &cluster{t: t}
	for i := range size {
		n := newNode(t, fmt.Sprintf("n%d", i+1), args...)
		n.addr.Gossip = freePort(t, n.ip)
		c.nodes = append(c.nodes, n)
	}
	for _, n := range c.nodes {
		n.args = append(n.args, "--bootstrap-expect", strconv.Itoa(size))
		for _, other := range c.nodes {
			if other != n {
				n.args = append(n.args, "--join", other.addr.Gossip)
			}
		}
	}
	return c
}

// startCluster starts size nodes at once and waits until they are one cluster.
func startCluster(t testing.TB, size int, args ...string) *cluster {
	t.Helper()
	c := newCluster(t, size, args...)
	for _, n := range c.nodes {
		n.launch()
	}
	for _, n := range c.nodes {
		n.awaitPorts()
	}
	c.awaitFormed()
	return c
}

// awaitFormed waits until every node is ready and sees all others.
func (c *cluster) awaitFormed() {
	c.t.Helper()
	for _, n := range c.nodes {
		eventually(c.t, n.name+" is ready", n.ready)
		eventually(c.t, n.name+" sees all nodes", func() error { return c.seesAll(n) })
	}
}

func (c *cluster) seesAll(n *node) error {
	raw, err := dialRaw(n.addr.Native)
	if err != nil {
		return err
	}
	defer raw.close()
	st, err := raw.status()
	if err != nil {
		return err
	}
	if st.nodes != len(c.nodes) || st.alive != len(c.nodes) {
		return fmt.Errorf("%s knows %d nodes, %d alive, of %d", n.name, st.nodes, st.alive, len(c.nodes))
	}
	return nil
}

// client gives a client that begins with all nodes and is closed at the end of the test.
func (c *cluster) client() *client.Client {
	c.t.Helper()
	return newClient(c.t, c.nodes...)
}

func newClient(t testing.TB, nodes ...*node) *client.Client {
	t.Helper()
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.addr.Native)
	}
	cl, err := client.New(client.Config{Nodes: addrs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cl.Close(); err != nil {
			t.Error(err)
		}
	})
	return cl
}

// createTopic makes a topic and waits until all its partitions are led and replicated.
func (c *cluster) createTopic(name string, partitions int32, configs map[string]string) {
	c.t.Helper()
	cl := c.client()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := cl.Admin().CreateTopic(ctx, wire.CreateTopicRequest{Name: name, Partitions: partitions, Configs: configs}); err != nil {
		c.t.Fatal(err)
	}
	c.awaitLed(name)
}

// awaitLed waits until every node that runs names the same leader and epoch for each
// partition of the topic, and that leader runs.
func (c *cluster) awaitLed(topic string) {
	c.t.Helper()
	eventually(c.t, topic+" is led, and all nodes agree on it", func() error { return c.agreed(topic) })
}

func (c *cluster) agreed(topic string) error {
	var first []partitionState
	for _, n := range c.nodes {
		if !n.running() {
			continue
		}
		got, err := partitionsAt(n, topic)
		if err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
		for i, p := range got {
			if p.leader < 0 || !c.runs(p.leader) {
				return fmt.Errorf("%s: partition %d has leader %d in epoch %d", n.name, i, p.leader, p.epoch)
			}
			if first != nil && (first[i].leader != p.leader || first[i].epoch != p.epoch || first[i].addr != p.addr) {
				return fmt.Errorf("partition %d: %s says leader %d at %s epoch %d, another says %d at %s epoch %d",
					i, n.name, p.leader, p.addr, p.epoch, first[i].leader, first[i].addr, first[i].epoch)
			}
		}
		first = got
	}
	return nil
}

func (c *cluster) runs(id int32) bool {
	n := c.byID(id)
	return n != nil && n.running()
}

func (c *cluster) byID(id int32) *node {
	for _, n := range c.nodes {
		if n.addr.NodeID == id {
			return n
		}
	}
	return nil
}

// leader gives the node that leads a partition, as all agree.
func (c *cluster) leader(topic string, partition int32) (*node, partitionState) {
	c.t.Helper()
	c.awaitLed(topic)
	for _, n := range c.nodes {
		if !n.running() {
			continue
		}
		got, err := partitionsAt(n, topic)
		if err != nil {
			c.t.Fatal(err)
		}
		return c.byID(got[partition].leader), got[partition]
	}
	c.t.Fatal("no node runs")
	return nil, partitionState{}
}

// others are the nodes but the one.
func (c *cluster) others(not *node) []*node {
	var out []*node
	for _, n := range c.nodes {
		if n != not {
			out = append(out, n)
		}
	}
	return out
}

// awaitWhole waits until nothing is leaderless or under-replicated and every follower has
// all that is committed.
func (c *cluster) awaitWhole(topics ...string) {
	c.t.Helper()
	for _, n := range c.nodes {
		eventually(c.t, n.name+" is ready", n.ready)
	}
	eventually(c.t, "the cluster is whole", func() error {
		raw, err := dialRaw(c.nodes[0].addr.Native)
		if err != nil {
			return err
		}
		defer raw.close()
		st, err := raw.status()
		if err != nil {
			return err
		}
		if st.alive != len(c.nodes) || st.leaderless > 0 || st.under > 0 {
			return fmt.Errorf("%d of %d nodes alive, %d partitions leaderless, %d under-replicated", st.alive, len(c.nodes), st.leaderless, st.under)
		}
		return nil
	})
	for _, topic := range topics {
		var want []int64 // a follower hears of a commit with the next append: under load it is always one behind
		eventually(c.t, "the high watermarks of "+topic, func() (err error) { want, err = c.highest(topic); return err })
		eventually(c.t, "all replicas of "+topic+" have caught up", func() error { return c.caughtUp(topic, want) })
	}
}

// highest are the highest high watermarks of a topic's partitions that any node tells now.
func (c *cluster) highest(topic string) ([]int64, error) {
	var high []int64
	for _, n := range c.nodes {
		got, err := partitionsAt(n, topic)
		if err != nil {
			return nil, err
		}
		high = append(high, make([]int64, max(len(got)-len(high), 0))...)
		for i := range got {
			high[i] = max(high[i], got[i].high)
		}
	}
	return high, nil
}

// caughtUp holds the high watermarks that all nodes tell of their own replicas against want.
func (c *cluster) caughtUp(topic string, want []int64) error {
	for _, n := range c.nodes {
		got, err := partitionsAt(n, topic)
		if err != nil {
			return err
		}
		for i := range want {
			if have := got[i].high; have < want[i] {
				return fmt.Errorf("partition %d: %s has %d, there are %d", i, n.name, have, want[i])
			}
		}
	}
	return nil
}

// restart launches nodes again and waits for their ports.
func restart(nodes ...*node) {
	for _, n := range nodes {
		n.launch()
	}
	for _, n := range nodes {
		n.awaitPorts()
	}
}

// freeze stops a process without ending it and waits until it stands still.
func freeze(t testing.TB, n *node) {
	t.Helper()
	n.signal(syscall.SIGSTOP)
	eventually(t, n.name+" stands still", func() error {
		state, err := processState(n.addr.PID)
		if err == nil && state != "T" {
			err = fmt.Errorf("state %s", state)
		}
		return err
	})
}

func thaw(n *node) { n.signal(syscall.SIGCONT) }

// transfer moves leadership of a partition to a node.
func transfer(t testing.TB, cl *client.Client, topic string, partition int32, to *node) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s/%d moves to %s", topic, partition, to.name), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		res, err := cl.Admin().TransferLeader(ctx, wire.TransferLeaderRequest{Topic: topic, Partition: partition, To: record.NodeID(to.addr.NodeID)})
		if err == nil && res.Leader != record.NodeID(to.addr.NodeID) {
			err = errors.New("another node took it")
		}
		return err
	})
}
