package main

import (
	"context"
	"errors"
	"time"

	"edged/client"
	"edged/record"
)

// keepEvery is how often consume keeps where its group stands.
const keepEvery = time.Second

// groupPlace is where a consumer group stands in a topic.
type groupPlace struct {
	name  string
	next  map[record.TopicPartition]record.Offset // what it has kept, and what was printed since
	dirty bool
	kept  time.Time
}

// at is the offset that the group reads next.
func (g *groupPlace) at(topic string, partition int32) (record.Offset, bool) {
	if g == nil {
		return 0, false
	}
	o, ok := g.next[record.TopicPartition{Topic: topic, Partition: partition}]
	return o, ok
}

// passed notes that a message was printed.
func (g *groupPlace) passed(m *client.Message) {
	if g != nil {
		g.next[record.TopicPartition{Topic: m.Topic, Partition: m.Partition}] = m.Offset + 1
		g.dirty = true
	}
}

// findPlace asks where the group stands. A group that does not exist stands nowhere yet.
func (r *consumption) findPlace(ctx context.Context) error {
	if r.group == nil {
		return nil
	}
	d, err := r.cl.Admin().Group(ctx, r.group.name)
	switch {
	case errors.Is(err, record.ErrUnknownGroup):
		return nil
	case err != nil:
		return about("group", r.group.name, err)
	case len(d.Members) > 0:
		return about("group", r.group.name, record.ErrGroupNotEmpty)
	}
	for _, t := range d.Offsets {
		for _, p := range t.Partitions {
			if t.Topic == r.topic && p.Offset >= 0 {
				r.group.next[record.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = p.Offset
			}
		}
	}
	return nil
}

// keepPlace keeps where the group stands, if it is time for that or the last time to do it. Everything
// that it names has left for stdout.
func (r *consumption) keepPlace(last bool) error {
	g := r.group
	if g == nil || !g.dirty || !last && time.Since(g.kept) < keepEvery {
		return nil
	}
	// Also after a signal: what was printed should not be printed again.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.c.Context), r.c.Duration("timeout"))
	defer cancel()
	if err := r.cl.Admin().CommitGroup(ctx, g.name, g.next); err != nil {
		return about("group", g.name, err)
	}
	g.dirty, g.kept = false, time.Now()
	return nil
}
