package partition

import (
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
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
	minDelay  Time
	maxDelay  Time
	late      Time                    // frames that are repeated come up to this much later
	fifo      bool                    // frames of one connection keep their order
	delay     func(from, to int) Time // of a frame, in place of minDelay to maxDelay
	maxDisk   Time
	cut       map[[2]int]bool     // one-way
	tap       func(simFrame) bool // takes a frame out of the network when it says true
	linkAt    map[[3]int]Time
	limits    Limits
	timing    Timing
	machine   func(node int, g record.GroupID) StateMachine
	full      func(from, to int, class Class, size int) bool // the outbox takes no more
	key       []byte                                         // of every record: makes batches large

	story     []string
	parts     map[[2]int64]*Partition
	produced  []*simRecord
	nextValue int
	assigned  []*Assignment
	removing  []record.ReplicaID // assigned once and no more
	tombs     []record.ReplicaID // of these, whose data is to be removed
	laws      *laws
	sent      int64 // frames
	saved     int64 // commits with something in them
}

type simNode struct {
	id      record.NodeID
	boot    record.BootID
	store   *memStore
	core    *Core
	sim     *sim
	disk    []simSave
	slow    Time // what a commit takes; 0 for anything up to sim.maxDisk
	up      bool
	paused  bool
	stepped bool    // and not flushed
	inbox   []Event // while paused
}

type simSave struct {
	at, took Time
	saves    []Save
}

type simFrame struct {
	at       Time
	from, to int
	boot     record.BootID
	payload  []byte
}

type simRecord struct {
	group   record.GroupID
	value   string
	acks    Acks
	acked   bool
	offset  record.Offset
	pid     int64
	seq     int32
	done    bool
	sent    bool
	err     error
	sentAt  Time
	ackedAt Time
}

func newSim(t testing.TB, seed uint64, n int, with ...func(*sim)) *sim {
	s := &sim{t: t, rng: rand.New(rand.NewPCG(seed, 1)), minDelay: 50 * time.Microsecond, maxDelay: 3 * time.Millisecond, maxDisk: 5 * time.Millisecond,
		cut: map[[2]int]bool{}, linkAt: map[[3]int]Time{}, parts: map[[2]int64]*Partition{}, limits: simLimits(), timing: DefaultTiming()}
	s.laws = newLaws(s)
	for _, f := range with {
		f(s)
	}
	for i := range n {
		s.nodes = append(s.nodes, &simNode{id: record.NodeID(i + 1), store: newMemStore(), sim: s})
	}
	for i := range s.nodes {
		s.boot(i)
	}
	return s
}

// simSeeds is how many seeds a random test runs: few by default, EDGED_SIM_SEEDS for a long run.
func simSeeds(usual int) uint64 {
	if n, err := strconv.Atoi(os.Getenv("EDGED_SIM_SEEDS")); err == nil {
		return uint64(n)
	}
	if testing.Short() {
		return uint64(max(usual/4, 1))
	}
	return uint64(usual)
}

// simFirstSeed lets a long run go on where the last one ended.
func simFirstSeed() uint64 {
	n, _ := strconv.ParseUint(os.Getenv("EDGED_SIM_FIRST"), 10, 64)
	return n
}

// eachSeed runs a test under many seeds, each as a test of its own.
func eachSeed(t *testing.T, usual int, run func(t *testing.T, seed uint64)) {
	first := simFirstSeed()
	for seed := first; seed < first+simSeeds(usual); seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { run(t, seed) })
	}
}

func (s *sim) log(format string, args ...any) {
	s.story = append(s.story, fmt.Sprintf("%8v ", s.now)+fmt.Sprintf(format, args...))
}

// digest sums up what happened: equal runs have equal digests.
func (s *sim) digest() uint64 {
	h := fnv.New64a()
	for _, l := range s.story {
		_, _ = h.Write([]byte(l))
	}
	fmt.Fprint(h, s.sent, s.saved, s.now)
	for _, r := range s.produced {
		fmt.Fprint(h, r.value, r.acked, r.offset)
	}
	return h.Sum64()
}

