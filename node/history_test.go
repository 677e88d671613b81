package node

import (
	"fmt"
	"strings"
	"testing"

	"edged/partition"
	"edged/record"
)

// That there is no leader is told once, when it begins, however often an election finds nobody.
func TestHistory_tellsOnceThatThereIsNoLeader(t *testing.T) {
	const none = record.NoNode
	change := func(g record.GroupID, epoch record.Epoch, leader record.NodeID) leaderChange {
		return leaderChange{LeaderChange: partition.LeaderChange{Group: g, Epoch: epoch, Leader: leader}}
	}
	for _, c := range []struct {
		name   string
		newest []leaderChange
		want   string
	}{
		{"nothing", nil, ""},
		{"made just now", []leaderChange{change(5, 2, 7), change(5, 2, none), change(5, 1, none)}, "5:2:7 5:1:-1"},
		{"lost and found", []leaderChange{change(5, 4, 8), change(5, 4, none), change(5, 3, none), change(5, 2, 7)}, "5:4:8 5:3:-1 5:2:7"},
		{"two partitions", []leaderChange{change(6, 1, none), change(5, 1, none), change(6, 1, none), change(5, 1, 7)}, "5:1:-1 6:1:-1 5:1:7"},
	} {
		var got []string
		for _, l := range withoutEchoes(c.newest) {
			got = append(got, fmt.Sprintf("%d:%d:%d", l.Group, l.Epoch, int32(l.Leader)))
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
	}
}
