package node

import (
	"edged/metadata"
	"edged/partition"
	"edged/record"
	"edged/storage"
	"edged/transport/wire"
)

// What is in this file is for those who run nodes inside a program, to look at them from within:
// tests and the simulator.

// Broker serves requests as the native protocol does, without a connection.
func (n *Node) Broker() wire.Broker { return broker{n} }

// Store is the node's storage.
func (n *Node) Store() *storage.Store { return n.store }

// Host runs the groups of this node; nil until it is in a cluster.
func (n *Node) Host() *partition.Host { return n.host.Load() }

// Identity is who the node is.
func (n *Node) Identity() storage.Identity { return n.ident.Get() }

// Picture is this node's copy of the metadata.
func (n *Node) Picture() *metadata.Picture { return n.machine.Picture() }

// MetadataState gives the metadata as bytes, and the index of the last command in it. false before
// the node is in a cluster and after it stopped.
func (n *Node) MetadataState() (index int64, state []byte, ok bool) {
	h := n.host.Load()
	if h == nil {
		return 0, nil, false
	}
	ok = h.Inspect(func(*partition.Core) { index, state = n.machine.applied.Load(), n.machine.Snapshot() })
	return index, state, ok
}

// LeaderChanges are the changes of leader that this node remembers, of every group, oldest first.
func (n *Node) LeaderChanges() []partition.LeaderChange {
	all := n.history.newest(historyLength, func(record.GroupID) bool { return true })
	out := make([]partition.LeaderChange, len(all))
	for i, c := range all {
		out[len(all)-1-i] = c.LeaderChange
	}
	return out
}

// Failure says why the node can no longer write; nil while it can.
func (n *Node) Failure() error { return n.failure() }
