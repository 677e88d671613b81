package client

import (
	"errors"
	"testing"
	"testing/synctest"
)

// A node that was made anew at an old address and is of another cluster now knows nothing of our
// topics: it is not believed, and the nodes of our cluster are asked instead.
func TestNodesOfAnotherClusterAreNotListenedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, 2)
		defer c.close()
		c.addTopic("t", 1)
		cl := c.client(0)
		defer cl.Close()
		if _, err := cl.connect(t.Context(), c.nodes[0].addr()); err != nil {
			t.Fatal(err)
		}
		c.mu.Lock()
		c.nodes[1].cluster = "another"
		c.nodes[1].behind["t"] = true
		c.mu.Unlock()
		_, err := cl.connect(t.Context(), c.nodes[1].addr())
		if !errors.Is(err, ErrOtherCluster) {
			t.Fatalf("connecting to a node of another cluster: %v", err)
		}
		if n, err := cl.PartitionCount(t.Context(), "t"); err != nil || n != 1 {
			t.Fatalf("%d partitions, %v", n, err)
		}
	})
}

// A node that is in no cluster yet neither decides which one the client is of nor is refused.
func TestNodesWithoutAClusterDecideNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, 2)
		defer c.close()
		c.mu.Lock()
		c.nodes[0].cluster = ""
		c.mu.Unlock()
		cl := c.client(0)
		defer cl.Close()
		for _, n := range c.nodes {
			if _, err := cl.connect(t.Context(), n.addr()); err != nil {
				t.Fatal(err)
			}
		}
		if cl.mu.cluster != "fake" {
			t.Fatalf("the client is of cluster %q", cl.mu.cluster)
		}
	})
}
