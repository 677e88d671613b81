package node

import (
	"strings"
	"testing"

	"edged/partition"
	"edged/record"
	"edged/transport/wire"
)

// What a node notes is heard from any node, and over a restart.
func TestEvents_ofAnotherNodeAndOfTheLifeBefore(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	ask := func(to record.NodeID) string {
		events, err := broker{nodes[0].Node}.Events(within(t), wire.EventsRequest{Node: to})
		if err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for _, e := range events {
			all.WriteString(e.Kind + ": " + e.Text + "\n")
		}
		return all.String()
	}
	other := nodes[1].ident.Get().Node
	for _, text := range []string{ask(record.NoNode), ask(other)} {
		for _, want := range []string{"start: edged", "clock: the clock is trusted", "membership: node "} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
	}
	if _, err := (broker{nodes[0].Node}).Events(within(t), wire.EventsRequest{Node: 1}); err == nil {
		t.Error("a node that is not there has events")
	}
	if err := nodes[1].notes.save(true); err != nil {
		t.Fatal(err)
	}
	if again, _ := openEventLog(nodes[1].notes.path, nodes[1].opts.Wall).after(0); len(again) < 3 {
		t.Errorf("%d events would be there after a restart", len(again))
	}
}

// A node that dies with a hundred partitions is one event, not a hundred.
func TestEvents_leadershipIsCounted(t *testing.T) {
	var l leadership
	for g := range record.GroupID(100) {
		l.count(partition.LeaderChange{Group: g, Leader: 1}, 1)
		l.count(partition.LeaderChange{Group: g, Leader: 1}, 1) // another epoch
		if g < 30 {
			l.count(partition.LeaderChange{Group: g, Leader: record.NoNode}, 1)
			l.count(partition.LeaderChange{Group: g, Leader: 2}, 1)
		}
	}
	if l.taken.Load() != 100 || l.lost.Load() != 30 || l.others.Load() != 30 {
		t.Errorf("%d taken, %d lost, %d others", l.taken.Load(), l.lost.Load(), l.others.Load())
	}
}
