package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"edged/groups"
	"edged/record"
	"edged/transport/wire"
)

// nativeGroups serves operators of consumer groups; see wire.Groups.
type nativeGroups struct{ *groupLogs }

var _ wire.Groups = nativeGroups{}

// maxListed bounds the groups of one answer; with the longest names they fit into a frame.
const maxListed = 800

// ListGroups lists the groups that this node coordinates.
func (g nativeGroups) ListGroups(ctx context.Context, req wire.ListGroupsRequest) (wire.ListGroupsResponse, error) {
	all, err := g.list(ctx)
	if err != nil {
		return wire.ListGroupsResponse{}, err
	}
	var res wire.ListGroupsResponse
	for _, l := range all {
		if l.Group <= req.After {
			continue
		}
		if len(res.Groups) == maxListed {
			res.More = true
			break
		}
		res.Groups = append(res.Groups, wire.GroupListing{
			Group: l.Group, State: l.State, ProtocolType: l.ProtocolType, Members: int32(l.Members), Coordinator: g.n.ident.Get().Node,
		})
	}
	return res, nil
}

// atCoordinator completes the error of a node that does not coordinate a group by who does.
func (g nativeGroups) atCoordinator(group string, err error) error {
	if !errors.Is(err, record.ErrNotCoordinator) {
		return err
	}
	n := g.n
	p := n.groupLog(group)
	if p == nil {
		if !n.caughtUp() {
			return record.ErrNotReady
		}
		return fmt.Errorf("group %.80q: %w", group, record.ErrUnknownGroup)
	}
	err = n.redirect(&record.NotLeaderError{Leader: record.NoNode, Epoch: record.NoEpoch}, p.Group, n.host.Load().Lookup(p.Group))
	if errors.Is(err, record.ErrNoLeader) {
		return fmt.Errorf("group %.80q: %w", group, record.ErrNoCoordinator)
	}
	return err
}

// DescribeGroup shows a group with its members and offsets.
func (g nativeGroups) DescribeGroup(ctx context.Context, group string) (wire.GroupDescription, error) {
	type found struct {
		groups.Description
		offsets []groups.Offset
	}
	f, err := askGroup(ctx, g.groupLogs, group, func(c *groups.Coordinator, done func(found, error)) {
		done(found{c.Describe(group), c.Fetch(group, nil)}, nil)
	})
	if err == nil && f.State == groups.Dead {
		err = fmt.Errorf("group %.80q: %w", group, record.ErrUnknownGroup)
	}
	if err != nil {
		return wire.GroupDescription{}, g.atCoordinator(group, err)
	}
	d := wire.GroupDescription{
		GroupListing: wire.GroupListing{
			Group: f.Group, State: f.State, ProtocolType: f.ProtocolType, Members: int32(len(f.Members)), Coordinator: g.n.ident.Get().Node,
		},
		Protocol: f.Protocol, Generation: f.Generation, Leader: f.Leader,
	}
	for _, m := range f.Members {
		d.Members = append(d.Members, wire.GroupMember{
			ID: m.ID, Instance: m.Instance, ClientID: m.ClientID, ClientHost: m.ClientHost, Topics: assignedTopics(m.Assignment),
		})
	}
	for _, o := range f.offsets {
		if n := len(d.Offsets); n == 0 || d.Offsets[n-1].Topic != o.Topic {
			d.Offsets = append(d.Offsets, wire.TopicOffsets{Topic: o.Topic})
		}
		t := &d.Offsets[len(d.Offsets)-1]
		t.Partitions = append(t.Partitions, wire.PartitionOffset{Partition: o.Partition, Offset: o.Offset, Epoch: o.Epoch})
	}
	return d, nil
}

func assignedTopics(assignment []byte) []wire.TopicPartitions {
	topics, ok := groups.ReadAssignment(assignment)
	if !ok {
		return nil
	}
	var out []wire.TopicPartitions
	for _, name := range slices.Sorted(maps.Keys(topics)) {
		out = append(out, wire.TopicPartitions{Topic: name, Partitions: topics[name]})
	}
	return out
}

// DeleteGroup forgets a group.
func (g nativeGroups) DeleteGroup(ctx context.Context, group string) error {
	return g.atCoordinator(group, kafkaGroups(g).DeleteGroup(ctx, group))
}

// CommitGroup keeps offsets for a group without members.
func (g nativeGroups) CommitGroup(ctx context.Context, req wire.CommitGroupRequest) error {
	if _, err := g.n.findCoordinator(ctx, req.Group); err != nil { // makes the topic if this is the first group
		return err
	}
	commit := groups.CommitRequest{Identity: groups.Identity{Group: req.Group, Generation: groups.NoGeneration}}
	for _, t := range req.Offsets {
		for _, p := range t.Partitions {
			if _, err := g.n.groupPartition(t.Topic, p.Partition); err != nil {
				return err
			}
			commit.Offsets = append(commit.Offsets, groups.PartitionCommit{Topic: t.Topic, Commit: groups.Commit{Partition: p.Partition, Offset: p.Offset, Epoch: p.Epoch}})
		}
	}
	errs, err := askGroup(ctx, g.groupLogs, req.Group, func(c *groups.Coordinator, done func([]error, error)) { c.Commit(commit, done) })
	if errors.Is(err, record.ErrUnknownMember) { // to Kafka's clients it says so
		err = fmt.Errorf("group %.80q: %w", req.Group, record.ErrGroupNotEmpty)
	}
	return errors.Join(g.atCoordinator(req.Group, err), errors.Join(errs...))
}

// groupPartition tells whether offsets of a partition can be kept.
func (n *Node) groupPartition(topic string, partition int32) (groups.Topic, error) {
	t, ok := n.groupTopic(topic)
	switch {
	case !ok:
		return t, n.unknownTopic(topic)
	case partition < 0 || partition >= t.Partitions:
		return t, fmt.Errorf("topic %q has the partitions 0 to %d, not %d: %w", topic, t.Partitions-1, partition, record.ErrUnknownPartition)
	}
	return t, nil
}
