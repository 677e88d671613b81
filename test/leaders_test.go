//go:build linux

package test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"edged/client"
	"edged/record"
)

// oneBatch is a batch of one record, as a client in any language would make it.
func oneBatch(t testing.TB, value []byte) []byte {
	t.Helper()
	b := record.NewBuilder(record.None, 4<<20)
	if !b.Append(time.Now().UnixMilli(), nil, value, nil) {
		t.Fatalf("a value of %d bytes does not fit", len(value))
	}
	return b.Build()
}

// Every node tells the same leader and epoch, a producer pointed at any node succeeds, and a
// client that follows nothing is told where to go and succeeds there.
func TestRedirects_everyNodeNamesTheLeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	c.createTopic("t", 6, nil)
	var first topicJSON
	for i, n := range c.nodes {
		var d topicJSON
		ctl{nodes: []*node{n}}.json(t, &d, "topic", "describe", "t")
		for p := range d.Partitions {
			d.Partitions[p].HighWatermark = 0 // followers may be a moment behind
			if d.Partitions[p].Leader < 0 || d.Partitions[p].LeaderAddr == "" || len(d.Partitions[p].Replicas) != 3 {
				t.Errorf("%s: %+v", n.name, d.Partitions[p])
			}
		}
		if i == 0 {
			first = d
		} else if fmt.Sprint(d) != fmt.Sprint(first) {
			t.Errorf("%s says\n%v, another node\n%v", n.name, d, first)
		}
	}
	led := map[int32]int{}
	for _, p := range first.Partitions {
		led[p.Leader]++
	}
	for id, count := range led {
		if count != 2 {
			t.Errorf("node %d leads %d of 6 partitions, leaders are not spread: %v", id, count, led)
		}
	}
	for _, n := range c.nodes {
		for p := range int32(6) {
			c.followOnce(n, p)
		}
		var sum produceJSON
		ctl{nodes: []*node{n}, stdin: strings.Repeat("x\n", 100)}.json(t, &sum, "produce", "t")
		if sum.Acked != 100 || sum.Failed != 0 {
			t.Errorf("by way of %s: %+v", n.name, sum)
		}
	}
}

// followOnce produces to a partition at a node, and goes where it is sent exactly once.
func (c *cluster) followOnce(n *node, partition int32) {
	c.t.Helper()
	at := n.addr.Native
	for hop := range 2 {
		raw, err := dialRaw(at)
		if err != nil {
			c.t.Fatal(err)
		}
		_, epoch, bought, err := raw.produce("t", partition, -1, 5*time.Second, oneBatch(c.t, []byte("raw")))
		var refused *rawError
		if errors.As(err, &refused) && hop == 0 {
			_, _, _, fetchErr := raw.fetch("t", partition, 0, 0)
			var fetchRefused *rawError
			if !errors.As(fetchErr, &fetchRefused) || fetchRefused.code != "not_leader" {
				c.t.Errorf("%s takes no produce but answers a fetch with %v", n.name, fetchErr)
			}
		}
		raw.close()
		if err == nil {
			if epoch < 1 || bought != "fsync-majority" {
				c.t.Errorf("acked in epoch %d with %q", epoch, bought)
			}
			if led := c.byID(c.leaderAt(n, partition).leader); led.addr.Native != at {
				c.t.Errorf("%s took a record of partition %d, the leader is %s", at, partition, led.name)
			}
			return
		}
		if hop > 0 || refused == nil || refused.code != "not_leader" || !refused.retriable {
			c.t.Fatalf("partition %d at %s, hop %d: %v", partition, at, hop, err)
		}
		want := c.leaderAt(n, partition)
		if int32(refused.leader) != want.leader || refused.addr != want.addr || int32(refused.epoch) != want.epoch {
			c.t.Errorf("%s sends to node %d at %s epoch %d, metadata says %+v", n.name, refused.leader, refused.addr, refused.epoch, want)
		}
		at = refused.addr
	}
}

func (c *cluster) leaderAt(n *node, partition int32) partitionState {
	c.t.Helper()
	got, err := partitionsAt(n, "t")
	if err != nil {
		c.t.Fatal(err)
	}
	return got[partition]
}

