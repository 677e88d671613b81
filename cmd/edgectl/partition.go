package main

import (
	"context"
	"fmt"
	"io"

	"edged/client"
	"edged/record"
	"edged/transport/wire"

	"github.com/urfave/cli/v2"
)

func partitionCommand() *cli.Command {
	return group("partition", "partitions, their leaders and replicas",
		leaf("list", "[TOPIC…]", "the partitions of all topics, or of those named", nil, partitionList),
		leaf("describe", "TOPIC PARTITION", "one partition", nil, partitionDescribe),
		leaf("transfer", "TOPIC PARTITION", "give the leadership of a partition to another of its replicas",
			[]cli.Flag{&cli.StringFlag{Name: "to", Usage: "id or name of the `NODE` that shall lead (default: the leader chooses)"}},
			partitionTransfer),
	)
}

// partitionRow is a partition with the topic it belongs to.
type partitionRow struct {
	Topic string `json:"topic"`
	wire.Partition
}

func partitionList(c *cli.Context) error {
	return withAdmin(c, func(ctx context.Context, cl client.Admin) error {
		topics, err := describeTopics(ctx, cl, c.Args().Slice())
		if err != nil {
			return err
		}
		rows := []partitionRow{}
		for _, t := range topics {
			for _, p := range t.Partitions {
				rows = append(rows, partitionRow{t.Name, p})
			}
		}
		if c.Bool("json") {
			return printJSON(c.App.Writer, rows)
		}
		return printPartitions(c.App.Writer, rows)
	})
}

func partitionDescribe(c *cli.Context) error {
	return withAdmin(c, func(ctx context.Context, cl client.Admin) error {
		row, err := findPartition(ctx, c, cl)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(c.App.Writer, row)
		}
		return printPartitions(c.App.Writer, []partitionRow{row})
	})
}

// findPartition takes the arguments TOPIC PARTITION.
func findPartition(ctx context.Context, c *cli.Context, cl client.Admin) (partitionRow, error) {
	number, err := partitionArg(c, c.Args().Get(1))
	if err != nil {
		return partitionRow{}, err
	}
	topics, err := describeTopics(ctx, cl, []string{c.Args().First()})
	if err != nil {
		return partitionRow{}, err
	}
	for _, p := range topics[0].Partitions {
		if p.Partition == number {
			return partitionRow{topics[0].Name, p}, nil
		}
	}
	return partitionRow{}, fmt.Errorf("%s has %s, none is %d: %w", topics[0].Name, countText(len(topics[0].Partitions), "partition"), number, record.ErrUnknownPartition)
}

func partitionTransfer(c *cli.Context) error {
	return withAdmin(c, func(ctx context.Context, cl client.Admin) error {
		row, err := findPartition(ctx, c, cl)
		if err != nil {
			return err
		}
		to, err := findNode(ctx, cl, c.String("to"))
		if err != nil {
			return err
		}
		res, err := cl.TransferLeader(ctx, wire.TransferLeaderRequest{Topic: row.Topic, Partition: row.Partition.Partition, To: to})
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(c.App.Writer, res)
		}
		_, err = fmt.Fprintf(c.App.Writer, "node %d leads %s/%d in epoch %d; before it was node %s in epoch %d\n",
			res.Leader, row.Topic, row.Partition.Partition, res.Epoch, nodeText(row.Leader), row.Epoch)
		return err
	})
}

func printPartitions(w io.Writer, rows []partitionRow) error {
	t := newTable("TOPIC", "PARTITION", "LEADER", "EPOCH", "REPLICAS", "VOTERS", "IN SYNC", "LOG START", "HIGH WATERMARK")
	for _, p := range rows {
		t.row(p.Topic, p.Partition.Partition, nodeText(p.Leader), p.Epoch, nodesText(p.Replicas), nodesText(p.Voters), nodesText(p.InSync), offsetText(p.LogStart), offsetText(p.HighWatermark))
	}
	return t.print(w)
}
