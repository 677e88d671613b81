package wire

import (
	"context"
	"time"

	"edged/record"
)

// API names a request. The numbers are part of the protocol and never change their meaning.
type API uint16

// All requests there are. README.md draws them in this order.
const (
	APIHello          API = 0
	APIMetadata       API = 1
	APIProduce        API = 2
	APIFetch          API = 3
	APIOffsets        API = 4
	APIProducerID     API = 5
	APICreateTopic    API = 16
	APIDeleteTopic    API = 17
	APIAlterTopic     API = 18
	APITransferLeader API = 19
	APILeaderHistory  API = 20
	APIStatus         API = 21
	APIDescribeNode   API = 22
	APIRemoveNode     API = 23
	APIEvents         API = 24
	APINetwork        API = 25
	APIListGroups     API = 32
	APIDescribeGroup  API = 33
	APIDeleteGroup    API = 34
	APICommitGroup    API = 35

	lastAPI = APICommitGroup
)

// What a producer can ask for. The answer names what it got.
const (
	AcksAll    int16 = -1 // a majority of the voters has the batch, on disk unless the topic is relaxed
	AcksLeader int16 = 1  // the leader has it on disk
	AcksNone   int16 = 0  // the leader took it into its queue
)

// What an OffsetsRequest can ask for instead of a time.
const (
	AtEnd   int64 = -1
	AtStart int64 = -2
)

// HelloRequest opens a connection; anything else before it is refused.
type HelloRequest struct {
	Client string // name of the client for the node's log, may be empty
}

// HelloInfo is what a node says about itself.
type HelloInfo struct {
	Node      record.NodeID `json:"node"`
	ClusterID string        `json:"cluster_id"` // hex; empty while the node is in no cluster
	Version   string        `json:"version"`
	Ready     bool          `json:"ready"` // false: requests will be answered with not_ready
	// Filled in by this package.
	MaxFrame int32        `json:"max_frame"` // bytes after the length; both directions keep it
	APIs     []APIVersion `json:"apis"`
	Features []string     `json:"features"`
}

// APIVersion tells which versions of one API a node speaks, both ends included.
type APIVersion struct {
	API API   `json:"api"`
	Min int16 `json:"min"`
	Max int16 `json:"max"`
}

// MetadataRequest asks for topics: nil is all of them, an empty list none.
type MetadataRequest struct {
	Topics []string
}

// Metadata is the cluster as one node knows it.
type Metadata struct {
	Cluster        string        `json:"cluster"`
	ClusterID      string        `json:"cluster_id"`
	Nodes          []Node        `json:"nodes"`
	MetadataLeader record.NodeID `json:"metadata_leader"` // NoNode while there is none
	Topics         []Topic       `json:"topics"`
}

// Node is one row of `edgectl node list`. Addresses are host:port, empty if not served.
type Node struct {
	ID       record.NodeID `json:"id"`
	Name     string        `json:"name"`
	Native   string        `json:"native_addr"`
	Kafka    string        `json:"kafka_addr"`
	HTTP     string        `json:"http_addr"`
	Version  string        `json:"version"`
	Alive    bool          `json:"alive"`
	Leaders  int32         `json:"leaders"`  // partitions that it leads
	Replicas int32         `json:"replicas"` // partitions that it holds
	Leaving  bool          `json:"leaving"`  // it is being emptied, to be removed
	AwayMs   int64         `json:"away_ms"`  // since the answering node lost it; 0: alive, -1: not seen since that node's start
	Internal int32         `json:"internal"` // partitions of the cluster's own topics that it holds; they are in no other count
}

// Topic is the shape of `edgectl topic describe`.
type Topic struct {
	Name        string            `json:"name"`
	ID          string            `json:"id"`          // hex; a topic made again under its name has another
	Replication int16             `json:"replication"` // replicas that each partition shall have
	Configs     map[string]string `json:"configs"`
	Partitions  []Partition       `json:"partitions"`
	Err         error             `json:"-"` // the topic could not be described; only Name is set
}

