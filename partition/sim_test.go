package partition

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/cryptotest"
	"time"

	"edged/record"
	"edged/storage"
)

// sim is a cluster of Cores under virtual time, with a network and disks that misbehave. It
// has no goroutine: a seed reproduces a run exactly.
type sim struct {
	t     testing.TB
	rng   *rand.Rand
	now   Time
	nodes []*simNode
	net   []simFrame
	// what may go wrong
	drop, dup float64
	maxDelay  Time
	maxDisk   Time
	cut       map[[2]int]bool // one-way
	story     []string
	leaders   map[record.GroupID]map[record.Epoch]record.NodeID
	parts     map[[2]int64]*Partition
	produced  []*simRecord
	nextValue int
	assigned  []*Assignment
}

type simNode struct {
	id    record.NodeID
	boot  record.BootID
	store *memStore
	core  *Core
	sim   *sim
	disk  []simSave
	up    bool
}

type simSave struct {
	at    Time
	saves []Save
}

type simFrame struct {
	at       Time
	from, to int
	boot     record.BootID
	payload  []byte
}

type simRecord struct {
	group  record.GroupID
	value  string
	acks   Acks
	acked  bool
	offset record.Offset
	pid    int64
	seq    int32
	done   bool
	sent   bool
	err    error
}

func newSim(t testing.TB, seed uint64, n int) *sim {
	s := &sim{t: t, rng: rand.New(rand.NewPCG(seed, 1)), maxDelay: 3 * time.Millisecond, maxDisk: 5 * time.Millisecond,
		cut: map[[2]int]bool{}, leaders: map[record.GroupID]map[record.Epoch]record.NodeID{}, parts: map[[2]int64]*Partition{}}
	for i := range n {
		s.nodes = append(s.nodes, &simNode{id: record.NodeID(i + 1), store: newMemStore(), sim: s})
	}
	for i := range s.nodes {
		s.boot(i)
	}
	return s
}

func (s *sim) log(format string, args ...any) {
	s.story = append(s.story, fmt.Sprintf("%8v ", s.now)+fmt.Sprintf(format, args...))
}

func (n *simNode) Send(to record.NodeID, _ Class, payload [][]byte) bool {
	s := n.sim
	b := slices.Concat(payload...)
	i, j := int(n.id)-1, int(to)-1
	for range 1 + s.chance(s.dup) {
		if s.chance(s.drop) == 1 || s.cut[[2]int{i, j}] {
			continue
		}
		at := s.now + time.Microsecond*50 + Time(s.rng.Int64N(int64(s.maxDelay)))
		s.net = append(s.net, simFrame{at: at, from: i, to: j, boot: n.boot, payload: slices.Clone(b)})
	}
	return true
}

func (s *sim) chance(p float64) int {
	if s.rng.Float64() < p {
		return 1
	}
	return 0
}

func simLimits() Limits {
	l := DefaultLimits()
	l.CheckpointEntries, l.EntryCache, l.MachineLog = 20, 8<<10, 8
	return l
}

func (s *sim) boot(i int) {
	n := s.nodes[i]
	n.boot = record.BootID(s.rng.Uint64() | 1)
	n.up, n.disk = true, nil
	n.core = NewCore(Config{
		Node: n.id, Boot: n.boot, Rand: rand.New(rand.NewPCG(s.rng.Uint64(), 2)), Timing: DefaultTiming(), Limits: simLimits(),
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Store: n.store, Outbox: n, Unclean: true,
		Publish: func(g record.GroupID) *Partition {
			p := NewPartition(g)
			s.parts[[2]int64{int64(n.id), int64(g)}] = p
			return p
		},
		OnLeader: func(lc LeaderChange) {
			s.log("node %d: group %d epoch %d leader %d: %s", n.id, lc.Group, lc.Epoch, lc.Leader, lc.Reason)
			if lc.Leader == record.NoNode {
				return
			}
			m := s.leaders[lc.Group]
			if m == nil {
				m = map[record.Epoch]record.NodeID{}
				s.leaders[lc.Group] = m
			}
			if old, ok := m[lc.Epoch]; ok && old != lc.Leader {
				s.fail("two leaders of group %d in epoch %d: %d and %d", lc.Group, lc.Epoch, old, lc.Leader)
			}
			m[lc.Epoch] = lc.Leader
		},
	}, s.now, n.store.Groups())
	for _, a := range s.assigned { // as the node does from the metadata, at each start
		c := *a
		n.core.Step(s.now, &c)
	}
	for j, o := range s.nodes {
		if j != i && o.up && o.core != nil {
			n.core.Step(s.now, PeerUp{o.id, o.boot})
			o.core.Step(s.now, PeerUp{n.id, n.boot})
		}
	}
	s.flush(i)
}

