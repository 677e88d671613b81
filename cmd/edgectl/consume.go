package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"edged/client"
	"edged/record"
	"edged/transport/wire"

	"github.com/urfave/cli/v2"
)

func consumeCommand() *cli.Command {
	cmd := leaf("consume", "TOPIC", "print records", []cli.Flag{
		&cli.StringFlag{Name: "from", Value: "start", Usage: "begin at `POSITION`: start, end, an offset, a time (2026-01-31T12:00:00Z) or an age (-1h)"},
		&cli.Int64Flag{Name: "count", Usage: "end after `N` records, and wait for them", DefaultText: "what is there"},
		&cli.BoolFlag{Name: "follow", Usage: "go on with what comes, until a signal", DisableDefaultText: true},
		&cli.Int64SliceFlag{Name: "partition", Usage: "read partition `N`; repeatable", DefaultText: "all"},
		&cli.StringFlag{Name: "group", Usage: "go on where consumer group `NAME` stands, and keep where it came to", DefaultText: "none"},
		&cli.StringFlag{Name: "format", Value: `%v\n`, DefaultText: `%v\n`, Usage: "print each record as `TEXT`"},
		&cli.StringFlag{Name: "null", Usage: "print a null key or value as `TEXT`", DefaultText: "nothing"},
	}, consume)
	cmd.Description = `A partition that ends before the offset of --from is read from its end, one that begins after
it from its beginning, and stderr says so. If no partition has come so far it is an error.

With --group, --from is for partitions of which the group has kept nothing yet. What was printed
is kept about once a second and at the end, so a run that is cut off prints a little twice. The
group must have no members: sharing partitions between several is for Kafka clients.

Without --follow and --count it prints what the topic holds now and ends. With --count or
--follow it waits for more: without end, or until --timeout if that is given.

--format knows %t topic, %p partition, %o offset, %e leader epoch, %T timestamp in ms, %I
timestamp as a date, %k key, %v value, %K and %V their lengths (-1 for null), %h headers as
name=value with commas between, %%, and \n \t \r \0 \\. With --json each record is an object
{topic, partition, offset, epoch, timestamp, key, value} on a line of its own, with headers
[{key, value}, ...] if it has any; key and value are null, a text if they are UTF-8, or else
{"base64": "..."}.`
	return cmd
}

// consumption is one run of consume.
type consumption struct {
	c         *cli.Context
	cl        *client.Client
	topic     string
	position  position
	waits     bool  // for more than there is now
	count     int64 // 0: no limit
	format    format
	out       *bufio.Writer
	json      *json.Encoder
	moved     []movedStart
	group     *groupPlace             // nil without --group
	ends      map[int32]record.Offset // where each partition that is not done yet ends; unless waits
	consumed  int64
	lineSpace []byte
}

func consume(c *cli.Context) (err error) {
	r := &consumption{c: c, topic: c.Args().First(), count: c.Int64("count"), ends: map[int32]record.Offset{}}
	if r.position, err = parsePosition(c.String("from"), time.Now()); err != nil {
		return usage(c, "%v", err)
	}
	if c.IsSet("count") && r.count < 1 {
		return usage(c, "--count is %d; it is at least 1", r.count)
	}
	r.waits = c.Bool("follow") || r.count > 0
	if c.IsSet("format") && c.Bool("json") {
		return usage(c, "--format and --json exclude each other")
	}
	if r.format, err = parseFormat(c.String("format"), c.String("null")); err != nil {
		return usage(c, "%v", err)
	}
	if c.IsSet("group") {
		r.group = &groupPlace{name: c.String("group"), next: map[record.TopicPartition]record.Offset{}}
	}
	r.out = bufio.NewWriterSize(c.App.Writer, 64<<10)
	r.json = json.NewEncoder(r.out)
	r.json.SetEscapeHTML(false)
	return withClient(c, func(cl *client.Client) error {
		r.cl = cl
		err := r.run()
		if flushed := r.out.Flush(); flushed != nil {
			return errors.Join(err, flushed)
		}
		return errors.Join(err, r.keepPlace(true))
	})
}

func (r *consumption) run() error {
	starts, err := r.starts()
	if err != nil || len(starts) == 0 {
		return err
	}
	co, err := r.cl.NewConsumer(client.ConsumerConfig{Partitions: starts})
	if err != nil {
		return err
	}
	return errors.Join(r.poll(co), co.Close())
}