// The leader of a partition is killed again and again while records flow; each time the killed
// node comes back. Nothing that was acknowledged is lost, doubled or out of order.
func TestFailover_killedLeadersLoseNothing(t *testing.T) {
	c := startCluster(t, 3)
	c.createTopic("t", 6, nil)
	l := c.startLoad("t", loadConfig{})
	l.awaitAcks(200)
	var took []time.Duration
	for i := range pick(10, 200) {
		partition := int32(i % 6)
		victim, was := c.leader("t", partition)
		l.awaitAcks(50)
		killed := time.Now()
		victim.kill()
		took = append(took, l.awaitEpoch(partition, was.epoch, killed))
		l.awaitAcks(100)
		victim.start()
		c.awaitWhole("t")
	}
	t.Logf("from SIGKILL to the next record acknowledged: %s", spread(took))
	// Two nodes at once: nothing can be acknowledged, and nothing may be.
	survivor, _ := c.leader("t", 0)
	for _, n := range c.others(survivor) {
		n.kill()
	}
	restart(c.others(survivor)...)
	c.awaitWhole()
	l.awaitAcks(200)
	r := l.finish()
	t.Log(r)
	if len(r.errs) > 0 {
		t.Errorf("%d records failed, the first: %v", len(r.errs), r.errs[0])
	}
	c.historyTells("t")
	c.stopAndCompare()
}

// historyTells checks that the nodes say when leaders changed and why.
func (c *cluster) historyTells(topic string) {
	c.t.Helper()
	for _, n := range c.nodes {
		var changes []changeJSON
		ctl{nodes: []*node{n}}.json(c.t, &changes, "leader", "history", topic)
		if len(changes) == 0 {
			c.t.Errorf("%s remembers no change of leader", n.name)
		}
		for _, h := range changes {
			if at, err := time.Parse(time.RFC3339Nano, h.At); err != nil || time.Since(at) > time.Hour || h.Reason == "" || h.Epoch < 1 {
				c.t.Errorf("%s tells %+v", n.name, h)
			}
		}
	}
}

// A node that is asked to stop hands its partitions over: no produce fails, and none waits long.
func TestFailover_gracefulStopIsNotNoticed(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	c.createTopic("t", 6, nil)
	l := c.startLoad("t", loadConfig{rate: 600})
	l.awaitAcks(300)
	var stops []time.Duration
	for i := range pick(3, 12) {
		n := c.nodes[i%3]
		stops = append(stops, n.stop())
		l.awaitAcks(100)
		n.start()
		c.awaitWhole()
	}
	r := l.finish()
	t.Logf("%v; longest gap of a partition %v; a stop takes %s", r, r.longestGap().Round(time.Millisecond), spread(stops))
	if len(r.errs) > 0 {
		t.Errorf("%d records failed, the first: %v", len(r.errs), r.errs[0])
	}
	if gap := r.longestGap(); gap > 200*time.Millisecond*slack {
		t.Errorf("a partition was without acknowledgement for %v", gap)
	}
}

// A produce that is in flight when its leader stops succeeds at the first or second try, for a
// client that only does what it is told.
func TestFailover_gracefulStopCostsOneRetryAtMost(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	c.createTopic("t", 1, nil)
	for range pick(3, 10) {
		leader, _ := c.leader("t", 0)
		stopped := make(chan struct{})
		raw, err := dialRaw(leader.addr.Native)
		if err != nil {
			t.Fatal(err)
		}
		go func() { defer close(stopped); leader.stop() }()
		for n := 0; ; n++ {
			_, _, _, err := raw.produce("t", 0, -1, 5*time.Second, oneBatch(t, []byte("x")))
			if err == nil {
				continue
			}
			var refused *rawError
			if !errors.As(err, &refused) || refused.code != "not_leader" || refused.addr == "" {
				t.Errorf("after %d records the stopping leader answers %v, not who leads now", n, err)
				break
			}
			next, err := dialRaw(refused.addr)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, _, err := next.produce("t", 0, -1, 5*time.Second, oneBatch(t, []byte("y"))); err != nil {
				t.Errorf("the one retry fails: %v", err)
			}
			next.close()
			break
		}
		raw.close()
		<-stopped
		leader.start()
		c.awaitWhole()
	}
}

