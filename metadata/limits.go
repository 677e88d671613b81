package metadata

// What one cluster may hold. The sizes are chosen so that a snapshot of a full cluster
// stays under MaxSnapshotBytes, which has to fit a frame between nodes.
const (
	MaxNodes              = 64    // registered nodes; every node keeps the metadata
	MaxBanned             = 4_000 // removed nodes that are remembered
	MaxTopics             = 4_000
	MaxPartitionsPerTopic = 2_048
	MaxPartitions         = 24_000 // of all topics
	MaxReplicasPerNode    = 4_000  // an idle Raft group costs a node about 2 KB and a start some time
	MaxReplication        = 5      // replicas of one partition
	MaxRemoving           = 8      // replicas of one partition that are on their way out
	MaxTombstones         = 40_000 // replicas that nodes have yet to delete, of all nodes
	MaxProducerBlock      = 10_000 // producer ids handed out by one command
	MaxChanged            = 10_000 // replicas named by one report of a node

	MaxSettingsBytes = 256 << 10 // settings of all topics, keys and values

	MaxCommandBytes  = 1 << 20
	MaxSnapshotBytes = 7 << 20
)

// Sizes of single values, in bytes.
const (
	maxClusterNameBytes = 64
	maxNodeNameBytes    = 64
	maxHostBytes        = 255
	maxAddrBytes        = 264 // a host, a colon, a port, brackets
	maxVersionBytes     = 32
	maxZoneBytes        = 64
	maxTopicNameBytes   = 249
	maxSettings         = 64 // settings named by one command, and of a topic; more than there are
	maxSettingBytes     = 64 // a key or a value
)
