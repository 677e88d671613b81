package kafka

// The list of differences that stay. docs/kafka.md has it for users, in other words; what is there and
// not here, or here and not there, is a fault.
func init() {
	accept(`ErrorMessage is null in Kafka, some text in edged`,
		"edged says what is wrong where Kafka has only the code")
	accept(`^Produce, old versions, .* it is closed in Kafka, answered in edged`,
		"Produce 0 to 2, which nobody uses, are answered with UNSUPPORTED_VERSION")
	accept(`^Produce, .*LogStartOffset is (0|-1) in Kafka, (-1|0) in edged`,
		"where the log starts is told beside other errors of a batch than in Kafka")
	accept(`^Produce, .*ErrorRecords is . of them in Kafka, null or none in edged`,
		"which records of a refused batch are at fault is told in words only")
	accept(`^(Produce|Fetch|OffsetCommit|OffsetDelete), .*, no partition: Topics is null or none in Kafka, 1 of them in edged`,
		"a topic that is named without a partition is in the answer")
	accept(`^Produce, idempotence, .*LogAppendTime is 1002 in Kafka, -1 in edged`,
		"a batch that was there before is answered as it was the first time; Kafka gives the time of its last record")
	accept(`^Produce, idempotence, older than five: .* is OUT_OF_ORDER_SEQUENCE_NUMBER in Kafka, DUPLICATE_SEQUENCE_NUMBER in edged`,
		"a batch that is all in the log, but not among the five that are remembered, is a duplicate")
	accept(`^Produce, idempotence, (negative producer with sequence|no epoch): .* is NONE in Kafka, INVALID_RECORD in edged`,
		"a producer identity is whole or none")
	accept(`^Produce, broken batches, a byte too many: .* is NONE in Kafka, INVALID_RECORD in edged`,
		"bytes after a batch are refused, not dropped")
	accept(`^Produce, broken batches, log append time: .* is NONE in Kafka, INVALID_TIMESTAMP in edged`,
		"a client that claims the append time is refused, not corrected")
	accept(`^Produce, broken batches, (length huge|codec .): .* is UNKNOWN_SERVER_ERROR in Kafka, (INVALID_RECORD|UNSUPPORTED_COMPRESSION_TYPE) in edged`,
		"some faults, at which Kafka stumbles, have a code of their own")
	accept(`^Produce, broken batches, (bytes after the records|(gzip|snappy|lz4|zstd) that is none): .* is (INVALID_RECORD|UNKNOWN_SERVER_ERROR) in Kafka, NONE in edged`,
		"records are not decompressed and not looked at one by one, but for compacted topics and limits on timestamps")
	accept(`^Produce, times, negative: .* is NONE in Kafka, INVALID_RECORD in edged`,
		"timestamps before 1970 are refused, but for -1")
	accept(`^Produce, times, none: .*BaseOffset is 3 in Kafka, 0 in edged`,
		"timestamps before 1970 are refused, but for -1")
	accept(`^Produce, times, in 10 years: .* is INVALID_TIMESTAMP in Kafka, NONE in edged`,
		"message.timestamp.after.max.ms has no limit by default: the clocks of small devices are wrong")

	accept(`^Fetch, .*AbortedTransactions is (none in Kafka, null or none|null or none in Kafka, none) in edged`,
		"beside an error the list of aborted transactions is null")
	accept(`^Fetch, sessions, .*: SessionID is a session in Kafka, 0 in edged`,
		"fetch sessions are declined")
	accept(`^Fetch, epochs, last fetched epoch is newer: .* is OFFSET_OUT_OF_RANGE in Kafka, NONE in edged`,
		"the last fetched epoch, which only Kafka's own replicas send, is not looked at")
	accept(`^Fetch, limits, negative bytes: .* is UNKNOWN_SERVER_ERROR in Kafka, NONE in edged`,
		"negative limits of a fetch are none at all")
	accept(`^(Fetch, plain, (beyond the end|far beyond|offset -1)|DeleteRecords, plain, fetch below it): .*(HighWatermark|LastStableOffset|LogStartOffset) is -1 in Kafka, . in edged`,
		"OFFSET_OUT_OF_RANGE says where the log is")
	accept(`^Fetch, plain, unknown isolation: .* is UNKNOWN_SERVER_ERROR in Kafka, NONE in edged`,
		"an isolation level that there is not reads what is committed, as both others do")
	accept(`^Fetch, replicas, debugging consumer: it is closed in Kafka, answered in edged`,
		"replica id -2 is read as a consumer's")
	accept(`^ListOffsets, plain, twice: .*Partitions is 1 of them in Kafka, 2 of them in edged`,
		"a partition that is named twice is answered twice")
	accept(`^OffsetForLeaderEpoch, plain, epoch -2: `,
		"an epoch below -1 has no end")
	accept(`^Metadata, plain, (by |neither)`,
		"Metadata 10 and 11 take topics by id, as 12 does, and a topic with neither name nor id does not spoil the answer for others")

	accept(`^(DeleteGroups|DescribeGroups|FindCoordinator|OffsetCommit|OffsetFetch), .*no (name|group): `,
		"a group has a name")
	accept(`^DescribeGroups, plain, twice: Groups is 2 of them in Kafka, 1 of them in edged`,
		"a group that is named twice is described once")
	accept(`^(FindCoordinator|DescribeConfigs), .*ErrorMessage is ("" in Kafka, (null|some text)|some text in Kafka, null) in edged`,
		"the message beside no error is null")
	accept(`^(FindCoordinator|InitProducerID), plain, transactional id: `,
		"there are no transactions")
	accept(`^JoinGroup, two members, described before the assignment: .*MemberAssignment is "work" in Kafka, "" in edged`,
		"a group that waits for its assignment is described without the one before")
	accept(`^OffsetCommit, plain, member of an unknown group: .* is GROUP_ID_NOT_FOUND in Kafka, ILLEGAL_GENERATION in edged`,
		"a commit of a member of a group that there is not is ILLEGAL_GENERATION in version 9 too")
	accept(`^OffsetCommit, plain, what is there: .*Partitions is 2 of them in Kafka, 1 of them in edged`,
		"a committed offset below 0 is none")
	accept(`^CreateTopics, plain, only checked: .*TopicID is an id in Kafka, id 0 in edged`,
		"a topic that is only checked gets no id")
	accept(`^CreateTopics, plain, .*Configs is 33 of them in Kafka, 32 of them in edged`,
		"the settings of a topic are not quite the same")
	accept(`^DescribeConfigs, plain, all about .*(ConfigSynonyms|Documentation)`,
		"settings of topics have no synonyms among those of nodes, and documentation only where they are not as in Kafka")
	accept(`^DescribeConfigs, plain, message.timestamp.after.max.ms: .*Value is`,
		"message.timestamp.after.max.ms has no limit by default: the clocks of small devices are wrong")
	accept(`^DescribeConfigs, plain, min.insync.replicas: .*Source is 3 in Kafka, 5 in edged`,
		"min.insync.replicas is no setting of the cluster")
	accept(`^IncrementalAlterConfigs, plain, unknown operation: .* is UNKNOWN_SERVER_ERROR in Kafka, INVALID_REQUEST in edged`,
		"some faults, at which Kafka stumbles, have a code of their own")
	accept(`^ElectLeaders, plain, (all|no partition|unknown type): Topics is [0-9]+ of them in Kafka, null or none in edged`,
		"an election for all partitions is answered with those that have a new leader")
	accept(`^Produce, where nothing is, internal topic: .* is INVALID_TOPIC_EXCEPTION in Kafka, UNKNOWN_TOPIC_OR_PARTITION in edged`,
		"what groups have committed is not in a topic named __consumer_offsets")
}
