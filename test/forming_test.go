//go:build linux

package test

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// oneCluster fails unless all nodes tell of the same cluster and of each other.
func (c *cluster) oneCluster() {
	c.t.Helper()
	c.awaitFormed()
	ids := map[string]string{}
	for _, n := range c.nodes {
		var st statusJSON
		ctl{nodes: []*node{n}}.json(c.t, &st, "status")
		ids[st.ClusterID] = n.name
		if st.Nodes != len(c.nodes) || st.NodesAlive != len(c.nodes) {
			c.t.Errorf("%s: %+v", n.name, st)
		}
	}
	if len(ids) != 1 {
		c.t.Fatalf("there are %d clusters: %v", len(ids), ids)
	}
}

// works proves that the cluster takes and gives a record at every node.
func (c *cluster) works() {
	c.t.Helper()
	c.createTopic("works", 3, nil)
	for _, n := range c.nodes {
		ctl{nodes: []*node{n}, stdin: n.name + "\n"}.must(c.t, "produce", "works", "--acks", "all")
	}
	cl := c.client()
	total := 0
	for p := range int32(3) {
		messages, _ := readPartition(c.t, cl, "works", p)
		total += len(messages)
	}
	if total != len(c.nodes) {
		c.t.Errorf("%d of %d records are there", total, len(c.nodes))
	}
}

// Three nodes started at once form one cluster, again and again.
func TestThreeNodes_atOnceFormOneCluster(t *testing.T) {
	var times []time.Duration
	for i := range pick(5, 50) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			c := newCluster(t, 3)
			began := time.Now()
			for _, n := range c.nodes {
				n.launch()
			}
			for _, n := range c.nodes {
				n.awaitPorts()
			}
			for _, n := range c.nodes {
				eventually(t, n.name+" is ready", n.ready)
			}
			times = append(times, time.Since(began))
			c.oneCluster()
			if i == 0 {
				c.works()
			}
		})
	}
	t.Logf("from the start of the processes until all are ready: %s", spread(times))
}

// Three nodes started one after the other, in each order, the last ones long after the first.
func TestThreeNodes_inAnyOrderFormOneCluster(t *testing.T) {
	pause := time.Duration(pick(1, 10)) * time.Second
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 3)
			for i, at := range order {
				if i > 0 {
					pass(t, pause)
				}
				c.nodes[at].start()
			}
			c.oneCluster()
			c.works()
		})
	}
}

// A node that joins a cluster of one with data becomes a member, and the topic's replicas grow.
func TestThreeNodes_joinAClusterOfOneWithData(t *testing.T) {
	t.Parallel()
	first := newNode(t, "first")
	first.start()
	c := &cluster{t: t, nodes: []*node{first}}
	c.createTopic("before", 2, nil)
	ctl{nodes: c.nodes, stdin: "1\n2\n3\n"}.must(t, "produce", "before")
	for _, name := range []string{"second", "third"} {
		n := newNode(t, name, "--join", first.addr.Gossip)
		n.start()
		c.nodes = append(c.nodes, n)
	}
	c.oneCluster()
	c.awaitWhole("before")
	c.works()
	for _, n := range c.nodes {
		if out := (ctl{nodes: []*node{n}}).must(t, "consume", "before", "--count", "3"); len(out) != 6 {
			t.Errorf("at %s the old records read %q", n.name, out)
		}
	}
}

// A founder that is killed while the cluster forms comes back into the same cluster.
func TestThreeNodes_survivesKillsWhileForming(t *testing.T) {
	t.Parallel()
	for i := range pick(2, 20) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			c := newCluster(t, 3)
			for _, n := range c.nodes {
				n.launch()
			}
			victim := c.nodes[i%3]
			victim.awaitPorts()
			pass(t, time.Duration(i*97%700)*time.Millisecond)
			victim.kill()
			victim.start()
			for _, n := range c.nodes {
				n.awaitPorts()
			}
			c.oneCluster()
		})
	}
}

// Nodes that all got new ports, as on boards with new addresses, find each other again as
// long as one join address or saved member is right.
func TestThreeNodes_comeBackWithNewPorts(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	c.works()
	for _, n := range c.nodes {
		n.stop()
	}
	for _, n := range c.nodes {
		n.addr.Native, n.addr.HTTP = n.ip+":0", n.ip+":0"
	}
	restart(c.nodes...)
	c.oneCluster()
	c.awaitWhole("works")
}

// pass lets time go by where that is what the test is about.
func pass(t testing.TB, d time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	<-ctx.Done()
}
