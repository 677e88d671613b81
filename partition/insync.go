package partition

import (
	"slices"

	"edged/record"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// Lag names the replicas of a group led here that are not in sync.
type Lag struct {
	Group    record.GroupID
	Replicas []record.ReplicaID
}

// syncMarks are ends of a leader's log and when they were seen. Who is in sync has reached the older one.
type syncMarks struct {
	term     uint64 // of the leader whose marks they are
	old, new syncMark
	lagging  []record.ReplicaID // replaced, never changed
}

type syncMark struct {
	index uint64
	at    Time
}

// Lagging looks which replicas of the groups led here are in sync; each group's View tells it too. Call it every few
// seconds: the time between two calls is what its answer is late by.
func (c *Core) Lagging() []Lag {
	var all []Lag
	for _, g := range c.order {
		if g.role != RoleLeader || g.damaged != nil {
			g.sync = syncMarks{}
			continue
		}
		if g.lookAtSync(c.now, c.cfg.Timing.InSync) {
			c.publish(g)
		}
		if len(g.sync.lagging) > 0 {
			all = append(all, Lag{g.id, g.sync.lagging})
		}
	}
	return all
}

// lookAtSync judges the followers of a group and tells whether the judgement is another one.
func (g *group) lookAtSync(now, within Time) (changed bool) {
	s := &g.sync
	first := s.term != g.term
	if first {
		*s = syncMarks{term: g.term, old: syncMark{g.log.last, now}, new: syncMark{g.log.last, now}, lagging: s.lagging}
	} else if g.awakeAt < 0 && len(s.lagging) == 0 && s.old.index == g.log.last {
		return false // asleep, and all have all
	}
	var lagging []record.ReplicaID
	g.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		r := record.ReplicaID(id)
		late := pr.Match < s.old.index
		if first { // the log may have grown a moment ago: who is sent entries one after the other has the benefit of the doubt
			late = late && pr.State != tracker.StateReplicate
		}
		if r != g.replica && late {
			lagging = append(lagging, r)
		}
	})
	if now-s.new.at >= within {
		s.old, s.new = s.new, syncMark{g.log.last, now}
	}
	slices.Sort(lagging)
	if slices.Equal(lagging, s.lagging) {
		return false
	}
	s.lagging = lagging
	return true
}
