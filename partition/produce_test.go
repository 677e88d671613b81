package partition

import (
	"errors"
	"testing"
	"time"

	"edged/record"
)

func (s *sim) idempotent(g record.GroupID, pid int64, seq int32) *simRecord {
	r := s.newRecord(g, AcksAll)
	r.pid, r.seq = pid, seq
	return r
}

func TestProduce_acksSayWhatTheyBought(t *testing.T) {
	s := newSim(t, 1, 3)
	s.ready(1)
	s.put(1, 1)
	l := s.leader(1)
	for i := range 3 {
		s.nodes[i].slow = time.Second
	}
	s.nodes[l].slow = 100 * time.Millisecond
	none, one, all := s.newRecord(1, AcksNone), s.newRecord(1, AcksOne), s.newRecord(1, AcksAll)
	for _, r := range []*simRecord{none, one, all} {
		s.produce(l, r)
	}
	if !none.acked || one.done || all.done {
		t.Fatalf("at once: acks=0 %v, acks=1 %v, acks=all %v", none.acked, one.done, all.done)
	}
	s.run(250 * time.Millisecond) // two commits
	if !one.acked || all.done {
		t.Fatalf("when the leader's disk has it: acks=1 %v, acks=all %v", one.acked, all.done)
	}
	s.run(2 * time.Second)
	if !all.acked {
		t.Fatal("when a majority has it: acks=all is not answered")
	}
	if none.offset != 1 || one.offset != 2 || all.offset != 3 {
		t.Errorf("offsets %d %d %d", none.offset, one.offset, all.offset)
	}
}

// The leader's own disk is not needed for a majority.
func TestProduce_leaderWithASlowDiskAnswersWhenTheOthersHaveIt(t *testing.T) {
	s := newSim(t, 2, 3)
	s.ready(1)
	s.put(1, 1)
	l := s.leader(1)
	s.nodes[l].slow = 900 * time.Millisecond
	r := s.newRecord(1, AcksAll)
	s.produce(l, r)
	s.run(50 * time.Millisecond)
	p := s.parts[[2]int64{int64(s.nodes[l].id), 1}]
	if !r.acked || p.HighWatermark() != 2 || p.Readable() != 1 {
		t.Errorf("acked %v, high watermark %d, readable %d", r.acked, p.HighWatermark(), p.Readable())
	}
	s.run(time.Second)
	if p.Readable() != 2 {
		t.Errorf("readable %d when the disk has it", p.Readable())
	}
}

func TestProduce_stalledDiskGivesLeadershipAway(t *testing.T) {
	s := newSim(t, 3, 3)
	s.ready(3)
	s.put(1, 1)
	l := s.leader(1)
	s.nodes[l].slow = time.Minute
	s.produce(l, s.newRecord(1, AcksAll))
	s.await("another leader", s.timing.DiskStalled+time.Second, func() bool { now := s.leader(1); return now >= 0 && now != l })
	s.put(1, 3)
}

// All nodes had a slow commit last and nothing to write since: one of them leads all the same.
func TestProduce_slowDisksDoNotForbidElectionsForEver(t *testing.T) {
	s := newSim(t, 4, 3)
	s.ready(1)
	for i := range 3 {
		s.nodes[i].slow = 1500 * time.Millisecond
	}
	s.put(1, 1)
	s.run(5 * time.Second)
	s.crash(s.leader(1), true)
	s.await("another leader", 20*time.Second, s.led(1))
}

// Elections end although every vote takes longer to save than a campaign waits at first.
func TestProduce_votesThatTakeSecondsStillElect(t *testing.T) {
	s := newSim(t, 5, 3)
	s.ready(1)
	s.put(1, 1)
	for i := range 3 {
		s.nodes[i].slow = 2500 * time.Millisecond
	}
	s.crash(s.leader(1), true)
	s.await("another leader", 30*time.Second, s.led(1))
	if n := s.group(s.leader(1), 1).term; n > 5 {
		t.Errorf("the epoch is %d after one election", n)
	}
}

