package partition

import (
	"bytes"
	"encoding/binary"

	"edged/record"

	"go.etcd.io/raft/v3"
)

// current is how far this node's copy of the metadata must have come before it may say which
// replicas are to be made here. After a restart the copy is older than what this node has done
// itself: it may still name a replica that was removed, and a removed replica that is made again,
// empty, is a voter that has forgotten everything. The index is asked of the metadata's leader,
// once in a life, and confirmed by a majority. Until it is known no replica is made here, so a question
// that was lost is repeated soon.
type current struct {
	known bool
	index uint64
	asked Time
}

// askCurrent is called when the metadata group has settled.
func (c *Core) askCurrent(g *group) {
	switch {
	case c.current.known || g.id != record.MetadataGroup:
	case g.role == RoleLeader && g.serving:
		c.current = current{known: true, index: g.committed}
	case g.role == RoleFollower && g.lead != 0 && (c.current.asked == 0 || c.now >= c.current.asked+c.cfg.Timing.Tick):
		c.current.asked = c.now
		c.guard(g, func() { g.rn.ReadIndex(c.currentContext()) })
		c.touch(g, true)
	}
}

// currentContext tells the question from those of confirm.
func (c *Core) currentContext() []byte { return binary.BigEndian.AppendUint64(nil, uint64(c.cfg.Boot)) }

// readStates takes the answers to ReadIndex.
func (c *Core) readStates(g *group, states []raft.ReadState) {
	c.confirmed(g, states)
	for _, s := range states {
		if g.id == record.MetadataGroup && !c.current.known && bytes.Equal(s.RequestCtx, c.currentContext()) {
			c.current = current{known: true, index: s.Index}
		}
	}
}

// mayMake tells whether an assignment is recent enough to make a replica by.
func (c *Core) mayMake(a *Assignment) bool {
	return a.AsOf == 0 || c.current.known && a.AsOf >= c.current.index
}
