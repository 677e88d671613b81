package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"edged/client"
	"edged/record"
	"edged/transport/wire"

	"golang.org/x/sync/errgroup"
)

// fall is what happened to the leader that was killed.
type fall struct {
	partition               int32
	oldLeader, newLeader    record.NodeID
	oldEpoch, newEpoch      record.Epoch
	killed                  time.Time
	gap, slowest, caughtUp  time.Duration // to the next acknowledged record of the partition; of all; of the node that came back
	partitionsThatLostLeads int
}

// stream sends readings at an even rate. On the way leadership is moved by hand, the
// leader of partition 0 is killed, and comes back.
func (d *demo) stream(ctx context.Context) error {
	d.say("now readings of this machine flow in, %d a second, as JSON lines such as", d.rate)
	d.say("  %s", d.machine.sample(time.Now())[0].line())
	p := d.cl.NewProducer(client.ProducerConfig{DeliveryTimeout: 20 * time.Second, Linger: 5 * time.Millisecond})
	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.send(gctx, p) })
	group.Go(func() error { return d.happenings(gctx) })
	if err := group.Wait(); err != nil {
		return errors.Join(err, p.Close())
	}
	if err := errors.Join(p.Flush(ctx), p.Close()); err != nil {
		return err
	}
	st := d.cl.Stats()
	d.say("%d records acknowledged; the client followed %d redirects and repeated %d requests", d.ledger.ackedCount(), st.Redirects, st.Retries)
	return d.ledger.failure
}

