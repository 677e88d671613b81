package partition

import (
	"sync/atomic"

	"edged/record"
	"edged/storage"

	pb "go.etcd.io/raft/v3/raftpb"
)

// Event is anything that happens to a Core. The concrete types are in this file.
type Event interface{ isEvent() }

// Acks is what a producer waits for.
type Acks int16

// The three promises, named as in Kafka.
const (
	AcksAll  Acks = -1 // a majority of the voters has the batch on disk
	AcksOne  Acks = 1  // the leader has it on disk
	AcksNone Acks = 0  // the leader has queued it
)

// ProduceRequest asks for one batch to be appended. Batch belongs to the Core from then on.
type ProduceRequest struct {
	Group record.GroupID
	Batch record.Batch // verified by the caller
	Acks  Acks
	Epoch record.Epoch // the leader epoch the client goes by; NoEpoch if it names none
	// MayJoin, if set, tells whether a producer that the partition does not know may begin at any sequence,
	// as Kafka has it: it must not if an earlier batch of its was refused on the way, or that one would come
	// after this one. It is asked when the batch is judged.
	MayJoin func() bool
	Done    func(ProduceResult)

	bytes     int64
	budget    *atomic.Int64 // of the Host that took the request
	heldUntil Time          // set once the request has waited for an election
}

// ProduceResult is the answer to a ProduceRequest. Err is nil, or says what happened:
// record.ErrInterrupted means that the batch may or may not have been appended.
type ProduceResult struct {
	BaseOffset, LogStart record.Offset
	Epoch                record.Epoch
	Duplicate            bool // the batch was appended before, at BaseOffset
	Err                  error
}

// ProposeRequest asks for a command to be appended to a state machine's log. Done is
// called with what the machine's Apply returned, after it was committed and applied.
type ProposeRequest struct {
	Group record.GroupID
	Data  []byte
	Done  func(result any, err error)
}

// LogStartRequest asks the leader to move the beginning of a partition to Offset, which lies
// in the batch at entry Index with base offset Base.
type LogStartRequest struct {
	Group        record.GroupID
	Index        uint64
	Base, Offset record.Offset
	// Force goes past live followers that are behind: they catch up by a base record.
	Force bool
	Done  func(error)
}

// TransferRequest asks the leader to hand the group to another node. To is NoNode for
// "whoever is best".
type TransferRequest struct {
	Group record.GroupID
	To    record.NodeID
	Done  func(error)
}

// ConfirmRequest asks the leader of a group whether it still leads in Epoch, at a moment after the request. Done
// gets nil once a majority has said so, else why not. It takes a round trip to the others, and until
// Raft's check of the majority has ended this leadership where nobody answers.
type ConfirmRequest struct {
	Group record.GroupID
	Epoch record.Epoch
	Done  func(error)
}

// Assignment says which replicas a group should have. The Core makes the local replica if it
// is named and absent, and while it leads it changes the Raft configuration towards it.
type Assignment struct {
	Group record.GroupID
	Class uint8
	// Voters in the order of preference: the first is the preferred leader.
	Voters, Learners []record.ReplicaID
	// Initial are the voters that the group was made with. A replica among them starts from
	// the same beginning as the others; any other starts empty and is filled by the leader.
	Initial []record.ReplicaID
	// InitialLearners are the learners that the group was made with: of the metadata group, those of
	// its founders that do not vote. All replicas of a group must be told the same ones.
	InitialLearners []record.ReplicaID
	// InitialState is what a state machine starts from, only when the group is made.
	InitialState []byte
	// Machine says what the group's log is the history of; it never changes.
	Machine MachineKind
	// Relaxed answers before the fsync (topic setting durability=relaxed).
	Relaxed bool
	// MaxBatch is the largest batch taken, in bytes.
	MaxBatch int32
	// AsOf is the entry of the metadata group that this assignment was read after, 0 to make the
	// replica in any case. A replica is made only by an assignment that is as recent as what was
	// committed when this node started; else Done gets record.ErrNotReady: tell it again then.
	AsOf uint64
	// Epoch is the one in which this replica leads and is to bring the assignment about. It counts
	// for the metadata group only, where the leader itself decides who votes: what another leader
	// decided, or what a replica was made with, may be long out of date.
	Epoch record.Epoch
	// Done, if set, is called when the local replica is on disk, at once if it was there or is not
	// to be here.
	Done func(error)
}

