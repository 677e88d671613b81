package wire

import (
	"context"
	"fmt"

	"edged/record"
)

// Groups is what the native protocol needs of consumer groups, for operators. Members speak Kafka's
// protocol.
//
// ListGroups gives the groups that this node coordinates, at most a frame full; the others are answered
// with a NotLeaderError that names the coordinator by a node that is not it, and with
// record.ErrUnknownGroup where there is no such group.
type Groups interface {
	ListGroups(ctx context.Context, req ListGroupsRequest) (ListGroupsResponse, error)
	DescribeGroup(ctx context.Context, group string) (GroupDescription, error)
	DeleteGroup(ctx context.Context, group string) error
	// CommitGroup keeps offsets, all of them or none. Only a group without members takes it.
	CommitGroup(ctx context.Context, req CommitGroupRequest) error
}

// ListGroupsRequest asks for the groups that a node coordinates, by name.
type ListGroupsRequest struct {
	After     string // only groups whose names come after it
	TimeoutMs int32
}

// ListGroupsResponse holds them. More tells that there are more after the last one.
type ListGroupsResponse struct {
	Groups []GroupListing
	More   bool
}

// GroupListing is one row of `edgectl group list`. States are Kafka's.
type GroupListing struct {
	Group        string        `json:"group"`
	State        string        `json:"state"` // "Empty", "PreparingRebalance", "CompletingRebalance", "Stable"
	ProtocolType string        `json:"protocol_type"`
	Members      int32         `json:"members"`
	Coordinator  record.NodeID `json:"coordinator"`
}

// DescribeGroupRequest asks for one group.
type DescribeGroupRequest struct {
	Group     string
	TimeoutMs int32
}

// GroupDescription is a group with its members and what it has committed.
type GroupDescription struct {
	GroupListing
	Protocol   string // the way of assigning that the members chose; empty unless Stable
	Generation int32
	Leader     string // id of the member that assigns, empty without members
	Members    []GroupMember
	Offsets    []TopicOffsets
}

// GroupMember is one member. Topics are what it reads, of consumers in a stable group.
type GroupMember struct {
	ID         string            `json:"id"`
	Instance   string            `json:"instance"` // of a static member
	ClientID   string            `json:"client_id"`
	ClientHost string            `json:"client_host"`
	Topics     []TopicPartitions `json:"topics"`
}

// TopicPartitions names partitions of a topic.
type TopicPartitions struct {
	Topic      string  `json:"topic"`
	Partitions []int32 `json:"partitions"`
}

// TopicOffsets are offsets in one topic.
type TopicOffsets struct {
	Topic      string
	Partitions []PartitionOffset
}

// PartitionOffset is the offset of the next record to read.
type PartitionOffset struct {
	Partition int32
	Offset    record.Offset
	Epoch     record.Epoch // of the record before it, NoEpoch if nobody said
}

// DeleteGroupRequest forgets a group without members, with its offsets.
type DeleteGroupRequest struct {
	Group     string
	TimeoutMs int32
}

// CommitGroupRequest keeps offsets for a group without members, and makes the group if there is none.
type CommitGroupRequest struct {
	Group     string
	Offsets   []TopicOffsets
	TimeoutMs int32
}

func (m *ListGroupsRequest) walk(w *walker) {
	w.str(&m.After)
	num(w, &m.TimeoutMs)
}

func (m *ListGroupsResponse) walk(w *walker) {
	list(w, &m.Groups, func(g *GroupListing) { w.message(g) })
	w.boolean(&m.More)
}

func (m *GroupListing) walk(w *walker) {
	w.str(&m.Group)
	w.str(&m.State)
	w.str(&m.ProtocolType)
	num(w, &m.Members)
	num(w, &m.Coordinator)
}

func (m *DescribeGroupRequest) walk(w *walker) {
	w.str(&m.Group)
	num(w, &m.TimeoutMs)
}

func (m *GroupDescription) walk(w *walker) {
	w.nested(&m.GroupListing)
	w.str(&m.Protocol)
	num(w, &m.Generation)
	w.str(&m.Leader)
	list(w, &m.Members, func(g *GroupMember) { w.message(g) })
	list(w, &m.Offsets, func(t *TopicOffsets) { w.message(t) })
}

func (m *GroupMember) walk(w *walker) {
	w.str(&m.ID)
	w.str(&m.Instance)
	w.str(&m.ClientID)
	w.str(&m.ClientHost)
	list(w, &m.Topics, func(t *TopicPartitions) { w.message(t) })
}

func (m *TopicPartitions) walk(w *walker) {
	w.str(&m.Topic)
	list(w, &m.Partitions, func(p *int32) { num(w, p) })
}

func (m *TopicOffsets) walk(w *walker) {
	w.str(&m.Topic)
	list(w, &m.Partitions, func(p *PartitionOffset) { w.message(p) })
}

func (m *PartitionOffset) walk(w *walker) {
	num(w, &m.Partition)
	num(w, &m.Offset)
	num(w, &m.Epoch)
}

func (m *DeleteGroupRequest) walk(w *walker) {
	w.str(&m.Group)
	num(w, &m.TimeoutMs)
}

func (m *CommitGroupRequest) walk(w *walker) {
	w.str(&m.Group)
	list(w, &m.Offsets, func(t *TopicOffsets) { w.message(t) })
	num(w, &m.TimeoutMs)
}

func (r ListGroupsRequest) timeoutMs() int32    { return r.TimeoutMs }
func (r DescribeGroupRequest) timeoutMs() int32 { return r.TimeoutMs }
func (r DeleteGroupRequest) timeoutMs() int32   { return r.TimeoutMs }
func (r CommitGroupRequest) timeoutMs() int32   { return r.TimeoutMs }

// groups starts a request about consumer groups.
func (q *request) groups() {
	g := q.c.s.cfg.Groups
	if g == nil {
		q.answer(fmt.Errorf("%w: this node has no consumer groups", record.ErrUnsupported), nil)
		return
	}
	switch q.head.api {
	case APIListGroups:
		unary(q, g.ListGroups)
	case APIDescribeGroup:
		unary(q, func(ctx context.Context, r DescribeGroupRequest) (GroupDescription, error) {
			return g.DescribeGroup(ctx, r.Group)
		})
	case APIDeleteGroup:
		unary(q, func(ctx context.Context, r DeleteGroupRequest) (Empty, error) {
			return Empty{}, g.DeleteGroup(ctx, r.Group)
		})
	case APICommitGroup:
		unary(q, func(ctx context.Context, r CommitGroupRequest) (Empty, error) { return Empty{}, g.CommitGroup(ctx, r) })
	}
}
