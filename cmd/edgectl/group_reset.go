package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"edged/client"
	"edged/record"
	"edged/transport/wire"

	"github.com/urfave/cli/v2"
)

func groupResetCommand() *cli.Command {
	cmd := leaf("reset", "GROUP TOPIC", "let a group without members read a topic from another position", []cli.Flag{
		&cli.StringFlag{Name: "to", Usage: "`POSITION` to read from next: start, end, an offset, a time (2026-01-31T12:00:00Z) or an age (-1h)"},
		&cli.Int64SliceFlag{Name: "partition", Usage: "only partition `N`; repeatable", DefaultText: "all"},
		&cli.BoolFlag{Name: "dry-run", Usage: "only show what would be", DisableDefaultText: true},
	}, groupReset)
	cmd.Description = "A group with members keeps its offsets: stop the members first. A group that does not exist is made."
	return cmd
}

// resetRow is one partition of a reset.
type resetRow struct {
	Topic     string        `json:"topic"`
	Partition int32         `json:"partition"`
	Offset    record.Offset `json:"offset"`
}

func groupReset(c *cli.Context) error {
	name, topic := c.Args().Get(0), c.Args().Get(1)
	if !c.IsSet("to") {
		return usage(c, "--to is missing")
	}
	to, err := parsePosition(c.String("to"), time.Now())
	if err != nil {
		return usage(c, "%s", strings.Replace(err.Error(), "--from", "--to", 1))
	}
	return withAdmin(c, func(ctx context.Context, cl client.Admin) error {
		partitions, err := resetPartitions(ctx, c, cl, topic)
		if err != nil {
			return err
		}
		rows := make([]resetRow, len(partitions))
		var mu sync.Mutex
		var faults []error
		each(len(rows), func(i int) {
			rows[i] = resetRow{Topic: topic, Partition: partitions[i]}
			var err error
			if rows[i].Offset, err = resetOffset(ctx, cl, &rows[i], to); err != nil {
				mu.Lock()
				defer mu.Unlock()
				faults = append(faults, fmt.Errorf("%s/%d: %w", topic, partitions[i], err))
			}
		})
		if len(faults) > 1 {
			return fmt.Errorf("%w; so it is in %d of %s, and nothing is changed", faults[0], len(faults), countText(len(rows), "partition"))
		}
		if len(faults) > 0 {
			return faults[0]
		}
		if !c.Bool("dry-run") {
			offsets := map[record.TopicPartition]record.Offset{}
			for _, r := range rows {
				offsets[record.TopicPartition{Topic: r.Topic, Partition: r.Partition}] = r.Offset
			}
			if err := cl.CommitGroup(ctx, name, offsets); err != nil {
				return about("group", name, err)
			}
		}
		return printReset(c, rows)
	})
}

func printReset(c *cli.Context, rows []resetRow) error {
	if c.Bool("json") {
		return printJSON(c.App.Writer, rows)
	}
	t := newTable("TOPIC", "PARTITION", "READS FROM")
	for _, r := range rows {
		t.row(r.Topic, r.Partition, r.Offset)
	}
	return t.print(c.App.Writer)
}

// resetPartitions are the partitions that were named, or all of the topic.
func resetPartitions(ctx context.Context, c *cli.Context, cl client.Admin, topic string) ([]int32, error) {
	topics, err := describeTopics(ctx, cl, []string{topic})
	if err != nil {
		return nil, err
	}
	n := int64(len(topics[0].Partitions))
	asked := c.Int64Slice("partition")
	if len(asked) == 0 {
		for p := range n {
			asked = append(asked, p)
		}
	}
	var partitions []int32
	for _, p := range asked {
		if p < 0 || p >= n {
			return nil, &notFoundError{fmt.Sprintf("topic %s has %s, none is %d", topic, countText(n, "partition"), p)}
		}
		partitions = append(partitions, int32(p))
	}
	slices.Sort(partitions)
	return slices.Compact(partitions), nil
}

// resetOffset finds the offset of a position in one partition.
func resetOffset(ctx context.Context, cl client.Admin, r *resetRow, to position) (record.Offset, error) {
	at := wire.AtEnd
	switch to.kind {
	case fromStart:
		at = wire.AtStart
	case fromTime:
		at = to.time.UnixMilli()
	}
	found, err := cl.Offsets(ctx, r.Topic, r.Partition, at)
	if err != nil || to.kind != fromOffset {
		return found.Offset, err
	}
	if to.offset < found.LogStart || to.offset > found.HighWatermark {
		return 0, fmt.Errorf("offset %d, the log has %d to %d: %w", to.offset, found.LogStart, found.HighWatermark, record.ErrOffsetOutOfRange)
	}
	return to.offset, nil
}
