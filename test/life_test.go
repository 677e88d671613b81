//go:build linux

package test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A node that waits for others says so everywhere, refuses with a reason, and stops at once.
func TestWaitingNode_saysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	n := newNode(t, "lonely", "--bootstrap-expect", "3")
	n.start()
	if err := n.get("/livez", nil); err != nil {
		t.Error(err)
	}
	if err := n.ready(); err == nil || !strings.Contains(err.Error(), "1 of the 3") {
		t.Errorf("/readyz: %v", err)
	}
	_, said, code := ctl{nodes: []*node{n}}.run(t, "--timeout", "2s", "status")
	if code != 4 || !strings.Contains(said, "1 of the 3") || strings.Count(said, "\n") != 1 {
		t.Errorf("edgectl status: exit code %d, %q", code, said)
	}
	if took := n.stop(); took > 2*time.Second*slack {
		t.Errorf("stopping took %v", took)
	}
}

// What is left without a majority says so, acknowledges nothing, and goes on when the others
// are back.
func TestMinority_saysSoAndAcknowledgesNothing(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	c.createTopic("t", 2, nil)
	only := c.nodes[0]
	for _, n := range c.others(only) {
		n.kill()
	}
	eventually(t, "the survivor knows no leader", func() error {
		got, err := partitionsAt(only, "t")
		if err != nil {
			return err
		}
		for i, p := range got {
			if p.leader != -1 {
				return fmt.Errorf("partition %d is led by node %d", i, p.leader)
			}
		}
		return nil
	})
	alone := ctl{nodes: []*node{only}, stdin: "x\n"}
	var d topicJSON
	alone.json(t, &d, "topic", "describe", "t")
	if d.Partitions[0].Leader != -1 || d.Partitions[0].Epoch < 1 {
		t.Errorf("topic describe: %+v", d.Partitions[0])
	}
	var st statusJSON
	alone.json(t, &st, "status")
	if st.NodesAlive != 1 || st.Leaderless != 2 || st.Nodes != 3 {
		t.Errorf("status: %+v", st)
	}
	// Whatever is asked, the answer is what is missing and what to do, also where it is asked of all nodes.
	all := ctl{nodes: append([]*node{only}, c.others(only)...), stdin: "x\n"}
	for _, args := range [][]string{{"produce", "t"}, {"consume", "t"}, {"topic", "create", "u"}, {"partition", "transfer", "t", "0"}} {
		_, said, code := all.run(t, append([]string{"--timeout", "4s"}, args...)...)
		if code != 4 || strings.Count(said, "\n") > 2 || !strings.Contains(said, "1 of its 3 replicas are connected, 2 are needed; start again node") ||
			strings.Contains(said, "refused") || strings.Count(said, "last:") > 1 {
			t.Errorf("%s: exit code %d, %q", args[0], code, said)
		}
	}
	raw, err := dialRaw(only.addr.Native)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.close()
	began := time.Now()
	_, _, _, err = raw.produce("t", 0, -1, 2*time.Second, oneBatch(t, []byte("x")))
	var refused *rawError
	if !errors.As(err, &refused) || refused.code != "no_leader" || !refused.retriable {
		t.Errorf("a raw produce: %v", err)
	}
	if took := time.Since(began); took > time.Second*slack {
		t.Errorf("the refusal took %v", took)
	}
	if _, said, code := alone.run(t, "--timeout", "2s", "topic", "create", "u"); code != 4 {
		t.Errorf("topic create: exit code %d, %q", code, said)
	}
	restart(c.others(only)...)
	c.awaitWhole("t")
	alone.must(t, "produce", "t")
	if out := alone.must(t, "consume", "t"); out != "x\n" {
		t.Errorf("there is %q", out)
	}
}

// A copy of a node's disk, as of a cloned card, is refused while the true node lives.
func TestClone_isRefused(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	c.works()
	original := c.nodes[2]
	original.stop()
	clone := newNode(t, "clone", original.args...)
	if err := os.CopyFS(clone.data, os.DirFS(original.data)); err != nil {
		t.Fatal(err)
	}
	original.start()
	c.awaitWhole("works")
	clone.launch()
	select {
	case <-clone.ended:
	case <-time.After(patience):
		t.Fatalf("the clone runs on:\n%s", clone.logTail())
	}
	if text := clone.logText(); clone.err == nil || !strings.Contains(text, "edged: ") || !strings.Contains(text, "cloned") {
		t.Errorf("the clone ended with %v:\n%s", clone.err, text)
	}
	c.awaitWhole("works")
	if !original.running() {
		t.Errorf("the clone has ended the original")
	}
}

