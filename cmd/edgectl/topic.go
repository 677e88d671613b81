package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"edged/client"
	"edged/record"
	"edged/transport/wire"

	"github.com/urfave/cli/v2"
)

// settingsHelp explains the settings of topics that people change.
const settingsHelp = `Settings (--config KEY=VALUE):
  retention.ms       keep records for so many milliseconds; -1 for ever (default: 7 days)
  retention.bytes    keep so many bytes of each partition; -1 all (default: all)
  max.message.bytes  the largest record batch taken (default: 1 MiB)
  durability         fsync, or relaxed: acknowledged before it is on disks (default: fsync)
  replication        as --replication
  cleanup.policy     delete, by the limits above. compact is taken for Kafka's clients, but nothing is
                     compacted yet: of such a topic nothing is ever deleted (default: delete)

` + retentionSteps

// retentionSteps is how exactly retention is kept.
const retentionSteps = `What is past a limit goes within some seconds, in steps of a batch or 32 KiB, whichever is larger;
never too early. It is kept up to twice retention.bytes while a replica that is alive is
behind. The disk gets space back in steps of some MiB, shared by all topics of a node.`

// described adds a description to a command.
func described(cmd *cli.Command, text string) *cli.Command {
	cmd.Description = text
	return cmd
}

func topicCommand() *cli.Command {
	configFlag := &cli.StringSliceFlag{Name: "config", Usage: "setting `KEY=VALUE` of the topic; repeatable"}
	replicationFlag := &cli.StringFlag{Name: "replication", Usage: "replicas of each partition: `N`, or auto for as many as the nodes allow, at most 3", DefaultText: "auto"}
	return group("topic", "topics and their settings",
		described(leaf("create", "TOPIC", "make a topic", []cli.Flag{
			&cli.Int64Flag{Name: "partitions", Usage: "make `N` partitions", Value: 1}, replicationFlag, configFlag,
		}, topicCreate), settingsHelp),
		leaf("list", "", "all topics", nil, topicList),
		described(leaf("describe", "TOPIC", "one topic with its settings and partitions", nil, topicDescribe), retentionSteps),
		described(leaf("alter", "TOPIC", "change settings, all of them or none", []cli.Flag{
			&cli.Int64Flag{Name: "partitions", Usage: "raise the number of partitions to `N`", DefaultText: "leave"},
			&cli.StringFlag{Name: "replication", Usage: replicationFlag.Usage, DefaultText: "leave"},
			configFlag,
			&cli.StringSliceFlag{Name: "unset", Usage: "put the setting `KEY` back to its default; repeatable"},
		}, topicAlter), settingsHelp),
		leaf("delete", "TOPIC", "remove a topic and its records, for good", []cli.Flag{
			&cli.BoolFlag{Name: "yes", Usage: "do not ask; without a terminal nothing is asked anyway", DisableDefaultText: true},
		}, topicDelete),
	)
}

func topicCreate(c *cli.Context) error {
	configs, err := configArgs(c)
	if err != nil {
		return err
	}
	partitions, err := int32Flag(c, "partitions", 1)
	if err != nil {
		return err
	}
	req := wire.CreateTopicRequest{Name: c.Args().First(), Partitions: partitions, Configs: configs}
	if text := c.String("replication"); text != "" && text != "auto" {
		n, err := strconv.ParseInt(text, 10, 16)
		if err != nil || n < 1 {
			return usage(c, "--replication %q is not auto or a number from 1", text)
		}
		req.Replication = int16(n)
	}
	return withAdmin(c, func(ctx context.Context, cl client.Admin) error {
		warnCompact(c, configs)
		res, err := cl.CreateTopic(ctx, req)
		if err != nil {
			return about("topic", req.Name, err)
		}
		if c.Bool("json") {
			return printJSON(c.App.Writer, res)
		}
		_, err = fmt.Fprintf(c.App.Writer, "topic %s has %s, replication %d\n", res.Name, countText(res.Partitions, "partition"), res.Replication)
		return err
	})
}

func topicList(c *cli.Context) error {
	return withAdmin(c, func(ctx context.Context, cl client.Admin) error {
		topics, err := describeTopics(ctx, cl, nil)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(c.App.Writer, topics)
		}
		t := newTable("TOPIC", "PARTITIONS", "REPLICATION", "WITHOUT LEADER", "SETTINGS")
		for _, topic := range topics {
			leaderless := 0
			for _, p := range topic.Partitions {
				if p.Leader == record.NoNode {
					leaderless++
				}
			}
			t.row(topic.Name, len(topic.Partitions), topic.Replication, leaderless, orDash(configText(topic.Configs)))
		}
		return t.print(c.App.Writer)
	})
}