// Partition is one row of `edgectl topic describe`. Log start and high watermark are -1
// where the answering node cannot know them.
type Partition struct {
	Partition     int32           `json:"partition"`
	Leader        record.NodeID   `json:"leader"`      // NoNode while there is none
	LeaderAddr    string          `json:"leader_addr"` // native address
	Epoch         record.Epoch    `json:"epoch"`       // the last one known while nobody leads
	Replicas      []record.NodeID `json:"replicas"`
	Voters        []record.NodeID `json:"voters"`
	LogStart      record.Offset   `json:"log_start"`
	HighWatermark record.Offset   `json:"high_watermark"`
	InSync        []record.NodeID `json:"in_sync"` // voters that are alive and not far behind; an older node does not say
}

// ProduceRequest appends one batch. Batch aliases the frame it came in.
type ProduceRequest struct {
	Topic     string
	Partition int32
	Acks      int16        // AcksAll, AcksLeader, AcksNone
	Epoch     record.Epoch // refuse unless the leader has this epoch; NoEpoch: any
	TimeoutMs int32        // after it the answer is a timeout: the batch may or may not be kept
	Batch     record.Batch
	TopicID   string // as Metadata gives it: refuse if another topic has the name; empty: any
}

// ProduceResponse tells where the batch went. Err goes into the frame's error field, and
// then nothing else is sent.
type ProduceResponse struct {
	BaseOffset record.Offset
	LogStart   record.Offset
	Epoch      record.Epoch
	Durability string // what was bought, for people and logs: "fsync-majority", "fsync-leader", "relaxed", "none"
	Err        error
}

// FetchRequest reads a partition from Offset on, up to its high watermark.
type FetchRequest struct {
	Topic     string
	Partition int32
	Epoch     record.Epoch // refuse unless the leader has this epoch; NoEpoch: any
	Offset    record.Offset
	MaxBytes  int32 // of batches; the first one comes whole even if it is larger
	MinBytes  int32 // wait for so many, up to MaxWaitMs
	MaxWaitMs int32
	TopicID   string // as in ProduceRequest

	// Reserve is filled in by the server and is not on the wire. The broker calls it when
	// there is something to read and before it allocates, with the bytes that it will read
	// at most: it waits until the connection's share of memory has room, so that a
	// consumer that stops reading costs a bounded amount. At most one call per request.
	Reserve func(ctx context.Context, bytes int64) error
}

// FetchResponse carries whole batches, one after the other. The first may begin before
// the offset asked for: the reader skips. With Err set the numbers that are known still hold.
type FetchResponse struct {
	HighWatermark record.Offset
	LogStart      record.Offset
	Epoch         record.Epoch
	Batches       []byte
	Err           error
}

// OffsetsRequest asks for the end (the high watermark), the start, or a time in ms since 1970.
type OffsetsRequest struct {
	Topic     string
	Partition int32
	At        int64 // AtEnd, AtStart or ms
}

// OffsetsResponse answers it. For a time it is the first record at or after it; if there
// is none, Offset is the high watermark and Timestamp -1.
type OffsetsResponse struct {
	Offset        record.Offset
	Timestamp     int64 // of the record at Offset, -1 if not asked by time or none
	Epoch         record.Epoch
	LogStart      record.Offset
	HighWatermark record.Offset
}

// ProducerIDRequest asks for the identity of an idempotent producer.
type ProducerIDRequest struct{}

// ProducerIDResponse is that identity. Sequences begin at 0 in every partition.
type ProducerIDResponse struct {
	ID    int64
	Epoch int16
}

// CreateTopicRequest makes a topic. It is answered when the topic is decided on; leaders
// follow within an election.
type CreateTopicRequest struct {
	Name        string
	Partitions  int32 // 0: the cluster's default
	Replication int16 // 0: auto
	Configs     map[string]string
	TimeoutMs   int32
}

