package groups

import (
	"container/heap"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"edged/record"
)

// Time is a monotonic time from an arbitrary start.
type Time = time.Duration

const never Time = math.MaxInt64

func ms(n int32) Time { return Time(n) * time.Millisecond }

// Timing holds every duration that a coordinator goes by.
type Timing struct {
	// MinSession and MaxSession bound the silence that a member may ask for.
	MinSession, MaxSession time.Duration
	// InitialDelay is how long the first generation of a group waits for more members.
	InitialDelay time.Duration
	// FirstJoin is the longest that a new member may wait for its first generation.
	FirstJoin time.Duration
	// Retention is how long offsets are kept that nobody reads on from.
	Retention time.Duration
	// SweepEvery is how often old offsets are looked for.
	SweepEvery time.Duration
	// SaveAgain is the wait before a write that failed is tried again.
	SaveAgain time.Duration
}

// DefaultTiming is Kafka's.
func DefaultTiming() Timing {
	return Timing{
		MinSession: 6 * time.Second, MaxSession: 30 * time.Minute, InitialDelay: 3 * time.Second, FirstJoin: 5 * time.Minute,
		Retention: 7 * 24 * time.Hour, SweepEvery: 10 * time.Minute, SaveAgain: time.Second,
	}
}

// Topic is what a coordinator needs to know of a topic: the Raft group of its first partition,
// which tells it from another one of the name, and how many partitions it has.
type Topic struct {
	First      record.GroupID
	Partitions int32
}

// Config of a Coordinator. Nothing in it may call back into the Coordinator.
type Config struct {
	State *State
	// Propose appends a command to the log. done is called later, by the owner of the Coordinator,
	// when the command was applied or will not be.
	Propose func(cmd Command, done func(error))
	// MemberID makes an id that no member had before; it begins with prefix.
	MemberID func(prefix string) string
	// Topic finds a topic. Born gives a group id below which this node has heard of all topics.
	Topic func(name string) (Topic, bool)
	Born  func() record.GroupID
	// Wall gives ms since 1970, 0 while the clock was plainly never set.
	Wall   func() int64
	Timing Timing
	// Notice, if set, hears what an operator may want to read.
	Notice func(text string)
}

// Coordinator keeps the groups of one log together, on the node that leads it, for as long as it
// leads. It has one owner, who calls [Coordinator.Advance] before anything else and no later than
// [Coordinator.NextWake]. Functions that are given as done are called exactly once, at once or later, and
// must not block or call back.
//
// What has to survive the Coordinator goes through the log before anybody hears of it: offsets, the
// assignment of a generation, the end of a group's last member. The rest is known to the members,
// who bring it to the next Coordinator: at worst they join once more.
type Coordinator struct {
	cfg    Config
	now    Time
	groups map[string]*group
	heap   wakes
	bytes  int  // brought by members of all groups
	sweep  Time // when to look for old offsets
	began  int64
	closed bool
}

// NewCoordinator takes over from an earlier one, of which the State is left.
func NewCoordinator(cfg Config, now Time) *Coordinator {
	if cfg.Notice == nil {
		cfg.Notice = func(string) {}
	}
	c := &Coordinator{cfg: cfg, now: now, groups: map[string]*group{}, sweep: now + cfg.Timing.SweepEvery}
	for _, s := range cfg.State.Groups() {
		if len(s.Members) > 0 {
			c.hold(loadGroup(s, now))
		}
	}
	return c
}

// Advance tells the time and does what is due.
func (c *Coordinator) Advance(now Time) {
	c.now = max(c.now, now)
	for len(c.heap) > 0 && c.heap[0].wake <= c.now {
		g := c.heap[0]
		c.expire(g)
		c.rearm(g)
		c.settle(g)
	}
	if c.sweep <= c.now {
		c.sweep = c.now + c.cfg.Timing.SweepEvery
		c.dropOld()
	}
}

// NextWake is when Advance has something to do at the earliest.
func (c *Coordinator) NextWake() Time {
	if len(c.heap) > 0 {
		return min(c.heap[0].wake, c.sweep)
	}
	return c.sweep
}

// Close answers everybody who waits, with err. Nothing may be asked afterwards.
func (c *Coordinator) Close(err error) {
	c.closed = true
	for _, name := range slices.Sorted(maps.Keys(c.groups)) {
		for _, m := range c.groups[name].members {
			m.answerJoin(JoinResult{Err: err})
			m.answerSync(SyncResult{Err: err})
		}
	}
}

// Counts says how many groups have members, and how many those are.
func (c *Coordinator) Counts() (groups, members int) {
	for _, g := range c.groups {
		if members += len(g.members); len(g.members) > 0 {
			groups++
		}
	}
	return groups, members
}

// find gives a group, nil if there is none. One without members is made for the moment.
func (c *Coordinator) find(name string) *group {
	if g := c.groups[name]; g != nil {
		return g
	}
	if s, ok := c.cfg.State.Group(name); ok {
		return loadGroup(s, c.now)
	}
	return nil
}

