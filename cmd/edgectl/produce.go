package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"edged/client"
	"edged/record"

	"github.com/urfave/cli/v2"
)

// inputAhead is how many records are read before they are needed.
const inputAhead = 256

func produceCommand() *cli.Command {
	cmd := leaf("produce", "TOPIC", "send lines as records", []cli.Flag{
		&cli.StringFlag{Name: "file", Usage: "read lines from `FILE`", DefaultText: "stdin"},
		&cli.StringFlag{Name: "key", Usage: "give every record the key `TEXT`", DefaultText: "null"},
		&cli.StringFlag{Name: "key-separator", Usage: "take the key from each line, up to the first `TEXT`"},
		&cli.StringFlag{Name: "null", Usage: "send a key or value that is exactly `TEXT` as null"},
		&cli.BoolFlag{Name: "from-json", Usage: "take lines as consume --json prints them: key, value, headers and timestamp are kept", DisableDefaultText: true},
		&cli.Int64Flag{Name: "partition", Usage: "send all to partition `N`", DefaultText: "by key, or any"},
		&cli.StringFlag{Name: "acks", Value: "all", Usage: acksUsage},
		&cli.Float64Flag{Name: "rate", Usage: "send at most `N` records a second", DefaultText: "no limit"},
	}, produce)
	cmd.Description = `Each line is the value of one record, without the \n that ends it. An empty line is an
empty value; only --null makes null ones. A record is tried until it is acknowledged or
--timeout is over. The first that fails ends the command with its line number and an exit
code that is not 0: no line after it is sent any more, but for those of other partitions
that are on their way already. The last line on stderr counts what is kept.`
	return cmd
}

const acksUsage = "what counts as acknowledged, `WHEN`: all (a majority has it), 1 (the leader has it) or 0 (the leader took it)"

func acksFlag(c *cli.Context) (client.Acks, error) {
	switch c.String("acks") {
	case "all", "-1":
		return client.AcksAll, nil
	case "1":
		return client.AcksLeader, nil
	case "0":
		return client.AcksNone, nil
	}
	return 0, usage(c, "--acks %q is not all, 1 or 0", c.String("acks"))
}

// production is one run of produce.
type production struct {
	c         *cli.Context
	cl        *client.Client
	p         *client.Producer
	topic     string
	partition int32 // -1: by key
	rate      float64
	in        *lines

	start   time.Time
	records int64
	acked   atomic.Int64
	failed  chan error // capacity 1: the first failure
}

func produce(c *cli.Context) error {
	acks, err := acksFlag(c)
	if err != nil {
		return err
	}
	r := &production{c: c, topic: c.Args().First(), partition: -1, rate: c.Float64("rate"), failed: make(chan error, 1)}
	if c.IsSet("partition") {
		if r.partition, err = int32Flag(c, "partition", 0); err != nil {
			return err
		}
	}
	if r.rate < 0 || c.IsSet("rate") && r.rate == 0 {
		return usage(c, "--rate is %v; it is above 0", r.rate)
	}
	in, closeInput, err := openInput(c)
	if err != nil {
		return err
	}
	defer closeInput()
	if r.in, err = newLines(c, in); err != nil {
		return err
	}
	return withClient(c, func(cl *client.Client) error {
		r.cl = cl
		r.p = cl.NewProducer(client.ProducerConfig{Acks: acks, DeliveryTimeout: c.Duration("timeout"), StopAtError: true})
		err := errors.Join(r.run(), r.p.Close())
		if err != nil && r.records == 0 {
			return err // nothing to sum up
		}
		return errors.Join(err, r.summary())
	})
}

func newLines(c *cli.Context, in io.Reader) (*lines, error) {
	l := &lines{in: bufio.NewReaderSize(in, 64<<10)}
	if c.IsSet("key") && c.IsSet("key-separator") {
		return nil, usage(c, "--key and --key-separator exclude each other")
	}
	if c.IsSet("key") {
		l.key = []byte(c.String("key"))
	}
	if c.IsSet("key-separator") {
		if l.separator = []byte(c.String("key-separator")); len(l.separator) == 0 {
			return nil, usage(c, "--key-separator is empty")
		}
	}
	if l.json = c.Bool("from-json"); l.json && (c.IsSet("key") || c.IsSet("key-separator") || c.IsSet("null")) {
		return nil, usage(c, "--from-json excludes --key, --key-separator and --null")
	}
	if c.IsSet("null") {
		l.null = []byte(c.String("null"))
	}
	return l, nil
}

func openInput(c *cli.Context) (in io.Reader, closeInput func(), err error) {
	if name := c.String("file"); name != "" {
		f, err := os.Open(name)
		if err != nil {
			return nil, nil, err
		}
		return f, func() { _ = f.Close() }, nil // it was only read
	}
	if f, ok := c.App.Reader.(*os.File); ok && isTerminal(f) {
		fmt.Fprintln(c.App.ErrWriter, "one record a line; Ctrl-D ends")
	}
	return c.App.Reader, func() {}, nil
}