func TestProduce_duplicateGetsTheFirstOffset(t *testing.T) {
	s := newSim(t, 6, 3)
	s.ready(1)
	l := s.leader(1)
	a, again := s.idempotent(1, 7, 0), s.idempotent(1, 7, 0)
	again.value = a.value
	s.produce(l, a)
	s.produce(l, again) // while the first is on its way
	if a.done || again.done {
		t.Fatal("answered before the commit")
	}
	s.await("both answered", time.Second, func() bool { return a.acked && again.acked })
	if a.offset != again.offset {
		t.Errorf("offsets %d and %d", a.offset, again.offset)
	}
	s.produce(l, again) // and after it
	if !again.done || again.offset != a.offset {
		t.Errorf("answered %v with offset %d", again.done, again.offset)
	}
	gap := s.idempotent(1, 7, 5)
	s.produce(l, gap)
	if !errors.Is(gap.err, record.ErrOutOfOrder) {
		t.Errorf("a gap in the sequence gave %v", gap.err)
	}
	unknown := s.idempotent(1, 8, 3)
	s.produce(l, unknown)
	if !errors.Is(unknown.err, record.ErrUnknownProducer) {
		t.Errorf("an unknown producer gave %v", unknown.err)
	}
}

// A retried batch of which only a part is in the log must not be answered as if all of it was: clients take
// a duplicate for success.
func TestProducers_onlyWhatIsAllInTheLogIsADuplicate(t *testing.T) {
	p := &producer{}
	for i := range int32(7) {
		p.add(0, appended{first: 3 * i, last: 3*i + 2, base: record.Offset(3 * i)})
	}
	for _, x := range []struct {
		first, last int32
		want        error
	}{
		{0, 2, record.ErrDuplicateSequence},   // forgotten as a batch
		{1, 19, record.ErrDuplicateSequence},  // cut in another way
		{18, 19, record.ErrDuplicateSequence}, // a part of the last one
		{18, 21, record.ErrOutOfOrder},        // one record more than the last one
		{20, 22, record.ErrOutOfOrder},
		{0, 30, record.ErrOutOfOrder},
		{22, 24, record.ErrOutOfOrder},
	} {
		if _, fresh, err := p.check(stamp{app: appended{first: x.first, last: x.last}}, false); fresh || !errors.Is(err, x.want) {
			t.Errorf("%d to %d: %v, %v, want %v", x.first, x.last, fresh, err, x.want)
		}
	}
	if base, fresh, err := p.check(stamp{app: appended{first: 18, last: 20}}, false); base != 18 || fresh || err != nil {
		t.Errorf("the last one: %d, %v, %v", base, fresh, err)
	}
	if _, fresh, err := p.check(stamp{app: appended{first: 21, last: 23}}, false); !fresh || err != nil {
		t.Errorf("the next one: %v, %v", fresh, err)
	}
}

// A producer that is not known may begin anywhere if nothing speaks against it. What it had sent before that
// is not known to be in the log, so it is no duplicate; and that is not forgotten with a snapshot.
func TestProducers_joinInTheMiddle(t *testing.T) {
	seven := stamp{id: 1, app: appended{first: 7, last: 9}}
	if _, _, err := (*producer)(nil).check(seven, false); !errors.Is(err, record.ErrUnknownProducer) {
		t.Errorf("it may not: %v", err)
	}
	if _, fresh, err := (*producer)(nil).check(seven, true); !fresh || err != nil {
		t.Errorf("it may: %v, %v", fresh, err)
	}
	table := newProducers(3)
	table.apply(seven)
	table.apply(stamp{id: 2, app: appended{first: 0, last: 9, base: 3}})
	again := newProducers(3)
	if err := again.restore(table.snapshot()); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*producer{table.table[1], again.table[1]} {
		if _, fresh, err := p.check(stamp{id: 1, app: appended{first: 4, last: 6}}, true); fresh || !errors.Is(err, record.ErrOutOfOrder) {
			t.Errorf("what came before: %v, %v", fresh, err)
		}
		if base, fresh, err := p.check(seven, true); base != 0 || fresh || err != nil {
			t.Errorf("the first again: %d, %v, %v", base, fresh, err)
		}
	}
	again.apply(stamp{id: 1, epoch: 1, app: appended{first: 0, last: 5, base: 13}})
	if _, _, err := again.table[1].check(stamp{id: 1, epoch: 1, app: appended{first: 2, last: 3}}, true); !errors.Is(err, record.ErrDuplicateSequence) {
		t.Errorf("a new epoch begins at 0: %v", err)
	}
	if _, _, err := again.table[2].check(stamp{id: 2, app: appended{first: 2, last: 3}}, true); !errors.Is(err, record.ErrDuplicateSequence) {
		t.Errorf("one that began at 0: %v", err)
	}
}

