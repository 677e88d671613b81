package storage

import (
	"errors"
	"log/slog"
	"time"

	"edged/record"
)

// Kind tells what an entry holds. Only KindBatch takes offsets.
type Kind uint8

// The kinds are stored on disk: never renumber them.
const (
	KindEmpty        Kind = 0 // the entry a new leader appends; no data
	KindBatch        Kind = 1 // a record batch of a data partition; has offsets
	KindControl      Kind = 2 // an instruction inside a data partition; no offsets
	KindCommand      Kind = 3 // a command of a state machine; no offsets
	KindConfChange   Kind = 4 // a Raft configuration change
	KindConfChangeV2 Kind = 5 // a joint Raft configuration change
	kindEnd          Kind = 6 // the first number that is not a kind
)

// NumClasses is how many retention classes there are: Update.Class is below it.
const NumClasses = 8

// Entry is one entry of a group's log. Data is never changed after it was given to
// Commit or returned by a read.
type Entry struct {
	Index, Term  uint64
	Kind         Kind
	BaseOffset   record.Offset // first offset of a KindBatch, else 0
	Count        int32         // offsets spanned by a KindBatch, above 0; else 0
	MaxTimestamp int64         // milliseconds, of a KindBatch, else 0
	Data         []byte
}

// End is the offset after the entry's last one.
func (e *Entry) End() record.Offset { return e.BaseOffset + record.Offset(e.Count) }

// HardState is what a replica must never forget. The commit index is not part of it:
// it is learned again from the leader.
type HardState struct {
	Term uint64
	Vote record.ReplicaID // 0 is nobody
}

// ConfState is the membership of a group.
type ConfState struct {
	Voters, Learners, VotersOutgoing, LearnersNext []record.ReplicaID
	AutoLeave                                      bool
}

// ConfAt says that Conf holds from Index on.
type ConfAt struct {
	Index uint64
	Conf  ConfState
}

// Base is where a log begins: entry Index was the last one that is gone, of Term.
// The first batch after it has base offset NextOffset or higher only by a broken log.
// Readers may read from LogStart >= NextOffset.
type Base struct {
	Index, Term          uint64
	NextOffset, LogStart record.Offset
}

// Checkpoint is the state machine as of entry Applied, with the configurations a
// snapshot at any index from the Base on needs.
type Checkpoint struct {
	Applied    uint64
	NextOffset record.Offset // after Applied
	Confs      []ConfAt      // oldest first; Confs[0].Index <= Base.Index
	State      []byte        // opaque
}

// Update is one group's part of one commit; its fields are applied in the order they stand in.
type Update struct {
	Group   record.GroupID
	Replica record.ReplicaID
	Class   uint8 // retention class, below NumClasses; may change from commit to commit

	// Remove forgets the group: its log and all its keys. Nothing else of the Update is looked at.
	Remove bool
	// Reset creates the group, or installs a base that a leader sent: the local log is
	// replaced as a whole. Checkpoint must come with it. HardState stays as it was
	// unless it comes too.
	Reset     *Base
	HardState *HardState
	// Entries are consecutive. If the first one's index is not after the last stored one, the
	// stored suffix from there on is replaced, with all that was derived from it.
	Entries []Entry
	// Base moves the beginning forward: entries up to Base.Index are dead. Reclaim gives the space back.
	Base       *Base
	Checkpoint *Checkpoint
}

// GroupState is what the store knows of one group.
type GroupState struct {
	Group      record.GroupID
	Replica    record.ReplicaID
	Class      uint8
	HardState  HardState
	Base       Base
	Checkpoint Checkpoint
	LastIndex  uint64 // Base.Index if the log is empty
	// NextOffset is the offset after the last stored batch, Base.NextOffset if there is none.
	NextOffset record.Offset
	TermRuns   []TermRun // oldest first; empty if the log is empty
	// Err is the first broken law found, nil for a group in good health. A damaged group
	// takes no updates but Remove and Reset and answers no reads.
	Err error
}

