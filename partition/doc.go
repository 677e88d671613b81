// Package partition runs the Raft groups of a node: one group for each partition that it
// has a replica of, and one for each state machine (the cluster's metadata). A group's Raft log is
// the partition's log: a record batch is stored once, as a log entry.
//
// Files, in the order of a record's way:
//
//	host.go      the goroutines around the Core: inbox, core, log writer
//	event.go     what a Core is told, and what it leaves to be done
//	core.go      Core: Step takes an event, Flush draws the consequences of a turn
//	produce.go   offsets, producers, who waits for what
//	ready.go     what Raft wants: saved, sent, applied, committed
//	group.go     one replica: its state and the laws on it
//	grouplog.go  Raft's view of the log, from memory
//	producers.go the producer table: idempotence
//	session.go   which peers live; beats and claims
//	pauses.go    links that pause again and again, and patience with them
//	elect.go     elections, sleep, time
//	disk.go      a disk that is slow, stalls or is full
//	catchup.go   followers far behind, a few reads at a time
//	member.go    replicas made, moved, removed
//	current.go   how recent the metadata must be by which a replica is made
//	transfer.go  leadership handed over
//	confirm.go   whether a leader still leads, asked of a majority
//	relaxed.go   groups that answer before the fsync
//	envelope.go  frames between nodes
//	view.go      what the rest of the node may see
//
// Laws (the numbers are those of docs/design.md): an answer leaves after a majority has the entry
// on disk (1); one leader per epoch, the Raft term (2); offsets are dense and given once (3);
// nobody reads above the high watermark and a new leader serves only after an entry of its own
// term is committed (4); no message overtakes its fsync, and every frame carries the boot ids of
// both sides (5); a damaged replica is taken out of service and never votes or answers (8); no
// wall clock (9); every queue has a bound, in Limits (10); a group without traffic sleeps (11).
//
// Who owns what: the core goroutine owns everything below Core. The log writer owns nothing but
// the commit it makes. Partition is written by the core and read by anyone.
package partition
