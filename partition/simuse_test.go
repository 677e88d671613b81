package partition

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"edged/record"
)

// What tests do with a sim: groups, leaders, producers.

// replica names the replica that node i holds of a group, of the first attempt.
func (s *sim) replica(i int, g record.GroupID) record.ReplicaID {
	return record.MakeReplicaID(s.nodes[i].id, uint32(g))
}

func (s *sim) replicas(g record.GroupID, nodes ...int) []record.ReplicaID {
	var rs []record.ReplicaID
	for _, i := range nodes {
		rs = append(rs, s.replica(i, g))
	}
	return rs
}

// create makes a group on the first rf nodes.
func (s *sim) create(g record.GroupID, rf int) *Assignment {
	var nodes []int
	for i := range rf {
		nodes = append(nodes, i)
	}
	rs := s.replicas(g, nodes...)
	a := &Assignment{Group: g, Voters: rs, Initial: rs, MaxBatch: 1 << 20}
	if s.machine != nil {
		a.Machine = GroupsLog
	}
	s.assign(a)
	return a
}

// assign tells every node what a group should be, now and at each of their starts.
func (s *sim) assign(a *Assignment) {
	s.assigned = slices.DeleteFunc(s.assigned, func(o *Assignment) bool { return o.Group == a.Group })
	s.assigned = append(s.assigned, a)
	for i := range s.nodes {
		c := *a
		s.step(i, &c)
		s.flush(i)
	}
}

// reassign changes the voters of a group and keeps the rest of its assignment.
func (s *sim) reassign(g record.GroupID, voters ...record.ReplicaID) {
	i := slices.IndexFunc(s.assigned, func(a *Assignment) bool { return a.Group == g })
	a := *s.assigned[i]
	for _, r := range a.Voters {
		if !slices.Contains(voters, r) {
			s.removing = append(s.removing, r)
		}
	}
	s.removing = slices.DeleteFunc(s.removing, func(r record.ReplicaID) bool { return slices.Contains(voters, r) })
	a.Voters = voters
	s.log("group %d is to have voters %v", g, voters)
	s.assign(&a)
}

func (s *sim) group(i int, g record.GroupID) *group {
	if s.nodes[i].core == nil {
		return nil
	}
	return s.nodes[i].core.find(g)
}

// leader is the index of the node that leads a group and knows that it may serve, -1 if none.
func (s *sim) leader(g record.GroupID) int {
	best, epoch := -1, record.Epoch(-1)
	for i, n := range s.nodes {
		if n.up && !n.paused {
			if v := s.parts[[2]int64{int64(n.id), int64(g)}]; v != nil && v.View().Role == RoleLeader && v.View().Serving && v.View().Epoch > epoch {
				best, epoch = i, v.View().Epoch
			}
		}
	}
	return best
}

func (s *sim) led(groups ...record.GroupID) func() bool {
	return func() bool {
		return !slices.ContainsFunc(groups, func(g record.GroupID) bool { return s.leader(g) < 0 })
	}
}

// has tells that a group's leader is in a configuration of exactly these voters and no learners.
func (s *sim) has(g record.GroupID, voters ...record.ReplicaID) func() bool {
	return func() bool {
		l := s.leader(g)
		if l < 0 {
			return false
		}
		conf := s.group(l, g).conf
		return len(conf.VotersOutgoing)+len(conf.Learners)+len(conf.LearnersNext) == 0 && sameSet(conf.Voters, voters)
	}
}

func groupIDs(n int) []record.GroupID {
	var ids []record.GroupID
	for g := range n {
		ids = append(ids, record.GroupID(g+1))
	}
	return ids
}

func (s *sim) batch(r *simRecord) record.Batch {
	b := record.NewBuilder(record.None, 1<<20)
	b.Append(1000, s.key, []byte(r.value), nil)
	if r.pid >= 0 {
		b.SetProducer(r.pid, 0, r.seq)
	}
	return b.Build()
}