// hold keeps a group in memory until settle finds it idle.
func (c *Coordinator) hold(g *group) {
	if c.groups[g.name] == g {
		return
	}
	c.groups[g.name] = g
	c.bytes += g.brought()
	heap.Push(&c.heap, g)
	c.rearm(g)
}

// settle lets go of a group of which there is no more to know than the State does.
func (c *Coordinator) settle(g *group) {
	if c.groups[g.name] == g && g.idle() {
		delete(c.groups, g.name)
		heap.Remove(&c.heap, g.place)
	}
}

// arm sees to it that the group is looked at no later than at t.
func (c *Coordinator) arm(g *group, t Time) {
	if t < g.wake {
		g.wake = t
		if g.place >= 0 {
			heap.Fix(&c.heap, g.place)
		}
	}
}

// rearm sets the group's wake to the first of its deadlines.
func (c *Coordinator) rearm(g *group) {
	w := never
	for _, m := range g.members {
		if m.timed() {
			w = min(w, m.deadline)
		}
	}
	for _, until := range g.pending {
		w = min(w, until)
	}
	if g.phase == preparing {
		w = min(w, g.joinBy)
	}
	if g.syncBy > 0 {
		w = min(w, g.syncBy)
	}
	if g.unsaved && g.saveAt > 0 {
		w = min(w, g.saveAt)
	}
	g.wake = w
	if g.place >= 0 {
		heap.Fix(&c.heap, g.place)
	}
}

// refresh gives a member all of its session again. At its first join the session has not begun.
func (c *Coordinator) refresh(g *group, m *member) {
	if m.fresh {
		return
	}
	m.deadline = c.now + ms(m.SessionMs)
	c.arm(g, m.deadline)
}

// propose appends a command. Errors are in the words of groups.
func (c *Coordinator) propose(cmd Command, done func(error)) {
	if c.closed {
		return // who waited was answered by Close
	}
	c.cfg.Propose(cmd, func(err error) { done(groupError(err)) })
}

// groupError says what the fate of a command means for a member.
func groupError(err error) error {
	var nl *record.NotLeaderError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &nl), errors.Is(err, record.ErrNoLeader), errors.Is(err, record.ErrInterrupted), errors.Is(err, record.ErrShuttingDown),
		errors.Is(err, record.ErrStorage), errors.Is(err, record.ErrDamaged), errors.Is(err, record.ErrUnknownPartition):
		return fmt.Errorf("%w: %v", record.ErrNotCoordinator, err)
	case errors.Is(err, record.ErrBusy):
		return fmt.Errorf("%w: %v", record.ErrCoordinatorLoading, err) // the only word for "here, but later"
	}
	return err
}

// expire does what a group's deadlines ask for.
func (c *Coordinator) expire(g *group) {
	lost := false
	for _, m := range slices.Clone(g.members) {
		if m.timed() && m.deadline <= c.now {
			c.notice(g, "member %s was not heard for %v", m.ID, ms(m.SessionMs))
			c.remove(g, m)
			lost = true
		}
	}
	for id, until := range g.pending {
		if until <= c.now {
			delete(g.pending, id)
		}
	}
	if g.syncBy > 0 && g.syncBy <= c.now {
		g.syncBy = 0
		for _, m := range slices.Clone(g.members) {
			if !m.synced {
				c.notice(g, "member %s did not ask for its assignment in time", m.ID)
				c.remove(g, m)
				lost = true
			}
		}
	}
	if lost {
		c.prepare(g)
	}
	if g.phase == preparing && g.joinBy <= c.now {
		c.joinTimeout(g)
	} else {
		c.maybeBegin(g)
	}
	if g.unsaved && g.saveAt > 0 && g.saveAt <= c.now {
		c.saveEmpty(g)
	}
}

// remove takes a member out of its group; prepare and maybeBegin have to follow.
func (c *Coordinator) remove(g *group, m *member) {
	c.bytes -= m.broughtSize()
	g.cut(m)
}

func (c *Coordinator) notice(g *group, format string, args ...any) {
	if !c.closed {
		c.cfg.Notice(fmt.Sprintf("group %s: ", g.name) + fmt.Sprintf(format, args...))
	}
}

// wakes is a heap of groups, the first to be looked at on top.
type wakes []*group

func (w wakes) Len() int           { return len(w) }
func (w wakes) Less(i, j int) bool { return w[i].wake < w[j].wake }
func (w wakes) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].place, w[j].place = i, j
}

func (w *wakes) Push(g any) {
	g.(*group).place = len(*w)
	*w = append(*w, g.(*group))
}

func (w *wakes) Pop() any {
	old := *w
	g := old[len(old)-1]
	old[len(old)-1] = nil
	*w, g.place = old[:len(old)-1], -1
	return g
}
