package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"edged/client"
	"edged/record"
	"edged/transport/wire"

	"github.com/urfave/cli/v2"
)

func nodeCommand() *cli.Command {
	return group("node", "the nodes of the cluster",
		leaf("list", "", "all nodes, with their addresses", nil, nodeList),
		leaf("describe", "[NODE]", "one node from the inside: its replicas, peers and problems (default: the one that answers)", nil, nodeDescribe),
		nodeRemoveCommand(),
	)
}

func nodeList(c *cli.Context) error {
	return withAdmin(c, func(ctx context.Context, cl client.Admin) error {
		md, err := cl.Metadata(ctx, []string{})
		if err != nil {
			return err
		}
		askForLeaders(ctx, cl, md.Nodes)
		if c.Bool("json") {
			return printJSON(c.App.Writer, md.Nodes)
		}
		t := newTable("ID", "NAME", "STATE", "LEADERS", "REPLICAS", "NATIVE", "KAFKA", "HTTP", "VERSION")
		for _, n := range md.Nodes {
			t.row(n.ID, orDash(n.Name), stateText(n), n.Leaders, n.Replicas, orDash(n.Native), orDash(n.Kafka), orDash(n.HTTP), orDash(n.Version))
		}
		if err := t.print(c.App.Writer); err != nil {
			return err
		}
		for _, n := range md.Nodes {
			if !n.Alive && slices.ContainsFunc(md.Nodes, func(o wire.Node) bool { return o.Name == n.Name && o.Alive }) {
				fmt.Fprintf(c.App.ErrWriter, "node %d is away, and another node has its name %s: if that took its place, `edgectl node remove %d`\n", n.ID, n.Name, n.ID)
			}
		}
		return nil
	})
}

// askForLeaders lets each node that is alive say itself how many partitions it leads: others, above all one that has
// just joined, hear of new leaders a moment later. Who does not answer soon is counted by what the first one knows.
func askForLeaders(ctx context.Context, cl client.Admin, nodes []wire.Node) {
	ctx, cancel := context.WithTimeout(ctx, disksPatience)
	defer cancel()
	each(len(nodes), func(i int) {
		if !nodes[i].Alive {
			return
		}
		if d, err := cl.DescribeNode(ctx, nodes[i].ID); err == nil {
			nodes[i].Leaders = d.Leaders
		}
	})
}

// stateText says how a node is, in the words of node list.
func stateText(n wire.Node) string {
	state := "alive"
	switch away := time.Duration(n.AwayMs) * time.Millisecond; {
	case n.Alive:
	case away <= 0:
		state = "away"
	default:
		state = "away " + ageText(away)
	}
	if n.Leaving {
		state += ", leaving"
	}
	return state
}

// ageText is a duration in its largest whole unit.
func ageText(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

func nodeRemoveCommand() *cli.Command {
	cmd := leaf("remove", "NODE", "take a node out of the cluster, for good", []cli.Flag{
		&cli.BoolFlag{Name: "force", Usage: "also a node that is alive, once others have what it holds; also one that partitions are lost with", DisableDefaultText: true},
		&cli.BoolFlag{Name: "cancel", Usage: "let a node stay that is being emptied", DisableDefaultText: true},
		&cli.BoolFlag{Name: "yes", Usage: "do not ask; without a terminal nothing is asked anyway", DisableDefaultText: true},
	}, nodeRemove)
	cmd.Description = `NODE is an id or a name; where two nodes have one name, only the id will do. What the node
holds is first made anew on other nodes. If that takes longer than --timeout the command ends
with exit code 4 and the node goes on being emptied: run it again to finish, or with --cancel
to keep the node. What no other node can take of a node that is away is made when there is one;
a node that is alive and holds such is not removed (exit code 5) but goes on leaving, with what
others could take gone: run it again when a node has joined, or with --cancel.

A node that is alive is refused, and so is one without which a partition has no majority,
whose records would be lost: --force does it all the same. A removed node never comes
back: with an empty data directory its machine joins as a new node.`
	return cmd
}

func nodeRemove(c *cli.Context) error {
	return withAdmin(c, func(ctx context.Context, cl client.Admin) error {
		n, err := namedNode(ctx, cl, c.Args().First())
		if err != nil {
			return err
		}
		name := fmt.Sprintf("node %d (%s)", n.ID, orDash(n.Name))
		if !c.Bool("cancel") && !c.Bool("yes") && !confirmed(c, fmt.Sprintf("Remove %s, %s, for good?", name, stateText(n))) {
			return fmt.Errorf("%s is kept", name)
		}
		res, err := cl.RemoveNode(ctx, wire.RemoveNodeRequest{Node: n.ID, Force: c.Bool("force"), Cancel: c.Bool("cancel")})
		switch {
		case err != nil:
			return err
		case !res.Removed && !c.Bool("cancel"):
			return fmt.Errorf("%s is being emptied, %d of its replicas are still on their way; run this again to finish, or with --cancel to keep it: %w", name, res.Moving, context.DeadlineExceeded)
		case c.Bool("json"):
			return printJSON(c.App.Writer, res)
		case c.Bool("cancel"):
			return done(c, "%s stays", name)
		case res.Missing > 0:
			return done(c, "%s is removed; replicas that it held and that wait for another node to take them: %d", name, res.Missing)
		}
		return done(c, "%s is removed", name)
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
		deviceRows(t, d)
		for _, p := range d.Peers {
			state := "up"
			if !p.Up {
				state = "down"
			}
			if p.Problem != "" {
				state += ": " + p.Problem
			}
			if p.PauseMs > 0 {
				state += fmt.Sprintf(", pauses for up to %v again and again", time.Duration(p.PauseMs)*time.Millisecond)
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
	n, err := namedNode(ctx, cl, text)
	return n.ID, err
}

// namedNode finds a node by its id, or by its name if no other has it.
func namedNode(ctx context.Context, cl client.Admin, text string) (wire.Node, error) {
	md, err := cl.Metadata(ctx, []string{})
	if err != nil {
		return wire.Node{}, err
	}
	var found []wire.Node
	for _, n := range md.Nodes {
		if n.ID.String() == text {
			return n, nil
		}
		if n.Name == text {
			found = append(found, n)
		}
	}
	switch len(found) {
	case 0:
		return wire.Node{}, fmt.Errorf("node %q: %w", text, record.ErrUnknownNode)
	case 1:
		return found[0], nil
	}
	var each []string
	for _, n := range found {
		each = append(each, fmt.Sprintf("%d (%s)", n.ID, stateText(n)))
	}
	return wire.Node{}, &usageError{fmt.Sprintf("%d nodes have the name %q: %s; use the id", len(found), text, strings.Join(each, ", "))}
}

// partitionArg reads the number of a partition.
func partitionArg(c *cli.Context, text string) (int32, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0, usage(c, "partition %q is not a number from 0", text)
	}
	return int32(n), nil
}
