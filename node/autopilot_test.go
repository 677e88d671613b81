package node

import (
	"testing"

	"edged/metadata"
	"edged/record"
)

// A lone founder may lead the metadata before its start has come to its end and its cluster is noted: it waits.
func TestAutopilot_waitsForTheEndOfTheStart(t *testing.T) {
	t.Parallel()
	n := startCluster(t, 1)[0]
	await(t, "a leader", func() bool { return n.host.Load().Partition(record.MetadataGroup).View().Serving })
	defer n.cluster.Store(n.cluster.Swap(nil))
	if more := n.autopilot(metadata.New().Picture()); !more {
		t.Error("it does not come back for the cluster's name")
	}
}