func (n *simNode) Send(to record.NodeID, class Class, payload [][]byte) bool {
	s := n.sim
	b := slices.Concat(payload...)
	i, j := int(n.id)-1, int(to)-1
	if s.full != nil && s.full(i, j, class, len(b)) {
		return false
	}
	s.sent++
	s.laws.frame(i, b)
	for k := range 1 + s.chance(s.dup) {
		if s.chance(s.drop) == 1 || s.cut[[2]int{i, j}] {
			continue
		}
		at := s.now + s.minDelay + Time(s.rng.Int64N(int64(s.maxDelay)))
		if s.delay != nil {
			at = s.now + s.delay(i, j)
		}
		if k > 0 && s.late > 0 {
			at += Time(s.rng.Int64N(int64(s.late)))
		} else if link := [3]int{i, j, int(class)}; s.fifo {
			if s.delay != nil {
				link[2] = 0 // one radio
			}
			at = max(at, s.linkAt[link])
			s.linkAt[link] = at
		}
		f := simFrame{at: at, from: i, to: j, boot: n.boot, payload: b}
		if debugFrame != nil {
			debugFrame(s, f)
		}
		if s.tap == nil || !s.tap(f) {
			s.net = append(s.net, f)
		}
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
	l.CheckpointEntries, l.CheckpointTotal, l.EntryCache, l.MachineLog = 20, 8<<10, 8<<10, 8
	return l
}

// boot starts a node with what its store holds.
func (s *sim) boot(i int) {
	n := s.nodes[i]
	n.boot = record.BootID(s.rng.Uint64() | 1)
	n.up, n.paused, n.stepped, n.disk, n.inbox = true, false, false, nil, nil
	s.laws.born(i)
	n.core = NewCore(Config{
		Node: n.id, Boot: n.boot, Rand: rand.New(rand.NewPCG(s.rng.Uint64(), 2)), Timing: s.timing, Limits: s.limits,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Store: n.store, Outbox: n, Unclean: true,
		Publish: func(g record.GroupID) *Partition {
			p := NewPartition(g)
			s.parts[[2]int64{int64(n.id), int64(g)}] = p
			return p
		},
		Machine: func(g record.GroupID, _ MachineKind) StateMachine {
			if s.machine == nil {
				return nil
			}
			return s.machine(i, g)
		},
		OnLeader: func(lc LeaderChange) {
			s.log("node %d: group %d epoch %d leader %d: %s", n.id, lc.Group, lc.Epoch, lc.Leader, lc.Reason)
			s.laws.leader(lc)
		},
		OnConfigured: func(g record.GroupID, voters, learners []record.ReplicaID) {
			s.log("node %d: group %d has voters %v learners %v", n.id, g, voters, learners)
		},
	}, s.now, n.store.Groups())
	for _, a := range s.assigned { // as the node does from the metadata, at each start
		c := *a
		n.core.Step(s.now, &c)
	}
	for j, o := range s.nodes {
		if j != i && o.up && o.core != nil {
			s.step(i, PeerUp{o.id, o.boot})
			s.step(j, PeerUp{n.id, n.boot})
		}
	}
	s.flush(i)
}

// step gives a node an event; a node that stands still finds it when it goes on.
func (s *sim) step(i int, ev Event) {
	n := s.nodes[i]
	switch {
	case !n.up:
	case n.paused:
		n.inbox = append(n.inbox, ev)
	default:
		n.core.Step(s.now, ev)
		n.stepped = true
	}
}

// crash ends a node like a power cut: what was not synced may be gone, in part or whole.
func (s *sim) crash(i int, refused bool) {
	n := s.nodes[i]
	var running []storage.Update
	if len(n.disk) > 0 {
		running = updatesOf(n.disk[0].saves)
	}
	s.log("node %d crashes with %d commits pending", n.id, len(n.disk))
	if err := n.store.cut(s.rng, running); err != nil {
		s.fail("node %d: %v", n.id, err)
	}
	n.up, n.paused, n.disk, n.inbox = false, false, nil, nil
	s.laws.still(i)
	for j, o := range s.nodes {
		if j != i && o.up {
			s.step(j, PeerDown{n.id, n.boot, refused})
		}
	}
}

// pause makes a node stand still, as a stopped process: its disk and the network go on.
func (s *sim) pause(i int) {
	s.log("node %d stands still", i+1)
	s.laws.still(i)
	s.nodes[i].paused = true
}

func (s *sim) resume(i int) {
	n := s.nodes[i]
	s.log("node %d goes on with %d events", i+1, len(n.inbox))
	evs := n.inbox
	n.paused, n.inbox = false, nil
	for _, ev := range evs {
		n.core.Step(s.now, ev)
	}
	s.flush(i)
}

// sever cuts the connection between two nodes and makes it again.
func (s *sim) sever(i, j int) {
	a, b := s.nodes[i], s.nodes[j]
	if !a.up || !b.up || i == j {
		return
	}
	s.laws.still(i)
	s.net = slices.DeleteFunc(s.net, func(f simFrame) bool { return f.from == i && f.to == j || f.from == j && f.to == i })
	for _, x := range [...][2]int{{i, j}, {j, i}} {
		o := s.nodes[x[1]]
		s.step(x[0], PeerDown{o.id, o.boot, false})
		s.step(x[0], PeerUp{o.id, o.boot})
		s.flush(x[0])
	}
}

func updatesOf(saves []Save) []storage.Update {
	var us []storage.Update
	for _, sv := range saves {
		if !sv.empty {
			us = append(us, sv.Update)
		}
	}
	return us
}

func (s *sim) fail(format string, args ...any) {
	s.t.Helper()
	from := max(0, len(s.story)-160)
	for _, l := range s.story[from:] {
		s.t.Log(l)
	}
	for _, n := range s.nodes {
		for _, g := range n.core.order {
			s.t.Logf("node %d up %v replica %v group %d: %v of epoch %d, leader %v, serving %v, base %d applied %d committed %d durable %d last %d, high %d next %d, awake %v, saves %d, waiting %d, held %d, voters %v learners %v outgoing %v pending %d",
				n.id, n.up, g.replica, g.id, g.role, g.term, g.lead, g.serving, g.log.base.Index, g.applied, g.committed, g.log.durable, g.log.last, g.high, g.next, g.awakeAt >= 0, g.savesInFlight, len(g.waiters), len(g.held), g.conf.Voters, g.conf.Learners, g.conf.VotersOutgoing, g.confPending)
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
	if !n.up || n.paused {
		return
	}
	n.stepped = false
	n.core.Flush(s.now)
	if saves := n.core.TakeSaves(); len(saves) > 0 {
		takes := n.slow
		if takes == 0 {
			takes = 1 + Time(s.rng.Int64N(int64(s.maxDisk)))
		}
		if len(n.disk) < 2 { // one commit runs, the next one gathers
			n.disk = append(n.disk, simSave{at: s.now + takes, took: takes})
		}
		last := &n.disk[len(n.disk)-1]
		if last.saves = append(last.saves, saves...); len(n.disk) == 2 {
			last.at, last.took = n.disk[0].at+takes, takes
		}
	}
	s.laws.turn(i)
}

// run lets virtual time pass.
func (s *sim) run(d Time) {
	end := s.now + d
	for s.now < end {
		next := end
		for i, n := range s.nodes {
			if !n.up {
				continue
			}
			if n.stepped {
				s.flush(i)
			}
			if !n.paused {
				next = min(next, max(n.core.NextWake(), s.now+time.Microsecond))
			}
			if len(n.disk) > 0 {
				next = min(next, n.disk[0].at)
			}
		}
		for _, f := range s.net {
			next = min(next, f.at)
		}
		s.now = max(s.now, next)
		s.deliver()
		for i, n := range s.nodes {
			for n.up && len(n.disk) > 0 && n.disk[0].at <= s.now {
				s.commit(i)
			}
			if n.up && !n.paused && n.core.NextWake() <= s.now {
				s.flush(i)
				if at := n.core.NextWake(); at <= s.now {
					s.fail("node %d: after its turn at %v it wants the next one at %v: it would spin; %s", n.id, s.now, at, n.core.dueTimes())
				}
			}
		}
	}
}

// commit ends the commit that a node's disk is at.
func (s *sim) commit(i int) {
	n := s.nodes[i]
	job := n.disk[0]
	n.disk = n.disk[1:]
	us, sync := updatesOf(job.saves), false
	for _, sv := range job.saves {
		sync = sync || sv.Sync
	}
	if len(us) > 0 {
		s.saved++
	}
	if err := n.store.Commit(us, sync); err != nil {
		s.fail("node %d: commit: %v", n.id, err)
	}
	s.laws.stored(i, us)
	s.step(i, &Saved{Saves: job.saves, Took: job.took})
	s.flush(i)
}

func (s *sim) deliver() {
	var due []simFrame
	rest := s.net[:0]
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
		if !s.cut[[2]int{f.from, f.to}] {
			dropped := s.nodes[f.to].core.stats.DroppedFrames
			s.step(f.to, PeerFrame{s.nodes[f.from].id, f.boot, f.payload})
			s.laws.delivered(f, dropped)
			s.flush(f.to)
		}
	}
}

// heal ends all that goes wrong and starts who is down.
func (s *sim) heal() {
	clear(s.cut)
	s.drop, s.dup, s.maxDisk, s.maxDelay = 0, 0, time.Millisecond, time.Millisecond
	for i, n := range s.nodes {
		if n.paused {
			s.resume(i)
		}
		if !n.up {
			s.boot(i)
		}
		for j, o := range s.nodes {
			if i != j && o.up {
				s.step(i, PeerUp{o.id, o.boot})
			}
		}
	}
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

// dueTimes says what the next wake is made of.
func (c *Core) dueTimes() string {
	var deaths []Time
	for _, s := range c.peers {
		deaths = append(deaths, c.deathAt(s))
	}
	return fmt.Sprintf("beat %v disk %v return %v tick %v of %d campaign %v of %d holding %d deaths %v",
		c.nextBeat(), c.disk.due(&c.cfg.Timing), c.nextReturn, c.nextTick, len(c.awake), c.nextCampaign, len(c.leaderless), len(c.holding), deaths)
}

var debugFrame func(*sim, simFrame)
