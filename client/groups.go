package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"edged/record"
	"edged/transport/wire"
)

// oneNode is the route of requests for one node alone.
type oneNode string

func (r oneNode) next(context.Context) (string, error) { return string(r), nil }

func (r oneNode) failed(_ context.Context, _ string, err error) verdict { return judge(err) }

// Groups lists the consumer groups of the whole cluster by name. Each node knows those that it
// coordinates, so all that live are asked.
func (a Admin) Groups(ctx context.Context) ([]wire.GroupListing, error) {
	md, err := a.c.Metadata(ctx, []string{})
	if err != nil {
		return nil, err
	}
	var all []wire.GroupListing
	for _, n := range md.Nodes {
		if !n.Alive || n.Native == "" {
			continue
		}
		groups, err := a.groupsOf(ctx, n.Native)
		if err != nil {
			return nil, fmt.Errorf("node %d at %s: %w", n.ID, n.Native, err)
		}
		all = append(all, groups...)
	}
	slices.SortStableFunc(all, func(a, b wire.GroupListing) int { return cmp.Compare(a.Group, b.Group) })
	// One that moved while we asked is there twice.
	return slices.CompactFunc(all, func(a, b wire.GroupListing) bool { return a.Group == b.Group }), nil
}

func (a Admin) groupsOf(ctx context.Context, addr string) (all []wire.GroupListing, err error) {
	for after := ""; ; {
		var resp wire.ListGroupsResponse
		req := &wire.ListGroupsRequest{After: after, TimeoutMs: timeoutMs(ctx, 0)}
		if err := a.c.do(ctx, oneNode(addr), a.c.attemptTimeout(), wire.APIListGroups, req, &resp); err != nil {
			return nil, err
		}
		all = append(all, resp.Groups...)
		if !resp.More || len(resp.Groups) == 0 {
			return all, nil
		}
		after = resp.Groups[len(resp.Groups)-1].Group
	}
}

// Group describes a consumer group, or tells why not: record.ErrUnknownGroup.
func (a Admin) Group(ctx context.Context, group string) (wire.GroupDescription, error) {
	var resp wire.GroupDescription
	req := &wire.DescribeGroupRequest{Group: group, TimeoutMs: timeoutMs(ctx, 0)}
	err := a.c.do(ctx, &anyNode{c: a.c}, a.c.attemptTimeout(), wire.APIDescribeGroup, req, &resp)
	return resp, err
}

// DeleteGroup forgets a consumer group without members, with its offsets.
func (a Admin) DeleteGroup(ctx context.Context, group string) error {
	req := &wire.DeleteGroupRequest{Group: group, TimeoutMs: timeoutMs(ctx, 0)}
	unsure, err := a.change(ctx, wire.APIDeleteGroup, req, &wire.Empty{})
	if unsure && errors.Is(err, record.ErrUnknownGroup) {
		return nil
	}
	return err
}

// CommitGroup keeps offsets for a consumer group that has no members: record.ErrGroupNotEmpty. An
// offset below 0 takes back what was kept.
func (a Admin) CommitGroup(ctx context.Context, group string, offsets map[record.TopicPartition]record.Offset) error {
	req := &wire.CommitGroupRequest{Group: group, TimeoutMs: timeoutMs(ctx, 0)}
	byTopic := map[string][]wire.PartitionOffset{}
	for tp, o := range offsets {
		byTopic[tp.Topic] = append(byTopic[tp.Topic], wire.PartitionOffset{Partition: tp.Partition, Offset: o, Epoch: record.NoEpoch})
	}
	for topic, ps := range byTopic {
		slices.SortFunc(ps, func(a, b wire.PartitionOffset) int { return cmp.Compare(a.Partition, b.Partition) })
		req.Offsets = append(req.Offsets, wire.TopicOffsets{Topic: topic, Partitions: ps})
	}
	slices.SortFunc(req.Offsets, func(a, b wire.TopicOffsets) int { return strings.Compare(a.Topic, b.Topic) })
	_, err := a.change(ctx, wire.APICommitGroup, req, &wire.Empty{})
	return err
}
