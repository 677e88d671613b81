package kafka

import (
	"context"
	"fmt"

	"edged/record"
)

// Broker is what the protocol needs from a node; consumer groups are in [Groups].
//
// All methods may be called from many goroutines at once. Errors are those of package record,
// wrapped with what they are about; errors.go turns them into Kafka's codes. A context ends with the
// request's time, with its connection or with the server.
type Broker interface {
	// Cluster is the cluster as a client on that listener should see it, also while the node is in
	// none: then the node alone. Nodes are those that live, by id.
	Cluster(at Listener) Cluster

	// Topics gives all topics by name. It waits a moment for one that is being made to have leaders:
	// some clients keep what they are told for seconds. Topic, DescribeTopic and TopicByID give record.ErrUnknownTopic, or
	// record.ErrNotReady from a node that cannot know.
	Topics(ctx context.Context) []Topic
	Topic(name string) (Topic, error)
	DescribeTopic(name string) (Topic, error)
	TopicByID(id record.TopicID) (Topic, error)
	// AwaitLeaders waits a moment while one of the topics has a partition that nobody leads: an
	// election is shorter than most clients' patience.
	AwaitLeaders(ctx context.Context, topics []string)

	// Leads says why a batch for the partition would be refused before anyone looks at it; nil if
	// this node leads, or may do so in a moment. The cluster's own topics are record.ErrInvalidTopic
	// here and in all that concerns records.
	Leads(topic string, partition int32) error
	// Produce appends one batch. It returns at once; done is called exactly once, from any
	// goroutine, and does not block. The batch passed record.Batch.VerifyProduced and is
	// the broker's from now on. Batches of one connection come in the order of the client.
	Produce(req ProduceRequest, done func(ProduceResult))
	// Reader finds a partition that this node leads and that may be read; epoch is the leader epoch
	// that the client goes by, or NoEpoch.
	Reader(topic string, partition int32, epoch record.Epoch) (Reader, error)
	// Offset answers where a partition begins or ends, or which offset a time has.
	Offset(ctx context.Context, req OffsetRequest) (OffsetResult, error)
	// EpochEnd gives the largest epoch up to of that has records and the offset where it ended,
	// NoEpoch and -1 if there is none.
	EpochEnd(topic string, partition int32, epoch, of record.Epoch) (record.Epoch, record.Offset, error)
	// ProducerID gives an identity that no producer had before.
	ProducerID(ctx context.Context) (int64, error)

	// The rest is for operators and works on every node.

	CreateTopic(ctx context.Context, req CreateTopic) (Topic, error)
	DeleteTopic(ctx context.Context, name string) error
	AddPartitions(ctx context.Context, req AddPartitions) error
	AlterTopic(ctx context.Context, req AlterTopic) error
	// DeleteRecords moves the beginning of a partition that this node leads up to an offset, -1 for
	// the high watermark, and gives the first offset that is left.
	DeleteRecords(ctx context.Context, topic string, partition int32, before record.Offset) (logStart record.Offset, err error)
	// TransferLeader hands the partition's leadership to a node.
	TransferLeader(ctx context.Context, topic string, partition int32, to record.NodeID) error
	// NodeSettings are those of this node, LogDir is its disk.
	NodeSettings() []Setting
	LogDir() (LogDir, error)
}

// Listener says where a request came in: the name of the listener, and both ends of the
// connection as ip:port, by which the node chooses what it advertises.
type Listener struct {
	Name          string
	Local, Remote string
}

// Cluster is the cluster as one client sees it.
type Cluster struct {
	ID         string
	Self       record.NodeID
	Controller record.NodeID // one of Nodes, any of which takes what is meant for a controller
	Nodes      []Endpoint    // by id
}

// Endpoint is where a node takes Kafka clients of one listener.
type Endpoint struct {
	ID   record.NodeID
	Host string
	Port int32
	Rack string
}

// Topic is a topic with its partitions, by number from 0 on.
type Topic struct {
	Name       string
	ID         record.TopicID
	Internal   bool // the cluster's own: nobody reads or writes its records
	Partitions []Partition
	Settings   []Setting // every one there is, by name; filled in by CreateTopic and DescribeTopic
}

// Partition is what a node knows of a partition.
type Partition struct {
	Leader           record.NodeID // NoNode while there is none
	Epoch            record.Epoch  // the last one known while nobody leads
	Replicas         []record.NodeID
	ISR              []record.NodeID // voters that are in sync
	Offline          []record.NodeID // replicas on nodes that do not
	Adding, Removing []record.NodeID // replicas on their way in and out
}

