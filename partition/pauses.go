package partition

import (
	"time"

	"edged/record"
)

// A radio that saves power holds frames back for a second and more, and a lost packet holds back what is behind
// it. To a detector of deaths that knows a LAN only, this is a peer that dies and comes back many times a minute. So
// every beat says when it left, and a node learns for each peer how long the way from it stops at times. Where that
// happens again and again, the peer is given longer before it counts as dead, and elections between the two take
// their time. A peer that stood still itself is no such case: its beats are few, not late. Nothing here touches
// safety, and no two nodes have to agree about it.
const (
	// pausesKept is how many pauses of a peer's link are remembered, and for how long; pausesBelieved is how many
	// of those make a link that pauses: one hiccup of a busy machine does not.
	pausesKept     = 8
	pausesBelieved = 3
	pauseMemory    = 5 * time.Minute
	// leastFor is how long the quickest beat of a time is what others are compared with. It goes with the drift
	// of two clocks, a few milliseconds a minute.
	leastFor = time.Minute
)

// pauses is what is known of the way from one peer.
type pauses struct {
	// stamps of beats compared with this node's clock, in milliseconds with an arbitrary zero: the quickest of the
	// last time and of this one.
	known            bool
	lastLeast, least uint32
	leastUntil       Time
	state            pauseState
	found            [pausesKept]struct {
		at   Time
		long Time
	}
	next int // of found, to be overwritten
}

// pauseState says whether beats are arriving that were held up, and whether that counts.
type pauseState uint8

const (
	onTime pauseState = iota
	heldUp
	heldUpElsewhere // for longer than anybody waits, or by this node
)

// stamp32 is the time that a beat carries, in milliseconds.
func stamp32(now Time) uint32 { return uint32(now / time.Millisecond) }

// arrived takes a beat's stamp. awake is since when this node has not stood still: what waited for it until then
// says nothing about the way. Pauses longer than most are not for learning: nobody waits for them.
func (p *pauses) arrived(now, awake, least, most Time, stamp uint32) {
	took := stamp32(now) - stamp
	before := func(a, b uint32) bool { return int32(a-b) < 0 }
	switch {
	case !p.known:
		p.known, p.lastLeast, p.least, p.leastUntil = true, took, took, now+leastFor
	case now >= p.leastUntil:
		p.lastLeast, p.least, p.leastUntil = p.least, took, now+leastFor
	case before(took, p.least):
		p.least = took
	}
	quickest := p.least
	if before(p.lastLeast, quickest) {
		quickest = p.lastLeast
	}
	late := Time(took-quickest) * time.Millisecond
	switch {
	case late < least:
		p.state = onTime
	case late > most || now-late < awake:
		p.state = heldUpElsewhere
	case p.state == heldUp: // behind the first that was
		f := &p.found[(p.next+pausesKept-1)%pausesKept]
		f.long = max(f.long, late)
	case p.state == onTime:
		p.state = heldUp
		p.found[p.next].at, p.found[p.next].long = now, late
		p.next = (p.next + 1) % pausesKept
	}
}

// longest is the longest pause to reckon with, 0 for a link that does not pause.
func (p *pauses) longest(now Time) Time {
	n, longest := 0, Time(0)
	for _, f := range p.found {
		if f.long > 0 && now-f.at < pauseMemory {
			n++
			longest = max(longest, f.long)
		}
	}
	if n < pausesBelieved {
		return 0
	}
	return longest
}

// newLife forgets the clock of a peer that was restarted, not the way to it.
func (p *pauses) newLife() { p.known, p.state = false, onTime }

// learn takes the stamp of a peer's beat.
func (c *Core) learn(s *session, stamp uint32) {
	t := &c.cfg.Timing
	s.pauses.arrived(c.now, c.awakeSince, t.DeadBusy/2, t.DeadMost, stamp)
	longest := s.pauses.longest(c.now)
	if patience(t.DeadBusy, longest, t) == t.DeadBusy {
		longest = 0 // as on any LAN
	}
	if longest == s.pause {
		return
	}
	s.pause, c.pause = longest, 0
	for _, o := range c.peers {
		c.pause = max(c.pause, o.pause)
	}
	if c.cfg.OnPause != nil {
		c.cfg.OnPause(LinkPause{Node: s.node, Pause: longest, Patience: patience(t.DeadBusy, longest, t)})
	}
}

// patience is how long a peer may be silent that would have usual on a LAN.
func patience(usual, pause Time, t *Timing) Time {
	if pause == 0 {
		return usual
	}
	return max(usual, min(t.BeatBusy+pause+pause/2, t.DeadMost))
}

func (c *Core) patience(s *session, usual Time) Time { return patience(usual, s.pause, &c.cfg.Timing) }

// LinkPause tells how long frames from a node are held up on their way, again and again, and for how long its
// silence is therefore borne. No Pause: it is as usual again.
type LinkPause struct {
	Node            record.NodeID
	Pause, Patience time.Duration
}

// ticksFor is how many of the Core's ticks make one of a leader's: Raft gives a leader up that has no answer from a
// majority for ElectionTicks, and an answer takes two ways.
func (c *Core) ticksFor(g *group) int {
	return 1 + int(2*c.pauseOf(g)/(c.cfg.Timing.Tick*Time(c.cfg.Timing.ElectionTicks)))
}

// pauseOf is the longest that the links to a group's live nodes pause.
func (c *Core) pauseOf(g *group) (longest Time) {
	if c.pause == 0 {
		return 0
	}
	for _, n := range g.nodes {
		if c.live(n) {
			longest = max(longest, c.session(n).pause)
		}
	}
	return longest
}
