// Package sim runs whole nodes, everything but sockets and files, in one testing/synctest bubble: the
// clock is virtual, the network and the disks are in memory and misbehave as a seed says, and
// every law of docs/design.md is checked on what clients saw and on what the disks hold.
//
//	world_test.go    the machines of a run: their lives, disks and addresses
//	disk_test.go     a disk that is slow, stuck, full or failing
//	gossip_test.go   gossip over the network in memory
//	client_test.go   producers and consumers that call the nodes' brokers
//	history_test.go  what was sent, answered and read, and the laws checked while it happens
//	final_test.go    the laws checked after the faults are over
//	story_test.go    what happened last, per node, for whoever reads a failure
//	profile_test.go  which faults a run has
//	sim_test.go      the runs
//
// README.md says how to run it, what a seed reproduces, and which planted faults it finds.
package sim
