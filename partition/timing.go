package partition

import "time"

// Time is the monotonic time of a Core, counted from an arbitrary start. The wall
// clock never enters the Core: it decides nothing about safety.
type Time = time.Duration

// Timing holds every duration that the Core goes by. DefaultTiming suits a LAN and good Wi-Fi.
type Timing struct {
	// Tick drives Raft's own clock, only in groups that are awake.
	Tick time.Duration
	// ElectionTicks is Raft's fallback when no hint tells that a leader died; HeartbeatTicks
	// is how often an awake leader is heard in a group of its own.
	ElectionTicks, HeartbeatTicks int
	// BeatBusy and BeatIdle are the most that may pass between two frames to a peer, while
	// the two nodes share an awake group and while all sleep.
	BeatBusy, BeatIdle time.Duration
	// DeadBusy and DeadIdle are the silence after which a peer counts as dead.
	DeadBusy, DeadIdle time.Duration
	// DeadMost is the most that DeadBusy grows to, where a link is found to pause again and again.
	DeadMost time.Duration
	// SleepAfter is how long a group sees no traffic before it sleeps.
	SleepAfter time.Duration
	// CampaignFirst is the wait of the first candidate after a leader was lost: the others
	// must have noticed as well. CampaignNext is the wait of each further one.
	CampaignFirst, CampaignNext time.Duration
	// CampaignRetry is the wait before a failed campaign is tried again; it doubles up to ten times that.
	CampaignRetry time.Duration
	// Hold is the longest that a produce waits for an election before it is sent back, HoldFull
	// the longest that it waits for room.
	Hold, HoldFull time.Duration
	// SnapshotTimeout is how long a follower may take to install a base record.
	SnapshotTimeout time.Duration
	// Transfer is the longest a leadership transfer may hold up a group.
	Transfer time.Duration
	// CalmBeforeReturn is how long a peer must have been up before leadership goes back
	// to it, and ReturnEvery the pace of that.
	CalmBeforeReturn, ReturnEvery time.Duration
	// DiskSlow and DiskStalled bound one commit of the log writer: past the first no new
	// leadership is taken, past the second it is given away.
	DiskSlow, DiskStalled time.Duration
	// InSync is the lag, in time, of which a replica still counts as in sync: its leader knows that it has what the
	// leader had then. Kafka's replica.lag.time.max.ms, by another clock: up to twice as long passes before it is noticed.
	InSync time.Duration
}

// DefaultTiming is what nodes run with.
func DefaultTiming() Timing {
	return Timing{
		Tick: 100 * time.Millisecond, ElectionTicks: 10, HeartbeatTicks: 3,
		BeatBusy: 100 * time.Millisecond, BeatIdle: 500 * time.Millisecond,
		DeadBusy: 900 * time.Millisecond, DeadIdle: 2 * time.Second, DeadMost: 3 * time.Second,
		SleepAfter:    2 * time.Second,
		CampaignFirst: 15 * time.Millisecond, CampaignNext: 200 * time.Millisecond,
		CampaignRetry: 100 * time.Millisecond,
		Hold:          400 * time.Millisecond, HoldFull: 10 * time.Second, SnapshotTimeout: 10 * time.Second, Transfer: time.Second,
		CalmBeforeReturn: 60 * time.Second, ReturnEvery: 200 * time.Millisecond,
		DiskSlow: time.Second, DiskStalled: 3 * time.Second, InSync: 10 * time.Second,
	}
}

// Limits are the named bounds, in bytes unless said, of everything that is fed from outside.
type Limits struct {
	// Produce bounds batches accepted and not yet answered, over all groups.
	Produce int64
	// Uncommitted bounds a group's entries that are appended and not committed.
	Uncommitted int64
	// SaveQueue bounds what waits for the log writer; past it appends of leaders elsewhere are dropped.
	SaveQueue int64
	// Inbox bounds frames received and not yet stepped, of each class.
	Inbox int64
	// EntryCache bounds the entries kept in memory to be sent and applied.
	EntryCache int64
	// Message bounds the entries of one append message, Inflight those on the way to one follower of one group.
	Message, Inflight int64
	// Frame is where a frame to a peer is cut.
	Frame int64
	// HeldProduces is the count of produces that wait for an election or for room, over all groups.
	HeldProduces int
	// Producers is the count of producer ids that a partition remembers; the one that was
	// silent longest is forgotten first.
	Producers int
	// CheckpointBytes and CheckpointEntries say after how much log a group writes a checkpoint:
	// what a restart has to apply again at the most.
	CheckpointBytes   int64
	CheckpointEntries uint64
	// CheckpointTotal bounds the same over all groups.
	CheckpointTotal int64
	// MachineLog is how many applied entries a state machine's log keeps for followers
	// that are a little behind.
	MachineLog uint64
}

// DefaultLimits suit a node with 1 GB of memory.
func DefaultLimits() Limits {
	return Limits{
		Produce: 32 << 20, Uncommitted: 4 << 20, SaveQueue: 32 << 20, Inbox: 8 << 20, EntryCache: 16 << 20,
		Message: 256 << 10, Inflight: 1 << 20, Frame: 1 << 20,
		HeldProduces: 4096, Producers: 1024,
		CheckpointBytes: 1 << 20, CheckpointEntries: 4096, CheckpointTotal: 16 << 20, MachineLog: 2048,
	}
}