// crash ends a node like a power cut: commits that were not made are gone.
func (s *sim) crash(i int, refused bool) {
	n := s.nodes[i]
	s.log("node %d crashes with %d commits pending", n.id, len(n.disk))
	n.up, n.disk = false, nil
	for j, o := range s.nodes {
		if j != i && o.up {
			o.core.Step(s.now, PeerDown{n.id, n.boot, refused})
		}
	}
}

func (s *sim) fail(format string, args ...any) {
	s.t.Helper()
	from := max(0, len(s.story)-60)
	for _, l := range s.story[from:] {
		s.t.Log(l)
	}
	for _, n := range s.nodes {
		for _, g := range n.core.order {
			s.t.Logf("node %d up %v group %d: %v of epoch %d, leader %d, serving %v, base %d applied %d committed %d durable %d last %d, high %d next %d, awake %v, saves %d, waiting %d",
				n.id, n.up, g.id, g.role, g.term, g.lead, g.serving, g.log.base.Index, g.applied, g.committed, g.log.durable, g.log.last, g.high, g.next, g.awakeAt >= 0, g.savesInFlight, len(g.waiters))
			if g.role == RoleLeader {
				for id, pr := range g.rn.Status().Progress {
					s.t.Logf("    replica of node %d: %v", record.ReplicaID(id).Node(), pr)
				}
			}
		}
	}
	s.t.Fatalf(format, args...)
}

// flush ends a turn of a node and queues its commits.
func (s *sim) flush(i int) {
	n := s.nodes[i]
	if !n.up {
		return
	}
	n.core.Flush(s.now)
	if saves := n.core.TakeSaves(); len(saves) > 0 {
		if len(n.disk) < 2 { // one commit runs, the next one gathers
			n.disk = append(n.disk, simSave{at: s.now + Time(s.rng.Int64N(int64(s.maxDisk)))})
		}
		last := &n.disk[len(n.disk)-1]
		if last.saves = append(last.saves, saves...); len(n.disk) == 2 {
			last.at = n.disk[0].at + 1 + Time(s.rng.Int64N(int64(s.maxDisk)))
		}
	}
	for _, g := range n.core.order {
		if g.damaged != nil {
			s.fail("node %d group %d damaged: %v", n.id, g.id, g.damaged)
		}
		if !(g.log.base.Index <= g.applied && g.applied <= g.committed && g.committed <= g.log.last) {
			s.fail("node %d group %d: base %d applied %d committed %d last %d", n.id, g.id, g.log.base.Index, g.applied, g.committed, g.log.last)
		}
		if g.high > g.next || g.next != g.proposed && len(g.props) == 0 {
			s.fail("node %d group %d: high %d next %d proposed %d", n.id, g.id, g.high, g.next, g.proposed)
		}
	}
}

// run lets virtual time pass.
func (s *sim) run(d Time) {
	end := s.now + d
	for s.now < end {
		next := end
		for _, n := range s.nodes {
			if n.up {
				next = min(next, max(n.core.NextWake(), s.now+time.Microsecond))
				if len(n.disk) > 0 {
					next = min(next, n.disk[0].at)
				}
			}
		}
		for _, f := range s.net {
			next = min(next, f.at)
		}
		s.now = max(s.now, next)
		s.deliver()
		for i, n := range s.nodes {
			for n.up && len(n.disk) > 0 && n.disk[0].at <= s.now {
				job := n.disk[0]
				n.disk = n.disk[1:]
				var us []storage.Update
				for _, sv := range job.saves {
					if !sv.empty {
						us = append(us, sv.Update)
					}
				}
				if err := n.store.Commit(us, true); err != nil {
					s.fail("node %d: commit: %v", n.id, err)
				}
				n.core.Step(s.now, &Saved{Saves: job.saves, Took: time.Millisecond})
				s.flush(i)
			}
			if n.up && n.core.NextWake() <= s.now {
				s.flush(i)
			}
		}
	}
}

