package partition

import (
	"bytes"
	"encoding/binary"

	"edged/record"

	"go.etcd.io/raft/v3"
)

// maxConfirms bounds the questions of one group whether its leader still leads.
const maxConfirms = 1024

// confirms are questions to a majority whether this replica still leads. One is on its way at a time, for all
// that were asked before it left; those that come meanwhile wait for the next.
type confirms struct {
	round       uint64 // counts what has left
	asked, next []func(error)
}

// confirm asks a majority whether this node still leads. A leader that stood still, or was cut off, does not
// know that another one was elected; what it says of where the log ends, or that it does not know a producer,
// may be wrong for good until a majority has said that it leads at a later moment (Raft's read index).
func (c *Core) confirm(r *ConfirmRequest) {
	g := c.find(r.Group)
	if g == nil || g.damaged != nil || c.failed != nil {
		r.Done(c.whyNot(g))
		return
	}
	c.refresh(g)
	switch {
	case g.role != RoleLeader || record.Epoch(g.term) != r.Epoch:
		r.Done(c.notLeader(g))
	case len(g.confirms.asked)+len(g.confirms.next) >= maxConfirms:
		r.Done(record.ErrBusy)
	default:
		g.confirms.next = append(g.confirms.next, r.Done)
		c.askMajority(g)
	}
}

// askMajority sends the next question, if none is on its way. Raft repeats it with each heartbeat.
func (c *Core) askMajority(g *group) {
	q := &g.confirms
	if len(q.asked) > 0 || len(q.next) == 0 {
		return
	}
	q.round++
	q.asked, q.next = q.next, nil
	c.wakeGroup(g)
	c.guard(g, func() { g.rn.ReadIndex(confirmContext(q.round)) })
	c.touch(g, true)
}

// confirmContext tells the rounds apart, and them from the questions of followers (askCurrent).
func confirmContext(round uint64) []byte { return binary.BigEndian.AppendUint64([]byte("lead"), round) }

// confirmed takes what a majority has answered.
func (c *Core) confirmed(g *group, states []raft.ReadState) {
	for _, s := range states {
		if len(g.confirms.asked) > 0 && bytes.Equal(s.RequestCtx, confirmContext(g.confirms.round)) {
			asked := g.confirms.asked
			g.confirms.asked = nil
			for _, done := range asked {
				done(nil)
			}
			c.askMajority(g)
		}
	}
}

// dropConfirms answers everybody who asked a replica that leads no more.
func (c *Core) dropConfirms(g *group, err error) {
	for _, list := range [...][]func(error){g.confirms.asked, g.confirms.next} {
		for _, done := range list {
			done(err)
		}
	}
	g.confirms.asked, g.confirms.next = nil, nil
}
