package metadata

import (
	"slices"
	"testing"

	"edged/record"
)

func TestGroupsTopic_isTheClustersOwn(t *testing.T) {
	c := cluster(t, 3)
	p := c.Picture()
	up := map[record.NodeID]bool{1: true, 2: true, 3: true}
	assignments, err := Place(p, up, GroupsPartitions, AutoReplication)
	if err != nil {
		t.Fatal(err)
	}
	made := must[CreateTopicResult](t, c, &CreateTopic{Name: GroupsTopic, ID: record.TopicID{7}, Partitions: GroupsPartitions, Assignments: assignments, Created: 1}).Topic
	other := must[CreateTopicResult](t, c, &CreateTopic{Name: "t", ID: record.TopicID{8}, Partitions: 1, Assignments: [][]record.NodeID{{1}}, Created: 1}).Topic
	if !made.Internal() || other.Internal() {
		t.Error("it does not say which topic is internal")
	}
	if made.Class == other.Class || made.Class == 0 {
		t.Errorf("retention class %d, shared with others (%d)", made.Class, other.Class)
	}
	if next := c.Picture().NextGroup(); next != other.Partitions[0].Group+1 {
		t.Errorf("the next group is %d after %d", next, other.Partitions[0].Group)
	}
	refused(t, c, &DeleteTopic{Name: GroupsTopic}, record.ErrRefused)
	longer := slices.Repeat([][]record.NodeID{{1}}, 1)
	refused(t, c, &AlterTopic{Name: GroupsTopic, Partitions: GroupsPartitions + 1, Assignments: longer}, record.ErrRefused)
	must[AlterTopicResult](t, c, &AlterTopic{Name: GroupsTopic, Set: map[string]string{ReplicationKey: "2"}})
}