// A producer is forgotten for others that wrote after it, so many as the table holds, and for nothing else: not
// with time, and not with its records. A batch of its that is sent again is in the log once until then.
func TestProducers_areForgottenForOthersOnly(t *testing.T) {
	const held = 4
	table := newProducers(held)
	first := stamp{id: 1, app: appended{first: 0, last: 9, base: 0}}
	table.apply(first)
	for i := range int64(held - 1) {
		table.apply(stamp{id: 2 + i, app: appended{base: 1000 * record.Offset(1+i)}})
		if base, fresh, err := table.table[1].check(first, true); fresh || base != 0 || err != nil {
			t.Fatalf("behind %d others: base %d, fresh %v, %v", i+1, base, fresh, err)
		}
	}
	table.apply(stamp{id: 1, app: appended{first: 10, last: 19, base: 9000}}) // it is the newest again
	table.apply(stamp{id: 99, app: appended{base: 9100}})
	if base, fresh, err := table.table[1].check(first, true); fresh || base != 0 || err != nil {
		t.Errorf("another one was the oldest: base %d, fresh %v, %v", base, fresh, err)
	}
	for i := range int64(held) {
		table.apply(stamp{id: 100 + i, app: appended{base: 10_000 + record.Offset(i)}})
	}
	if _, fresh, err := table.table[1].check(first, true); !fresh || err != nil {
		t.Errorf("as many others as the table holds have written: fresh %v, %v", fresh, err)
	}
	if DefaultLimits().Producers != 1024 {
		t.Error("docs/kafka.md says how many are remembered")
	}
}

// A batch that Raft refuses is in no log: its duplicate of the same turn must not be answered as
// if it was.
func TestProduce_duplicateOfARefusedBatchIsNotAnsweredAsDone(t *testing.T) {
	s := newSim(t, 7, 3)
	s.ready(1)
	s.put(1, 1)
	l := s.leader(1)
	c, g := s.nodes[l].core, s.group(l, 1)
	g.rn.TransferLeader(uint64(s.replica((l+1)%3, 1))) // behind the Core's back: it does not hold
	var results []ProduceResult
	for range 2 {
		r := s.idempotent(1, 7, 0)
		r.value = "v1"
		c.Step(s.now, &ProduceRequest{Group: 1, Batch: s.batch(r), Acks: AcksAll, Epoch: record.NoEpoch,
			Done: func(res ProduceResult) { results = append(results, res) }})
	}
	s.flush(l)
	for _, res := range results {
		if res.Err == nil {
			t.Errorf("answered with offset %d; the log ends at %d", res.BaseOffset, g.next)
		}
	}
	if len(results) != 2 || g.proposed != g.next || len(g.overlay) != 0 {
		t.Errorf("%d answers, next %d, proposed %d, %d producers in the overlay", len(results), g.next, g.proposed, len(g.overlay))
	}
}

