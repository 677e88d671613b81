//go:build linux

package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"edged/client"
)

// fill produces n records of size bytes to one partition and waits for all answers.
func fill(t testing.TB, cl *client.Client, topic string, partition int32, from, n, size int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	p := cl.NewProducer(client.ProducerConfig{DeliveryTimeout: 2 * patience})
	defer p.Close()
	failed := make(chan error, 1)
	for i := range n {
		value := loadValue(sent{partition: partition, seq: int64(from + i)}, size)
		err := p.ProduceTo(ctx, partition, client.Record{Topic: topic, Value: value}, func(a client.Ack) {
			if a.Err != nil {
				select {
				case failed <- a.Err:
				default:
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
}

// verifyFilled checks that the partition holds the records from .. end-1 of fill, in order.
func verifyFilled(t testing.TB, cl *client.Client, topic string, partition int32, end int) {
	t.Helper()
	messages, start := readPartition(t, cl, topic, partition)
	if int(start)+len(messages) != end {
		t.Errorf("%s/%d begins at %d and has %d records, want an end at %d", topic, partition, start, len(messages), end)
	}
	for i, m := range messages {
		if r := toRead(t, m); r.offset != start+int64(i) || r.seq != r.offset {
			t.Fatalf("%s/%d: offset %d has record %d", topic, partition, r.offset, r.seq)
		}
	}
}

// A node that was down while many records came catches up, and can lead afterwards.
func TestCatchUp_afterManyRecords(t *testing.T) {
	t.Parallel()
	records := pick(20_000, 100_000)
	c := startCluster(t, 3)
	c.createTopic("t", 1, nil)
	cl := c.client()
	fill(t, cl, "t", 0, 0, 100, 100)
	away := c.nodes[2]
	away.kill()
	fill(t, cl, "t", 0, 100, records, 100)
	began := time.Now()
	away.start()
	c.awaitWhole("t")
	took := time.Since(began)
	t.Logf("%d records of 100 bytes in %v from the start of the process: %.0f a second", records, took.Round(time.Millisecond), float64(records)/took.Seconds())
	transfer(t, cl, "t", 0, away)
	verifyFilled(t, cl, "t", 0, records+100)
}

// A node that was down until retention removed what it missed gets a base record and then the
// log; readers at old offsets are told where the log begins.
func TestCatchUp_pastRetention(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	c.createTopic("t", 1, map[string]string{"retention.bytes": "1000000"})
	cl := c.client()
	fill(t, cl, "t", 0, 0, 1000, 100)
	away := c.nodes[1]
	away.kill()
	next := 1000
	eventually(t, "the log begins after what the absent node has", func() error {
		fill(t, cl, "t", 0, next, 5000, 1000)
		next += 5000
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		o, err := cl.Offsets(ctx, "t", 0, -2)
		if err == nil && o.LogStart <= 1000 {
			err = fmt.Errorf("the log still begins at %d", o.LogStart)
		}
		return err
	})
	away.start()
	c.awaitWhole("t")
	states, err := partitionsAt(away, "t")
	if err != nil || states[0].start <= 1000 {
		t.Errorf("the node that was away has a log from %d on, %v", states[0].start, err)
	}
	transfer(t, cl, "t", 0, away)
	fill(t, cl, "t", 0, next, 100, 100)
	verifyFilled(t, cl, "t", 0, next+100)
	raw, err := dialRaw(away.addr.Native)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.close()
	high, _, _, err := raw.fetch("t", 0, 5, 0)
	var refused *rawError
	if !errors.As(err, &refused) || refused.code != "offset_out_of_range" || high != int64(next+100) {
		t.Errorf("a fetch before the start gives %v, high watermark %d", err, high)
	}
}

// A node whose disk was wiped is a new node: it does not vote with what it forgot.
func TestCatchUp_lostIdentityIsRefused(t *testing.T) {
	t.Parallel()
	n := newNode(t, "n")
	n.start()
	eventually(t, "ready", n.ready)
	n.stop()
	n.truncateIdentity()
	n.launch()
	<-n.ended
	if text := n.logText(); n.err == nil || !bytes.Contains([]byte(text), []byte("identity")) {
		t.Errorf("a node with data and a truncated identity: %v\n%s", n.err, text)
	}
}
