//go:build linux

package test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"edged/client"
	"edged/record"
	"edged/transport/wire"
)

// A topic that is deleted and made again under its old name is another topic: nothing that was meant
// for the old one is in it, acknowledged or not, and its log begins at 0.
func TestTopics_recreatedTopicHasNothingOfTheOld(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	cl := c.client()
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	create := func() {
		eventually(t, "the topic is made", func() error {
			_, err := cl.Admin().CreateTopic(ctx, wire.CreateTopicRequest{Name: "t", Partitions: 2})
			return err
		})
	}
	create()
	var mu sync.Mutex
	begun := map[string]bool{}
	var wg sync.WaitGroup
	produced, end := make(chan struct{}, 1), make(chan struct{})
	for i := range 3 {
		p := newClient(t, c.nodes[i]).NewProducer(client.ProducerConfig{DeliveryTimeout: 5 * time.Second})
		wg.Go(func() {
			defer p.Close()
			for n := 0; ; n++ {
				select {
				case <-end:
					return
				default:
				}
				value := fmt.Sprint(i, " ", n)
				mu.Lock()
				begun[value] = true
				mu.Unlock()
				if _, err := produceTo(ctx, p, "t", int32(n%2), []byte(value)); err != nil {
					continue // the topic is gone just now
				}
				select {
				case produced <- struct{}{}:
				default:
				}
			}
		})
	}
	defer wg.Wait()
	defer close(end)
	for range pick(5, 50) {
		for range 3 {
			<-produced
		}
		mu.Lock()
		old := maps.Clone(begun) // before the deletion is asked for
		mu.Unlock()
		if err := cl.Admin().DeleteTopic(ctx, "t"); err != nil {
			t.Fatal(err)
		}
		create()
		c.awaitLed("t")
		holdsNoneOf(t, newClient(t, c.nodes...), old)
	}
}

// holdsNoneOf waits until the topic holds something, and checks that none of it is old.
func holdsNoneOf(t *testing.T, cl *client.Client, old map[string]bool) {
	t.Helper()
	eventually(t, "somebody has produced to the new topic", func() error {
		n := 0
		for p := range int32(2) {
			messages, start := readPartition(t, cl, "t", p)
			if start != 0 {
				t.Errorf("the new topic begins at %d", start)
			}
			n += len(messages)
			for _, m := range messages {
				if old[string(m.Value)] {
					t.Fatalf("partition %d offset %d has %q, which was meant for the old topic", p, m.Offset, m.Value)
				}
			}
		}
		if n == 0 {
			return errors.New("it is empty")
		}
		return nil
	})
}

// Topics that come and go leave nothing behind: no replicas, no memory, no disk space.
func TestTopics_comeAndGoWithoutATrace(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	cl := c.client()
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
	defer cancel()
	round := func(i int) {
		name := fmt.Sprint("t", i)
		if _, err := cl.Admin().CreateTopic(ctx, wire.CreateTopicRequest{Name: name, Partitions: 10}); err != nil {
			t.Fatal(err)
		}
		fill(t, cl, name, 3, 0, 20, 1000)
		if err := cl.Admin().DeleteTopic(ctx, name); err != nil {
			t.Fatal(err)
		}
		if _, err := cl.Metadata(ctx, []string{name}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		round(i)
	}
	before := c.nodes[0].rss()
	rounds := pick(20, 500)
	for i := range rounds {
		round(1000 + i)
	}
	for _, n := range c.nodes {
		eventually(t, n.name+" holds the metadata alone", func() error {
			if got := n.metric("edged_replicas"); got != 1 {
				return fmt.Errorf("it has %v replicas", got)
			}
			return nil
		})
	}
	grown := c.nodes[0].rss() - before
	t.Logf("%d topics of 10 partitions came and went; RSS %d MiB, grown by %d MiB", rounds, c.nodes[0].rss()>>20, grown>>20)
	if grown > 32<<20 && !raced {
		t.Errorf("the node has grown by %d MiB", grown>>20)
	}
	for i := range 3 {
		if _, err := cl.Offsets(ctx, fmt.Sprint("t", i), 0, wire.AtEnd); !errors.Is(err, record.ErrUnknownTopic) {
			t.Errorf("a topic that was deleted: %v", err)
		}
	}
	c.stopAndVerify()
}

// A follower that stands still costs its leader nothing that grows, and catches up when it goes on.
func TestFollower_standsStillForAWhile(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	c.createTopic("t", 1, nil)
	leader, was := c.leader("t", 0)
	follower := c.others(leader)[0]
	cl := c.client()
	fill(t, cl, "t", 0, 0, 5000, 1000)
	before := leader.rss()
	freeze(t, follower)
	records := 5000
	for range pick(2, 10) {
		fill(t, cl, "t", 0, records, 15_000, 1000)
		records += 15_000
	}
	grown := leader.rss() - before
	thaw(follower)
	began := time.Now()
	c.awaitWhole("t")
	t.Logf("the leader has grown by %d MiB; %d MB were caught up in %v", grown>>20, (records-5000)/1000, time.Since(began).Round(time.Millisecond))
	if grown > 64<<20 && !raced {
		t.Errorf("the leader has grown by %d MiB", grown>>20)
	}
	if _, now := c.leader("t", 0); now.epoch != was.epoch {
		t.Errorf("the epoch went from %d to %d", was.epoch, now.epoch)
	}
	verifyFilled(t, cl, "t", 0, records)
}

// Under a steady load with retention a node's memory and disk settle.
func TestSoak_memoryAndDiskSettle(t *testing.T) {
	if !long {
		t.Skip("only in the long run: it takes five minutes")
	}
	c := startCluster(t, 3)
	c.createTopic("t", 6, map[string]string{"retention.bytes": "4000000"})
	l := c.startLoad("t", loadConfig{rate: 500, size: 1000})
	pass(t, time.Minute)
	var rss []int64
	var disk []float64
	for range 8 {
		pass(t, 30*time.Second)
		rss = append(rss, c.nodes[0].rss()>>20)
		disk = append(disk, c.nodes[0].metric("edged_storage_disk_bytes")/1e6)
	}
	r := l.finish()
	t.Logf("%v; RSS in MiB %v, disk in MB %.0f", r, rss, disk)
	if rss[7] > rss[0]+rss[0]/2 {
		t.Errorf("RSS grows: %v MiB", rss)
	}
	if disk[7] > 2*disk[0] {
		t.Errorf("the disk fills: %v MB", disk)
	}
}
