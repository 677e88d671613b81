package wire

import (
	"context"

	"edged/record"
)

// Broker is what the native protocol needs from a node.
//
// All methods may be called from many goroutines at once. Errors are those of package
// record, wrapped with what they are about; their codes go to the client as they are,
// any other error becomes "internal". A context ends with the request's timeout, with
// its connection or with the server.
type Broker interface {
	// Hello is called for every new connection, also while the node is not in a cluster yet.
	Hello() HelloInfo

	// Metadata describes the cluster as this node knows it. nil topics are all topics, an
	// empty list is none. A topic that does not exist is answered with its Err set.
	Metadata(ctx context.Context, topics []string) (Metadata, error)

	// Produce appends one batch. It returns at once; done is called exactly once, from any
	// goroutine, and does not block. The batch is one whole batch that passed
	// record.Batch.VerifyProduced and belongs to the broker from now on. Batches of one
	// connection and partition come in the order in which the client sent them.
	Produce(req ProduceRequest, done func(ProduceResponse))

	// Fetch reads whole batches from req.Offset on, waiting up to MaxWaitMs for MinBytes.
	// Before it reads, it calls req.Reserve with what it will read at most.
	Fetch(ctx context.Context, req FetchRequest) FetchResponse

	// Offsets answers where a partition begins or ends, or which offset a time has.
	Offsets(ctx context.Context, req OffsetsRequest) (OffsetsResponse, error)

	// ProducerID gives an identity that no producer had before.
	ProducerID(ctx context.Context) (id int64, epoch int16, err error)

	// The rest is for operators. A node that does not lead the metadata either passes the
	// request on or answers with a NotLeaderError that names the node to ask.

	CreateTopic(ctx context.Context, req CreateTopicRequest) (CreateTopicResponse, error)
	DeleteTopic(ctx context.Context, req DeleteTopicRequest) error
	AlterTopic(ctx context.Context, req AlterTopicRequest) error
	TransferLeader(ctx context.Context, req TransferLeaderRequest) (TransferLeaderResponse, error)
	LeaderHistory(ctx context.Context, req LeaderHistoryRequest) ([]LeaderChange, error)
	Status(ctx context.Context) (Status, error)
	DescribeNode(ctx context.Context, node record.NodeID) (NodeDescription, error)
	Events(ctx context.Context, req EventsRequest) ([]NodeEvent, error)
	Network(ctx context.Context, req NetworkRequest) ([]Reach, error)

	// RemoveNode takes a node out of the cluster, or tells how far it came before ctx was about to end.
	RemoveNode(ctx context.Context, req RemoveNodeRequest) (RemoveNodeResponse, error)
}