// A retry that meets a new leader, which has the batch and has not committed it, is answered when it is.
func TestProduce_duplicateOfAnEarlierEpochIsAnsweredAtItsCommit(t *testing.T) {
	eachSeed(t, 8, func(t *testing.T, seed uint64) {
		s := newSim(t, seed, 3)
		s.ready(1)
		s.put(1, 1)
		l := s.leader(1)
		s.nodes[l].slow = time.Second // no answer of its own: the batch is not committed while it lives
		other := (l + 2) % 3
		s.cut[[2]int{l, other}] = true
		r := s.idempotent(1, 7, 0)
		s.produce(l, r)
		f := (l + 1) % 3
		s.await("a follower has it", time.Second, func() bool {
			return s.group(f, 1).log.durable == s.group(l, 1).log.last
		})
		s.crash(l, true)
		for _, i := range []int{f, other} {
			s.nodes[i].slow = 50 * time.Millisecond // the new leader's first entry takes its time
		}
		s.await("another leader, not serving yet", 2*time.Second, func() bool {
			g := s.group(f, 1)
			return g.role == RoleLeader && !g.serving && g.committed < g.log.last
		})
		s.produce(f, r)
		s.await("answered", time.Second, func() bool { return r.done })
		if r.err != nil {
			t.Errorf("the retry gave %v", r.err)
		}
		clear(s.cut)
		s.finish(groupIDs(1))
	})
}

// Produces that wait for an election are taken in the order in which they came, and before what
// comes later: a producer's sequence does not overtake itself.
func TestProduce_heldRequestsKeepTheirOrder(t *testing.T) {
	s := newSim(t, 9, 3)
	s.ready(1)
	s.put(1, 1)
	l := s.leader(1)
	s.crash(l, true)
	s.run(time.Millisecond)
	var rs []*simRecord
	to := (l + 1) % 3
	for seq := range int32(60) {
		r := s.idempotent(1, 7, seq)
		s.produce(to, r)
		rs = append(rs, r)
		s.run(time.Millisecond)
	}
	s.await("all answered", time.Second, func() bool {
		for _, r := range rs {
			if !r.done {
				return false
			}
		}
		return true
	})
	for i, r := range rs {
		if s.leader(1) == to && r.err != nil {
			t.Fatalf("sequence %d: %v", i, r.err)
		}
		if r.err != nil && record.Code(r.err) != record.CodeNotLeader {
			t.Fatalf("sequence %d: %v", i, r.err)
		}
	}
}

func TestProduce_heldRequestIsSentBackAfterItsTime(t *testing.T) {
	s := newSim(t, 10, 3)
	s.ready(1)
	l := s.leader(1)
	for i := range 3 {
		s.nodes[i].slow = 5 * time.Second // the election takes long
	}
	s.crash(l, true)
	s.run(10 * time.Millisecond)
	r := s.newRecord(1, AcksAll)
	s.produce((l+1)%3, r)
	if r.done {
		t.Fatalf("not held: %v", r.err)
	}
	s.run(s.timing.Hold + 5*time.Millisecond)
	var nl *record.NotLeaderError
	if !errors.As(r.err, &nl) || nl.Leader != record.NoNode {
		t.Errorf("after %v: done %v, %v", s.timing.Hold, r.done, r.err)
	}
}

func TestProduce_followerNamesTheLeader(t *testing.T) {
	s := newSim(t, 11, 3)
	s.ready(1)
	s.put(1, 1)
	s.await("all know", time.Second, s.settled(1))
	l := s.leader(1)
	r := s.newRecord(1, AcksAll)
	s.produce((l+1)%3, r)
	var nl *record.NotLeaderError
	if !errors.As(r.err, &nl) || nl.Leader != s.nodes[l].id || nl.Epoch != record.Epoch(s.group(l, 1).term) {
		t.Errorf("the answer was %v", r.err)
	}
}

// A producer whose five batches are more than a partition takes at a time waits for room: were one of
// them refused, the ones behind it would be out of order.
func TestProduce_pipelineLargerThanThePartitionTakesIsHeldInOrder(t *testing.T) {
	s := newSim(t, 13, 3, func(s *sim) { s.limits.Uncommitted = 100 })
	s.ready(1)
	const pipeline = 5
	for round := range 20 {
		var rs []*simRecord
		for i := range pipeline {
			r := s.newRecord(1, AcksAll)
			r.pid, r.seq = 7, int32(round*pipeline+i)
			s.produce(s.leader(1), r)
			rs = append(rs, r)
		}
		s.run(200 * time.Millisecond)
		for i, r := range rs {
			if !r.acked || i > 0 && r.offset != rs[i-1].offset+1 {
				t.Fatalf("round %d, batch %d: acknowledged %v at %d, %v", round, i, r.acked, r.offset, r.err)
			}
		}
	}
	if s.nodes[s.leader(1)].core.Status().Stats.Held == 0 {
		t.Error("nothing had to wait")
	}
	s.finish([]record.GroupID{1})
}

