package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"edged/client"
	"edged/record"
	"edged/transport/wire"
)

// disksPatience is how long nodes have to tell how their disks are.
const disksPatience = 2 * time.Second

// diskTrouble is a node whose disk takes no records now.
type diskTrouble struct {
	Node      record.NodeID `json:"node"`
	Name      string        `json:"name"`
	Low       bool          `json:"disk_low"`
	StalledMs int64         `json:"disk_stalled_ms"`
	Free      int64         `json:"disk_free_bytes"`
}

func (d diskTrouble) text() string {
	if d.Low {
		return bytesText(d.Free) + " free; LOW: no records are taken"
	}
	return fmt.Sprintf("SLOW: it has not answered for %v", time.Duration(d.StalledMs)*time.Millisecond)
}

// diskTroubles asks every node that is alive. One that does not answer in time is left out.
func diskTroubles(ctx context.Context, cl client.Admin) []diskTrouble {
	ctx, cancel := context.WithTimeout(ctx, disksPatience)
	defer cancel()
	md, err := cl.Metadata(ctx, []string{})
	if err != nil {
		return nil
	}
	var mu sync.Mutex
	var troubles []diskTrouble
	each(len(md.Nodes), func(i int) {
		n := md.Nodes[i]
		if !n.Alive {
			return
		}
		d, err := cl.DescribeNode(ctx, n.ID)
		if err != nil || !d.Device.DiskLow && d.Device.DiskStalledMs == 0 {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		troubles = append(troubles, diskTrouble{n.ID, n.Name, d.Device.DiskLow, d.Device.DiskStalledMs, d.DiskFree})
	})
	slices.SortFunc(troubles, func(a, b diskTrouble) int { return cmp.Compare(a.Node, b.Node) })
	return troubles
}

// hindrances says what is known to stand in the way of a partition's records: nodes of its replicas that
// are away or whose disks are in trouble. Empty: nothing.
func hindrances(ctx context.Context, cl client.Admin, tp record.TopicPartition) string {
	ctx, cancel := context.WithTimeout(ctx, disksPatience)
	defer cancel()
	md, err := cl.Metadata(ctx, []string{tp.Topic})
	if err != nil || len(md.Topics) != 1 || int(tp.Partition) >= len(md.Topics[0].Partitions) {
		return ""
	}
	replicas := md.Topics[0].Partitions[tp.Partition].Voters
	var found []string
	for _, n := range md.Nodes {
		if slices.Contains(replicas, n.ID) && !n.Alive {
			found = append(found, fmt.Sprintf("node %s is %s", nodeName(n), stateText(n)))
		}
	}
	for _, d := range diskTroubles(ctx, cl) {
		if slices.Contains(replicas, d.Node) {
			found = append(found, fmt.Sprintf("the disk of node %s: %s", nodeName(wire.Node{ID: d.Node, Name: d.Name}), d.text()))
		}
	}
	if len(found) == 0 {
		return ""
	}
	return fmt.Sprintf("of the %s of %v, of which a majority has to take a record, %s", countText(len(replicas), "replica"), tp, strings.Join(found, "; "))
}
