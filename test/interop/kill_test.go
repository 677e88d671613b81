//go:build linux

package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
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
	if untold := len(p.sent) - len(p.acked) - len(p.failed); untold != 0 {
		t.Errorf("%s, %s: of %d records %d are acknowledged and %d failed", p.what, m.name, len(p.sent), len(p.acked), len(p.failed))
	}
	for _, f := range p.failed {
		if !tolerated(f, j.tolerated) {
			t.Errorf("%s, %s: the application was told: %s", p.what, m.name, f)
			break // the others most likely say the same
		}
	}
	v := compare(p.acked, p.prefix, c.read(killTopic))
	if len(v.lost) > 0 {
		t.Errorf("%s, %s: %d records were acknowledged and are not where that said: %.3q", p.what, m.name, len(v.lost), v.lost)
	}
	if m.ordered && v.disordered > 0 {
		t.Errorf("%s, %s: %d records are out of order", p.what, m.name, v.disordered)
	}
	if m.once && v.twice > 0 {
		t.Errorf("%s, %s: %d records are there twice", p.what, m.name, v.twice)
	}
	said := fmt.Sprintf("%s: %d acknowledged, %d lost", m.name, len(p.acked), len(v.lost))
	for _, more := range []struct {
		what string
		n    int
	}{{"failed", len(p.failed)}, {"twice", v.twice}, {"out of order", v.disordered}} {
		if more.n > 0 {
			said += fmt.Sprintf(", %d %s", more.n, more.what)
		}
	}
	return said
}

// verdict is how what is kept differs from what a producer was told.
type verdict struct {
	lost              []string // by id: acknowledged and not there, or not where the acknowledgement said
	twice, disordered int
}

// compare judges the records whose keys begin with prefix.
func compare(acked map[string]at, prefix string, k kept) (v verdict) {
	for name, where := range acked {
		if got := k.places[name]; len(got) == 0 || where.offset >= 0 && !slices.Contains(got, where) {
			v.lost = append(v.lost, name)
		}
	}
	// The first time that a record of a key is there comes after the first time of the one before it.
	last := map[string]string{}
	for _, name := range k.order {
		key, number, _ := strings.Cut(name, "-")
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		v.twice += len(k.places[name]) - 1
		if number < last[key] {
			v.disordered++
		}
		last[key] = number
	}
	return v
}

// tolerated tells whether an error is one of those that the application would get from Kafka too.
func tolerated(text string, list []string) bool {
	return slices.ContainsFunc(list, func(ok string) bool { return strings.Contains(text, ok) })
}

// kept is a topic as it is read back: where each record is, and the order of their first places.
type kept struct {
	places map[string][]at
	order  []string // by id, partition after partition
}

// read reads all of a topic.
func (c *cluster) read(topic string) kept { return c.readNamed(topic, id) }

// readNamed reads all of a topic; name gives what a value is called.
func (c *cluster) readNamed(topic string, name func(value string) string) kept {
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
				name := name(string(r.Value))
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