// What waits for room does not wait for ever.
func TestProduce_waitForRoomEnds(t *testing.T) {
	s := newSim(t, 14, 3, func(s *sim) { s.limits.Uncommitted, s.timing.HoldFull = 100, 300*time.Millisecond })
	s.ready(1)
	l := s.leader(1)
	for i := range s.nodes { // nothing is committed any more, and the leader does not know why
		if i != l {
			s.pause(i)
		}
	}
	var rs []*simRecord
	for range 4 {
		r := s.newRecord(1, AcksAll)
		s.produce(l, r)
		rs = append(rs, r)
	}
	s.run(s.timing.HoldFull + 5*time.Millisecond)
	if last := rs[3]; !errors.Is(last.err, record.ErrBusy) {
		t.Errorf("after %v: %v", s.timing.HoldFull, last.err)
	}
	for i := range s.nodes {
		if i != l {
			s.resume(i)
		}
	}
	s.finish([]record.GroupID{1})
}

// Whatever is refused for want of room, offsets stay dense and everybody is answered.
func TestProduce_boundsRefuseWithoutHoles(t *testing.T) {
	s := newSim(t, 12, 3, func(s *sim) {
		s.limits.Uncommitted, s.limits.Produce, s.limits.SaveQueue = 2000, 6000, 4000
	})
	s.ready(2)
	var rs []*simRecord
	for range 50 {
		for g := range record.GroupID(2) {
			for range 30 {
				r := s.newRecord(g+1, AcksAll)
				s.step(max(s.leader(g+1), 0), &ProduceRequest{Group: g + 1, Batch: s.batch(r), Acks: AcksAll, Epoch: record.NoEpoch,
					Done: func(res ProduceResult) {
						r.done, r.err, r.acked, r.offset = true, res.Err, res.Err == nil, res.BaseOffset
					}})
				rs = append(rs, r)
			}
		}
		for i := range s.nodes {
			s.flush(i)
		}
		s.run(2 * time.Millisecond)
	}
	s.run(time.Second)
	busy, acked := 0, 0
	for _, r := range rs {
		switch {
		case !r.done:
			t.Fatal("a request was never answered")
		case r.acked:
			acked++
		case errors.Is(r.err, record.ErrBusy):
			busy++
		default:
			t.Fatalf("answered %v", r.err)
		}
	}
	if busy == 0 || acked < 100 {
		t.Errorf("%d acknowledged, %d refused", acked, busy)
	}
	s.finish(groupIDs(2))
}

func TestProduce_transfersUnderLoadLoseNothingAndHoldShortly(t *testing.T) {
	s := newSim(t, 13, 3, func(s *sim) { s.maxDisk = 20 * time.Millisecond })
	s.ready(1)
	s.put(1, 1)
	clients := []*simClient{{group: 1, acks: AcksAll, pid: 100, window: 4}, {group: 1, acks: AcksAll, pid: 101, window: 1}}
	for round := range 300 {
		for _, c := range clients {
			c.turn(s)
		}
		if round%15 == 0 {
			s.transfer(1)
		}
		s.run(5 * time.Millisecond)
	}
	s.finish(groupIDs(1))
	worst := Time(0)
	for _, r := range s.produced {
		if r.acked {
			worst = max(worst, r.ackedAt-r.sentAt)
		}
	}
	if worst > 200*time.Millisecond {
		t.Errorf("a record took %v", worst)
	}
	if n := s.nodes[0].core.stats.LeaderChanges; n < 20 {
		t.Errorf("%d changes of leader in 20 transfers", n)
	}
}