// A node that lost its disk comes back as a new node of the same cluster, with the same command
// line, and nothing that was acknowledged is lost with it. The old one is told apart from it, and
// removed, after which the new one has taken its place.
func TestWipedDisk_isANewNode(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	c.createTopic("t", 3, nil)
	l := c.startLoad("t", loadConfig{})
	l.awaitAcks(300)
	wiped := c.nodes[1]
	was := wiped.addr.NodeID
	wiped.kill()
	if err := os.RemoveAll(wiped.data); err != nil {
		t.Fatal(err)
	}
	wiped.start()
	eventually(t, "the wiped node is ready", wiped.ready)
	if wiped.addr.NodeID == was {
		t.Errorf("the wiped node is node %d again", was)
	}
	var st statusJSON
	ctl{nodes: []*node{wiped}}.json(t, &st, "status")
	var other statusJSON
	ctl{nodes: []*node{c.nodes[0]}}.json(t, &other, "status")
	if st.ClusterID != other.ClusterID || st.Nodes != 4 {
		t.Errorf("the wiped node says %+v, another %+v", st, other)
	}
	l.awaitAcks(300)
	r := l.finish()
	t.Log(r)
	if len(r.errs) > 0 {
		t.Errorf("%d records failed, the first: %v", len(r.errs), r.errs[0])
	}
	any := ctl{nodes: []*node{c.nodes[0]}}
	if _, said, code := any.run(t, "node", "remove", fmt.Sprint(wiped.addr.NodeID)); code != 5 {
		t.Errorf("removing a node that is alive: exit code %d, %s", code, said)
	}
	if _, said, _ := any.run(t, "node", "list"); !strings.Contains(said, fmt.Sprintf("edgectl node remove %d", was)) {
		t.Errorf("node list says %q", said)
	}
	any.must(t, "--timeout", "60s", "node", "remove", fmt.Sprint(was))
	var after statusJSON
	any.json(t, &after, "status")
	if after.Nodes != 3 || after.NodesAlive != 3 {
		t.Errorf("after the removal: %+v", after)
	}
	c.awaitWhole("t")
}

// Two clusters that meet stay two: a node with data is never absorbed.
func TestTwoClusters_neverMerge(t *testing.T) {
	t.Parallel()
	a, b := newNode(t, "a"), newNode(t, "b")
	ids := map[*node]string{}
	for _, n := range []*node{a, b} {
		n.start()
		eventually(t, "ready", n.ready)
		ctl{nodes: []*node{n}}.must(t, "topic", "create", "of-"+n.name)
		var st statusJSON
		ctl{nodes: []*node{n}}.json(t, &st, "status")
		ids[n] = st.ClusterID
	}
	b.stop()
	b.args = append(b.args, "--join", a.addr.Gossip)
	b.start()
	eventually(t, "b says that it met another cluster", func() error {
		out := ctl{nodes: []*node{b}}.must(t, "node", "describe")
		if !strings.Contains(out, ids[a]) {
			return fmt.Errorf("node describe says\n%s", out)
		}
		return nil
	})
	for _, n := range []*node{a, b} {
		var st statusJSON
		one := ctl{nodes: []*node{n}}
		one.json(t, &st, "status")
		if st.ClusterID != ids[n] || st.Nodes != 1 || st.Topics != 1 {
			t.Errorf("%s: %+v", n.name, st)
		}
		one.must(t, "topic", "describe", "of-"+n.name)
	}
}

// A data directory that is moved to another place, with another address, is the same node.
func TestMovedNode_isTheSame(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	c.works()
	n := c.nodes[0]
	was := n.addr.NodeID
	n.stop()
	moved := filepath.Join(n.dir, "moved")
	rename(t, n.data, moved)
	n.data, n.ip = moved, loopback()
	n.addr = addresses{Native: n.ip + ":0", Gossip: n.ip + ":0", Kafka: n.ip + ":0", HTTP: n.ip + ":0"}
	n.start()
	if n.addr.NodeID != was {
		t.Errorf("node %d is node %d now", was, n.addr.NodeID)
	}
	c.awaitWhole("works")
	for _, other := range c.nodes {
		eventually(t, other.name+" sends clients to the new address", func() error {
			out := ctl{nodes: []*node{other}}.must(t, "node", "list")
			if !strings.Contains(out, n.addr.Native) {
				return errors.New(out)
			}
			return nil
		})
	}
}
