package partition

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"edged/record"
	"edged/storage"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// Config of a Core.
type Config struct {
	Node    record.NodeID
	Boot    record.BootID
	Cluster record.ClusterID
	// Rand spreads campaigns; a simulator seeds it.
	Rand   *rand.Rand
	Timing Timing
	Limits Limits
	Logger *slog.Logger
	Store  Reader
	Outbox Outbox
	// Machine makes the state machine of a group that is no data partition.
	Machine func(record.GroupID, MachineKind) StateMachine
	// Unclean says that the last life did not end by Close: what was not synced may be gone.
	Unclean bool
	// Publish gives the view through which others see a group.
	Publish func(record.GroupID) *Partition
	// OnLeader is told of every change of leader or epoch; OnConfigured when a led group has
	// reached its assignment; OnDamaged when a replica was taken out of service. All are called from the
	// Core's goroutine, OnDamaged also while it is made, and must not block.
	OnLeader     func(LeaderChange)
	OnConfigured func(g record.GroupID, voters, learners []record.ReplicaID)
	OnDamaged    func(g record.GroupID, r record.ReplicaID, err error)
	// OnPause is told when a link begins to pause, pauses for longer or shorter, or no longer.
	OnPause func(LinkPause)
}

// Core owns every Raft group of a node: offsets, waiters, producer tables, sessions, timers.
// It is a step machine: Step takes one event, Flush ends the turn and leaves what is to be done
// (saves for the log writer in TakeSaves, frames in the Outbox, answers through the requests' Done).
// It does no I/O, knows no clock but the time it is given, takes no locks and starts no goroutine.
// One goroutine calls it.
type Core struct {
	cfg Config
	log *slog.Logger
	now Time
	due Time // when the next turn was to come at the latest; 0 within a turn

	groups   map[record.GroupID]*group
	order    []*group // by id
	sessions map[record.NodeID]*session
	peers    []*session // by node id

	dirty, spare []*group // touched in this turn; the other slice is kept for the next
	awake        []*group // ticked or watched for sleep
	leaderless   []*group // waiting for a leader or about to campaign
	holding      []*group // with produces that wait for an election or a transfer
	strays       []*group // led here though another node is preferred
	held         int      // produces that wait, over all groups
	saves        []Save
	saveSeq      uint64 // counts saves

	nextTick, nextReturn Time
	nextCampaign         Time
	stirred              bool  // who may campaign has to be looked at again
	produceBytes         int64 // accepted and not answered
	saveBytes            int64 // handed to the log writer and not reported
	cacheBytes           int64
	cacheOrder           []cached // entries by age, for eviction
	cacheStale           bool     // notes in it may be of groups that are gone, and would keep them in memory
	sinceBytes           int64    // log since the last checkpoints, over all groups
	late                 late
	awakeSince           Time // since then no turn came late
	pause                Time // the longest of the sessions
	ticks                int
	disk                 diskState
	current              current
	resigning            bool
	beatHeard            bool // in this turn, from an idle peer
	failed               error
	stats                Stats
}

// never is later than any time.
const never Time = 1 << 62

// Stats are counts since the start.
type Stats struct {
	Campaigns, LeaderChanges, NotLeader, Held int64
	DroppedFrames, DroppedAppends             int64
	Damaged                                   int64
	Produced                                  int64 // batches
}

type cached struct {
	g     *group
	index uint64
}

// NewCore makes a Core of the groups that the store holds.
func NewCore(cfg Config, now Time, states []storage.GroupState) *Core {
	c := &Core{
		cfg: cfg, log: cfg.Logger, now: now,
		groups: map[record.GroupID]*group{}, sessions: map[record.NodeID]*session{},
		nextTick: now + cfg.Timing.Tick, nextReturn: never, nextCampaign: never,
	}
	for _, s := range states {
		c.open(s, cfg.Unclean)
	}
	return c
}