func (s *sim) deliver() {
	var due, rest []simFrame
	for _, f := range s.net {
		if f.at <= s.now {
			due = append(due, f)
		} else {
			rest = append(rest, f)
		}
	}
	s.net = rest
	slices.SortStableFunc(due, func(a, b simFrame) int { return int(a.at - b.at) })
	for _, f := range due {
		n := s.nodes[f.to]
		if n.up && !s.cut[[2]int{f.from, f.to}] {
			n.core.Step(s.now, PeerFrame{s.nodes[f.from].id, f.boot, f.payload})
			s.flush(f.to)
		}
	}
}

// create makes a data partition on the first rf nodes.
func (s *sim) create(g record.GroupID, rf int) {
	var rs []record.ReplicaID
	for i := range rf {
		rs = append(rs, record.MakeReplicaID(s.nodes[i].id, uint32(g)))
	}
	s.assign(&Assignment{Group: g, Voters: rs, Initial: rs, MaxBatch: 1 << 20})
}

func (s *sim) assign(a *Assignment) {
	s.assigned = append(s.assigned, a)
	for i, n := range s.nodes {
		if n.up {
			c := *a
			n.core.Step(s.now, &c)
			s.flush(i)
		}
	}
}

// leader is the index of the node that leads a group and knows that it may serve, -1 if none.
func (s *sim) leader(g record.GroupID) int {
	best, epoch := -1, record.Epoch(-1)
	for i, n := range s.nodes {
		if n.up {
			if v := s.parts[[2]int64{int64(n.id), int64(g)}]; v != nil && v.View().Role == RoleLeader && v.View().Serving && v.View().Epoch > epoch {
				best, epoch = i, v.View().Epoch
			}
		}
	}
	return best
}

// await runs until the condition holds.
func (s *sim) await(what string, limit Time, ok func() bool) {
	s.t.Helper()
	for end := s.now + limit; !ok(); s.run(5 * time.Millisecond) {
		if s.now >= end {
			s.fail("after %v still not: %s", limit, what)
		}
	}
}

func (s *sim) batch(r *simRecord) record.Batch {
	b := record.NewBuilder(record.None, 1<<20)
	b.Append(1000, nil, []byte(r.value), nil)
	if r.pid >= 0 {
		b.SetProducer(r.pid, 0, r.seq)
	}
	return b.Build()
}

// produce sends one record to a node and remembers what became of it.
func (s *sim) produce(node int, r *simRecord) {
	r.done, r.sent = false, true
	n := s.nodes[node]
	boot := n.boot
	n.core.Step(s.now, &ProduceRequest{Group: r.group, Batch: s.batch(r), Acks: r.acks, Epoch: record.NoEpoch, Done: func(res ProduceResult) {
		r.done, r.err = true, res.Err
		if n.boot != boot {
			s.fail("an answer from an earlier life")
		}
		if res.Err == nil {
			if r.acked && r.offset != res.BaseOffset {
				s.fail("record %s was answered with offset %d and then %d", r.value, r.offset, res.BaseOffset)
			}
			r.acked, r.offset = true, res.BaseOffset
		}
	}})
	s.flush(node)
}

func (s *sim) newRecord(g record.GroupID, acks Acks) *simRecord {
	s.nextValue++
	r := &simRecord{group: g, value: "v" + strconv.Itoa(s.nextValue), acks: acks, pid: -1}
	s.produced = append(s.produced, r)
	return r
}

// contents reads a node's log as a consumer would: value by offset, up to the high watermark.
func (s *sim) contents(node int, g record.GroupID) map[record.Offset]string {
	out := map[record.Offset]string{}
	mg := s.nodes[node].store.groups[g]
	cg := s.nodes[node].core.find(g)
	if mg == nil || cg == nil {
		return out
	}
	next := mg.state.Base.NextOffset
	for _, e := range mg.entries {
		if e.Kind != storage.KindBatch {
			continue
		}
		if e.BaseOffset != next {
			s.fail("node %d group %d: offset %d after %d", s.nodes[node].id, g, e.BaseOffset, next)
		}
		next = e.End()
		if e.End() > cg.high {
			break
		}
		for r, err := range record.Batch(e.Data).Records() {
			if err != nil {
				s.fail("stored batch: %v", err)
			}
			out[r.Offset] = string(r.Value)
		}
	}
	return out
}

