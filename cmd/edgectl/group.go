package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"edged/client"
	"edged/record"
	"edged/transport/wire"

	"github.com/urfave/cli/v2"
)

func groupCommand() *cli.Command {
	return group("group", "consumer groups and their offsets",
		leaf("list", "", "all groups", nil, groupList),
		leaf("describe", "GROUP", "one group: its members, and how far it has read", nil, groupDescribe),
		groupResetCommand(),
		leaf("delete", "GROUP", "forget a group without members, with its offsets", nil, groupDelete),
	)
}

func groupList(c *cli.Context) error {
	return withAdmin(c, func(ctx context.Context, cl client.Admin) error {
		groups, err := cl.Groups(ctx)
		if err != nil {
			return err
		}
		missing := coordinatorsMissing(ctx, cl)
		if c.Bool("json") {
			return errors.Join(printJSON(c.App.Writer, append([]wire.GroupListing{}, groups...)), missing)
		}
		t := newTable("GROUP", "STATE", "MEMBERS", "TYPE", "COORDINATOR")
		for _, g := range groups {
			t.row(g.Group, g.State, g.Members, orDash(g.ProtocolType), nodeText(g.Coordinator))
		}
		return errors.Join(t.print(c.App.Writer), missing)
	})
}

// groupsTopic is the topic in which nodes keep groups: who leads one of its partitions coordinates some.
const groupsTopic = "__groups"

// coordinatorsMissing is an error if there may be groups that no node can tell of now.
func coordinatorsMissing(ctx context.Context, cl client.Admin) error {
	topics, err := describeTopics(ctx, cl, []string{groupsTopic})
	if errors.Is(err, record.ErrUnknownTopic) {
		return nil // there has been no group yet
	}
	if err != nil {
		return err
	}
	leaderless := 0
	for _, p := range topics[0].Partitions {
		if p.Leader == record.NoNode {
			leaderless++
		}
	}
	if leaderless == 0 {
		return nil
	}
	return fmt.Errorf("the list is not whole: %d of the %s in which groups are kept have no leader; start the nodes that are away (`edgectl node list`): %w",
		leaderless, countText(len(topics[0].Partitions), "partition"), record.ErrNoCoordinator)
}

// describedGroup is the shape of group describe.
type describedGroup struct {
	wire.GroupListing
	Protocol   string             `json:"protocol"`
	Generation int32              `json:"generation"`
	Leader     string             `json:"leader"`
	Members    []wire.GroupMember `json:"member_list"`
	Offsets    []groupOffset      `json:"offsets"`
}

// groupOffset is how far a group has read a partition. LogEnd and Lag are -1 where nobody could tell.
type groupOffset struct {
	Topic     string        `json:"topic"`
	Partition int32         `json:"partition"`
	Committed record.Offset `json:"committed"` // of the next record to read; -1: nothing yet
	LogEnd    record.Offset `json:"log_end"`
	Lag       int64         `json:"lag"`
	Member    string        `json:"member"` // id of who reads it now
}

func groupDescribe(c *cli.Context) error {
	name := c.Args().First()
	return withAdmin(c, func(ctx context.Context, cl client.Admin) error {
		d, err := cl.Group(ctx, name)
		if err != nil {
			return about("group", name, err)
		}
		g := describedGroup{
			GroupListing: d.GroupListing, Protocol: d.Protocol, Generation: d.Generation, Leader: d.Leader,
			Members: append([]wire.GroupMember{}, d.Members...), Offsets: groupOffsets(&d),
		}
		findEnds(ctx, cl, g.Offsets)
		if c.Bool("json") {
			return printJSON(c.App.Writer, g)
		}
		return printGroup(c.App.Writer, &g)
	})
}

// groupOffsets joins what is committed and what is assigned.
func groupOffsets(d *wire.GroupDescription) []groupOffset {
	rows := map[record.TopicPartition]groupOffset{}
	for _, t := range d.Offsets {
		for _, p := range t.Partitions {
			rows[record.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = groupOffset{Topic: t.Topic, Partition: p.Partition, Committed: p.Offset, LogEnd: -1, Lag: -1}
		}
	}
	for _, m := range d.Members {
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				tp := record.TopicPartition{Topic: t.Topic, Partition: p}
				row, ok := rows[tp]
				if !ok {
					row = groupOffset{Topic: t.Topic, Partition: p, Committed: -1, LogEnd: -1, Lag: -1}
				}
				row.Member = m.ID
				rows[tp] = row
			}
		}
	}
	out := make([]groupOffset, 0, len(rows))
	for _, row := range rows {
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b groupOffset) int {
		if n := strings.Compare(a.Topic, b.Topic); n != 0 {
			return n
		}
		return int(a.Partition) - int(b.Partition)
	})
	return out
}

// asksAtOnce bounds the requests that one command has under way.
const asksAtOnce = 16

// findEnds asks the leaders where the partitions end. One without a leader stays without an end.
func findEnds(ctx context.Context, cl client.Admin, rows []groupOffset) {
	each(len(rows), func(i int) {
		row := &rows[i]
		at, err := cl.Offsets(ctx, row.Topic, row.Partition, wire.AtEnd)
		if err != nil {
			return
		}
		row.LogEnd = at.HighWatermark
		row.Lag = int64(max(at.HighWatermark-max(row.Committed, at.LogStart), 0))
	})
}

// each calls fn with 0 to n-1, some at a time.
func each(n int, fn func(i int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, asksAtOnce)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			fn(i)
			<-slots
		})
	}
	wg.Wait()
}

func printGroup(w io.Writer, g *describedGroup) error {
	fmt.Fprintf(w, "group %s is %s, type %s, protocol %s, generation %d, coordinator %s\n",
		g.Group, g.State, orDash(g.ProtocolType), orDash(g.Protocol), g.Generation, nodeText(g.Coordinator))
	if len(g.Members) > 0 {
		t := newTable("MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS")
		for _, m := range g.Members {
			n := 0
			for _, topic := range m.Topics {
				n += len(topic.Partitions)
			}
			t.row(m.ID, orDash(m.Instance), orDash(m.ClientID), orDash(m.ClientHost), n)
		}
		if err := t.print(w); err != nil {
			return err
		}
	}
	t := newTable("TOPIC", "PARTITION", "COMMITTED", "LOG END", "LAG", "MEMBER")
	for _, o := range g.Offsets {
		t.row(o.Topic, o.Partition, numberOrDash(int64(o.Committed)), offsetText(o.LogEnd), offsetText(record.Offset(o.Lag)), orDash(o.Member))
	}
	return t.print(w)
}

func numberOrDash(n int64) string {
	if n < 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func groupDelete(c *cli.Context) error {
	name := c.Args().First()
	return withAdmin(c, func(ctx context.Context, cl client.Admin) error {
		if err := cl.DeleteGroup(ctx, name); err != nil {
			return about("group", name, err)
		}
		return done(c, "group %s is deleted", name)
	})
}
