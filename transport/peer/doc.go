// Package peer carries messages between the nodes of one cluster: Raft traffic that may be
// lost, and calls with an answer. It knows nothing of Raft; package node joins the two.
//
// # Connections
//
// Two nodes share two TCP connections on the native port, so that a large append on a slow
// link never holds up a beat or a vote. The node with the lower id dials both; the higher one
// knocks (a dial that says who it is and ends) when it starts or has lost a connection, so
// that the lower one dials at once, also on the host that the knock came from, and learns from a refused
// knock that the process is gone.
//
//	node 3 (dials)                              node 8
//	link 8                                      link 3
//	+--------------------+                      +--------------------+
//	| run    <- reads    |<====== control =====>| run    <- reads    |
//	| writer -> queue    |                      | writer -> queue    |
//	| data   <- reads    |<======= data =======>| data   <- reads    |
//	| writer -> queue    |                      | writer -> queue    |
//	+--------------------+                      +--------------------+
//
// A session is the time from one control connection up to its loss, with one life (boot id)
// of the peer. Its queues begin and end with it: nothing that was queued for one life of a
// peer can reach the next, which is what makes it safe to let a vote leave before the
// voter's own disk has it.
//
// # Goroutines and owners
//
//	link.run     one per peer, from SetPeer or the first accepted connection until RemovePeer or
//	             Close: dials or waits, owns the session, reads the control connection, and
//	             is the only caller of PeerUp and PeerDown for its node
//	writer       one per connection: the only one that writes to it after the handshake
//	session.data one per session: gets the data connection again and again, and reads it
//	knock        one per higher node's link, short
//	call         one per request being served, bounded by Limits.Calls
//	Accept       runs on its caller's goroutine, for the handshake or one request
//
// Transport.mu guards the table of links and what others put into a link (address, session);
// queue.mu and session.calls are leaves. No lock is held while a Handler is called.
//
// # Frames
//
// All numbers are big-endian. A connection begins with the four bytes "EDGP", sent by the
// dialer only. Everything after that is frames:
//
//	0        4      5          9                     9+length
//	+--------+------+----------+---------------------+
//	| length | type | crc32c   | payload             |
//	+--------+------+----------+---------------------+
//	 u32      u8     u32, over type and payload
//
// The length is checked against a named limit before anything is allocated for it: maxHello
// during the handshake, Limits.MaxFrame after it.
//
//	type       payload                                              on
//	1 hello    version u8, purpose u8, cluster [16], instance [16],  handshake
//	           node i32, boot u64, boot counter u64,
//	           cluster name (u8 length + bytes), rest ignored
//	2 refuse   error                                                handshake
//	3 ready    none                                                 handshake
//	4 message  the Handler's bytes                                  control, data
//	5 call     id u64, timeout in ms u32, the Handler's bytes       control, call
//	6 answer   id u64, the Handler's bytes                          control, call
//	7 fault    id u64, error                                        control, call
//	8 ping     none                                                 control
//	9 pong     none                                                 control
//	10 open    none: asks the dialer for a (new) data connection    control
//
//	error: retriable u8, code (u8 length + bytes), leader i32, epoch i32,
//	       address (u8 length + bytes), Kafka address (u8 length + bytes),
//	       text (u16 length + bytes)
//
// Purpose is 0 control, 1 data, 2 call (one request, one answer, end) or 3 knock.
//
// # Handshake
//
//	dialer                      acceptor
//	EDGP, hello        ->       checks the dialer
//	checks the acceptor  <-     hello, or refuse and end
//	ready              ->       the connection counts from here on
//	or refuse and end  ->
//
// Both sides check the other: protocol version, cluster name, cluster id, that nobody else
// lives under our own or the same node id, and that a boot counter never goes back. Either
// side's refusal reaches both Handlers.
package peer
