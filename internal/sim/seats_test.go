package sim

import (
	"slices"
	"time"

	"edged/partition"
	"edged/record"
)

// Schedules that chance alone hardly ever meets: what one leader had done and the next one does not know.

// seat is a partition of three or more voters that all run, and which of them leads.
type seat struct {
	part   *part
	leader *machine
	others []*machine
}

// anySeat is false if there is no such partition.
func (w *world) anySeat() (seat, bool) {
	var seats []seat
	for _, p := range w.hist.parts() {
		_, rs := w.replicas(p)
		s := seat{part: p}
		voters := 0
		for _, r := range rs {
			switch {
			case r.l.still.Load() != nil:
			case r.v.Role == partition.RoleLeader && r.v.Serving:
				s.leader, voters = r.l.m, len(r.v.Voters)
			case r.v.Role == partition.RoleFollower:
				s.others = append(s.others, r.l.m)
			}
		}
		if s.leader != nil && voters >= 3 && len(s.others) == voters-1 && !p.topic.relaxed {
			seats = append(seats, s)
		}
	}
	if len(seats) == 0 {
		return seat{}, false
	}
	return seats[w.rng.IntN(len(seats))], true
}

// watch is a reader that asks some machines in turn, for what is old: nobody has a reason to let it wait.
func (c *cursor) watch(ms []*machine, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end) && !c.w.over(); time.Sleep(5 * time.Millisecond) {
		for _, m := range ms {
			if l := m.life; l != nil {
				c.next = max(c.start, 0)
				c.fetchFrom(l, "the watching reader", 0)
			}
		}
	}
}

func (w *world) watcher(p *part) *cursor {
	return &cursor{router: newRouter(w, 7000), part: p, epoch: record.NoEpoch}
}

// slow makes the disks of some machines slow.
func slow(ms []*machine, d time.Duration) {
	for _, m := range ms {
		m.w.story.tell(m.name, "SLOW DISK: up to %v", d)
		m.disk.setSlow(d)
	}
}

// moment is a random time up to d.
func (w *world) moment(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d))) }

// hideCommit lets a leader commit, and show to a reader, what it cannot tell the others any more; then its power goes.
// The next one has the entries, does not know yet that they are committed, and takes its time to find out.
func hideCommit(w *world) {
	s, ok := w.anySeat()
	if !ok || w.cloned() {
		return
	}
	w.story.tell("script", "COMMIT HIDDEN: of %s, led by %s", s.part, s.leader.name)
	c := w.watcher(s.part)
	slow(s.others, 400*time.Millisecond)
	time.Sleep(100*time.Millisecond + w.moment(200*time.Millisecond))
	for _, m := range s.others {
		w.net.CutOneWay(s.leader.addr(), m.addr())
	}
	c.watch([]*machine{s.leader}, 500*time.Millisecond)
	if s.leader.life != nil && !w.over() {
		s.leader.powerCut(w.kept())
	}
	c.watch(s.others, 2*time.Second)
	healNetwork(w)
	healDisks(w)
}

// loneLog lets one follower have entries that nobody else has on disk: its leader's power goes before it wrote them,
// and the others never got them. It leads next, and the others take their time to write what it has.
func loneLog(w *world) {
	s, ok := w.anySeat()
	if !ok || w.cloned() {
		return
	}
	k := w.rng.IntN(len(s.others))
	lone := s.others[k]
	w.story.tell("script", "LONE LOG: of %s, led by %s, at %s", s.part, s.leader.name, lone.name)
	c := w.watcher(s.part)
	var without []*machine
	for _, m := range s.others {
		if m != lone {
			w.net.CutOneWay(s.leader.addr(), m.addr())
			without = append(without, m)
		}
	}
	s.leader.disk.stick()
	c.watch([]*machine{s.leader}, 200*time.Millisecond+w.moment(200*time.Millisecond))
	if s.leader.life == nil || w.over() {
		return
	}
	s.leader.powerCut(0)
	w.boot(s.leader)
	healNetwork(w)
	slow(append(without, s.leader), 400*time.Millisecond)
	c.watch([]*machine{lone}, 2*time.Second)
	healDisks(w)
}

// deafenLeader lets a leader hear nobody while all others hear it, so that it steps down behind their backs.
func deafenLeader(w *world) {
	s, ok := w.anySeat()
	if !ok || w.cloned() {
		return
	}
	w.story.tell("script", "DEAF: %s, which leads %s", s.leader.name, s.part)
	for _, m := range s.others {
		w.net.CutOneWay(m.addr(), s.leader.addr())
	}
	time.Sleep(time.Second + w.moment(4*time.Second))
	healNetwork(w)
	if !w.await(liveWithin, func() bool { return w.led(s.part) }) {
		w.fail(lawLive, "%s has no leader %v after its leader heard nobody", s.part, liveWithin)
	}
}

// led tells whether a partition has a leader.
func (w *world) led(p *part) bool {
	_, rs := w.replicas(p)
	return slices.ContainsFunc(rs, func(r replica) bool { return r.v.Role == partition.RoleLeader && r.v.Serving })
}