// CreateTopicResponse tells what was made.
type CreateTopicResponse struct {
	Name        string `json:"name"`
	ID          string `json:"id"`
	Partitions  int32  `json:"partitions"`
	Replication int16  `json:"replication"`
}

// DeleteTopicRequest removes a topic and its data.
type DeleteTopicRequest struct {
	Name      string
	TimeoutMs int32
}

// AlterTopicRequest changes settings: Set and Unset name different keys, all of them or
// none are taken.
type AlterTopicRequest struct {
	Name       string
	Set        map[string]string
	Unset      []string // back to the default
	Partitions int32    // new count, larger than now; 0: leave
	TimeoutMs  int32
}

// TransferLeaderRequest moves the leadership of a partition. NoNode leaves the choice to
// the leader.
type TransferLeaderRequest struct {
	Topic     string
	Partition int32
	To        record.NodeID
	TimeoutMs int32
}

// TransferLeaderResponse tells who leads now.
type TransferLeaderResponse struct {
	Leader record.NodeID `json:"leader"`
	Epoch  record.Epoch  `json:"epoch"`
}

// LeaderHistoryRequest asks what this node knows of past leader changes, newest first.
type LeaderHistoryRequest struct {
	Topic     string // empty: all
	Partition int32  // -1: all
	Limit     int32  // 0: as many as are kept
	TimeoutMs int32
}

// LeaderHistoryResponse holds the changes.
type LeaderHistoryResponse struct {
	Changes []LeaderChange `json:"changes"`
	Node    record.NodeID  `json:"node"` // that answered, and saw them; 0 from an older one
}

// LeaderChange is one row of `edgectl leader history`.
type LeaderChange struct {
	Topic     string        `json:"topic"`
	Partition int32         `json:"partition"`
	Epoch     record.Epoch  `json:"epoch"`
	Leader    record.NodeID `json:"leader"` // NoNode: leadership was lost
	At        time.Time     `json:"at"`     // ms precision; the answering node's clock
	Reason    string        `json:"reason"`
}

// StatusRequest asks for the cluster in one line.
type StatusRequest struct {
	TimeoutMs int32
}

// Status is the shape of `edgectl status`.
type Status struct {
	Cluster         string        `json:"cluster"`
	ClusterID       string        `json:"cluster_id"`
	Nodes           int32         `json:"nodes"`
	NodesAlive      int32         `json:"nodes_alive"`
	Topics          int32         `json:"topics"`
	Partitions      int32         `json:"partitions"`
	Leaderless      int32         `json:"leaderless"`
	UnderReplicated int32         `json:"under_replicated"`
	MetadataLeader  record.NodeID `json:"metadata_leader"`
	// Partitions of the cluster's own topics, which are in no other count, and how many of those have
	// no leader or too few replicas.
	Internal       int32 `json:"internal"`
	InternalUnwell int32 `json:"internal_unwell"`
}

// RemoveNodeRequest takes a node out of the cluster for good. Asked again it goes on where it was.
type RemoveNodeRequest struct {
	Node      record.NodeID
	Force     bool // also one that is alive, after it was emptied; also one without which partitions are lost
	Cancel    bool // it is to stay after all
	TimeoutMs int32
}

// RemoveNodeResponse tells how far that has come when the time was up.
type RemoveNodeResponse struct {
	Removed bool  `json:"removed"`
	Moving  int32 `json:"moving"`  // replicas that are on their way to other nodes
	Missing int32 `json:"missing"` // replicas that wait until there is a node to take them
}

// DescribeNodeRequest asks for the insides of a node; NoNode is the one that is asked.
type DescribeNodeRequest struct {
	Node      record.NodeID
	TimeoutMs int32
}

