//go:build linux

package test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// unconnected makes a node that listens everywhere, in a namespace that has no address yet.
func unconnected(t *testing.T, name string, args ...string) *node {
	n := newNode(t, name, args...)
	n.addr = addresses{Native: ":7400", Gossip: ":7946", Kafka: ":9092", HTTP: ":7480"}
	n.plug()
	return n
}

// lease gives the node an address as DHCP does, and takes the one it had away.
func (n *node) lease(ip string) {
	if n.ip != "" && strings.HasPrefix(n.ip, "10.77.") {
		run(n.t, "ip", "-n", n.name, "addr", "del", n.ip+"/24", "dev", "eth0")
	}
	n.ip = ip
	run(n.t, "ip", "-n", n.name, "addr", "add", ip+"/24", "dev", "eth0")
}

// inside runs edgectl on the node's own machine.
func (n *node) inside(args ...string) error {
	line := append([]string{"netns", "exec", n.name, program(n.t, "edgectl"), "--node", "127.0.0.1:7400"}, args...)
	out, err := exec.Command("ip", line...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// found tells whether clients that ask by way of a node are sent to ip for n.
func found(n, by *node, ip string, alive int) error {
	out, errOut, code := ctl{nodes: []*node{by}}.run(n.t, "--json", "--timeout", "5s", "node", "list")
	switch {
	case code != 0:
		return fmt.Errorf("%s", errOut)
	case !strings.Contains(out, ip+":7400"):
		return fmt.Errorf("no node is at %s: %s", ip, out)
	case strings.Count(out, `"alive":true`)+strings.Count(out, `"alive": true`) != alive:
		return fmt.Errorf("not %d nodes are alive: %s", alive, out)
	}
	return nil
}

// A board boots before its network is up. The node serves who is on the board at once, tells everybody its
// address when it has one, and follows when it gets another.
func TestAddress_aLonelyNodeFollowsItsNetwork(t *testing.T) {
	t.Parallel()
	if !inOwnNamespaces(t) {
		return
	}
	makeBridge(t)
	n := unconnected(t, "n1")
	n.start()
	if !strings.HasPrefix(n.addr.Native, "127.0.0.1:") {
		t.Errorf("without a network it advertises %s", n.addr.Native)
	}
	eventually(t, "it serves its own board", func() error { return n.inside("topic", "create", "t") })
	for _, ip := range []string{"10.77.0.11", "10.77.0.23"} {
		n.lease(ip)
		n.addr.Native, n.addr.HTTP = ip+":7400", ip+":7480"
		began := time.Now()
		eventually(t, "it is found at "+ip, func() error { return found(n, n, ip, 1) })
		t.Logf("%s is told after %v", ip, time.Since(began).Round(time.Millisecond))
		if out := (ctl{nodes: []*node{n}, stdin: "a\n"}).must(t, "--json", "produce", "t"); !strings.Contains(out, `"acked":1`) {
			t.Errorf("%s", out)
		}
		if events := (ctl{nodes: []*node{n}}).must(t, "events"); !strings.Contains(events, "others find this node at "+ip+" now") {
			t.Errorf("no event tells of it:\n%s", events)
		}
	}
}

// The same of one of three: the cluster forms when its network is there, and when DHCP gives it another
// address the others find it there, without anybody's help, and lose nothing.
func TestAddress_theOthersFollow(t *testing.T) {
	t.Parallel()
	if !inOwnNamespaces(t) {
		return
	}
	makeBridge(t)
	c := &cluster{t: t}
	for i := range 3 {
		n := unconnected(t, fmt.Sprintf("n%d", i+1), "--bootstrap-expect", "3", "--join", "10.77.0.11:7946", "--join", "10.77.0.12:7946")
		if i < 2 {
			n.lease(fmt.Sprintf("10.77.0.%d", 11+i))
		}
		n.start()
		n.addr.HTTP = n.ip + ":7480"
		c.nodes = append(c.nodes, n)
	}
	late := c.nodes[2]
	if !strings.HasPrefix(late.addr.Native, "127.0.0.1:") {
		t.Errorf("without a network it advertises %s", late.addr.Native)
	}
	move := func(ip string) {
		t.Helper()
		late.lease(ip)
		late.addr.Native, late.addr.HTTP = ip+":7400", ip+":7480"
		began := time.Now()
		for _, n := range c.nodes {
			eventually(t, n.name+" finds it at "+ip, func() error { return found(late, n, ip, 3) })
		}
		t.Logf("all find it at %s after %v", ip, time.Since(began).Round(time.Millisecond))
	}
	move("10.77.0.13")
	c.awaitFormed()
	c.createTopic("t", 3, nil)
	produce := func() {
		t.Helper()
		for _, n := range c.nodes {
			var sum produceJSON
			ctl{nodes: []*node{n}, stdin: "a\nb\n"}.json(t, &sum, "produce", "t")
			if sum.Acked != 2 || sum.Failed != 0 {
				t.Errorf("by way of %s: %+v", n.name, sum)
			}
		}
	}
	produce()
	move("10.77.0.33")
	c.awaitWhole("t")
	produce()
	if got := strings.Count((ctl{nodes: c.nodes}).must(t, "consume", "t"), "\n"); got != 12 {
		t.Errorf("%d records of 12", got)
	}
	for _, n := range c.nodes {
		if events := (ctl{nodes: []*node{n}}).must(t, "node", "describe"); strings.Contains(events, "another process runs under the identity") {
			t.Errorf("%s takes the move for a clone:\n%s", n.name, events)
		}
	}
}
