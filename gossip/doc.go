// Package gossip finds the nodes of a cluster and spreads who leads which group. It wraps
// memberlist, finds and spreads, and never decides: who is alive for an election is for the
// peer connections to say, who belongs to the cluster for the metadata.
//
//	              memberlist, with goroutines of its own
//	               | calls back                ^ is called by
//	               v                           |
//	+---------- delegate ----------+      +----+----+
//	| members: names, lives        |      | rejoin  |
//	| leaders: newest epoch, news  |      | SetMeta |
//	+------------------------------+      | Leave   |
//	   ^                   | a token      +---------+
//	   | Members, Leader   v                   ^
//	  node <------------ Events                |
//	   +---------------------------------------+
//
// # Names and lives
//
// A node's name in memberlist is "<node id>.<boot counter>.<boot id>". A node that restarts, with the
// same address or another, is a new member there, which nobody refuses; its old name dies
// quietly. Members takes the highest boot counter of each node id. A clone may have counted as many
// starts as the true node; it has another boot id, so that neither holds up the other's name.
//
// A node whose address changes while it lives (Move) does the same in small: memberlist refuses a
// known name at another address, so the node leaves and comes back as "<node id>.<boot counter>.<boot id>.<moves>".
//
// # Never back into memberlist
//
// memberlist calls the delegate under its own lock, so a call back into it is a deadlock.
// The delegate and all it can reach hold no memberlist and no Gossip (a test walks their
// fields): it changes two small tables and leaves a token. Whoever wants to know more takes the
// token and asks.
//
// # Goroutines
//
//	rejoin    until Close: looks for known addresses that are no live member, dials them, saves
//	          the list of addresses when it has changed
//	join      up to joinsAtOnce, children of rejoin, which waits for them
//	accept, receive   of Transport, until its Shutdown
//
// members.mu and leaders.mu are leaves: nothing is called under them. memberlist's node lock
// is taken before them.
//
// # What goes over the wire
//
// Everything of ours is big-endian. Meta, with each member, at most maxMeta bytes:
//
//	format u8 (1), node i32, instance [16], boot counter u64, boot u64, cluster [16],
//	native port u16, kafka port u16, http port u16, state u8, expect u8,
//	name (u8 length + at most 64 bytes), version (u8 length + at most 32 bytes),
//	moves u16 (missing: 0), rest ignored
//
// Leaders, in a packet up to maxDelta of those that changed, in the exchange of full state all:
//
//	format u8 (1), cluster [16], then for each: group u64, leader i32, epoch i32
//
// Leaders of another cluster are not heard: its groups have the same numbers. Nodes of two
// clusters meet when one of them was virgin; they stay hidden from Members afterwards.
//
// Without a key anybody on the network can forge all of it, and with one every member can:
// it is bounded, and used as a hint only.
package gossip