// A leader that is stopped in its tracks is replaced; woken, it steps down and acknowledges
// nothing that the others do not have.
func TestFailover_frozenLeaderIsReplacedAndStepsDown(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	c.createTopic("t", 3, nil)
	l := c.startLoad("t", loadConfig{})
	l.awaitAcks(100)
	var took []time.Duration
	for i := range pick(3, 10) {
		partition := int32(i % 3)
		victim, was := c.leader("t", partition)
		stale, err := dialRaw(victim.addr.Native) // a client that knows nothing of the freeze
		if err != nil {
			t.Fatal(err)
		}
		frozen := time.Now()
		freeze(t, victim)
		took = append(took, l.awaitEpoch(partition, was.epoch, frozen))
		id, err := stale.send(rawProduce, "t", partition, -1, -1, 2000, oneBatch(t, loadValue(sent{producer: 1000, partition: partition, seq: int64(i)}, 40)))
		if err != nil {
			t.Fatal(err)
		}
		thaw(victim)
		got, body, failure, err := stale.receive()
		var refused *rawError
		switch {
		case err != nil || got != id:
			t.Errorf("the woken leader answers %d, %v", got, err)
		case failure == nil:
			t.Errorf("the woken leader acknowledges with %v", body)
		case !errors.As(failure, &refused) || !refused.retriable:
			t.Errorf("the woken leader answers %v", failure)
		}
		stale.close()
		c.awaitWhole("t")
	}
	r := l.finish()
	t.Logf("from SIGSTOP to the next record acknowledged: %s; %v", spread(took), r)
	if len(r.errs) > 0 {
		t.Errorf("%d records failed, the first: %v", len(r.errs), r.errs[0])
	}
}

// All nodes are killed at once, as by a power strip, while records flow.
func TestFailover_allKilledAtOnceLoseNothing(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	c.createTopic("t", 3, nil)
	l := c.startLoad("t", loadConfig{})
	for range pick(2, 10) {
		l.awaitAcks(200)
		for _, n := range c.nodes {
			n.kill()
		}
		restart(c.nodes...)
		c.awaitWhole()
	}
	l.awaitAcks(200)
	r := l.finish()
	t.Log(r)
	if len(r.errs) > 0 {
		t.Errorf("%d records failed, the first: %v", len(r.errs), r.errs[0])
	}
}

// Records that nobody waited for long enough may be lost when a leader dies; none is doubled, out
// of order or invented for it.
func TestFailover_weakAcksKeepOrderAndDoubleNothing(t *testing.T) {
	t.Parallel()
	for name, acks := range map[string]client.Acks{"1": client.AcksLeader, "0": client.AcksNone} {
		t.Run(name, func(t *testing.T) {
			c := startCluster(t, 3)
			c.createTopic("t", 3, nil)
			l := c.startLoad("t", loadConfig{acks: acks})
			for i := range pick(3, 20) {
				l.awaitAcks(200)
				victim, _ := c.leader("t", int32(i%3))
				victim.kill()
				victim.start()
				c.awaitWhole()
			}
			l.awaitAcks(200)
			r := l.finish()
			t.Log(r)
			if lost := r.acked - r.read; lost > r.acked/10 {
				t.Errorf("%d of %d acknowledged records are lost", lost, r.acked)
			}
			c.stopAndCompare()
		})
	}
}

// Leadership moves to any replica on request, and producers do not notice.
func TestTransfer_movesLeadershipWithoutAFailedProduce(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	c.createTopic("t", 2, nil)
	l := c.startLoad("t", loadConfig{rate: 400})
	l.awaitAcks(100)
	cl := c.client()
	for i := range pick(12, 100) {
		transfer(t, cl, "t", int32(i%2), c.nodes[i%3])
	}
	r := l.finish()
	t.Logf("%v; longest gap of a partition %v", r, r.longestGap().Round(time.Millisecond))
	if len(r.errs) > 0 {
		t.Errorf("%d records failed, the first: %v", len(r.errs), r.errs[0])
	}
}

// A topic that is made right after the nodes were started is made, or refused with a reason in
// time; nothing hangs.
func TestCreateTopic_rightAfterTheStart(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for _, n := range c.nodes {
		n.start()
	}
	cl := newClient(t, c.nodes...)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	p := cl.NewProducer(client.ProducerConfig{})
	defer p.Close()
	ctl{nodes: c.nodes}.must(t, "--timeout", "30s", "topic", "create", "early")
	if _, err := p.ProduceSync(ctx, client.Record{Topic: "early", Value: []byte("x")}); err != nil {
		t.Error(err)
	}
}
