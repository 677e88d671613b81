package node

import (
	"context"
	"slices"
	"strings"

	"edged/groups"
	"edged/record"
	"edged/transport/kafka"
)

// kafkaGroups serves consumer groups in Kafka's protocol; see kafka.Groups.
type kafkaGroups struct{ *groupLogs }

var _ kafka.Groups = kafkaGroups{}

// FindCoordinator gives the node to ask for a group.
func (k kafkaGroups) FindCoordinator(ctx context.Context, group string) (record.NodeID, error) {
	return k.n.findCoordinator(ctx, group)
}

// JoinGroup brings a member into the next generation.
func (k kafkaGroups) JoinGroup(ctx context.Context, req kafka.JoinGroupRequest) kafka.JoinGroupResponse {
	join := groups.JoinRequest{
		Group: req.Group, Member: req.Member, Instance: req.Instance, ClientID: req.ClientID, ClientHost: req.ClientHost,
		ProtocolType: req.ProtocolType, Session: req.SessionTimeout, Rebalance: req.RebalanceTimeout,
		NeedsMemberID: req.NeedsMemberID, CanSkipAssignment: req.CanSkipAssignment, Reason: req.Reason,
	}
	for _, p := range req.Protocols {
		join.Protocols = append(join.Protocols, groups.Protocol(p))
	}
	r, err := askGroup(ctx, k.groupLogs, req.Group, func(c *groups.Coordinator, done func(groups.JoinResult, error)) {
		c.Join(join, func(r groups.JoinResult) { done(r, r.Err) })
	})
	out := kafka.JoinGroupResponse{
		Err: err, Generation: r.Generation, ProtocolType: r.ProtocolType, Protocol: r.Protocol,
		Leader: r.Leader, Member: r.Member, SkipAssignment: r.SkipAssignment,
	}
	for _, m := range r.Members {
		out.Members = append(out.Members, kafka.JoinedMember(m))
	}
	return out
}

// SyncGroup gives a member its assignment.
func (k kafkaGroups) SyncGroup(ctx context.Context, req kafka.SyncGroupRequest) kafka.SyncGroupResponse {
	sync := groups.SyncRequest{Identity: groups.Identity(req.MemberIdentity), ProtocolType: req.ProtocolType, Protocol: req.Protocol}
	sync.Assignments = make(map[string][]byte, len(req.Assignments))
	for _, a := range req.Assignments {
		sync.Assignments[a.Member] = a.Assignment
	}
	r, err := askGroup(ctx, k.groupLogs, req.Group, func(c *groups.Coordinator, done func(groups.SyncResult, error)) {
		c.Sync(sync, func(r groups.SyncResult) { done(r, r.Err) })
	})
	return kafka.SyncGroupResponse{Err: err, ProtocolType: r.ProtocolType, Protocol: r.Protocol, Assignment: r.Assignment}
}

// Heartbeat keeps a member alive.
func (k kafkaGroups) Heartbeat(ctx context.Context, req kafka.HeartbeatRequest) error {
	_, err := askGroup(ctx, k.groupLogs, req.Group, func(c *groups.Coordinator, done func(struct{}, error)) {
		done(struct{}{}, c.Heartbeat(groups.Identity(req.MemberIdentity)))
	})
	return err
}

// LeaveGroup takes members out.
func (k kafkaGroups) LeaveGroup(ctx context.Context, req kafka.LeaveGroupRequest) ([]error, error) {
	leaving := make([]groups.Leaving, len(req.Members))
	for i, m := range req.Members {
		leaving[i] = groups.Leaving(m)
	}
	return askGroup(ctx, k.groupLogs, req.Group, func(c *groups.Coordinator, done func([]error, error)) {
		done(c.Leave(req.Group, leaving), nil)
	})
}

