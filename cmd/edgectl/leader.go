package main

import (
	"context"

	"edged/client"
	"edged/transport/wire"

	"github.com/urfave/cli/v2"
)

func leaderCommand() *cli.Command {
	return group("leader", "who has led what",
		leaf("history", "[TOPIC] [PARTITION]", "past changes of leadership, newest first, as the answering node saw them",
			[]cli.Flag{&cli.Int64Flag{Name: "limit", Usage: "print at most `N` changes", DefaultText: "all that are kept"}},
			leaderHistory),
	)
}

func leaderHistory(c *cli.Context) error {
	partition, limit := int32(-1), c.Int64("limit")
	if c.NArg() > 1 {
		var err error
		if partition, err = partitionArg(c, c.Args().Get(1)); err != nil {
			return err
		}
	}
	if limit < 0 || limit > 1<<20 {
		return usage(c, "--limit is 1 to %d", 1<<20)
	}
	return withAdmin(c, func(ctx context.Context, cl client.Admin) error {
		changes, err := cl.LeaderHistory(ctx, wire.LeaderHistoryRequest{Topic: c.Args().First(), Partition: partition, Limit: int32(limit)})
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(c.App.Writer, changes)
		}
		t := newTable("AT", "TOPIC", "PARTITION", "EPOCH", "LEADER", "REASON")
		for _, h := range changes {
			t.row(h.At.Local().Format("2006-01-02T15:04:05.000Z07:00"), h.Topic, h.Partition, h.Epoch, nodeText(h.Leader), h.Reason)
		}
		return t.print(c.App.Writer)
	})
}
