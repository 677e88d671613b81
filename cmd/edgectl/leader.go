package main

import (
	"context"
	"fmt"

	"edged/client"
	"edged/transport/wire"

	"github.com/urfave/cli/v2"
)

const historyHelp = `Each node keeps what it has seen itself since its start, in memory: at most 4096 changes, over all
partitions. A node that was started lately, or cut off, knows less than others: ask one with --node.`

func leaderCommand() *cli.Command {
	return group("leader", "who has led what",
		described(leaf("history", "[TOPIC] [PARTITION]", "past changes of leadership, newest first, as the answering node saw them",
			[]cli.Flag{&cli.Int64Flag{Name: "limit", Usage: "print at most `N` changes", DefaultText: "all that are kept"}},
			leaderHistory), historyHelp),
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
		history, err := cl.LeaderHistory(ctx, wire.LeaderHistoryRequest{Topic: c.Args().First(), Partition: partition, Limit: int32(limit)})
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(c.App.Writer, append([]wire.LeaderChange{}, history.Changes...))
		}
		t := newTable("AT", "TOPIC", "PARTITION", "EPOCH", "LEADER", "REASON")
		for _, h := range history.Changes {
			t.row(h.At.Local().Format("2006-01-02T15:04:05.000Z07:00"), h.Topic, h.Partition, h.Epoch, nodeText(h.Leader), h.Reason)
		}
		if err := t.print(c.App.Writer); err != nil {
			return err
		}
		if history.Node > 0 { // an older node does not say
			fmt.Fprintf(c.App.ErrWriter, "answered by node %d, which knows what it has seen since its start; another one may know more (--node)\n", history.Node)
		}
		return nil
	})
}