// run sends everything and waits until all of it is decided. Its error is the first thing
// that went wrong.
func (r *production) run() error {
	r.start = time.Now()
	ctx, cancel := context.WithTimeout(r.c.Context, r.c.Duration("timeout"))
	n, err := r.cl.PartitionCount(ctx, r.topic)
	cancel()
	if err != nil {
		return err
	}
	if r.partition >= n {
		return &notFoundError{fmt.Sprintf("topic %s has %s, none is %d", r.topic, countText(n, "partition"), r.partition)}
	}
	err = r.send()
	// Every record is decided at last when its time is over, so this needs no deadline.
	if flushErr := r.p.Flush(context.Background()); err == nil {
		err = flushErr
	}
	select {
	case first := <-r.failed:
		return explained(r.c.Context, r.cl, first)
	default:
		return err
	}
}

// send takes records from the input until it ends, one fails, or a signal comes.
func (r *production) send() error {
	input := r.read()
	progress := newProgress(r.c)
	defer progress.stop()
	for {
		select {
		case in, ok := <-input:
			switch {
			case !ok:
				return nil
			case in.err != nil:
				return in.err
			}
			if err := r.sendOne(in); err != nil {
				return err
			}
		case <-progress.tick:
			progress.show("%s sent, %d acknowledged", countText(r.records, "record"), r.acked.Load())
		case err := <-r.failed:
			r.failed <- err // for run
			return nil
		case <-r.c.Context.Done():
			return errInterrupted
		}
	}
}

type inputRecord struct {
	client.Record
	line int64
	err  error
}

// read reads ahead in a goroutine of its own, because a terminal or pipe that gives
// nothing cannot be interrupted. It ends with the input or with the process.
func (r *production) read() <-chan inputRecord {
	out := make(chan inputRecord, inputAhead)
	go func() {
		defer close(out)
		for {
			rec, err := r.in.record()
			if err == io.EOF {
				return
			}
			select {
			case out <- inputRecord{rec, r.in.n, err}:
			case <-r.c.Context.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return out
}

func (r *production) sendOne(in inputRecord) error {
	if r.rate > 0 {
		due := r.start.Add(time.Duration(float64(r.records) / r.rate * float64(time.Second)))
		if !sleepUntil(r.c.Context, due) {
			return errInterrupted
		}
	}
	ctx, cancel := context.WithTimeout(r.c.Context, r.c.Duration("timeout"))
	defer cancel()
	rec := in.Record
	rec.Topic = r.topic
	done := func(a client.Ack) { r.done(in.line, a) }
	r.records++
	var err error
	if r.partition >= 0 {
		err = r.p.ProduceTo(ctx, r.partition, rec, done)
	} else {
		err = r.p.Produce(ctx, rec, done)
	}
	if err != nil {
		return fmt.Errorf("line %d: %w", in.line, err)
	}
	return nil
}

// done hears what became of the record of a line.
func (r *production) done(line int64, a client.Ack) {
	if a.Err == nil {
		r.acked.Add(1)
		return
	}
	select {
	case r.failed <- fmt.Errorf("line %d: %w", line, notProduced(a)):
	default: // another one was first
	}
}

// recordError is the error of a record with its partition.
type recordError struct {
	tp  record.TopicPartition
	err error
}

func (e *recordError) Error() string { return e.err.Error() }
func (e *recordError) Unwrap() error { return e.err }

func notProduced(a client.Ack) error {
	return &recordError{record.TopicPartition{Topic: a.Topic, Partition: a.Partition}, a.Err}
}

// explained adds to a record that ran out of time what the cluster knows of the cause.
func explained(ctx context.Context, cl *client.Client, err error) error {
	var pe *recordError
	if !errors.As(err, &pe) || !errors.Is(err, record.ErrTimeout) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if why := hindrances(ctx, cl.Admin(), pe.tp); why != "" {
		return fmt.Errorf("%w; %s", err, why)
	}
	return err
}

// summary says how it went: JSON on stdout, or one line on stderr.
func (r *production) summary() error {
	st := r.cl.Stats()
	seconds := time.Since(r.start).Seconds()
	acked := r.acked.Load()
	if r.c.Bool("json") {
		return printJSON(r.c.App.Writer, map[string]any{
			"records": r.records, "acked": acked, "failed": r.records - acked,
			"redirects": st.Redirects, "retries": st.Retries, "seconds": seconds,
		})
	}
	fmt.Fprintf(r.c.App.ErrWriter, "%s, %d acknowledged, %d failed, %s, %s, %.2f s\n",
		countText(r.records, "record"), acked, r.records-acked, countText(st.Redirects, "redirect"), countText(st.Retries, "retry"), seconds)
	return nil
}

// sleepUntil waits and is false if ctx ended first.
func sleepUntil(ctx context.Context, due time.Time) bool {
	wait := time.Until(due)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
