package record

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
)

// NodeID names one node for as long as its disk lives. It is drawn at random when
// the data directory is made and never typed by a person: a wiped disk is a new node.
// It is positive and fits 31 bits because Kafka clients know nodes by an int32.
// The registry in the metadata group refuses a NodeID that another InstanceID holds.
type NodeID int32

// NoNode stands where a leader or node is not known.
const NoNode NodeID = -1

func (n NodeID) String() string { return strconv.FormatInt(int64(n), 10) }

// InstanceID is the 128-bit random identity that stands behind a NodeID.
type InstanceID [16]byte

// ClusterID is the random 128-bit identity of a cluster, drawn when it forms.
type ClusterID [16]byte

// TopicID is the random 128-bit identity of a topic: a topic made again under an
// old name is another topic.
type TopicID [16]byte

// BootID is drawn at random each time a process starts. A message that carries
// another boot id than the receiver's own was meant for an earlier life and is dropped.
type BootID uint64

// GroupID names one Raft group of the cluster. It is given by the metadata group,
// counts up and is never reused. MetadataGroup is the group of the metadata itself.
type GroupID uint64

// MetadataGroup is the Raft group that keeps the cluster's metadata.
const MetadataGroup GroupID = 0

// ReplicaID names one replica of a group for one life only: the upper 32 bits are the
// NodeID that holds it, the lower 32 bits count the attempts. Raft knows members by it,
// so the node behind a Raft message is never looked up and can never be out of step.
type ReplicaID uint64

// MakeReplicaID names the attempt-th replica that node holds of a group.
func MakeReplicaID(node NodeID, attempt uint32) ReplicaID {
	return ReplicaID(uint64(uint32(node))<<32 | uint64(attempt))
}

// Node is the node that holds the replica.
func (r ReplicaID) Node() NodeID { return NodeID(uint32(r >> 32)) }

// Attempt is the count that makes the replica id unique on its node.
func (r ReplicaID) Attempt() uint32 { return uint32(r) }

func (r ReplicaID) String() string { return fmt.Sprintf("%d/%d", r.Node(), r.Attempt()) }

// Epoch is the leader epoch of a partition: the term of its Raft group. It never goes back.
type Epoch int32

// NoEpoch stands where a request names no leader epoch.
const NoEpoch Epoch = -1

// Offset is the position of a record in its partition, from 0, dense, given once.
type Offset int64

// TopicPartition names a partition as clients do.
type TopicPartition struct {
	Topic     string
	Partition int32
}

func (tp TopicPartition) String() string {
	return tp.Topic + "/" + strconv.FormatInt(int64(tp.Partition), 10)
}

func (id InstanceID) String() string { return hex.EncodeToString(id[:]) }
func (id ClusterID) String() string  { return hex.EncodeToString(id[:]) }
func (id TopicID) String() string    { return hex.EncodeToString(id[:]) }

// IsZero tells that no cluster has been formed or joined yet.
func (id ClusterID) IsZero() bool { return id == ClusterID{} }

// NewInstanceID draws an identity.
func NewInstanceID() InstanceID { var id InstanceID; _, _ = rand.Read(id[:]); return id }

// NewClusterID draws a cluster identity.
func NewClusterID() ClusterID { var id ClusterID; _, _ = rand.Read(id[:]); return id }

// NewTopicID draws a topic identity.
func NewTopicID() TopicID { var id TopicID; _, _ = rand.Read(id[:]); return id }

// NewNodeID draws a node id: positive, never 0.
func NewNodeID() NodeID {
	var b [4]byte
	_, _ = rand.Read(b[:])
	return NodeID(binary.BigEndian.Uint32(b[:])&0x7fffffff | 1)
}

// NewBootID draws the identity of one process life, never 0.
func NewBootID() BootID {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return BootID(binary.BigEndian.Uint64(b[:]) | 1)
}
