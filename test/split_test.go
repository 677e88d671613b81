//go:build linux

package test

import (
	"errors"
	"testing"
	"time"
)

// A leader that is cut off from the others, but not from clients, is replaced; it acknowledges
// nothing that they do not have, and says so. Healed, it follows.
func TestSplit_lonelyLeaderAcknowledgesNothing(t *testing.T) {
	t.Parallel()
	if !inOwnNamespaces(t) {
		return
	}
	c := splitCluster(t)
	c.createTopic("t", 3, nil)
	l := c.startLoad("t", loadConfig{})
	l.awaitAcks(200)
	var took []time.Duration
	for i := range pick(2, 10) {
		partition := int32(i % 3)
		lonely, was := c.leader("t", partition)
		raw, err := dialRaw(lonely.addr.Native)
		if err != nil {
			t.Fatal(err)
		}
		split := time.Now()
		c.isolate(lonely)
		_, _, _, err = raw.produce("t", partition, -1, 3*time.Second, oneBatch(t, loadValue(sent{producer: 1000, partition: partition, seq: int64(i)}, 40)))
		var refused *rawError
		if !errors.As(err, &refused) || !refused.retriable {
			t.Errorf("a leader without followers answers a produce with %v", err)
		}
		took = append(took, l.awaitEpoch(partition, was.epoch, split))
		l.awaitAcks(100)
		c.rejoin(lonely)
		raw.close()
		c.awaitWhole("t")
	}
	r := l.finish()
	t.Logf("from the split to the next record acknowledged: %s; %v", spread(took), r)
	if len(r.errs) > 0 {
		t.Errorf("%d records failed, the first: %v", len(r.errs), r.errs[0])
	}
}

// A follower that was cut off for a while and comes back does not disturb the leader.
func TestSplit_returningFollowerDisturbsNobody(t *testing.T) {
	t.Parallel()
	if !inOwnNamespaces(t) {
		return
	}
	c := splitCluster(t)
	c.createTopic("t", 1, nil)
	leader, was := c.leader("t", 0)
	l := c.startLoad("t", loadConfig{})
	l.awaitAcks(100)
	away := c.others(leader)[0]
	c.isolate(away)
	pass(t, time.Duration(pick(5, 60))*time.Second)
	l.awaitAcks(100)
	c.rejoin(away)
	c.awaitWhole("t")
	if _, now := c.leader("t", 0); now.epoch != was.epoch || now.leader != was.leader {
		t.Errorf("the leader changed from node %d epoch %d to node %d epoch %d", was.leader, was.epoch, now.leader, now.epoch)
	}
	r := l.finish()
	t.Logf("%v; longest gap %v", r, r.longestGap())
	if len(r.errs) > 0 {
		t.Errorf("%d records failed, the first: %v", len(r.errs), r.errs[0])
	}
}

// Links that fail in one direction only, and a link between two of three nodes: there is always
// a leader that works, and nothing is lost.
func TestSplit_oneWayAndPartial(t *testing.T) {
	t.Parallel()
	if !inOwnNamespaces(t) {
		return
	}
	c := splitCluster(t)
	c.createTopic("t", 3, nil)
	l := c.startLoad("t", loadConfig{timeout: 2 * patience})
	l.awaitAcks(200)
	for i := range pick(3, 12) {
		a, b := c.nodes[i%3], c.nodes[(i+1)%3]
		cut(a, b)
		both := i%2 == 1
		if both {
			cut(b, a)
		}
		pass(t, 3*time.Second)
		l.awaitAcks(100)
		heal(a, b)
		if both {
			heal(b, a)
		}
		c.awaitWhole("t")
	}
	r := l.finish()
	t.Logf("%v; longest gap %v", r, r.longestGap())
	if len(r.errs) > 0 {
		t.Errorf("%d records failed, the first: %v", len(r.errs), r.errs[0])
	}
}