// send produces until enough is sent, each record to the partition of its number.
func (d *demo) send(ctx context.Context, p *client.Producer) error {
	start := time.Now()
	for n := 0; n < d.total; {
		for _, r := range d.machine.sample(time.Now()) {
			due := start.Add(time.Duration(n) * time.Second / time.Duration(d.rate))
			if wait := time.Until(due); wait > 0 {
				select {
				case <-time.After(wait):
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			rec := client.Record{Topic: topicName, Key: []byte(r.Source), Value: d.ledger.send(r)}
			err := p.ProduceTo(ctx, int32(r.Seq%partitionCount), rec, func(a client.Ack) { d.ledger.answered(r.Seq, a) })
			if err != nil {
				return err
			}
			n++
		}
	}
	return nil
}

// happenings are what is done to the cluster while records flow.
func (d *demo) happenings(ctx context.Context) error {
	for _, step := range []struct {
		share float64 // of all records that are acknowledged before it begins
		do    func(context.Context) error
	}{{0.15, d.moveLeaders}, {0.3, d.killLeader}, {0.5, d.bringBack}} {
		err := d.until(ctx, patience, "records to be acknowledged", func(context.Context) (bool, error) {
			return float64(d.ledger.ackedCount()) >= step.share*float64(d.total), nil
		})
		if err == nil {
			err = step.do(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// moveLeaders moves the leadership of two partitions as an operator would. The client
// learns of it from the nodes that it goes on asking.
func (d *demo) moveLeaders(ctx context.Context) error {
	before := d.cl.Stats().Redirects
	for _, p := range []string{"0", "1"} {
		if err := d.edgectl(ctx, "partition", "transfer", topicName, p); err != nil {
			return err
		}
	}
	err := d.until(ctx, 5*time.Second, "the client to be redirected", func(context.Context) (bool, error) {
		return d.cl.Stats().Redirects > before, nil
	})
	if err != nil {
		return err
	}
	d.say("records flow on; the client has followed %d redirects", d.cl.Stats().Redirects-before)
	return nil
}

func (d *demo) killLeader(ctx context.Context) error {
	t, err := d.cl.Admin().Topic(ctx, topicName)
	if err != nil {
		return err
	}
	p := t.Partitions[0]
	victim := d.processOf(p.Leader)
	if victim == nil {
		return fmt.Errorf("partition 0 has no leader among our nodes: %d", p.Leader)
	}
	var led []wire.Partition
	for _, other := range t.Partitions {
		if other.Leader == p.Leader {
			led = append(led, other)
			d.ledger.await(other.Partition, other.Epoch)
		}
	}
	f := &d.fall
	f.partition, f.oldLeader, f.oldEpoch, f.partitionsThatLostLeads = p.Partition, p.Leader, p.Epoch, len(led)
	d.say("kill -9 %d: %s leads partition 0 in epoch %d, and %d partitions in all", victim.addr.PID, victim.name, p.Epoch, len(led))
	f.killed = time.Now()
	_ = victim.end(syscall.SIGKILL) // that it did not end well is the point
	for _, other := range led {
		err := d.until(ctx, 15*time.Second, fmt.Sprintf("an acknowledged record of partition %d under a new leader", other.Partition), func(context.Context) (bool, error) {
			return !d.ledger.heard(other.Partition).at.IsZero(), nil
		})
		if err != nil {
			return err
		}
		heard := d.ledger.heard(other.Partition)
		gap := heard.at.Sub(f.killed)
		f.slowest = max(f.slowest, gap)
		if other.Partition == p.Partition {
			f.gap, f.newEpoch = gap, heard.epoch
		}
		d.say("  partition %d: the next record is acknowledged %v after the kill, in epoch %d", other.Partition, gap.Round(time.Millisecond), heard.epoch)
	}
	if t, err = d.cl.Admin().Topic(ctx, topicName); err != nil {
		return err
	}
	f.newLeader = t.Partitions[0].Leader
	d.say("%s leads partition 0 now", d.nameOf(f.newLeader))
	return d.edgectl(ctx, "leader", "history", topicName, "0", "--limit", "3")
}

// bringBack starts the killed node again and waits until it has everything.
func (d *demo) bringBack(ctx context.Context) error {
	p := d.processOf(d.fall.oldLeader)
	for _, other := range d.nodes {
		if other != p {
			p.join = []string{other.addr.Gossip}
		}
	}
	start := time.Now()
	if err := p.start(ctx); err != nil {
		return err
	}
	d.say("%s is back as pid %d, with the same data and other ports", p.name, p.addr.PID)
	if p.addr.NodeID != int32(d.fall.oldLeader) {
		return fmt.Errorf("%s came back with id %d, it was %d", p.name, p.addr.NodeID, d.fall.oldLeader)
	}
	ends := map[int32]record.Offset{} // as the leaders have them, now that it is back
	for part := range int32(partitionCount) {
		o, err := d.cl.Offsets(ctx, topicName, part, wire.AtEnd)
		if err != nil {
			return err
		}
		ends[part] = o.HighWatermark
	}
	err := d.until(ctx, 20*time.Second, p.name+" to catch up", func(ctx context.Context) (bool, error) {
		n, err := d.cl.Admin().DescribeNode(ctx, d.fall.oldLeader)
		return err == nil && hasAll(n, ends), err
	})
	if err != nil {
		return err
	}
	d.fall.caughtUp = time.Since(start)
	d.say("%s has caught up, %v after its start", p.name, d.fall.caughtUp.Round(time.Millisecond))
	return nil
}

// hasAll tells whether the node's own replicas reach the ends.
func hasAll(n wire.NodeDescription, ends map[int32]record.Offset) bool {
	found := 0
	for _, have := range n.Partitions {
		if have.Topic == topicName && have.HighWatermark >= ends[have.Partition] {
			found++
		}
	}
	return found == len(ends)
}

// readBack reads all partitions from the start and holds them against the ledger.
func (d *demo) readBack(ctx context.Context) error {
	if err := d.edgectl(ctx, "status"); err != nil {
		return err
	}
	var starts []client.Start
	want := 0
	for p := range int32(partitionCount) {
		o, err := d.cl.Offsets(ctx, topicName, p, wire.AtStart)
		if err != nil {
			return err
		}
		starts = append(starts, client.Start{Topic: topicName, Partition: p, Offset: o.LogStart})
		want += int(o.HighWatermark - o.LogStart)
	}
	co, err := d.cl.NewConsumer(client.ConsumerConfig{Partitions: starts})
	if err != nil {
		return err
	}
	got, read := map[int32][]client.Message{}, 0
	for read < want && err == nil {
		var messages []client.Message
		messages, err = co.Poll(ctx)
		for _, m := range messages {
			got[m.Partition] = append(got[m.Partition], m)
		}
		read += len(messages)
	}
	if err := errors.Join(err, co.Close()); err != nil {
		return err
	}
	v := d.ledger.compare(got, seqOf)
	d.printTable(v)
	if v.bad() {
		return errors.New(v.first)
	}
	if v.read < d.total {
		return fmt.Errorf("only %d records were read back", v.read)
	}
	return nil
}

func seqOf(value []byte) (int64, error) {
	var r reading
	err := json.Unmarshal(value, &r)
	return r.Seq, err
}

func (d *demo) printTable(v verdict) {
	f, st := d.fall, d.cl.Stats()
	fmt.Println(strings.Repeat("-", 72))
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, row := range []struct {
		what  string
		value any
	}{
		{"records acknowledged", d.ledger.ackedCount()},
		{"records read back", v.read},
		{"lost", v.lost},
		{"doubled", v.doubled},
		{"out of order or misplaced", v.misplaced},
		{"altered", v.altered},
		{"kept without an acknowledgement", v.unanswered},
		{"redirects followed", d.redirects + st.Redirects},
		{"leader of partition 0 before kill -9", fmt.Sprintf("%s, epoch %d", d.nameOf(f.oldLeader), f.oldEpoch)},
		{"leader of partition 0 after it", fmt.Sprintf("%s, epoch %d", d.nameOf(f.newLeader), f.newEpoch)},
		{"next acknowledged record after", f.gap.Round(time.Millisecond)},
		{fmt.Sprintf("slowest of the %d partitions it led", f.partitionsThatLostLeads), f.slowest.Round(time.Millisecond)},
		{"killed node back and caught up after", f.caughtUp.Round(time.Millisecond)},
	} {
		fmt.Fprintf(w, "%s\t%v\n", row.what, row.value)
	}
	_ = w.Flush() // as good as Println
	fmt.Println(strings.Repeat("-", 72))
}
