// Package groups is the coordinator of consumer groups, Kafka's classic protocol, in two parts.
//
// [State] is the machine of a coordinator's Raft log: the last stable generation of each group, and
// its committed offsets. Every replica applies the same commands and holds the same bytes.
//
// [Coordinator] is what only the leader of that log has: who waits for whom, and how long yet. It is a
// step machine without clock, goroutine or lock: its owner tells it the time, brings requests and
// carries commands to the log. When the log is led elsewhere a new one is made of the State there, and
// the members go on with it.
//
// # Laws
//
//  1. What a commit or a sync was answered with is in the log: the next coordinator knows it.
//  2. A member reads what the leader of its generation gave it, and two generations never overlap: no
//     assignment is handed out before its generation is in the log, none after a rebalance began.
//  3. A commit is taken from members of the present generation alone, or from anybody while the group
//     has no members.
//  4. Only commands of the coordinator that began last are applied: one that has lost its log and does
//     not know it yet changes nothing, also if its commands come late.
//  5. Nothing waits for ever: each wait for a member ends by one of its deadlines, and every request is
//     answered exactly once.
//  6. Equal commands give equal states, byte for byte, and a snapshot restored and carried on equals
//     the full replay.
//  7. A command either changes the state and has no result, or fails and leaves it as it was.
//  8. Everything is bounded by a constant in limits.go, on encoding and on decoding alike, before
//     memory is taken for it. The state does not grow with time: old offsets and groups go, by
//     commands, and never one that was written after the decision.
//  9. An offset belongs to a topic, not to its name: one made anew under the name starts without.
//
// TestRandom_* and the conversations in testdata stand for 1 to 5, TestState_* for the rest.
package groups