// starts finds where each partition begins, and where it ends for a run that does not
// wait. Partitions of which nothing is to be read are left out.
func (r *consumption) starts() ([]client.Start, error) {
	ctx, cancel := context.WithTimeout(r.c.Context, r.c.Duration("timeout"))
	defer cancel()
	n, err := r.cl.PartitionCount(ctx, r.topic)
	if err != nil {
		return nil, err
	}
	if err := r.findPlace(ctx); err != nil {
		return nil, err
	}
	asked := r.c.Int64Slice("partition")
	if len(asked) == 0 {
		for p := range n {
			asked = append(asked, int64(p))
		}
	}
	var starts []client.Start
	for _, p := range asked {
		if p < 0 || p >= int64(n) {
			return nil, &notFoundError{fmt.Sprintf("topic %s has %s, none is %d", r.topic, countText(n, "partition"), p)}
		}
		from, end, err := r.bounds(ctx, int32(p))
		if err != nil {
			return nil, err
		}
		if _, twice := r.ends[int32(p)]; twice || !r.waits && from >= end {
			continue
		}
		r.ends[int32(p)] = end
		starts = append(starts, client.Start{Topic: r.topic, Partition: int32(p), Offset: from})
	}
	return starts, r.tellMoved(len(asked))
}

// bounds gives the first offset to read of a partition, and its end right now.
func (r *consumption) bounds(ctx context.Context, partition int32) (from, end record.Offset, err error) {
	at := wire.AtStart
	switch r.position.kind {
	case fromEnd:
		at = wire.AtEnd
	case fromTime:
		at = r.position.time.UnixMilli()
	}
	o, err := r.cl.Offsets(ctx, r.topic, partition, at)
	if err != nil {
		return 0, 0, err
	}
	if kept, ok := r.group.at(r.topic, partition); ok {
		from = min(max(kept, o.LogStart), o.HighWatermark)
		if from != kept {
			fmt.Fprintf(r.c.App.ErrWriter, "%s/%d does not have offset %d, where group %s stands; it is read from %d\n", r.topic, partition, kept, r.group.name, from)
		}
		return from, o.HighWatermark, nil
	}
	if r.position.kind != fromOffset {
		return o.Offset, o.HighWatermark, nil
	}
	from = min(max(r.position.offset, o.LogStart), o.HighWatermark)
	if from != r.position.offset {
		r.moved = append(r.moved, movedStart{partition, o.LogStart, o.HighWatermark})
	}
	return from, o.HighWatermark, nil
}

// movedStart is a partition that does not have the offset to begin with.
type movedStart struct {
	partition  int32
	start, end record.Offset
}

// tellMoved says where partitions begin that do not have the offset asked for. If all of them end before
// it, it is taken for a mistake.
func (r *consumption) tellMoved(partitions int) error {
	from := r.position.offset
	short := 0
	for _, m := range r.moved {
		if m.end < from {
			short++
		}
	}
	if short == partitions && short > 0 {
		m := r.moved[0]
		return fmt.Errorf("%s/%d begins at offset %d and ends at %d, it does not have %d: %w",
			r.topic, m.partition, m.start, m.end, from, record.ErrOffsetOutOfRange)
	}
	for _, m := range r.moved {
		if m.end < from {
			fmt.Fprintf(r.c.App.ErrWriter, "%s/%d ends at offset %d, it is read from there\n", r.topic, m.partition, m.end)
		} else {
			fmt.Fprintf(r.c.App.ErrWriter, "%s/%d begins at offset %d, it is read from there\n", r.topic, m.partition, m.start)
		}
	}
	return nil
}

// poll prints until everything that was asked for has come. Without --follow and --count
// --timeout bounds the wait for the next record, else the whole run, if it was given.
func (r *consumption) poll(co *client.Consumer) error {
	ctx, cancel := r.c.Context, context.CancelFunc(func() {})
	if r.waits && r.c.IsSet("timeout") {
		ctx, cancel = context.WithTimeout(ctx, r.c.Duration("timeout"))
	}
	defer cancel()
	for {
		messages, err := r.pollOnce(ctx, co)
		if err != nil {
			return r.ended(ctx, err)
		}
		for i := range messages {
			done, err := r.take(&messages[i])
			if err != nil || done {
				return err
			}
		}
		if err := r.out.Flush(); err != nil {
			return err
		}
		if err := r.keepPlace(false); err != nil {
			return err
		}
	}
}

func (r *consumption) pollOnce(ctx context.Context, co *client.Consumer) ([]client.Message, error) {
	if !r.waits {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.c.Duration("timeout"))
		defer cancel()
	}
	return co.Poll(ctx)
}

// ended judges the error that ended the polling. A signal or --timeout is how --follow ends.
func (r *consumption) ended(ctx context.Context, err error) error {
	if r.waits && r.count == 0 && ctx.Err() != nil {
		return nil
	}
	return err
}

// take prints a message if it is to be printed, and tells whether it was the last one.
func (r *consumption) take(m *client.Message) (done bool, err error) {
	end, open := r.ends[m.Partition]
	if !r.waits && (!open || m.Offset >= end) {
		delete(r.ends, m.Partition)
		return len(r.ends) == 0, nil
	}
	if r.c.Bool("json") {
		err = r.json.Encode(toJSON(m))
	} else {
		r.lineSpace = r.format.append(r.lineSpace[:0], m)
		_, err = r.out.Write(r.lineSpace)
	}
	r.consumed++
	r.group.passed(m)
	if !r.waits && m.Offset+1 >= end {
		delete(r.ends, m.Partition)
	}
	return r.consumed == r.count || !r.waits && len(r.ends) == 0, err
}
