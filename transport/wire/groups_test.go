package wire

import (
	"context"
	"errors"
	"testing"

	"edged/record"
)

// fakeGroups coordinates the group mine and knows of another one elsewhere.
type fakeGroups struct{ committed CommitGroupRequest }

func (*fakeGroups) ListGroups(_ context.Context, req ListGroupsRequest) (ListGroupsResponse, error) {
	return ListGroupsResponse{Groups: []GroupListing{{Group: req.After + "x", Members: 2, Coordinator: 7}}, More: true}, nil
}

func (*fakeGroups) DescribeGroup(_ context.Context, group string) (GroupDescription, error) {
	if group != "mine" {
		return GroupDescription{}, &record.NotLeaderError{Leader: 9, Addr: "nine:7400", Epoch: 4}
	}
	return GroupDescription{GroupListing: GroupListing{Group: group}, Generation: 5, Members: []GroupMember{{ID: "m", Topics: []TopicPartitions{{"t", []int32{3}}}}}}, nil
}

func (*fakeGroups) DeleteGroup(context.Context, string) error { return record.ErrGroupNotEmpty }

func (g *fakeGroups) CommitGroup(_ context.Context, req CommitGroupRequest) error {
	g.committed = req
	return nil
}

func TestServer_answersForGroups(t *testing.T) {
	groups := &fakeGroups{}
	inBubble(t, Config{Groups: groups}, func(t *testing.T, r *rig) {
		c := r.greet()
		var l ListGroupsResponse
		if err := c.ask(APIListGroups, &ListGroupsRequest{After: "a"}, &l); err != nil || !l.More || len(l.Groups) != 1 || l.Groups[0] != (GroupListing{Group: "ax", Members: 2, Coordinator: 7}) {
			t.Errorf("list: %+v, %v", l, err)
		}
		var d GroupDescription
		if err := c.ask(APIDescribeGroup, &DescribeGroupRequest{Group: "mine"}, &d); err != nil || d.Group != "mine" || d.Generation != 5 || d.Members[0].Topics[0].Partitions[0] != 3 {
			t.Errorf("describe: %+v, %v", d, err)
		}
		var nl *record.NotLeaderError
		if err := c.ask(APIDescribeGroup, &DescribeGroupRequest{Group: "other"}, &d); !errors.As(err, &nl) || nl.Addr != "nine:7400" {
			t.Errorf("describe a group elsewhere: %v", err)
		}
		if err := c.ask(APIDeleteGroup, &DeleteGroupRequest{Group: "mine"}, &Empty{}); !errors.Is(err, record.ErrGroupNotEmpty) {
			t.Errorf("delete: %v", err)
		}
		req := CommitGroupRequest{Group: "mine", Offsets: []TopicOffsets{{"t", []PartitionOffset{{Partition: 1, Offset: 5, Epoch: -1}}}}}
		if err := c.ask(APICommitGroup, &req, &Empty{}); err != nil || len(groups.committed.Offsets) != 1 || groups.committed.Offsets[0].Partitions[0] != req.Offsets[0].Partitions[0] {
			t.Errorf("commit: %+v, %v", groups.committed, err)
		}
	})
}
