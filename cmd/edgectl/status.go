package main

import (
	"context"
	"fmt"

	"edged/client"

	"github.com/urfave/cli/v2"
)

func statusCommand() *cli.Command {
	return leaf("status", "", "the cluster in a few lines", nil, func(c *cli.Context) error {
		return withAdmin(c, func(ctx context.Context, cl client.Admin) error {
			st, err := cl.Status(ctx)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return printJSON(c.App.Writer, st)
			}
			t := newTable("cluster", fmt.Sprintf("%s (%s)", orDash(st.Cluster), orDash(st.ClusterID)))
			t.row("nodes", fmt.Sprintf("%d, %d alive", st.Nodes, st.NodesAlive))
			t.row("metadata leader", nodeText(st.MetadataLeader))
			t.row("topics", st.Topics)
			t.row("partitions", fmt.Sprintf("%d, %d without a leader, %d under-replicated", st.Partitions, st.Leaderless, st.UnderReplicated))
			if st.InternalUnwell > 0 {
				t.row("internal partitions", fmt.Sprintf("%d, %d without a leader or under-replicated", st.Internal, st.InternalUnwell))
			}
			return t.print(c.App.Writer)
		})
	})
}