func TestProduce_batchOfAnotherEpochIsFenced(t *testing.T) {
	s := newSim(t, 14, 1)
	s.ready(1)
	now := record.Epoch(s.group(0, 1).term)
	for epoch, want := range map[record.Epoch]error{now - 1: record.ErrFencedEpoch, now + 1: record.ErrUnknownEpoch, now: nil, record.NoEpoch: nil} {
		var res ProduceResult
		s.step(0, &ProduceRequest{Group: 1, Batch: s.batch(s.newRecord(1, AcksAll)), Acks: AcksAll, Epoch: epoch, Done: func(r ProduceResult) { res = r }})
		s.flush(0)
		s.run(20 * time.Millisecond)
		if !errors.Is(res.Err, want) {
			t.Errorf("epoch %d in epoch %d: %v", epoch, now, res.Err)
		}
	}
}

func TestProduce_logStartThatDoesNotFitTheLogIsRefused(t *testing.T) {
	s := newSim(t, 15, 1)
	s.ready(1)
	s.put(1, 20)
	g := s.group(0, 1)
	var at uint64 // the entry of offset 5
	for _, e := range s.nodes[0].store.groups[1].entries {
		if e.Count > 0 && e.BaseOffset == 5 {
			at = e.Index
		}
	}
	ask := func(index uint64, base, offset record.Offset) (err error) {
		s.step(0, &LogStartRequest{Group: 1, Index: index, Base: base, Offset: offset, Done: func(e error) { err = e }})
		s.flush(0)
		s.run(50 * time.Millisecond)
		return err
	}
	for _, bad := range []struct {
		index        uint64
		base, offset record.Offset
	}{{at, 4, 5}, {at, 5, 6}, {at + 1, 5, 5}, {at - 1, 5, 5}, {g.committed + 2, 20, 20}, {g.committed + 1, 19, 19}} {
		if err := ask(bad.index, bad.base, bad.offset); err == nil {
			t.Errorf("entry %d base %d offset %d was taken", bad.index, bad.base, bad.offset)
		}
	}
	if err := ask(at, 5, 5); err != nil || g.logStart != 5 || g.log.base.Index != at-1 {
		t.Errorf("log start %d, base %d: %v", g.logStart, g.log.base.Index, err)
	}
	// All of it goes, and the offsets go on; without traffic that is on disk at once.
	if err := ask(g.committed+1, 20, 20); err != nil || g.logStart != 20 {
		t.Errorf("log start %d: %v", g.logStart, err)
	}
	if b := s.nodes[0].store.groups[1].state.Base; b.LogStart != 20 || b.NextOffset != 20 {
		t.Errorf("base on disk %+v", b)
	}
	s.crash(0, true)
	s.boot(0)
	if r := s.put(1, 1)[0]; r.offset != 20 {
		t.Errorf("the next record got offset %d", r.offset)
	}
}

// What no replica could store never gets into the log: it would take all of them out of service.
func TestProduce_batchThatCannotBeStoredIsRefused(t *testing.T) {
	s := newSim(t, 16, 1)
	s.ready(1)
	whole := s.batch(s.newRecord(1, AcksAll))
	short := whole[:20]
	spans := append(record.Batch(nil), whole...)
	copy(spans[23:], []byte{0x7f, 0xff, 0xff, 0xff}) // last offset delta: its span overflows
	empty := append(record.Batch(nil), whole...)
	copy(empty[57:], []byte{0, 0, 0, 0}) // record count
	for name, b := range map[string]record.Batch{"short": short, "none": nil, "span": spans, "count": empty, "large": make(record.Batch, maxEntry+1)} {
		var res ProduceResult
		s.step(0, &ProduceRequest{Group: 1, Batch: b, Acks: AcksAll, Epoch: record.NoEpoch, Done: func(r ProduceResult) { res = r }})
		s.flush(0)
		if !errors.Is(res.Err, record.ErrCorrupt) && !errors.Is(res.Err, record.ErrTooLarge) {
			t.Errorf("%s: %v", name, res.Err)
		}
	}
	s.put(1, 1)
}
