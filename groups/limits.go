package groups

// What one coordinator may hold. There are a handful in a cluster, each on its own log.
const (
	// MaxStateBytes bounds the replicated state of one coordinator, and so its snapshot. With it a
	// checkpoint fits into half a memtable of storage and into one frame between nodes.
	MaxStateBytes = 3 << 19
	// MaxCommandBytes bounds one entry of the log.
	MaxCommandBytes = 640 << 10
	// MaxMembersBytes bounds what the members of one group bring, MaxAssignmentBytes what their
	// leader makes of it. Both go into one command.
	MaxMembersBytes    = 320 << 10
	MaxAssignmentBytes = 240 << 10
	// MaxLiveBytes bounds what the members bring, for all groups of a coordinator that have members.
	MaxLiveBytes = 8 << 20
	// MaxGroups bounds the groups of one coordinator, in the state and in memory.
	MaxGroups = 4000
	// MaxMembers bounds the members of one group, and the ids given out to those who are to join with it.
	MaxMembers = 1000
	// MaxCommitPartitions bounds the partitions of one commit.
	MaxCommitPartitions = 20_000
	// MaxMetadataBytes bounds the text that a client keeps beside an offset.
	MaxMetadataBytes = 4096
	// MaxNameBytes bounds the names of groups, members and instances, of protocols and their types.
	MaxNameBytes = 512

	maxGivenBytes     = MaxNameBytes - 64 // of a name that a member's id is made of
	maxClientBytes    = 255               // of a client's id and host; what is longer is cut
	maxProtocols      = 32                // of one member
	maxTopicNameBytes = 249
	maxPartition      = 1 << 20
)
