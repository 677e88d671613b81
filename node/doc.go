// Package node wires the parts of one edged node together and answers for them.
//
//	clients, peers ──> native listener ──> transport/wire ──> broker.go (this package)
//	                            └────────> transport/peer ──> partition.Host, rpc.go
//	gossip ──> who is there, who leads what elsewhere
//	metadata (a state machine on group 0) ──> reconcile.go ──> partition.Host
//
// Files: node.go opens, runs and closes everything, in one order and the same order backwards;
// bootstrap.go finds or forms the cluster; reconcile.go makes this node what the metadata says;
// autopilot.go is the metadata leader's part; propose.go changes the metadata from any node;
// rpc.go is what nodes ask each other; broker.go, describe.go and admin.go serve clients;
// groups.go coordinates consumer groups; memory.go says who may hold how much (see README.md);
// janitor.go applies retention; clock.go judges the clock; disk.go keeps room, wear.go counts what the card takes, eventlog.go keeps what a
// person wants to find after a power cut; history.go remembers leaders; pauses.go which links pause; http.go serves health and
// metrics; place.go keeps what others are told of this node's address true.
//
// Goroutines of this package, all started through Node.wg: bootstrap (until the node is in a
// cluster), reconcile (one, woken by changes of the metadata or of the members), janitor (one),
// reports (tells the metadata what the Core has reached), groups (owns the coordinators of the
// consumer groups whose logs are led here), gossip publisher (leaders), one per
// listener, and those of requests. Who owns what: identity file: bootstrap, then nobody until Close;
// metadata: the Core's goroutine through machine; everything else is behind n.mu or atomic.
package node