// check compares what was acknowledged with what every replica holds, after the faults are over.
func (s *sim) check(groups ...record.GroupID) {
	s.t.Helper()
	for _, g := range groups {
		l := s.leader(g)
		want := s.contents(l, g)
		values := map[string]record.Offset{}
		for o, v := range want {
			if old, ok := values[v]; ok {
				r := s.byValue(v)
				if r.pid >= 0 {
					s.fail("group %d: record %s of an idempotent producer is at offsets %d and %d", g, v, old, o)
				}
			}
			values[v] = o
		}
		start := s.nodes[l].core.find(g).logStart
		for _, r := range s.produced {
			if r.group == g && r.acked && r.acks == AcksAll && r.offset >= start && want[r.offset] != r.value {
				s.fail("group %d: acknowledged record %s is not at offset %d: there is %q", g, r.value, r.offset, want[r.offset])
			}
		}
		for i := range s.nodes {
			if cg := s.nodes[i].core.find(g); cg == nil || !s.nodes[i].up {
				continue
			}
			got := s.contents(i, g)
			for o, v := range got {
				if o >= start && want[o] != v {
					s.fail("group %d offset %d: node %d has %q, node %d has %q", g, o, s.nodes[l].id, want[o], s.nodes[i].id, v)
				}
			}
			a, b := s.nodes[l].core.find(g), s.nodes[i].core.find(g)
			if a.applied == b.applied && string(a.stateBytes()) != string(b.stateBytes()) {
				s.fail("group %d: producer tables of nodes %d and %d differ at entry %d", g, s.nodes[l].id, s.nodes[i].id, a.applied)
			}
		}
	}
}

func (s *sim) byValue(v string) *simRecord {
	i, _ := strconv.Atoi(v[1:])
	return s.produced[i-1]
}

func (s *sim) settled(groups ...record.GroupID) func() bool {
	return func() bool {
		for _, g := range groups {
			l := s.leader(g)
			if l < 0 {
				return false
			}
			lg := s.nodes[l].core.find(g)
			for _, n := range s.nodes {
				if cg := n.core.find(g); n.up && cg != nil && cg.isVoter(cg.replica) && (len(n.disk) > 0 || cg.log.last != lg.log.last || cg.high != lg.high || cg.lead != lg.replica) {
					return false
				}
			}
		}
		return true
	}
}

func TestCore_threeNodesElectAndReplicate(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 1)
	s := newSim(t, 1, 3)
	s.create(1, 3)
	s.await("a leader", time.Second, func() bool { return s.leader(1) >= 0 })
	var rs []*simRecord
	for range 100 {
		r := s.newRecord(1, AcksAll)
		s.produce(s.leader(1), r)
		rs = append(rs, r)
	}
	s.await("all acknowledged", time.Second, func() bool { return !slices.ContainsFunc(rs, func(r *simRecord) bool { return !r.acked }) })
	s.await("all equal", 2*time.Second, s.settled(1))
	s.check(1)
	for i, r := range rs {
		if r.offset != record.Offset(i) {
			t.Fatalf("record %d got offset %d", i, r.offset)
		}
	}
}

func TestCore_deadLeaderIsReplacedWithinAFewTensOfMilliseconds(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 2)
	s := newSim(t, 2, 3)
	for g := record.GroupID(1); g <= 50; g++ {
		s.create(g, 3)
	}
	led := func() bool {
		for g := record.GroupID(1); g <= 50; g++ {
			if s.leader(g) < 0 {
				return false
			}
		}
		return true
	}
	s.await("all led", 2*time.Second, led)
	s.run(5 * time.Second)
	for i, n := range s.nodes {
		if st := n.core.Status(); st.Awake != 0 {
			t.Errorf("node %d: %d groups awake after 5 s without traffic", i+1, st.Awake)
		}
	}
	s.crash(0, true)
	at := s.now
	s.await("all led again", 500*time.Millisecond, led)
	t.Logf("50 groups led again after %v", s.now-at)
	s.boot(0)
	s.await("all equal", 5*time.Second, func() bool {
		for g := record.GroupID(1); g <= 50; g++ {
			if !s.settled(g)() {
				return false
			}
		}
		return true
	})
}

// TestCore_randomFaults is the Core's own proof: crashes that lose what was not committed to disk, lost,
// repeated and reordered frames, splits, transfers, log starts, and producers that retry.
func TestCore_randomFaults(t *testing.T) {
	seeds := 40
	if testing.Short() {
		seeds = 10
	}
	for seed := range uint64(seeds) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			cryptotest.SetGlobalRandom(t, seed)
			randomRun(t, seed)
		})
	}
}

