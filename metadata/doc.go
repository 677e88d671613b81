// Package metadata is the cluster's metadata as a pure state machine: who is in the
// cluster, which topics exist, which replica of which partition belongs on which node.
// It is the machine of Raft group 0. It has no clock, no randomness, no goroutine and
// no file: ids, times and placements come inside the commands, so every node that
// applies the same commands holds the same state, byte for byte.
//
// Around the machine stand pure rules that read a [Picture] and say what should change:
// [Place], [Plan], [DesiredVoters]. And there is [Formation], which decides once, before
// a metadata group exists, which nodes make the cluster (bootstrap_expect).
//
// # Laws
//
// TestLaws asserts the first eight after every command of random runs, and TestRestore_*,
// TestEncode_bounds and TestFormation_everySchedule stand for the rest. verify.go holds
// what a single state can show, and is asked about every snapshot that comes in.
//
//  1. A GroupID is given to one partition, counts up, and is never given again.
//  2. A ReplicaID is given once in the life of the cluster. A node that takes up a
//     partition again does so under a new one.
//  3. Every partition has at least one target replica, the first of which is the
//     preferred leader, and no node holds two replicas of a partition, whether target
//     or on the way out.
//  4. A replica leaves a node's disk by a tombstone only, and a tombstone is made only
//     when the topic is deleted or when the partition's leader has said that the Raft
//     configuration no longer contains the replica. What metadata does not know is
//     not deleted.
//  5. A node id belongs to one instance for ever; a removed one stays banned; the boot
//     counter recorded for a node never goes back.
//  6. A command either changes the state and has a result, or fails and leaves every
//     bit of the state as it was.
//  7. Equal command sequences give equal snapshots, byte for byte, and a snapshot
//     restored and carried on equals the full replay.
//  8. A published Picture is never written again. Readers hold it as long as they like.
//  9. Every string and list is bounded by a constant in limits.go, checked before
//     memory is taken for it, on encoding and on decoding alike.
//  10. Two formations that share a node never both become final with different
//     proposals, whatever is lost, repeated or reordered and whoever restarts.
package metadata
