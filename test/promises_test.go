//go:build linux

package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"edged/client"
	"edged/record"
	"edged/transport/wire"
)

// What --acks buys: without its followers a leader still acknowledges 1 and 0, and names what
// was bought; with acks=all it waits for a majority, in vain.
func TestAcks_doWhatTheySay(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	c.createTopic("t", 1, nil)
	leader, _ := c.leader("t", 0)
	raw, err := dialRaw(leader.addr.Native)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.close()
	say := func(acks int, want string) {
		t.Helper()
		if _, _, bought, err := raw.produce("t", 0, acks, 2*time.Second, oneBatch(t, []byte("x"))); err != nil || bought != want {
			t.Errorf("acks %d buys %q, %v; want %q", acks, bought, err, want)
		}
	}
	say(-1, "fsync-majority")
	say(1, "fsync-leader")
	say(0, "none")
	for _, n := range c.others(leader) {
		freeze(t, n)
	}
	// The leader does not know yet that nobody hears it.
	say(1, "fsync-leader")
	say(0, "none")
	_, _, _, err = raw.produce("t", 0, -1, time.Second, oneBatch(t, []byte("x")))
	var refused *rawError
	if !errors.As(err, &refused) || !refused.retriable {
		t.Errorf("acks all without a majority: %v", err)
	}
	for _, n := range c.others(leader) {
		thaw(n)
	}
	c.awaitWhole()
	for _, acks := range []string{"all", "1", "0"} {
		var sum produceJSON
		ctl{nodes: c.nodes, stdin: strings.Repeat("x\n", 500)}.json(t, &sum, "produce", "t", "--acks", acks)
		if sum.Acked != 500 {
			t.Errorf("--acks %s: %+v", acks, sum)
		}
	}
}

// Values of every size come back as they went in; one over the limit is refused and the
// connection lives on.
func TestSizes_comeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	c.createTopic("t", 1, nil)
	cl := c.client()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	p := cl.NewProducer(client.ProducerConfig{})
	defer p.Close()
	pattern := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	limit := maxMessageBytes(t, c)
	fits := limit - len(oneBatch(t, nil)) - 8 // varints of the lengths grow by a few bytes
	values := [][]byte{{}, nil, []byte("x"), pattern[:64<<10], pattern[:fits-16]}
	keys := [][]byte{nil, {}, []byte("k"), nil, nil}
	for i := range values {
		if _, err := p.ProduceSync(ctx, client.Record{Topic: "t", Key: keys[i], Value: values[i]}); err != nil {
			t.Fatalf("a value of %d bytes: %v", len(values[i]), err)
		}
	}
	messages, _ := readPartition(t, cl, "t", 0)
	if len(messages) != len(values) {
		t.Fatalf("%d records of %d", len(messages), len(values))
	}
	for i, m := range messages {
		if !bytes.Equal(m.Value, values[i]) || (m.Value == nil) != (values[i] == nil) || (m.Key == nil) != (keys[i] == nil) {
			t.Errorf("record %d: key nil %v, value nil %v, %d bytes instead of %d", i, m.Key == nil, m.Value == nil, len(m.Value), len(values[i]))
		}
	}
	if _, err := p.ProduceSync(ctx, client.Record{Topic: "t", Value: make([]byte, limit+1)}); !errors.Is(err, record.ErrTooLarge) {
		t.Errorf("a value over the limit: %v", err)
	}
	if _, err := p.ProduceSync(ctx, client.Record{Topic: "t", Value: []byte("after")}); err != nil {
		t.Errorf("after one that was too large: %v", err)
	}
	atTheLimit(t, c, limit)
}

// A null, an empty and a filled key or value are nine different things, for every reader.
func TestSizes_nullIsNotEmpty(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	c.createTopic("t", 1, nil)
	cl := c.client()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	p := cl.NewProducer(client.ProducerConfig{})
	defer p.Close()
	kinds := map[string][]byte{"null": nil, `""`: {}, `"x"`: []byte("x"), `{"base64":"/w=="}`: {0xff}}
	var want []string
	for key, k := range kinds {
		for value, v := range kinds {
			if _, err := p.ProduceSync(ctx, client.Record{Topic: "t", Key: k, Value: v}); err != nil {
				t.Fatal(err)
			}
			want = append(want, key+" "+value)
		}
	}
	out := ctl{nodes: c.nodes}.must(t, "--json", "consume", "t")
	var got []string
	for line := range strings.Lines(out) {
		var m messageJSON
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		got = append(got, string(m.Key)+" "+string(m.Value))
	}
	if !slices.Equal(got, want) {
		t.Errorf("consume prints\n%q, sent was\n%q", got, want)
	}
}

