package partition

import (
	"fmt"
	"slices"

	"edged/record"
	"edged/storage"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// group is one replica of one Raft group. The Core's goroutine owns it.
//
//	log.base.Index <= applied <= committed <= log.last
//	logStart <= high = end of the last committed batch <= next
type group struct {
	id      record.GroupID
	replica record.ReplicaID
	class   uint8
	kind    MachineKind
	machine StateMachine // nil for a data partition
	rn      *raft.RawNode
	log     *groupLog
	part    *Partition
	target  *Assignment // what the metadata wants; nil until it said so
	told    *Assignment // the last one that was reported as reached
	damaged error

	// As Raft last said, in Ready.
	role      Role
	state     raft.StateType
	lead      record.ReplicaID
	leadSince Time // when lead was last set
	term      uint64
	ledTerm   uint64 // the term in which this replica last became leader
	heard     uint64 // the commit index that Raft knows; committed follows within the turn
	committed uint64
	applied   uint64
	conf      storage.ConfState
	confMoved bool
	nodes     []record.NodeID // the other nodes of conf, ascending; replaced, never changed
	answered  []Time          // when each of them last answered this leader
	// confPending is the index up to which a configuration change may be on its way: of a change
	// proposed here, or of all that an earlier leader may have left behind.
	confPending uint64
	serving     bool
	stood       standing // what the sessions count of this group

	// next is the offset after the last entry of the log, committed or not; proposed is
	// that plus what was proposed in this turn. The leader gives offsets from proposed.
	next, proposed   record.Offset
	high, logStart   record.Offset
	appliedNext      record.Offset // the offset after the last applied entry
	tail             []tailEntry   // entries after applied, oldest first
	tailConfs        int           // how many of them change the configuration
	uncommittedBytes int64

	// table is the producer table as of applied, overlay what the tail adds to it: the leader
	// judges a batch by both. State machines and tables skip entries up to stateIndex, which
	// a base record had seen already.
	table      *producers
	overlay    map[int64]*producer
	stateIndex uint64
	stateTerm  uint64 // the epoch of who gave that record, until its entries are applied; then 0
	wasRelaxed bool   // durability=relaxed as of the checkpoint

	props     []proposal // given an offset in this turn, not yet to Raft
	propBytes int64      // their size
	flight    []proposal // given to Raft, not yet seen in Ready
	waiters   []waiter   // by index
	acksOne   int        // how many of them wait for the leader's own disk only
	held      []*ProduceRequest
	confirms  confirms

	savesInFlight  int
	cuts           uint64        // truncations of the log: a save from before one says nothing about what came after
	checkpointed   uint64        // applied index of the last checkpoint
	commitSaved    uint64        // commit index that the last synced checkpoint names
	commitDurable  uint64        // the same, of the last one that is on disk
	applying       []*pb.Message // handed out by Raft and not applied, oldest first
	sinceBytes     int64         // log bytes since then
	baseUnsaved    bool          // base moved since the last save
	dirty, stepped bool
	removed        bool
	counted        int64 // bytes of log.cache that Core.cacheBytes counts
	stateSize      int64 // of the last checkpoint
	awakeAt        int   // place in Core.awake, -1 if asleep
	leaderlessAt   int   // place in Core.leaderless, -1 if it has a leader
	holdingAt      int   // place in Core.holding, -1 if no produce waits
	strayAt        int   // place in Core.strays, -1 if it is led where it should be
	campaignAt     Time
	campaigns      int
	poll           poll   // of a relaxed group
	candidateTerm  uint64 // the last term in which this replica was a candidate
	lastTraffic    Time
	askedAt        Time             // when a sleeping leader was last asked for news
	transferTo     record.ReplicaID // 0 while no transfer is under way
	transferUntil  Time
	snapshots      []snapshotWait
	sync           syncMarks
	reason         string // why the leader changes, for people

	heartbeatAnswered bool // in this turn, by a follower
}

// tailEntry is what the Core remembers of an entry until it is applied.
type tailEntry struct {
	index, term uint64
	end         record.Offset // the offset after it
	stamp       stamp         // id < 0 without a producer
	bytes       int64
	foreseen    bool // the overlay has it since it was proposed
	conf        bool // it changes the configuration
}

// snapshotWait is a base record on its way to a follower.
type snapshotWait struct {
	to    record.ReplicaID
	index uint64
	until Time
}

// proposal is an entry on its way into the log.
type proposal struct {
	data    []byte
	kind    storage.Kind
	stamp   stamp
	span    record.Offset
	base    record.Offset
	produce *ProduceRequest
	propose *ProposeRequest
	start   *LogStartRequest
}

// waiter is somebody who is told when the entry at index is committed (and, for a
// command, applied) in term.
type waiter struct {
	index, term uint64
	base        record.Offset
	duplicate   bool
	produce     *ProduceRequest
	propose     *ProposeRequest
	start       *LogStartRequest
}

// open makes a group of what the store holds. unclean says that the end of it may be missing.
func (c *Core) open(s storage.GroupState, unclean bool) *group {
	g := &group{
		id: s.Group, replica: s.Replica, class: s.Class, part: c.cfg.Publish(s.Group),
		awakeAt: -1, leaderlessAt: -1, holdingAt: -1, strayAt: -1, lastTraffic: c.now, role: RoleFollower,
	}
	g.kind = kindOfCheckpoint(s.Checkpoint.State)
	if g.kind != DataPartition && c.cfg.Machine != nil {
		g.machine = c.cfg.Machine(s.Group, g.kind)
	}
	c.insert(g)
	g.log = newGroupLog(s, g.machine != nil, c.cfg.Store, &c.late.read)
	if s.Err == nil && g.kind != DataPartition && g.machine == nil {
		s.Err = fmt.Errorf("this node has no state machine of kind %d", g.kind)
	}
	if s.Err != nil {
		c.damage(g, s.Err)
		return g
	}
	if err := c.load(g, s); err != nil {
		c.damage(g, err)
		return g
	}
	if unclean && g.wasRelaxed && s.HardState.Term > 0 {
		c.distrust(g)
	}
	c.guard(g, func() { c.startRaft(g) })
	c.setLeaderless(g, g.damaged == nil && g.isVoter(g.replica))
	c.publish(g)
	c.touch(g, true)
	return g
}

// load rebuilds what is derived: the state machine from the checkpoint, offsets and the tail
// from the log after it.
func (c *Core) load(g *group, s storage.GroupState) error {
	cp := s.Checkpoint
	g.term, g.applied, g.committed = s.HardState.Term, cp.Applied, cp.Applied
	g.checkpointed, g.heard = cp.Applied, cp.Applied
	g.next, g.appliedNext, g.high, g.logStart = cp.NextOffset, cp.NextOffset, cp.NextOffset, s.Base.LogStart
	c.setConf(g, g.log.confAt(cp.Applied))
	g.table = newProducers(c.cfg.Limits.Producers)
	kept, err := decodeCheckpointState(cp.State)
	if err != nil {
		return err
	}
	g.stateIndex, g.stateTerm, g.wasRelaxed = kept.index, kept.term, kept.relaxed
	if err := g.restoreState(kept.state); err != nil {
		return fmt.Errorf("state as of entry %d: %w", kept.index, err)
	}
	if s.LastIndex > cp.Applied {
		err := c.cfg.Store.Headers(g.id, cp.Applied+1, s.LastIndex+1, func(e storage.Entry, size int64) error {
			t := tailEntry{index: e.Index, term: e.Term, end: g.next, stamp: stamp{id: -1}, bytes: size, conf: isConf(e.Kind)}
			if e.Kind == storage.KindBatch {
				if e.BaseOffset != g.next {
					return fmt.Errorf("entry %d has base offset %d where %d should follow", e.Index, e.BaseOffset, g.next)
				}
				t.end = e.End()
				t.stamp = stampOf(record.Batch(e.Data))
			}
			g.pushTail(t)
			c.since(g, size)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if kept.commit > s.LastIndex {
		return fmt.Errorf("the checkpoint knows of entry %d, the log ends at %d", kept.commit, s.LastIndex)
	}
	g.proposed = g.next
	g.heard = max(kept.commit, cp.Applied)
	g.commitSaved, g.commitDurable, g.log.commit = g.heard, g.heard, g.heard
	g.commitTail(g.heard)
	g.log.snap = func() *pb.Snapshot { return g.baseSnapshot() }
	return nil
}

// since counts log after the last checkpoint.
func (c *Core) since(g *group, bytes int64) {
	g.sinceBytes += bytes
	c.sinceBytes += bytes
}

func (g *group) restoreState(state []byte) error {
	if g.machine != nil {
		return g.machine.Restore(state)
	}
	return g.table.restore(state)
}

func (g *group) stateBytes() []byte {
	if g.machine != nil {
		return g.machine.Snapshot()
	}
	return g.table.snapshot()
}

func (c *Core) startRaft(g *group) {
	t, l := c.cfg.Timing, c.cfg.Limits
	rn, err := raft.NewRawNode(&raft.Config{
		ID: uint64(g.replica), ElectionTick: t.ElectionTicks, HeartbeatTick: t.HeartbeatTicks,
		Storage: g.log, Applied: g.applied, AsyncStorageWrites: true,
		MaxSizePerMsg: uint64(l.Message), MaxCommittedSizePerReady: uint64(l.Message) * 4,
		// Raft has no bound on what is not committed: ours (Limits.Uncommitted) is looked at before an
		// offset is given.
		MaxInflightMsgs: 64, MaxInflightBytes: uint64(l.Inflight),
		CheckQuorum: true, PreVote: true, StepDownOnRemoval: true,
		DisableProposalForwarding: true, // only the leader gives offsets
		Logger:                    raftLogger{c.log, g.id},
	})
	if err != nil {
		panic(err)
	}
	g.rn = rn
}

// baseSnapshot is the base record for a follower that is behind the log's beginning: the
// configuration as of the base, and a state that may be newer (it says of which index it is).
func (g *group) baseSnapshot() *pb.Snapshot {
	b := g.log.base
	r := baseRecord{next: b.NextOffset, logStart: b.LogStart, stateIndex: max(g.applied, g.stateIndex), state: g.stateBytes()}
	if faultLoseProducers && g.machine == nil {
		r.state = nil
	}
	return &pb.Snapshot{
		Data:     r.encode(),
		Metadata: &pb.SnapshotMetadata{Index: new(b.Index), Term: new(b.Term), ConfState: confToRaft(g.log.confAt(b.Index))},
	}
}

// pushTail remembers an entry that was appended.
func (g *group) pushTail(t tailEntry) {
	g.tail = append(g.tail, t)
	g.next = t.end
	if t.conf {
		g.tailConfs++
	}
	g.uncommittedBytes += t.bytes
	if t.stamp.id < 0 || t.index <= g.stateIndex || t.foreseen {
		return
	}
	p := g.overlay[t.stamp.id]
	if p == nil {
		p = &producer{epoch: t.stamp.epoch}
		if old := g.table.table[t.stamp.id]; old != nil {
			*p = *old
			p.tail = 0
		}
		if g.overlay == nil {
			g.overlay = map[int64]*producer{}
		}
		g.overlay[t.stamp.id] = p
	}
	p.add(t.stamp.epoch, t.stamp.app)
	p.tail++
}

// popTail forgets the oldest remembered entry: it was applied.
func (g *group) popTail() {
	t := g.tail[0]
	g.tail = g.tail[1:]
	if t.conf {
		g.tailConfs--
	}
	if t.stamp.id < 0 || t.index <= g.stateIndex {
		return
	}
	if p := g.overlay[t.stamp.id]; p != nil {
		if p.tail--; p.tail == 0 {
			delete(g.overlay, t.stamp.id)
		}
	}
}

// truncateTail forgets entries from index on, and all that was derived from them.
func (g *group) truncateTail(index uint64) {
	n := len(g.tail)
	for n > 0 && g.tail[n-1].index >= index {
		n--
	}
	if n == len(g.tail) {
		return
	}
	if faultKeepNextOffset {
		g.tail = g.tail[:n]
		return
	}
	g.rebuildTail(g.tail[:n])
}

// rebuildTail derives anew what hangs on the tail.
func (g *group) rebuildTail(tail []tailEntry) {
	g.tail, g.tailConfs, g.overlay, g.next, g.uncommittedBytes = nil, 0, nil, g.appliedNext, 0
	for _, t := range tail {
		t.foreseen = false
		g.pushTail(t)
		if t.index <= g.committed {
			g.uncommittedBytes -= t.bytes
		}
	}
	g.proposed = g.next
}

// commitTail moves the commit index and the high watermark over the tail.
func (g *group) commitTail(commit uint64) {
	if commit <= g.committed {
		return
	}
	if len(g.tail) > 0 {
		first := g.tail[0].index
		for i := max(g.committed+1, first); i <= commit && i-first < uint64(len(g.tail)); i++ {
			g.uncommittedBytes -= g.tail[i-first].bytes
		}
	}
	g.committed = commit
	g.high = max(g.high, g.endAt(commit))
}

// confHeard is the last configuration change that is known to be committed and not applied, 0 if
// there is none.
func (g *group) confHeard() uint64 {
	if g.tailConfs == 0 {
		return 0
	}
	last := uint64(0)
	for _, t := range g.tail {
		if t.conf && t.index <= g.heard {
			last = t.index
		}
	}
	return last
}

// mayTell is the commit index that others may be told: not past a configuration change that this
// replica would forget by a power cut. Of two voters that become one, the other would leave, and
// this one could come back in the configuration in which it needs the other.
func (g *group) mayTell() uint64 {
	if g.tailConfs > 0 {
		for _, t := range g.tail {
			if t.conf && t.index > g.commitDurable {
				return t.index - 1
			}
		}
	}
	return ^uint64(0)
}

// producer is what the log, up to its last entry, knows of a producer id; nil if nothing.
func (g *group) producer(id int64) *producer {
	if p := g.overlay[id]; p != nil {
		return p
	}
	return g.table.table[id]
}

// endAt is the offset after the entry at index, which is applied or in the tail.
func (g *group) endAt(index uint64) record.Offset {
	if len(g.tail) == 0 || index < g.tail[0].index {
		return g.appliedNext
	}
	return g.tail[min(index-g.tail[0].index, uint64(len(g.tail)-1))].end
}

func (g *group) isVoter(id record.ReplicaID) bool {
	return slices.Contains(g.conf.Voters, id) || slices.Contains(g.conf.VotersOutgoing, id)
}

// members are all replicas of the configuration, voters first.
func (g *group) members() []record.ReplicaID {
	m := slices.Concat(g.conf.Voters, g.conf.VotersOutgoing, g.conf.Learners, g.conf.LearnersNext)
	slices.Sort(m)
	return slices.Compact(m)
}

// onNode tells whether another node has a replica.
func (g *group) onNode(n record.NodeID) bool { return slices.Contains(g.nodes, n) }

// setConf takes the configuration that holds from now on.
func (c *Core) setConf(g *group, conf storage.ConfState) {
	if g.awakeAt >= 0 {
		c.shareAwake(g, -1)
	}
	g.conf, g.confMoved, g.nodes = conf, true, nil
	for _, r := range g.members() {
		if n := r.Node(); n != c.cfg.Node && !slices.Contains(g.nodes, n) {
			g.nodes = append(g.nodes, n)
		}
	}
	g.resetAnswered(c.now)
	if g.awakeAt >= 0 {
		c.shareAwake(g, 1)
	}
	c.stirred = true // another majority may be live
}

func (g *group) resetAnswered(now Time) {
	g.answered = make([]Time, len(g.nodes))
	for i := range g.answered {
		g.answered[i] = now
	}
}

func (g *group) reasonText(leader record.NodeID) string {
	switch {
	case g.reason != "":
		return g.reason
	case leader == record.NoNode:
		return "no leader"
	}
	return fmt.Sprintf("node %d was elected", leader)
}