// produce sends one record to a node and remembers what became of it.
func (s *sim) produce(node int, r *simRecord) {
	r.done, r.sent = false, true
	if r.sentAt == 0 {
		r.sentAt = s.now
	}
	n := s.nodes[node]
	boot := n.boot
	s.step(node, &ProduceRequest{Group: r.group, Batch: s.batch(r), Acks: r.acks, Epoch: record.NoEpoch, Done: func(res ProduceResult) {
		r.done, r.err = true, res.Err
		if n.boot != boot {
			s.fail("an answer from an earlier life")
		}
		var nl *record.NotLeaderError
		if errors.As(res.Err, &nl) && nl.Leader == n.id {
			s.fail("node %d sends a producer to itself", n.id)
		}
		if res.Err != nil {
			return
		}
		if r.acked && r.offset != res.BaseOffset && r.acks == AcksAll {
			s.fail("record %s was answered with offset %d and then %d", r.value, r.offset, res.BaseOffset)
		}
		r.acked, r.offset, r.ackedAt = true, res.BaseOffset, s.now
		s.laws.acked(node, r)
	}})
	s.flush(node)
}

func (s *sim) newRecord(g record.GroupID, acks Acks) *simRecord {
	s.nextValue++
	r := &simRecord{group: g, value: "v" + strconv.Itoa(s.nextValue), acks: acks, pid: -1}
	s.produced = append(s.produced, r)
	return r
}

// put produces n records to the leader of a group and waits until they are acknowledged.
func (s *sim) put(g record.GroupID, n int) []*simRecord {
	s.t.Helper()
	var rs []*simRecord
	for range n {
		rs = append(rs, s.newRecord(g, AcksAll))
	}
	s.await("all records acknowledged", 20*time.Second, func() bool {
		l := s.leader(g)
		waiting := false
		for _, r := range rs {
			if waiting = waiting || !r.acked; l >= 0 && !r.acked && (!r.sent || r.done) {
				s.produce(l, r)
			}
		}
		return !waiting
	})
	return rs
}

func (s *sim) byValue(v string) *simRecord {
	i, _ := strconv.Atoi(v[1:])
	return s.produced[i-1]
}

// settled tells that all members of the groups that are up agree with their leader.
func (s *sim) settled(groups ...record.GroupID) func() bool {
	return func() bool {
		for _, g := range groups {
			l := s.leader(g)
			if l < 0 {
				return false
			}
			lg := s.group(l, g)
			members := lg.members()
			for i, n := range s.nodes {
				cg := s.group(i, g)
				if n.up && cg != nil && slices.Contains(members, cg.replica) &&
					(len(n.disk) > 0 || cg.log.last != lg.log.last || cg.high != lg.high || cg.lead != lg.replica || cg.applied != lg.applied) {
					return false
				}
			}
		}
		return true
	}
}

// truncate moves the log start of a group to somewhere below its high watermark.
func (s *sim) truncate(g record.GroupID) {
	l := s.leader(g)
	if l < 0 {
		return
	}
	cg := s.group(l, g)
	mg := s.nodes[l].store.groups[g]
	if mg == nil {
		return
	}
	for _, e := range mg.entries {
		if e.Count > 0 && e.Index+10 < cg.committed && s.rng.IntN(20) == 0 {
			s.log("log start of group %d to %d", g, e.BaseOffset)
			s.step(l, &LogStartRequest{Group: g, Index: e.Index, Base: e.BaseOffset, Offset: e.BaseOffset,
				Force: s.rng.IntN(2) == 0, Done: func(error) {}})
			s.flush(l)
			return
		}
	}
}

// transfer moves a group's leadership to whoever is best.
func (s *sim) transfer(g record.GroupID) {
	if l := s.leader(g); l >= 0 {
		s.step(l, &TransferRequest{Group: g, To: record.NoNode, Done: func(error) {}})
		s.flush(l)
	}
}
