package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"edged/client"
	"edged/record"
	"edged/transport/wire"

	"github.com/urfave/cli/v2"
)

func statusCommand() *cli.Command {
	return described(leaf("status", "", "the cluster in a few lines", nil, func(c *cli.Context) error {
		return withAdmin(c, func(ctx context.Context, cl client.Admin) error {
			st, err := cl.Status(ctx)
			if err != nil {
				return err
			}
			node, err := cl.DescribeNode(ctx, record.NoNode)
			if err != nil {
				return err
			}
			troubles := diskTroubles(ctx, cl)
			if c.Bool("json") {
				return printJSON(c.App.Writer, struct {
					wire.Status
					Node      record.NodeID     `json:"answered_by"`
					DataBytes int64             `json:"data_bytes"`      // of that node, -1: not known
					DiskFree  int64             `json:"disk_free_bytes"` // the same
					Device    wire.DeviceStatus `json:"device"`
					Disks     []diskTrouble     `json:"disk_troubles"` // of any node that answers
					Problems  []string          `json:"problems"`      // of the node that answered
				}{st, node.ID, node.DataBytes, node.DiskFree, node.Device, append([]diskTrouble{}, troubles...), append([]string{}, node.Problems...)})
			}
			t := newTable("cluster", fmt.Sprintf("%s (%s)", orDash(st.Cluster), orDash(st.ClusterID)))
			t.row("nodes", fmt.Sprintf("%d, %d alive", st.Nodes, st.NodesAlive))
			t.row("metadata leader", nodeText(st.MetadataLeader))
			t.row("topics", st.Topics)
			t.row("partitions", fmt.Sprintf("%d, %d without a leader, %d under-replicated", st.Partitions, st.Leaderless, st.UnderReplicated))
			if st.InternalUnwell > 0 {
				t.row("internal partitions", fmt.Sprintf("%d, %d without a leader or under-replicated", st.Internal, st.InternalUnwell))
			}
			t.row("answered by", strings.TrimSpace(fmt.Sprintf("%d %s", node.ID, node.Name)))
			deviceRows(t, node)
			for _, d := range troubles {
				if d.Node != node.ID {
					t.row("disk of "+strings.TrimSpace(fmt.Sprintf("%d %s", d.Node, d.Name)), d.text())
				}
			}
			for _, p := range node.Problems {
				t.row("problem", p)
			}
			return t.print(c.App.Writer)
		})
	}), statusHelp)
}

const statusHelp = `Memory, disk, wear, clock and problems are those of the node that answers; doctor asks every node. The others that are connected with it
are asked for their disks, two seconds long at the most, and named if one is full or does not answer.`

// deviceRows are the lines about the machine under a node.
func deviceRows(t *table, n wire.NodeDescription) {
	d := n.Device
	if d.MemoryBudget == 0 { // an older node
		t.row("data", fmt.Sprintf("%s, %s free", bytesText(n.DataBytes), bytesText(n.DiskFree)))
		return
	}
	t.row("memory", fmt.Sprintf("%s of %s (%s)", bytesText(d.MemoryUsed), bytesText(d.MemoryBudget), d.MemoryFrom))
	disk := fmt.Sprintf("%s of records and logs, %s of %s free", bytesText(n.DataBytes), bytesText(n.DiskFree), bytesText(d.DiskTotal))
	switch {
	case d.DiskLow:
		disk += "; LOW: no records are taken"
	case d.DiskStalledMs > 0:
		disk += fmt.Sprintf("; SLOW: it has not answered for %v", time.Duration(d.DiskStalledMs)*time.Millisecond)
	}
	t.row("disk", disk)
	t.row("wear", wearText(d))
	t.row("clock", d.Clock)
}

// wearText says what is written to the card, and how long it will last if that is known.
func wearText(d wire.DeviceStatus) string {
	text := bytesText(d.Written) + " written"
	if d.WrittenPerDay >= 0 {
		text += ", " + bytesText(d.WrittenPerDay) + " a day"
	}
	if d.Amplification > 0 {
		text += fmt.Sprintf(", %.1f bytes for each byte of records", float64(d.Amplification)/100)
	}
	if d.WearDays >= 0 {
		text += "; at this pace the card lasts " + countText(d.WearDays, "day") + " more"
	}
	return text
}