// Step takes one event. Events of one turn may touch the same group many times; its
// consequences are drawn together in Flush.
func (c *Core) Step(now Time, ev Event) {
	c.advance(now)
	switch ev := ev.(type) {
	case *ProduceRequest:
		ev.bytes = int64(len(ev.Batch))
		c.produceBytes += ev.bytes
		c.produce(ev)
	case *ProposeRequest:
		c.propose(ev)
	case *LogStartRequest:
		c.moveLogStart(ev)
	case *TransferRequest:
		c.transfer(ev)
	case *ConfirmRequest:
		c.confirm(ev)
	case *Assignment:
		c.configure(ev)
	case *Saved:
		c.saved(ev)
	case PeerUp:
		c.peerUp(ev)
	case PeerDown:
		c.peerDown(ev)
	case PeerFrame:
		c.peerFrame(ev)
	case *RemoveReplica:
		c.removeReplica(ev)
	case *RefillReplica:
		c.refill(ev)
	case Inspect:
		ev.Fn(c)
	case DiskRoom:
		c.diskRoom(ev)
	case Resign:
		c.resign()
	case CheckpointAll:
		c.checkpointAll()
	}
}

// Flush ends a turn: timers that are due, then the consequences for every touched group, then the frames.
func (c *Core) Flush(now Time) {
	c.advance(now)
	c.timers()
	c.settle()
	c.campaignsDue()
	c.serveLate()
	c.settle()
	c.evictCache()
	c.boundRestart()
	if c.failed == nil {
		c.beats() // last, so that they tell what is so now
	}
	for _, s := range c.peers {
		c.flushFrames(s)
	}
}

// settle draws the consequences for every group that was touched, until none is left.
func (c *Core) settle() {
	for len(c.dirty) > 0 {
		batch := c.dirty
		c.dirty = c.spare[:0]
		for _, g := range batch {
			g.dirty = false
			c.readyGuarded(g)
		}
		clear(batch)
		c.spare = batch
	}
}

// TakeSaves hands over what the log writer has to do, in order.
func (c *Core) TakeSaves() []Save {
	s := c.saves
	c.saves = nil
	return s
}

// lateness is how long after its due time a turn may come without being held to have stood still.
const lateness = 20 * time.Millisecond

// advance moves the time. When this node itself stood still (a stopped process, a starved CPU),
// it could hear nobody: peers get that time back, or waking up would look like everybody's death.
func (c *Core) advance(now Time) {
	if now <= c.now {
		return
	}
	if late := now - c.due; c.due > 0 && late > lateness {
		c.awakeSince = now
		for _, s := range c.peers {
			s.heard = min(s.heard+late, now)
		}
	}
	c.due = 0
	c.now = now
}