// ProduceRequest appends one batch.
type ProduceRequest struct {
	Topic     string
	Partition int32
	Acks      int16 // -1 all, 1 leader, 0 none
	TimeoutMs int32 // 1 or more; after it the answer is record.ErrTimeout: the batch may or may not be kept
	Batch     record.Batch
	// MayJoin tells, at the time when the batch is judged, whether a producer that the partition does not
	// know may begin at any sequence, as in Kafka: not if an earlier batch of its was refused, which would
	// then come after this one.
	MayJoin func() bool
}

// ProduceResult tells where the batch went.
type ProduceResult struct {
	BaseOffset record.Offset
	LogStart   record.Offset
	AppendTime int64 // ms since 1970, NoTimestamp if the records keep their own
	Err        error
}

// Reader reads one partition for one request.
type Reader interface {
	// State is what can be read now; an error if this node no longer leads in the same epoch.
	State() (ReadState, error)
	// Changed is closed when the state is another than at the call.
	Changed() <-chan struct{}
	// Confirm waits until a majority has said that this node leads in the same epoch at a moment after the call. Else
	// an error: a leader that stood still does not know of the next one.
	Confirm(ctx context.Context) error
	// Read gives whole batches from an offset on, up to Readable: the first one whatever its size,
	// then as many as fit in maxBytes; and the offset after them.
	Read(from record.Offset, maxBytes int32) (batches []byte, next record.Offset, err error)
}

// ReadState is a partition at one moment. LogStart and Readable <= HighWatermark <= End.
type ReadState struct {
	LogStart      record.Offset
	Readable      record.Offset // what is committed and on this node's disk ends here
	HighWatermark record.Offset
	End           record.Offset // what the leader has ends here, committed or not
	// Serving: the leader has committed in its epoch, so that the high watermark is the true one.
	Serving bool
}

// FencedError is record.ErrFencedEpoch with who leads now, NoNode if nobody is known.
type FencedError struct {
	Leader record.NodeID
	Epoch  record.Epoch
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("%s: the epoch is %d", record.ErrFencedEpoch, e.Epoch)
}

// Unwrap makes it equal to record.ErrFencedEpoch.
func (e *FencedError) Unwrap() error { return record.ErrFencedEpoch }

// What an OffsetRequest can ask for instead of a time, as in Kafka's ListOffsets.
const (
	AtEnd           int64 = -1
	AtStart         int64 = -2
	AtMaxTimestamp  int64 = -3
	AtEarliestLocal int64 = -4
)

// OffsetRequest asks for a position: one of the above, or ms since 1970.
type OffsetRequest struct {
	Topic     string
	Partition int32
	Epoch     record.Epoch // that the client goes by, or NoEpoch
	At        int64
}

// OffsetResult answers it. Offset and Timestamp are -1 and Epoch NoEpoch where there is no such record.
type OffsetResult struct {
	Offset    record.Offset
	Timestamp int64
	Epoch     record.Epoch
}

// CreateTopic makes a topic. It is answered when the node's own metadata shows it. With ValidateOnly
// the answer is the topic that would be made.
type CreateTopic struct {
	Name         string
	Partitions   int32             // -1: the node's default
	Replication  int16             // -1: the node's default
	Assignments  [][]record.NodeID // of each partition, preferred leader first; nil: the node chooses
	Configs      map[string]string
	ValidateOnly bool
}

// AddPartitions makes a topic longer.
type AddPartitions struct {
	Topic        string
	Count        int32             // that it shall have
	Assignments  [][]record.NodeID // of the new ones; nil: the node chooses
	ValidateOnly bool
}

// AlterTopic changes settings: all of it is taken or nothing.
type AlterTopic struct {
	Topic        string
	Set          map[string]string
	Unset        []string // back to the default
	ValidateOnly bool
}

// Setting is one setting of a topic or node.
type Setting struct {
	Name     string
	Value    string
	Default  string
	Explicit bool // somebody set it on this topic or node
	ReadOnly bool
	Type     SettingType
	Doc      string
}

// SettingType is how a value reads.
type SettingType int8

// The types, with Kafka's numbers.
const (
	TypeBool   SettingType = 1
	TypeString SettingType = 2
	TypeInt    SettingType = 3
	TypeLong   SettingType = 5
	TypeDouble SettingType = 6
	TypeList   SettingType = 7
)

// LogDir is the disk of this node.
type LogDir struct {
	Path        string
	Total, Free int64 // bytes, -1 if not known
	Replicas    []ReplicaSize
}

// ReplicaSize is one replica on this node.
type ReplicaSize struct {
	record.TopicPartition
	Bytes int64
}
