package gossip

import (
	"sync/atomic"

	"github.com/hashicorp/memberlist"
)

// delegate is everything that memberlist calls. It runs under memberlist's locks and on its
// goroutines, so nothing in it blocks, and nothing it reaches leads back into memberlist.
type delegate struct {
	members *members
	leaders *leaders
	over    *atomic.Bool // this node has moved: what memberlist still says is of the old address
}

var (
	_ memberlist.Delegate         = delegate{}
	_ memberlist.EventDelegate    = delegate{}
	_ memberlist.AliveDelegate    = delegate{}
	_ memberlist.ConflictDelegate = delegate{}
)

// NodeMeta gives what we say of ourselves. memberlist panics if it is longer than its limit,
// which is maxMeta.
func (d delegate) NodeMeta(int) []byte { return d.members.self().encode() }

// NotifyMsg takes a packet of changed leaders. News is passed on.
func (d delegate) NotifyMsg(b []byte) { d.leaders.hear(b, maxDelta, retransmits(d.members.count())) }

// GetBroadcasts gives one packet of changed leaders for one receiver.
func (d delegate) GetBroadcasts(overhead, limit int) [][]byte {
	if b := d.leaders.delta(limit - overhead); b != nil {
		return [][]byte{b}
	}
	return nil
}

// LocalState gives the whole table of leaders.
func (d delegate) LocalState(bool) []byte { return d.leaders.full() }

// MergeRemoteState takes another node's whole table. It is not passed on: everybody exchanges
// full state now and then.
func (d delegate) MergeRemoteState(b []byte, _ bool) { d.leaders.hear(b, d.leaders.limit, 0) }

func (d delegate) NotifyAlive(n *memberlist.Node) error { return d.members.admit(n.Name, n.Meta) }

func (d delegate) NotifyJoin(n *memberlist.Node) {
	if !d.over.Load() {
		d.members.alive(n.Name, n.Addr, n.Port, n.Meta)
	}
}

func (d delegate) NotifyUpdate(n *memberlist.Node) { d.NotifyJoin(n) }

func (d delegate) NotifyLeave(n *memberlist.Node) {
	if !d.over.Load() {
		d.members.dead(n.Name)
	}
}

func (d delegate) NotifyConflict(ours, theirs *memberlist.Node) {
	if !d.over.Load() {
		d.members.conflict(ours.Name, ours.Address(), theirs.Address())
	}
}
