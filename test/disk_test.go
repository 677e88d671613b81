//go:build linux

package test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"edged/client"
)

// untilRefused produces until the node does not take more, and gives how many records it took
// and what it said.
func untilRefused(t *testing.T, raw *rawConn, topic string, from int64, most int) (taken int64, refusal *rawError) {
	t.Helper()
	for i := range int64(most) {
		value := loadValue(sent{seq: from + i}, 200_000)
		offset, _, _, err := raw.produce(topic, 0, -1, 5*time.Second, oneBatch(t, value))
		if errors.As(err, &refusal) {
			return i, refusal
		}
		if err != nil {
			t.Fatalf("after %d records: %v", i, err)
		}
		if offset != from+i {
			t.Fatalf("record %d is at offset %d", from+i, offset)
		}
	}
	t.Fatalf("a disk that is much smaller took %d records of 200 kB", most)
	return 0, nil
}

// A disk that fills up: the node lives, reads go on, produce gets an error that says to come
// back, and it takes records again when there is room. Everything acknowledged is there.
func TestDiskFull_livesAndResumes(t *testing.T) {
	t.Parallel()
	if !inOwnNamespaces(t) {
		return
	}
	n := newNode(t, "small")
	smallDisk(t, n, 64)
	free := ballast(t, n, 16)
	n.start()
	eventually(t, "the node is ready", n.ready)
	c := &cluster{t: t, nodes: []*node{n}}
	c.createTopic("t", 1, nil)
	raw, err := dialRaw(n.addr.Native)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.close()
	taken, refusal := untilRefused(t, raw, "t", 0, 400)
	t.Logf("after %d records of 200 kB: %v", taken, refusal)
	if refusal.code != "disk_full" || !refusal.retriable {
		t.Errorf("the refusal has the code %q, retriable %v", refusal.code, refusal.retriable)
	}
	if taken < 20 {
		t.Errorf("only %d records of 200 kB were taken with 24 MB to fill", taken)
	}
	cl := c.client()
	if messages, _ := readPartition(t, cl, "t", 0); int64(len(messages)) < taken {
		t.Errorf("with a full disk %d of %d records can be read", len(messages), taken)
	}
	if err := n.get("/livez", nil); err != nil {
		t.Error(err)
	}
	free()
	eventually(t, "records are taken again", func() error {
		_, _, _, err := raw.produce("t", 0, -1, 5*time.Second, oneBatch(t, loadValue(sent{seq: taken}, 100)))
		return err
	})
	n.kill()
	n.start()
	eventually(t, "the node is ready again", n.ready)
	messages, _ := readPartition(t, cl, "t", 0)
	last := int64(-1)
	for _, m := range messages {
		r := toRead(t, m)
		if r.seq < last {
			t.Errorf("offset %d has record %d after %d", r.offset, r.seq, last)
		}
		last = r.seq
	}
	if int64(len(messages)) < taken+1 || last != taken {
		t.Errorf("%d records, the last is %d; %d were acknowledged", len(messages), last, taken+1)
	}
}

// When the disk of one of three nodes is full, the others go on and clients do not notice.
func TestDiskFull_othersTakeOver(t *testing.T) {
	t.Parallel()
	if !inOwnNamespaces(t) {
		return
	}
	c := newCluster(t, 3)
	full := c.nodes[0]
	smallDisk(t, full, 96)
	for _, n := range c.nodes {
		n.start()
	}
	c.awaitFormed()
	c.createTopic("t", 3, nil)
	l := c.startLoad("t", loadConfig{rate: 100, size: 5_000})
	l.awaitAcks(100)
	free := fillUp(t, full)
	l.awaitAcks(1000)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	p := l.cl.NewProducer(client.ProducerConfig{})
	for part := range int32(3) {
		if _, err := produceTo(ctx, p, "t", part, loadValue(sent{producer: 1000, partition: part}, 0)); err != nil {
			t.Errorf("partition %d: %v", part, err)
		}
		l.note(sent{producer: 1000, partition: part, offset: -1, outcome: acked}, nil)
	}
	_ = p.Close() // always nil
	free()
	r := l.finish()
	c.awaitWhole("t")
	t.Log(r)
	if len(r.errs) > 0 {
		t.Errorf("%d records failed, the first: %v", len(r.errs), r.errs[0])
	}
}

// fillUp takes all the room that is left.
func fillUp(t *testing.T, n *node) (free func()) {
	t.Helper()
	for mb := 64; mb > 0; mb-- {
		name := fmt.Sprintf("dd if=/dev/zero of=%s/ballast bs=1M count=%d 2>/dev/null", n.data, mb)
		if shell(name) == nil {
			break
		}
	}
	_ = shell(fmt.Sprintf("dd if=/dev/zero of=%s/ballast2 bs=4k 2>/dev/null", n.data)) // ends because the disk is full
	return func() { run(t, "rm", "-f", n.data+"/ballast", n.data+"/ballast2") }
}

