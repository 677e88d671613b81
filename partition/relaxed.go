package partition

import (
	"slices"

	"edged/record"
	"edged/storage"

	pb "go.etcd.io/raft/v3/raftpb"
)

// Relaxed groups (topic setting durability=relaxed) confirm entries before the fsync. A power cut can
// take from a replica what it has confirmed, and Raft knows no such member. What is promised: a
// record that was acknowledged stays while one replica that has it keeps running, is not cut off,
// and the others hear it when they elect. What is kept in any case: replicas come to agree, and
// offsets stay dense. The price is a higher watermark that can go back, and an election whenever
// a node comes back from a power cut. Its parts:
//
//   - distrust: such a replica comes back in a new term, so that no leader goes on believing what it
//     had confirmed;
//   - longest: a candidate waits for the answer of every live voter, and yields to one that has more;
//   - startOver: a replica that finds another leader's entries where it had committed ones, or where
//     its base record's state knows others, gives its log up and is filled anew.
//
// A base record's state is ahead of the log that it begins. If a power cut takes the entries between from
// all, this replica alone has a log start and producers that nobody else knows: startAnew is for
// such a replica as a leader.

// distrust is for a replica that answered before its fsync and was then cut off: entries that it
// confirmed may be gone. A new term makes the leader forget what it believes this replica
// has; Raft allows a member to be in any later term.
func (c *Core) distrust(g *group) {
	g.log.hs = storage.HardState{Term: g.log.hs.Term + 1}
	g.term = g.log.hs.Term
	hs := g.log.hs
	s := Save{Sync: true, Update: c.update(g)}
	s.Update.HardState = &hs
	c.pushSave(g, s)
}

// poll gathers the answers to a pre-vote.
type poll struct {
	term     uint64 // that would be campaigned in
	until    Time   // the last moment that answers are waited for
	answered []record.ReplicaID
	grants   []*pb.Message
	refused  bool // a voter has more
}

// longest takes an answer to a pre-vote and tells whether Raft may have it now. Where every
// confirmed entry is on a majority of disks any majority will do; here the one live voter that still
// has an entry has to be heard.
func (c *Core) longest(g *group, m *pb.Message) bool {
	p := &g.poll
	if !g.relaxed() || p.until == 0 || !m.GetReject() && m.GetTerm() != p.term {
		return true
	}
	from := record.ReplicaID(m.GetFrom())
	if !slices.Contains(p.answered, from) {
		p.answered = append(p.answered, from)
	}
	if m.GetReject() {
		p.refused, p.grants = true, nil
		return true
	}
	if p.refused {
		return false
	}
	p.grants, c.stirred = append(p.grants, m), true
	for _, v := range g.conf.Voters {
		if v != g.replica && c.live(v.Node()) && !slices.Contains(p.answered, v) {
			return false
		}
	}
	c.endPoll(g)
	return false
}

// endPoll gives Raft the grants that were held back.
func (c *Core) endPoll(g *group) {
	grants := g.poll.grants
	g.poll = poll{}
	for _, m := range grants {
		c.step(g, m)
	}
}

// startOver gives up the log of a replica in which entries were committed that the leader does not
// have. Its id stays: it is empty, in a term in which it has confirmed nothing.
func (c *Core) startOver(g *group, why error) {
	c.log.Warn("records that were confirmed without an fsync are lost; the replica is filled anew",
		"group", g.id, "offsets_to", g.next, "why", why)
	c.empty(g, storage.HardState{Term: g.term + 1}, nil)
}

// startAnew lets a leader whose state is ahead of its log put its own log start first, and with it an empty
// producer table: a producer would be told that a record is there twice which is not there at all.
func (c *Core) startAnew(g *group) {
	if g.stateTerm == 0 || g.log.last >= g.stateIndex {
		return
	}
	c.log.Warn("entries that were confirmed without an fsync are lost; the partition's producers begin anew", "group", g.id, "entries_to", g.stateIndex, "log_to", g.log.last)
	c.forgetProducers(g, g.log.last)
	c.writeCheckpoint(g, false)
	b := g.log.base
	data := logStart{keep: b.Index + 1, base: b.NextOffset, offset: g.logStart, anew: true}.encode()
	c.enqueue(g, proposal{data: data, kind: storage.KindControl, stamp: stamp{id: -1}})
}

// forgetProducers empties the producer table as of an entry.
func (c *Core) forgetProducers(g *group, index uint64) {
	g.table = newProducers(c.cfg.Limits.Producers)
	g.stateIndex, g.stateTerm = index, 0
	g.rebuildTail(g.tail)
}
