//go:build linux

package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// short leaves out what takes long.
var short = os.Getenv("SHORT") != ""

const (
	killTopic = "killed"
	killGroup = "surviving"
	// loadEvery and loadRecords are the load on each producer: 200 records a second.
	loadEvery   = 50 * time.Millisecond
	loadRecords = 10
)

// leaderDies kills the node that coordinates the group and leads a part of the partitions while
// producers in each mode write and two consumers read, brings it back, and does so again with the
// next one if there is time.
func (j *judge) leaderDies(t *testing.T, c *cluster) string {
	c.t = t
	c.createTopic(killTopic, groupPartitions)
	all := c.bootstrap(nil)
	consumers := []*program{j.run(t, "consume", all, killTopic, killGroup), j.run(t, "consume", all, killTopic, killGroup)}
	c.awaitMembers(killGroup, killTopic, 2)
	var producers []*producer
	for i, m := range j.modes {
		producers = append(producers, j.produce(t, all, killTopic, m.name, "default", string(rune('a'+i))))
	}
	rounds := 2
	if short {
		rounds = 1
	}
	for range rounds {
		load(producers, 2*time.Second)
		victim := c.coordinator(killGroup)
		c.leads(victim)
		victim.kill()
		load(producers, 5*time.Second)
		victim.launch(t)
		victim.awaitReady(t)
		load(producers, 3*time.Second)
	}
	var kept []string
	var said []string
	for i, p := range producers {
		p.finish()
		said = append(said, j.judgeProducer(t, c, p, j.modes[i]))
		for name := range p.acked {
			kept = append(kept, name)
		}
	}
	if err := awaitConsumed(kept, consumers...); err != nil {
		t.Error(err)
	}
	for _, m := range consumers {
		m.alive()
		m.finish()
		j.judgeErrors(t, m)
	}
	c.committed(killGroup, killTopic)
	return fmt.Sprintf("%d killed, %s", rounds, strings.Join(said, ", "))
}

// load has all producers write for a while.
func load(producers []*producer, d time.Duration) {
	tick := time.NewTicker(loadEvery)
	defer tick.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); <-tick.C {
		for _, p := range producers {
			p.send(loadRecords)
		}
	}
}

// leads makes sure that a node leads a partition of the topic, so that its death is one of a leader.
func (c *cluster) leads(n *node) {
	c.t.Helper()
	c.awaitLed(killTopic)
	leaders, err := c.leadersAt(n, killTopic)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, l := range leaders {
		if l == n.addr.NodeID {
			return
		}
	}
	c.t.Fatalf("%s leads nothing of the topic: %v", n.name, leaders)
}

// judgeProducer compares what a producer was told with what is kept.
func (j *judge) judgeProducer(t *testing.T, c *cluster, p *producer, m mode) string {
	t.Helper()
	untold := len(p.sent) - len(p.acked) - len(p.failed)
	if untold != 0 {
		t.Errorf("%s, %s: of %d records %d are acknowledged and %d failed", p.what, m.name, len(p.sent), len(p.acked), len(p.failed))
	}
	unlike := 0
	for _, f := range p.failed {
		if !j.tolerates(f) {
			if unlike++; unlike <= 3 {
				t.Errorf("%s, %s: the application was told: %s", p.what, m.name, f)
			}
		}
	}
	kept := c.read(killTopic)
	lost, twice, disordered := 0, 0, 0
	for name, where := range p.acked {
		got := kept.places[name]
		if len(got) == 0 {
			if lost++; lost <= 3 {
				t.Errorf("%s, %s: %s was acknowledged at %v and is lost", p.what, m.name, name, where)
			}
		}
		twice += max(0, len(got)-1)
		if where.offset >= 0 && len(got) > 0 && !holds(got, where) {
			t.Errorf("%s, %s: %s was acknowledged at %v and is at %v", p.what, m.name, name, where, got)
		}
	}
	// The first time that a record of a key is there comes after the first time of the one before it.
	lastOf := map[string]int64{}
	for _, name := range kept.order {
		key, number, _ := strings.Cut(name, "-")
		if !strings.HasPrefix(key, p.prefix) {
			continue
		}
		var n int64
		if _, err := fmt.Sscanf(number, "%d", &n); err != nil {
			t.Fatal(err)
		}
		if n < lastOf[key] {
			disordered++
		}
		lastOf[key] = n
	}
	if m.ordered && disordered > 0 {
		t.Errorf("%s, %s: %d records are out of order", p.what, m.name, disordered)
	}
	if m.once && twice > 0 {
		t.Errorf("%s, %s: %d records are there twice", p.what, m.name, twice)
	}
	said := fmt.Sprintf("%s: %d acknowledged, %d lost", m.name, len(p.acked), lost)
	for what, n := range map[string]int{"failed": len(p.failed), "twice": twice, "out of order": disordered} {
		if n > 0 {
			said += fmt.Sprintf(", %d %s", n, what)
		}
	}
	return said
}

func (j *judge) tolerates(text string) bool {
	for _, ok := range j.tolerated {
		if strings.Contains(text, ok) {
			return true
		}
	}
	return false
}

func holds(all []at, one at) bool {
	for _, a := range all {
		if a == one {
			return true
		}
	}
	return false
}

// kept is a topic as it is read back: where each record is, and the order of their first places.
type kept struct {
	places map[string][]at
	order  []string // by id, partition after partition
}

// read reads all of a topic.
func (c *cluster) read(topic string) kept {
	c.t.Helper()
	k := kept{places: map[string][]at{}}
	ends := c.ends(topic)
	for p := range int32(len(ends)) {
		if ends[p] == 0 {
			continue
		}
		cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(c.bootstrap(nil), ",")...),
			kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {p: kgo.NewOffset().At(0)}}))
		if err != nil {
			c.t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(c.t.Context(), patience)
		for next := int64(0); next < ends[p]; {
			fetches := cl.PollFetches(ctx)
			if err := errors.Join(ctx.Err(), fetches.Err()); err != nil {
				c.t.Fatal(err)
			}
			fetches.EachRecord(func(r *kgo.Record) {
				if r.Offset != next {
					c.t.Errorf("%s/%d: offset %d follows %d", topic, p, r.Offset, next-1)
				}
				next = r.Offset + 1
				name := id(string(r.Value))
				if len(k.places[name]) == 0 {
					k.order = append(k.order, name)
				}
				k.places[name] = append(k.places[name], at{r.Partition, r.Offset})
			})
		}
		cancel()
		cl.Close()
	}
	return k
}