// guard runs what may panic inside Raft for one group and takes just that replica out of
// service when it does (law 8).
func (c *Core) guard(g *group, fn func()) {
	if g.damaged != nil || g.removed {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			c.damage(g, fmt.Errorf("raft: %v", p))
			c.log.Error("replica taken out of service", "group", g.id, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	fn()
}

// readyGuarded is ready under guard.
func (c *Core) readyGuarded(g *group) { c.guard(g, func() { c.ready(g) }) }

// refresh makes a group's role and indices what they are for Raft by now.
func (c *Core) refresh(g *group) {
	if g.stepped {
		c.readyGuarded(g)
	}
}

// Why a replica may be damaged beside what the store finds.
var (
	// ErrLostWrites: its log ends before what it had said was on its disk. No disk does that which keeps what
	// it has synced.
	ErrLostWrites = errors.New("this card loses writes that it said were on the disk")
	// ErrDiverged: what is committed here and what the leader has differ. This copy may be the only one
	// of acknowledged records, so nobody but a person gives it up.
	ErrDiverged = errors.New("the leader's log is another one")
)

// damage takes a replica out of service: it answers nothing, votes for nobody and is sent to no one.
func (c *Core) damage(g *group, err error) {
	if g.damaged != nil {
		return
	}
	g.damaged = err
	c.stats.Damaged++
	c.log.Error("replica damaged, out of service", "group", g.id, "replica", g.replica, "err", err)
	g.role, g.lead, g.serving = RoleDamaged, 0, false
	c.retire(g, fmt.Errorf("%w: %v", record.ErrDamaged, err))
	c.publish(g)
	if c.cfg.OnDamaged != nil {
		c.cfg.OnDamaged(g.id, g.replica, err)
	}
}

// retire takes a group out of everything that the Core goes through, and answers who waits.
func (c *Core) retire(g *group, err error) {
	c.dropWaiters(g, err)
	c.dropHeld(g, err)
	c.setAwake(g, false)
	c.setLeaderless(g, false)
	c.setStray(g, false)
	c.stand(g)
	g.log.cache, g.log.bytes = nil, 0
	c.countCache(g)
	c.cacheStale = true
	c.since(g, -g.sinceBytes)
}

// fail is for a store that cannot write: nothing that was not saved may be promised, so
// this node falls silent and others take over.
func (c *Core) fail(err error) {
	if c.failed != nil {
		return
	}
	c.failed = fmt.Errorf("%w: %v", record.ErrStorage, err)
	c.log.Error("storage failed: this node serves reads only until it is restarted", "err", err)
	for _, g := range c.order {
		if g.damaged == nil {
			g.role, g.lead, g.serving = RoleFollower, 0, false
		}
		c.retire(g, c.failed)
		c.publish(g)
	}
}

// touch marks a group whose consequences Flush has to draw. stepped means that Raft was
// given something, so that roles and indices may be out of date until then.
func (c *Core) touch(g *group, stepped bool) {
	g.stepped = g.stepped || stepped
	if !g.dirty {
		g.dirty = true
		c.dirty = append(c.dirty, g)
	}
}

// step gives Raft a message.
func (c *Core) step(g *group, m *pb.Message) {
	if g.damaged != nil || g.removed || c.failed != nil {
		return
	}
	c.guard(g, func() {
		err := g.rn.Step(m)
		if err != nil && !errors.Is(err, raft.ErrStepPeerNotFound) && !errors.Is(err, raft.ErrProposalDropped) {
			c.log.Warn("raft message refused", "group", g.id, "type", m.GetType(), "err", err)
		}
	})
	g.heartbeatAnswered = g.heartbeatAnswered || m.GetType() == pb.MsgHeartbeatResp
	c.touch(g, true)
}

func (c *Core) find(id record.GroupID) *group { return c.groups[id] }

func (c *Core) insert(g *group) {
	c.groups[g.id] = g
	i, _ := slices.BinarySearchFunc(c.order, g.id, func(o *group, id record.GroupID) int { return cmp.Compare(o.id, id) })
	c.order = slices.Insert(c.order, i, g)
}

// Status is what Inspect and tests look at.
type Status struct {
	Groups, Awake, Leaderless, Led int
	ProduceBytes, SaveBytes        int64
	CacheBytes                     int64
	Failed                         error
	Stats                          Stats
}

// Status counts what the Core holds.
func (c *Core) Status() Status {
	s := Status{
		Groups: len(c.order), Awake: len(c.awake), Leaderless: len(c.leaderless), ProduceBytes: c.produceBytes,
		SaveBytes: c.saveBytes, CacheBytes: c.cacheBytes, Failed: c.failed, Stats: c.stats,
	}
	for _, g := range c.order {
		if g.role == RoleLeader {
			s.Led++
		}
	}
	return s
}

// raftLogger keeps Raft's words out of the log, except what is about to end the replica.
type raftLogger struct {
	log   *slog.Logger
	group record.GroupID
}

func (l raftLogger) Debug(...any)            {}
func (l raftLogger) Debugf(string, ...any)   {}
func (l raftLogger) Info(...any)             {}
func (l raftLogger) Infof(string, ...any)    {}
func (l raftLogger) Warning(...any)          {}
func (l raftLogger) Warningf(string, ...any) {}
func (l raftLogger) Error(v ...any)          { l.log.Error("raft: "+fmt.Sprint(v...), "group", l.group) }
func (l raftLogger) Errorf(f string, v ...any) {
	l.log.Error("raft: "+fmt.Sprintf(f, v...), "group", l.group)
}
func (l raftLogger) Fatal(v ...any)            { panic(fmt.Sprint(v...)) }
func (l raftLogger) Fatalf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
func (l raftLogger) Panic(v ...any)            { panic(fmt.Sprint(v...)) }
func (l raftLogger) Panicf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
