package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"edged/record"
	"edged/transport/wire"
)

// defaultAdminTimeout is what a node is told when the caller's ctx has no deadline.
const defaultAdminTimeout = 30 * time.Second

// Admin is what operators ask of a cluster. Each method asks nodes in turn until one
// answers, follows a redirect to the node that leads the metadata, and gives up when ctx
// ends. TimeoutMs of a request is filled in from ctx's deadline if it is 0.
type Admin struct{ c *Client }

// Admin gives the operator's view of the client.
func (c *Client) Admin() Admin { return Admin{c} }

// Metadata describes the cluster and the topics named; nil is all of them.
func (a Admin) Metadata(ctx context.Context, topics []string) (wire.Metadata, error) {
	return a.c.Metadata(ctx, topics)
}

// Topic describes one topic, or tells why not: record.ErrUnknownTopic.
func (a Admin) Topic(ctx context.Context, name string) (wire.Topic, error) {
	return a.c.fetchTopic(ctx, name, "")
}

// Status sums the cluster up.
func (a Admin) Status(ctx context.Context) (wire.Status, error) {
	var resp wire.Status
	err := a.c.do(ctx, &anyNode{c: a.c}, a.c.attemptTimeout(), wire.APIStatus, &wire.StatusRequest{TimeoutMs: timeoutMs(ctx, 0)}, &resp)
	return resp, err
}

// DescribeNode shows the insides of a node; record.NoNode is whichever answers.
func (a Admin) DescribeNode(ctx context.Context, node record.NodeID) (wire.NodeDescription, error) {
	var resp wire.NodeDescription
	err := a.c.do(ctx, &anyNode{c: a.c}, 0, wire.APIDescribeNode,
		&wire.DescribeNodeRequest{Node: node, TimeoutMs: timeoutMs(ctx, 0)}, &resp)
	return resp, err
}

// RemoveNode takes a node out of the cluster for good; see wire.RemoveNodeRequest. It may be asked
// again until the answer says that the node is removed.
func (a Admin) RemoveNode(ctx context.Context, req wire.RemoveNodeRequest) (wire.RemoveNodeResponse, error) {
	var resp wire.RemoveNodeResponse
	req.TimeoutMs = timeoutMs(ctx, req.TimeoutMs)
	_, err := a.change(ctx, wire.APIRemoveNode, &req, &resp)
	return resp, err
}

// LeaderHistory lists past leader changes, newest first, as the node that answers has seen them.
func (a Admin) LeaderHistory(ctx context.Context, req wire.LeaderHistoryRequest) (wire.LeaderHistoryResponse, error) {
	var resp wire.LeaderHistoryResponse
	req.TimeoutMs = timeoutMs(ctx, req.TimeoutMs)
	err := a.c.do(ctx, &anyNode{c: a.c}, a.c.attemptTimeout(), wire.APILeaderHistory, &req, &resp)
	return resp, err
}

// Network makes a node try the way to each other one.
func (a Admin) Network(ctx context.Context, node record.NodeID) ([]wire.Reach, error) {
	var resp wire.NetworkResponse
	err := a.c.do(ctx, &anyNode{c: a.c}, 0, wire.APINetwork, &wire.NetworkRequest{Node: node, TimeoutMs: timeoutMs(ctx, 0)}, &resp)
	return resp.Reaches, err
}

// Events gives what a node noted after req.After, oldest first.
func (a Admin) Events(ctx context.Context, req wire.EventsRequest) ([]wire.NodeEvent, error) {
	var resp wire.EventsResponse
	req.TimeoutMs = timeoutMs(ctx, req.TimeoutMs)
	err := a.c.do(ctx, &anyNode{c: a.c}, 0, wire.APIEvents, &req, &resp)
	return resp.Events, err
}

// Offsets asks the leader of a partition: wire.AtEnd, wire.AtStart, or ms since 1970.
func (a Admin) Offsets(ctx context.Context, topic string, partition int32, at int64) (wire.OffsetsResponse, error) {
	return a.c.Offsets(ctx, topic, partition, at)
}

// CreateTopic makes a topic. If an answer was lost and the topic is then found to exist
// with as many partitions as asked for, it is taken for the one that was made.
func (a Admin) CreateTopic(ctx context.Context, req wire.CreateTopicRequest) (wire.CreateTopicResponse, error) {
	var resp wire.CreateTopicResponse
	req.TimeoutMs = timeoutMs(ctx, req.TimeoutMs)
	unsure, err := a.change(ctx, wire.APICreateTopic, &req, &resp)
	if !unsure || !errors.Is(err, record.ErrTopicExists) {
		return resp, err
	}
	t, descErr := a.Topic(ctx, req.Name)
	if descErr != nil {
		return resp, errors.Join(err, descErr)
	}
	if n := int32(len(t.Partitions)); req.Partitions != 0 && n != req.Partitions {
		return resp, fmt.Errorf("%w, with %d partitions", err, n)
	}
	return wire.CreateTopicResponse{Name: t.Name, ID: t.ID, Partitions: int32(len(t.Partitions)), Replication: t.Replication}, nil
}

// DeleteTopic removes a topic and its data.
func (a Admin) DeleteTopic(ctx context.Context, name string) error {
	req := &wire.DeleteTopicRequest{Name: name, TimeoutMs: timeoutMs(ctx, 0)}
	unsure, err := a.change(ctx, wire.APIDeleteTopic, req, &wire.Empty{})
	if unsure && errors.Is(err, record.ErrUnknownTopic) {
		return nil // by us: it was there when we asked first, or it is gone either way
	}
	return err
}

// AlterTopic changes settings of a topic.
func (a Admin) AlterTopic(ctx context.Context, req wire.AlterTopicRequest) error {
	req.TimeoutMs = timeoutMs(ctx, req.TimeoutMs)
	_, err := a.change(ctx, wire.APIAlterTopic, &req, &wire.Empty{})
	return err
}

// TransferLeader moves the leadership of a partition; record.NoNode leaves the choice to
// the leader.
func (a Admin) TransferLeader(ctx context.Context, req wire.TransferLeaderRequest) (wire.TransferLeaderResponse, error) {
	var resp wire.TransferLeaderResponse
	req.TimeoutMs = timeoutMs(ctx, req.TimeoutMs)
	tp := record.TopicPartition{Topic: req.Topic, Partition: req.Partition}
	err := a.c.do(ctx, &toLeader{c: a.c, tp: tp}, 0, wire.APITransferLeader, &req, &resp)
	return resp, err
}

// change sends a request that changes something. unsure tells that an earlier attempt may
// have taken effect without our hearing of it.
func (a Admin) change(ctx context.Context, api wire.API, req, resp wire.Message) (unsure bool, err error) {
	r := &changeRoute{anyNode: anyNode{c: a.c}}
	err = a.c.do(ctx, r, 0, api, req, resp)
	return r.unsure, err
}

// changeRoute is anyNode and remembers whether an attempt ended without a clear answer.
type changeRoute struct {
	anyNode
	unsure bool
}

func (r *changeRoute) failed(ctx context.Context, addr string, err error) verdict {
	var nl *record.NotLeaderError
	v := r.anyNode.failed(ctx, addr, err)
	if v != stop && !errors.As(err, &nl) {
		r.unsure = true
	}
	return v
}

// timeoutMs is how long a node may take at most, in ms, for the caller to still hear of it.
func timeoutMs(ctx context.Context, asked int32) int32 {
	if asked > 0 {
		return asked
	}
	left := defaultAdminTimeout
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline)
	}
	return int32(min(max(left.Milliseconds(), 1), wire.MaxTimeout.Milliseconds()))
}