// TermRun says that Term holds from entry Index on, and that Offset is the next offset there.
type TermRun struct {
	Index, Term uint64
	Offset      record.Offset
}

// EventKind names what an Event is about.
type EventKind uint8

// What a store reports while it runs.
const (
	EventCorruption      EventKind = iota // stored bytes failed a check
	EventBackgroundError                  // a flush or compaction failed and will be tried again
	EventSlowDisk                         // one disk operation took very long
	EventWriteStall                       // commits wait for flushes
	EventFatal                            // the store cannot go on; the process should end
	EventDiskFull                         // there is no room; the reserve is in use, or writing waits
)

// Event is something that happened outside a call.
type Event struct {
	Kind EventKind
	Text string
	Err  error
	Took time.Duration // of an EventSlowDisk that is over
}

// Options of Open. Zero fields take the defaults.
type Options struct {
	// MemTableSize is the size of a memtable, and so of a bucket, in bytes: 64 KiB to 1 GiB, default 4 MiB.
	// A commit above a quarter of it is split.
	MemTableSize int64
	// CacheSize of the block cache in bytes; default 4 MiB.
	CacheSize int64
	// Reserve is how many bytes of the disk are kept for when it is full; 0 keeps none.
	Reserve int64
	// Unclean says that the life before did not end well: a sync may have failed in it.
	Unclean bool
	// ReadOnly opens a stopped node's store without changing a byte of it: for dumps and checks.
	ReadOnly bool
	// Logger takes the engine's messages; default discards them.
	Logger *slog.Logger
	// OnEvent is told of trouble. It is called from any goroutine and must neither block
	// nor call the store.
	OnEvent func(Event)
}

// DefaultMemTableSize and DefaultCacheSize suit a node with 1 GB of memory.
const (
	DefaultMemTableSize = 4 << 20
	DefaultCacheSize    = 4 << 20
)

// Metrics are counts since Open and sizes now.
type Metrics struct {
	Groups, DamagedGroups int
	Commits, Syncs        int64 // Commit calls; those with sync
	PayloadBytes          int64 // bytes of Entry.Data taken
	Buckets               int64 // buckets closed
	ReclaimedBuckets      int64
	DiskBytes             int64 // tables and write-ahead logs
	Tables                int64
	MemTableBytes         int64
	CacheBytes            int64
	WALBytesWritten       int64
	FlushBytesWritten     int64
	CompactBytesWritten   int64
	DirectoryEntries      int64 // (group, bucket) pairs in memory
	WriteStalls           int64
	Corruptions           int64
}

// Errors of Open and of the calls. They are wrapped with the place and what to do.
var (
	ErrNewerFormat = errors.New("storage: written by a newer version of edged")
	ErrNotOurs     = errors.New("storage: not a data directory of edged")
	ErrLocked      = errors.New("storage: in use by another process")
	ErrReadOnly    = errors.New("storage: the directory cannot be written")
	ErrClosed      = errors.New("storage: closed")
	// ErrDamaged is returned by Open when what all groups share cannot be read.
	ErrDamaged = errors.New("storage: the database is damaged")
	// ErrLostTail is returned by Open when buckets that were complete are gone: the node has
	// forgotten votes and entries and must not act as if it had never given them.
	ErrLostTail = errors.New("storage: the newest part of the database is gone")
	// ErrUnknownGroup is returned for a group that the store does not have.
	ErrUnknownGroup = errors.New("storage: unknown group")
	// ErrCompacted is returned for entries at or before the Base.
	ErrCompacted = errors.New("storage: entries before the log's beginning")
	// ErrUnavailable is returned for entries after the last one.
	ErrUnavailable = errors.New("storage: entries after the log's end")
	// ErrBadUpdate is returned for an update that would break a law of the log. Nothing of the
	// commit is applied and the store goes on.
	ErrBadUpdate = errors.New("storage: update refused")
)