// Saved reports that the log writer is done with these saves, in order. After an error nothing
// more is saved: the Core falls silent.
type Saved struct {
	Saves []Save
	Took  Time
	Err   error
}

// PeerUp reports a control connection to a life of a peer.
type PeerUp struct {
	Node record.NodeID
	Boot record.BootID
}

// PeerDown reports that the control connection was lost. Refused means that the peer's address
// refused a new connection: that life is over.
type PeerDown struct {
	Node    record.NodeID
	Boot    record.BootID
	Refused bool
}

// PeerFrame is a frame as Outbox.Send of a peer's Core got it.
type PeerFrame struct {
	Node    record.NodeID
	Boot    record.BootID
	Payload []byte
}

// RemoveReplica deletes a replica and its data. It is obeyed only for exactly this replica id.
type RemoveReplica struct {
	Group   record.GroupID
	Replica record.ReplicaID
	Done    func(error)
}

// RefillReplica empties a damaged replica that keeps its id, to be filled by the leader. It may be asked
// for only after the group's configuration was seen without the replica: until then its vote counts
// for what it has forgotten. A replica of a partition gets a new id instead.
type RefillReplica struct {
	Group   record.GroupID
	Replica record.ReplicaID
	Machine MachineKind
	Done    func(error)
}

// Inspect runs a function on the Core's goroutine.
type Inspect struct{ Fn func(*Core) }

// DiskRoom tells whether the disk is nearly full. While it is, this node takes no batches from producers and
// gives its leadership to nodes that have room. Leaders elsewhere that need it take none either; what they have on its way
// is still written, because what makes room comes behind it, until the disk is tight.
type DiskRoom struct{ Full, Tight bool }

// Resign asks all groups led here to hand over leadership, before a planned stop.
type Resign struct{}

// CheckpointAll asks every group to write a checkpoint, so that the next start has little to apply.
type CheckpointAll struct{}

func (*ProduceRequest) isEvent()  {}
func (*ProposeRequest) isEvent()  {}
func (*LogStartRequest) isEvent() {}
func (*TransferRequest) isEvent() {}
func (*ConfirmRequest) isEvent()  {}
func (*Assignment) isEvent()      {}
func (*Saved) isEvent()           {}
func (PeerUp) isEvent()           {}
func (PeerDown) isEvent()         {}
func (PeerFrame) isEvent()        {}
func (*RemoveReplica) isEvent()   {}
func (*RefillReplica) isEvent()   {}
func (Inspect) isEvent()          {}
func (DiskRoom) isEvent()         {}
func (Resign) isEvent()           {}
func (CheckpointAll) isEvent()    {}

// Save is one job of the log writer: an update to make durable, and the messages that may
// leave only afterwards (law 5: no message overtakes its fsync).
type Save struct {
	Update storage.Update
	// Sync asks for the update to be on disk before it is reported as done.
	Sync bool
	// empty saves write nothing: they keep messages behind earlier saves of the group.
	empty     bool
	seq       uint64 // by Core.saveSeq: which peers' lives are later
	bytes     int64
	last      uint64 // index of the last entry, 0 if there is none
	cut       uint64 // the group's count of truncations when it was queued
	commit    uint64 // of a synced checkpoint: the commit index that it names
	responses []*pb.Message
	group     *group
	then      func(error)
}

// LeaderChange tells that a group has, as far as this node knows, another leader or epoch.
type LeaderChange struct {
	Group  record.GroupID
	Leader record.NodeID // NoNode while there is none
	Epoch  record.Epoch
	Reason string // why, for people
}

// Class says by which connection a frame goes: beats and votes must never wait behind appends.
type Class uint8

// The two classes of frames.
const (
	Control Class = iota
	Data
)

// Outbox takes frames for peers. Send never blocks; false means that the frame was dropped.
type Outbox interface {
	Send(to record.NodeID, class Class, payload [][]byte) bool
}

// MachineKind says which kind of state machine a group has. It is stored with the replica: at a start
// nobody else could tell yet. The numbers never change their meaning.
type MachineKind uint8

// The kinds. A data partition's state is its producer table.
const (
	DataPartition MachineKind = 0
	MetadataLog   MachineKind = 1
	GroupsLog     MachineKind = 2
)

// StateMachine is what a group's log is the history of. All calls come from the Core's goroutine.
type StateMachine interface {
	// Apply takes one committed command; its result goes to the proposer.
	Apply(index uint64, data []byte) any
	// Snapshot returns the whole state; Restore replaces it.
	Snapshot() []byte
	Restore(data []byte) error
}