func produceTo(ctx context.Context, p *client.Producer, topic string, partition int32, value []byte) (client.Ack, error) {
	got := make(chan client.Ack, 1)
	if err := p.ProduceTo(ctx, partition, client.Record{Topic: topic, Value: value}, func(a client.Ack) { got <- a }); err != nil {
		return client.Ack{}, err
	}
	a := <-got
	return a, a.Err
}

// A disk that others fill at once, to the last byte, while records come in: the process lives, reads go on, produce
// gets errors that say to come back, and with room again it goes on without a restart.
func TestDiskFullAtOnce_livesAndResumes(t *testing.T) {
	t.Parallel()
	if !inOwnNamespaces(t) {
		return
	}
	n := newNode(t, "small")
	smallDisk(t, n, 64)
	n.start()
	eventually(t, "the node is ready", n.ready)
	c := &cluster{t: t, nodes: []*node{n}}
	c.createTopic("t", 1, nil)
	cl := c.client()
	fill(t, cl, "t", 0, 0, 1000, 1000)
	pid := n.addr.PID
	free := fillUp(t, n)
	raw, err := dialRaw(n.addr.Native)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.close()
	taken, refused := 0, ""
	for refused != "disk_full" {
		_, _, _, err := raw.produce("t", 0, -1, time.Second, oneBatch(t, loadValue(sent{seq: int64(1000 + taken)}, 100_000)))
		var e *rawError
		switch {
		case errors.As(err, &e) && e.retriable:
			refused = e.code
			_ = shell(fmt.Sprintf("dd if=/dev/zero of=%s/ballast%d bs=4k 2>/dev/null", n.data, 10+taken)) // the reserve too
		case err != nil:
			t.Fatalf("after %d records: %v", taken, err)
		default:
			taken++
		}
		if taken > 1000 {
			t.Fatal("a full disk took 100 MB")
		}
	}
	t.Logf("%d records of 100 kB were taken with a full disk, then %s", taken, refused)
	if messages, _ := readPartition(t, cl, "t", 0); len(messages) < 1000+taken {
		t.Errorf("with a full disk %d of %d records can be read", len(messages), 1000+taken)
	}
	if err := n.get("/livez", nil); err != nil {
		t.Error(err)
	}
	free()
	run(t, "sh", "-c", "rm -f "+n.data+"/ballast*")
	eventually(t, "records are taken again", func() error {
		_, _, _, err := raw.produce("t", 0, -1, 5*time.Second, oneBatch(t, loadValue(sent{seq: 5000}, 100)))
		return err
	})
	if n.addr.PID != pid {
		t.Error("it is another process")
	}
	n.kill()
	n.start()
	eventually(t, "the node is ready again", n.ready)
	if messages, _ := readPartition(t, cl, "t", 0); len(messages) < 1000+taken+1 {
		t.Errorf("after a restart %d records, acknowledged were %d", len(messages), 1000+taken+1)
	}
}

// With retention-percent a node never fills its disk: the oldest records go, whatever their topic.
func TestRetentionPercent_theOldestOfAllTopicsGo(t *testing.T) {
	t.Parallel()
	if !inOwnNamespaces(t) {
		return
	}
	n := newNode(t, "small", "--retention-percent", "30", "--memory-limit", "48MiB")
	smallDisk(t, n, 128)
	n.start()
	eventually(t, "the node is ready", n.ready)
	c := &cluster{t: t, nodes: []*node{n}}
	cl := c.client()
	c.createTopic("old", 1, nil)
	c.createTopic("new", 1, nil)
	fill(t, cl, "old", 0, 0, 10_000, 1000)
	written := 0
	for range 6 { // 120 MB, in steps that leave the node time to look
		fill(t, cl, "new", 0, written, 20_000, 1000)
		written += 20_000
		eventually(t, "the oldest records go", func() error {
			if got := n.metric("edged_storage_disk_bytes"); got > 64<<20 {
				return fmt.Errorf("%d MiB are taken", int64(got)>>20)
			}
			return nil
		})
	}
	// The node goes on below that, and whoever reads meanwhile may find the beginning gone.
	last := -1.0
	eventually(t, "the log begins where it will", func() error {
		now := n.metric("edged_storage_disk_bytes")
		if now != last {
			last = now
			time.Sleep(6 * time.Second) // longer than it takes until the node looks again
			return fmt.Errorf("%d bytes are taken", int64(now))
		}
		return nil
	})
	if messages, start := readPartition(t, cl, "old", 0); len(messages) > 0 || start < 9_900 {
		t.Errorf("the topic that was written first begins at %d and has %d records", start, len(messages))
	}
	messages, start := readPartition(t, cl, "new", 0)
	if int(start)+len(messages) != written || len(messages) < 20_000 {
		t.Errorf("the newest %d records are there, from %d, of %d", len(messages), start, written)
	}
}