func topicDescribe(c *cli.Context) error {
	return withAdmin(c, func(ctx context.Context, cl client.Admin) error {
		topics, err := describeTopics(ctx, cl, []string{c.Args().First()})
		if err != nil {
			return err
		}
		topic := topics[0]
		if c.Bool("json") {
			return printJSON(c.App.Writer, topic)
		}
		fmt.Fprintf(c.App.Writer, "topic %s, id %s, replication %d, settings %s\n",
			topic.Name, topic.ID, topic.Replication, orDash(configText(topic.Configs)))
		var rows []partitionRow
		for _, p := range topic.Partitions {
			rows = append(rows, partitionRow{topic.Name, p})
		}
		return printPartitions(c.App.Writer, rows)
	})
}

func topicAlter(c *cli.Context) error {
	set, err := configArgs(c)
	if err != nil {
		return err
	}
	if text := c.String("replication"); text != "" {
		set["replication"] = text
	}
	req := wire.AlterTopicRequest{Name: c.Args().First(), Set: set, Unset: c.StringSlice("unset")}
	if c.IsSet("partitions") {
		if req.Partitions, err = int32Flag(c, "partitions", 1); err != nil {
			return err
		}
	}
	if len(set) == 0 && len(req.Unset) == 0 && req.Partitions == 0 {
		return usage(c, "nothing to change")
	}
	return withAdmin(c, func(ctx context.Context, cl client.Admin) error {
		warnCompact(c, set)
		if err := cl.AlterTopic(ctx, req); err != nil {
			return about("topic", req.Name, err)
		}
		return done(c, "topic %s is changed", req.Name)
	})
}

func topicDelete(c *cli.Context) error {
	name := c.Args().First()
	if !c.Bool("yes") && !confirmed(c, fmt.Sprintf("Delete topic %s with all its records, for good?", name)) {
		return fmt.Errorf("topic %s is kept", name)
	}
	return withAdmin(c, func(ctx context.Context, cl client.Admin) error {
		if err := cl.DeleteTopic(ctx, name); err != nil {
			return about("topic", name, err)
		}
		return done(c, "topic %s is deleted", name)
	})
}

// done reports what a command without other output has done; as JSON it is {"ok":true}.
func done(c *cli.Context, format string, args ...any) error {
	if c.Bool("json") {
		return printJSON(c.App.Writer, map[string]bool{"ok": true})
	}
	_, err := fmt.Fprintf(c.App.Writer, format+"\n", args...)
	return err
}

// describeTopics asks for the named topics, or for all if there are no names. One that
// does not exist is an error.
func describeTopics(ctx context.Context, cl client.Admin, names []string) ([]wire.Topic, error) {
	if len(names) == 0 {
		names = nil
	}
	md, err := cl.Metadata(ctx, names)
	if err != nil {
		return nil, err
	}
	for _, t := range md.Topics {
		if t.Err != nil {
			return nil, about("topic", t.Name, t.Err)
		}
	}
	if names != nil && len(md.Topics) < len(names) {
		return nil, fmt.Errorf("topic %s: %w", strings.Join(names, ", "), record.ErrUnknownTopic)
	}
	return md.Topics, nil
}

// configArgs reads the repeated --config KEY=VALUE.
func configArgs(c *cli.Context) (map[string]string, error) {
	configs := map[string]string{}
	for _, pair := range c.StringSlice("config") {
		k, v, ok := strings.Cut(pair, "=")
		if !ok || k == "" {
			return nil, usage(c, "--config %q has not the form KEY=VALUE", pair)
		}
		if _, twice := configs[k]; twice {
			return nil, usage(c, "--config gives %s twice", k)
		}
		configs[k] = v
	}
	return configs, nil
}

// warnCompact tells who makes a topic compacted that its records stay.
func warnCompact(c *cli.Context, configs map[string]string) {
	if configs["cleanup.policy"] == "compact" {
		fmt.Fprintln(c.App.ErrWriter, "warning: cleanup.policy=compact deletes nothing yet: all records stay, also with retention.ms or retention.bytes, until the disk is full")
	}
}

// noLimit is how the node shows a limit in ms that there is not.
var noLimit = strconv.FormatInt(math.MaxInt64, 10)

// configText is settings for people.
func configText(configs map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(configs)) {
		value := configs[k]
		if value == noLimit {
			value = "unlimited"
		}
		parts = append(parts, k+"="+value)
	}
	return strings.Join(parts, " ")
}

// int32Flag reads a whole number that the protocol carries as 32 bits.
func int32Flag(c *cli.Context, name string, least int32) (int32, error) {
	n := c.Int64(name)
	if n < int64(least) || n > 1<<31-1 {
		return 0, usage(c, "--%s is %d; it is at least %d", name, n, least)
	}
	return int32(n), nil
}