func randomRun(t *testing.T, seed uint64) {
	s := newSim(t, seed, 3+2*int(seed%2))
	s.drop, s.dup = float64(seed%4)*0.02, float64(seed%3)*0.03
	s.maxDisk = []Time{time.Millisecond, 20 * time.Millisecond, 300 * time.Millisecond}[seed%3]
	s.maxDelay = []Time{time.Millisecond, 30 * time.Millisecond}[seed%2]
	groups := []record.GroupID{1, 2}
	for _, g := range groups {
		s.create(g, len(s.nodes))
	}
	type client struct {
		cur *simRecord
		seq int32
	}
	clients := make([]client, 6)
	for step := range 400 {
		s.disturb(groups)
		for i := range clients {
			c := &clients[i]
			if c.cur == nil || c.cur.done && c.cur.err == nil {
				r := s.newRecord(groups[i%len(groups)], []Acks{AcksAll, AcksAll, AcksAll, AcksAll, AcksOne, AcksNone}[i])
				if i < 4 {
					r.pid, r.seq = int64(100+i), c.seq
					c.seq++
				}
				c.cur = r
			}
			r := c.cur
			if r.pid < 0 && r.sent {
				c.cur = nil // never retried: it may be in the log
				continue
			}
			to := s.leader(r.group)
			if s.rng.IntN(8) == 0 || to < 0 {
				to = s.rng.IntN(len(s.nodes))
			}
			if s.nodes[to].up && s.nodes[to].core.find(r.group) != nil {
				s.produce(to, r)
			}
		}
		s.run(Time(s.rng.Int64N(int64(40 * time.Millisecond))))
		_ = step
	}
	s.heal()
	s.await("all replicas equal after the faults", 20*time.Second, s.settled(groups...))
	s.check(groups...)
	for _, g := range groups {
		r := s.newRecord(g, AcksAll)
		s.await("a record is taken after the faults", 3*time.Second, func() bool {
			if l := s.leader(g); l >= 0 && !r.acked {
				s.produce(l, r)
				s.run(time.Second / 2)
			}
			return r.acked
		})
	}
}

// disturb lets one thing go wrong, sometimes.
func (s *sim) disturb(groups []record.GroupID) {
	i := s.rng.IntN(len(s.nodes))
	switch s.rng.IntN(40) {
	case 0:
		if s.nodes[i].up {
			s.crash(i, s.rng.IntN(2) == 0)
		}
	case 1, 2, 3:
		if !s.nodes[i].up {
			s.log("node %d starts", i+1)
			s.boot(i)
		}
	case 4:
		j := s.rng.IntN(len(s.nodes))
		s.cut[[2]int{i, j}] = true
		s.log("cut %d -> %d", i+1, j+1)
	case 5, 6:
		clear(s.cut)
	case 7:
		g := groups[s.rng.IntN(len(groups))]
		if l := s.leader(g); l >= 0 {
			s.nodes[l].core.Step(s.now, &TransferRequest{Group: g, To: record.NoNode, Done: func(error) {}})
			s.flush(l)
		}
	case 8:
		s.truncate(groups[s.rng.IntN(len(groups))])
	}
}

// truncate moves the log start of a group to somewhere below its high watermark.
func (s *sim) truncate(g record.GroupID) {
	l := s.leader(g)
	if l < 0 {
		return
	}
	cg := s.nodes[l].core.find(g)
	mg := s.nodes[l].store.groups[g]
	for _, e := range mg.entries {
		if e.Kind == storage.KindBatch && e.Index+10 < cg.committed && s.rng.IntN(20) == 0 {
			s.log("log start of group %d to %d", g, e.BaseOffset)
			s.nodes[l].core.Step(s.now, &LogStartRequest{Group: g, Index: e.Index, Base: e.BaseOffset, Offset: e.BaseOffset,
				Force: s.rng.IntN(2) == 0, Done: func(error) {}})
			s.flush(l)
			return
		}
	}
}

func (s *sim) heal() {
	clear(s.cut)
	s.drop, s.dup, s.maxDisk, s.maxDelay = 0, 0, time.Millisecond, time.Millisecond
	for i, n := range s.nodes {
		if !n.up {
			s.boot(i)
		}
		for j, o := range s.nodes {
			if i != j && o.up {
				n.core.Step(s.now, PeerUp{o.id, o.boot})
			}
		}
	}
}