// NodeDescription is the shape of `edgectl node describe`.
type NodeDescription struct {
	Node
	Instance    string          `json:"instance"` // hex
	State       string          `json:"state"`    // "waiting", "joining", "member", "stopping"
	Zone        string          `json:"zone"`
	BootCounter uint64          `json:"boot_counter"`
	UptimeMs    int64           `json:"uptime_ms"`
	DataBytes   int64           `json:"data_bytes"`      // -1: not known
	DiskFree    int64           `json:"disk_free_bytes"` // -1: not known
	Peers       []PeerStatus    `json:"peers"`
	Partitions  []NodePartition `json:"partitions"`
	Problems    []string        `json:"problems"` // one line each: damaged or quarantined data, refused peers
	Device      DeviceStatus    `json:"device"`
}

// EventsRequest asks a node for what it noted; NoNode is the one that is asked.
type EventsRequest struct {
	Node      record.NodeID
	After     int64 // a Seq: only later ones are given, at most MaxEvents of them, oldest first
	WaitMs    int32 // while there are none
	TimeoutMs int32
}

// MaxEvents bounds the events of one answer.
const MaxEvents = 200

// EventsResponse holds the events.
type EventsResponse struct {
	Events []NodeEvent `json:"events"`
}

// NodeEvent is something that an operator wants to find again. They outlive restarts.
type NodeEvent struct {
	Seq   int64     `json:"seq"`
	At    time.Time `json:"at"`   // ms precision; the node's clock as it was then
	Kind  string    `json:"kind"` // "start", "stop", "leader", "membership", "disk", "clock", "config"
	Text  string    `json:"text"`
	Count int32     `json:"count"` // how many times in a row; At is that of the last
}

// NetworkRequest asks a node to try the way to each other one; NoNode is the one that is asked.
type NetworkRequest struct {
	Node      record.NodeID
	TimeoutMs int32
}

// NetworkResponse holds what it found.
type NetworkResponse struct {
	Reaches []Reach `json:"reaches"`
}

// Reach is one way from the node that was asked to another one.
type Reach struct {
	Node      record.NodeID `json:"node"`
	Protocol  string        `json:"protocol"` // "native", "gossip", "kafka"
	Addr      string        `json:"addr"`
	Up        bool          `json:"up"`
	RTTMicros int64         `json:"rtt_us"`
	SkewMs    int64         `json:"skew_ms"` // its clock less that of the node that was asked; native only
	Problem   string        `json:"problem"`
}

// DeviceStatus is how the machine under a node is doing, as far as the node knows.
type DeviceStatus struct {
	MemoryBudget  int64  `json:"memory_budget_bytes"`
	MemoryFrom    string `json:"memory_budget_from"`
	MemoryUsed    int64  `json:"memory_used_bytes"` // resident; -1: not known
	DiskTotal     int64  `json:"disk_total_bytes"`  // -1: not known
	DiskLow       bool   `json:"disk_low"`          // no records are taken
	DiskStalledMs int64  `json:"disk_stalled_ms"`   // a sync of the log has taken so long and goes on
	Written       int64  `json:"disk_written_bytes"`
	WrittenPerDay int64  `json:"disk_written_bytes_per_day"` // -1: not known yet
	Amplification int64  `json:"write_amplification_percent"`
	WearDays      int64  `json:"disk_wear_days"` // until card-tbw is reached; -1: not known
	ClockTrusted  bool   `json:"clock_trusted"`
	Clock         string `json:"clock"` // in words
	Now           int64  `json:"now_ms"`
}

// PeerStatus is how one node sees another.
type PeerStatus struct {
	ID      record.NodeID `json:"id"`
	Addr    string        `json:"addr"`
	Up      bool          `json:"up"`
	Problem string        `json:"problem"`
	// PauseMs is how long its frames are held up on their way again and again; 0 if they are not.
	PauseMs int64 `json:"pause_ms"`
}

// NodePartition is one replica on the described node.
type NodePartition struct {
	Topic         string        `json:"topic"`
	Partition     int32         `json:"partition"`
	Role          string        `json:"role"` // "leader", "follower", "learner", "candidate", "damaged"
	Leader        record.NodeID `json:"leader"`
	Epoch         record.Epoch  `json:"epoch"`
	LogStart      record.Offset `json:"log_start"`
	HighWatermark record.Offset `json:"high_watermark"`
}