// CommitOffsets keeps offsets.
func (k kafkaGroups) CommitOffsets(ctx context.Context, req kafka.CommitOffsetsRequest) ([]error, error) {
	commit := groups.CommitRequest{Identity: groups.Identity(req.MemberIdentity), Offsets: make([]groups.PartitionCommit, len(req.Offsets))}
	for i, o := range req.Offsets {
		commit.Offsets[i] = groups.PartitionCommit{Topic: o.Topic, Commit: groups.Commit{Partition: o.Partition, Offset: o.Offset, Epoch: o.Epoch, Metadata: o.Metadata}}
	}
	return askGroup(ctx, k.groupLogs, req.Group, func(c *groups.Coordinator, done func([]error, error)) { c.Commit(commit, done) })
}

// FetchOffsets gives what was committed.
func (k kafkaGroups) FetchOffsets(ctx context.Context, group string, partitions []record.TopicPartition) ([]kafka.CommittedOffset, error) {
	found, err := askGroup(ctx, k.groupLogs, group, func(c *groups.Coordinator, done func([]groups.Offset, error)) {
		done(c.Fetch(group, partitions), nil)
	})
	out := make([]kafka.CommittedOffset, len(found))
	for i, o := range found {
		out[i] = kafka.CommittedOffset{TopicPartition: record.TopicPartition{Topic: o.Topic, Partition: o.Partition}, Offset: o.Offset, Epoch: o.Epoch, Metadata: o.Metadata}
	}
	return out, err
}

// DescribeGroup shows a group.
func (k kafkaGroups) DescribeGroup(ctx context.Context, group string) (kafka.GroupDescription, error) {
	d, err := askGroup(ctx, k.groupLogs, group, func(c *groups.Coordinator, done func(groups.Description, error)) {
		done(c.Describe(group), nil)
	})
	out := kafka.GroupDescription{Group: d.Group, State: d.State, ProtocolType: d.ProtocolType, Protocol: d.Protocol}
	for _, m := range d.Members {
		out.Members = append(out.Members, kafka.MemberDescription{
			Member: m.ID, Instance: m.Instance, ClientID: m.ClientID, ClientHost: m.ClientHost, Metadata: d.Metadata(&m), Assignment: m.Assignment,
		})
	}
	return out, err
}

// ListGroups lists the groups that this node coordinates.
func (k kafkaGroups) ListGroups(ctx context.Context) ([]kafka.GroupListing, error) {
	all, err := k.list(ctx)
	out := make([]kafka.GroupListing, len(all))
	for i, l := range all {
		out[i] = kafka.GroupListing{Group: l.Group, ProtocolType: l.ProtocolType, State: l.State}
	}
	return out, err
}

// list gives the groups of all logs that this node leads, by name.
func (s *groupLogs) list(ctx context.Context) ([]groups.Listing, error) {
	if err := s.n.notReady(); err != nil {
		return nil, err
	}
	var all []groups.Listing
	for _, g := range s.leads() {
		part, err := askLog(ctx, s, g, func(c *groups.Coordinator, done func([]groups.Listing, error)) { done(c.List(), nil) })
		if err != nil {
			return nil, err
		}
		all = append(all, part...)
	}
	slices.SortFunc(all, func(a, b groups.Listing) int { return strings.Compare(a.Group, b.Group) })
	return all, nil
}

// DeleteGroup forgets a group.
func (k kafkaGroups) DeleteGroup(ctx context.Context, group string) error {
	_, err := askGroup(ctx, k.groupLogs, group, func(c *groups.Coordinator, done func(struct{}, error)) {
		c.Delete(group, func(err error) { done(struct{}{}, err) })
	})
	return err
}

// DeleteOffsets forgets offsets of a group.
func (k kafkaGroups) DeleteOffsets(ctx context.Context, group string, partitions []record.TopicPartition) ([]error, error) {
	return askGroup(ctx, k.groupLogs, group, func(c *groups.Coordinator, done func([]error, error)) { c.DeleteOffsets(group, partitions, done) })
}
