package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"edged/client"
	"edged/record"

	"github.com/urfave/cli/v2"
)

func nodeCommand() *cli.Command {
	return group("node", "the nodes of the cluster",
		leaf("list", "", "all nodes, with their addresses", nil, nodeList),
		leaf("describe", "[NODE]", "one node from the inside: its replicas, peers and problems (default: the one that answers)", nil, nodeDescribe),
	)
}

func nodeList(c *cli.Context) error {
	return withAdmin(c, func(ctx context.Context, cl client.Admin) error {
		md, err := cl.Metadata(ctx, []string{})
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(c.App.Writer, md.Nodes)
		}
		t := newTable("ID", "NAME", "ALIVE", "LEADERS", "REPLICAS", "NATIVE", "KAFKA", "HTTP", "VERSION")
		for _, n := range md.Nodes {
			t.row(n.ID, orDash(n.Name), yesNo(n.Alive), n.Leaders, n.Replicas, orDash(n.Native), orDash(n.Kafka), orDash(n.HTTP), orDash(n.Version))
		}
		return t.print(c.App.Writer)
	})
}

func nodeDescribe(c *cli.Context) error {
	return withAdmin(c, func(ctx context.Context, cl client.Admin) error {
		id, err := findNode(ctx, cl, c.Args().First())
		if err != nil {
			return err
		}
		d, err := cl.DescribeNode(ctx, id)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(c.App.Writer, d)
		}
		t := newTable("node", fmt.Sprintf("%d %s", d.ID, d.Name))
		t.row("state", d.State)
		t.row("version", orDash(d.Version))
		t.row("zone", orDash(d.Zone))
		t.row("instance", fmt.Sprintf("%s, start %d, up %v", d.Instance, d.BootCounter, (time.Duration(d.UptimeMs)*time.Millisecond).Round(time.Second)))
		t.row("addresses", fmt.Sprintf("native %s, kafka %s, http %s", orDash(d.Native), orDash(d.Kafka), orDash(d.HTTP)))
		t.row("data", fmt.Sprintf("%s, %s free", bytesText(d.DataBytes), bytesText(d.DiskFree)))
		for _, p := range d.Peers {
			state := "up"
			if !p.Up {
				state = "down"
			}
			if p.Problem != "" {
				state += ": " + p.Problem
			}
			t.row("peer", fmt.Sprintf("%d at %s %s", p.ID, orDash(p.Addr), state))
		}
		for _, p := range d.Problems {
			t.row("problem", p)
		}
		if err := t.print(c.App.Writer); err != nil || len(d.Partitions) == 0 {
			return err
		}
		fmt.Fprintln(c.App.Writer)
		t = newTable("TOPIC", "PARTITION", "ROLE", "LEADER", "EPOCH", "LOG START", "HIGH WATERMARK")
		for _, p := range d.Partitions {
			t.row(p.Topic, p.Partition, p.Role, nodeText(p.Leader), p.Epoch, offsetText(p.LogStart), offsetText(p.HighWatermark))
		}
		return t.print(c.App.Writer)
	})
}

// findNode takes the id or the name of a node; empty is the node that answers.
func findNode(ctx context.Context, cl client.Admin, text string) (record.NodeID, error) {
	if text == "" {
		return record.NoNode, nil
	}
	md, err := cl.Metadata(ctx, []string{})
	if err != nil {
		return 0, err
	}
	found := record.NoNode
	for _, n := range md.Nodes {
		switch {
		case n.ID.String() == text:
			return n.ID, nil
		case n.Name == text && found != record.NoNode:
			return 0, fmt.Errorf("two nodes have the name %q; use the id", text)
		case n.Name == text:
			found = n.ID
		}
	}
	if found == record.NoNode {
		return 0, fmt.Errorf("node %q: %w", text, record.ErrUnknownNode)
	}
	return found, nil
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// partitionArg reads the number of a partition.
func partitionArg(c *cli.Context, text string) (int32, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0, usage(c, "partition %q is not a number from 0", text)
	}
	return int32(n), nil
}