// maxMessageBytes is the topic's limit as the cluster tells it.
func maxMessageBytes(t testing.TB, c *cluster) (limit int) {
	t.Helper()
	var d topicJSON
	ctl{nodes: c.nodes}.json(t, &d, "topic", "describe", "t")
	if _, err := fmt.Sscan(d.Configs["max.message.bytes"], &limit); err != nil {
		t.Fatalf("configs %v: %v", d.Configs, err)
	}
	return limit
}

// atTheLimit sends batches of exactly the limit and one byte more on one connection.
func atTheLimit(t testing.TB, c *cluster, limit int) {
	t.Helper()
	raw, err := dialRaw(c.nodes[0].addr.Native)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.close()
	exact := limit
	value := make([]byte, limit-80)
	for len(oneBatch(t, value)) < exact {
		value = append(value, make([]byte, exact-len(oneBatch(t, value)))...)
	}
	if len(oneBatch(t, value)) != exact {
		t.Fatalf("no value makes a batch of %d bytes", exact)
	}
	if _, _, _, err := raw.produce("t", 0, -1, patience, oneBatch(t, value)); err != nil {
		t.Errorf("a batch of exactly %d bytes: %v", limit, err)
	}
	_, _, _, err = raw.produce("t", 0, -1, patience, oneBatch(t, append(value, 0)))
	var refused *rawError
	if !errors.As(err, &refused) || refused.code != "too_large" || refused.retriable || !strings.Contains(refused.message, "max.message.bytes") {
		t.Errorf("a batch of %d bytes: %v", limit+1, err)
	}
	if _, _, _, err := raw.produce("t", 0, -1, patience, oneBatch(t, []byte("x"))); err != nil {
		t.Errorf("the connection does not live on: %v", err)
	}
}

// Five hundred producers at once, each with a connection of its own, all get their answers.
func TestManyProducers_allAreServed(t *testing.T) {
	t.Parallel()
	const producers, each = 500, 4
	c := startCluster(t, 3)
	c.createTopic("t", 6, nil)
	leader, state := c.leader("t", 0)
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	var wg sync.WaitGroup
	failures := make(chan error, producers)
	began := time.Now()
	for i := range producers {
		wg.Go(func() {
			cl, err := client.New(client.Config{Nodes: []string{c.nodes[i%3].addr.Native}})
			if err != nil {
				failures <- err
				return
			}
			defer cl.Close()
			p := cl.NewProducer(client.ProducerConfig{})
			defer p.Close()
			for k := range each {
				if _, err := p.ProduceSync(ctx, client.Record{Topic: "t", Key: fmt.Append(nil, i), Value: fmt.Append(nil, i, k)}); err != nil {
					failures <- fmt.Errorf("producer %d: %w", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	close(failures)
	for err := range failures {
		t.Fatalf("%d producers failed, one with %v", len(failures)+1, err)
	}
	t.Logf("%d records of %d producers in %v", producers*each, producers, time.Since(began).Round(time.Millisecond))
	cl := c.client()
	total := 0
	for p := range int32(6) {
		messages, _ := readPartition(t, cl, "t", p)
		total += len(messages)
	}
	if total != producers*each {
		t.Errorf("%d records of %d", total, producers*each)
	}
	if now, at := c.leader("t", 0); now != leader || at.epoch != state.epoch {
		t.Errorf("so many producers made the leader change: epoch %d, then %d", state.epoch, at.epoch)
	}
}

// A consumer that asks and does not read what comes costs the node a bounded amount of memory: the
// budgets of the protocol, twice because the collector lets the heap grow to that, however many
// such consumers there are.
func TestSlowConsumer_doesNotGrowTheNode(t *testing.T) {
	t.Parallel()
	const budget = 2 * 2 * wire.DefaultTotalBytes // requests and answers
	c := startCluster(t, 1)
	c.createTopic("t", 1, nil)
	n, cl := c.nodes[0], c.client()
	records := 20_000
	fill(t, cl, "t", 0, 0, records, 1000)
	verifyFilled(t, cl, "t", 0, records) // caches are warm
	before := n.rss()
	waves := []int{40}
	if long {
		waves = append(waves, 200)
	}
	for wave, stuck := range waves {
		for range stuck {
			raw, err := dialRaw(n.addr.Native)
			if err != nil {
				t.Fatal(err)
			}
			defer raw.close()
			for range 64 { // up to 64 MiB of answers that nobody takes
				if _, err := raw.send(rawFetch, "t", 0, -1, 0, 1<<20, 1, 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		fill(t, cl, "t", 0, records, 2000, 1000)
		records += 2000
		verifyFilled(t, cl, "t", 0, records)
		grown := n.rss() - before
		t.Logf("wave %d: RSS %d MiB, grown by %d MiB with %d consumers that do not read", wave+1, n.rss()>>20, grown>>20, stuck)
		if grown > budget && !raced {
			t.Errorf("the node has grown by %d MiB, its budgets allow %d", grown>>20, budget>>20)
		}
	}
	if err := n.ready(); err != nil {
		t.Error(err)
	}
}
