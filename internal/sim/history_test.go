package sim

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"edged/record"
	"edged/transport/wire"
)

// The laws, as failures name them. The numbers are those of docs/design.md.
const (
	lawAckedKept   = "what was acknowledged is kept (law 1)"
	lawOneLeader   = "one leader per epoch (law 2)"
	lawEpochsRise  = "epochs never go back (law 2)"
	lawDense       = "offsets are dense and given once (law 3)"
	lawNoDuplicate = "no record twice from an idempotent producer (law 3)"
	lawOrder       = "a producer's records stand in the order it sent them (law 3)"
	lawBelowHigh   = "nobody reads above the high watermark (law 4)"
	lawCommitted   = "a high watermark that is shown is on a majority's disks (laws 1, 4)"
	lawHighRises   = "the high watermark and the log start never go back (law 4)"
	lawStart       = "the log start moves only by retention (law 7)"
	lawInvented    = "what is read was sent"
	lawRefused     = "what was refused is not in the log"
	lawEqualLogs   = "logs are equal up to the high watermark"
	lawEqualStates = "state machines are equal at an equal index"
	lawHealthy     = "no replica is damaged and stored data keeps all laws (law 8)"
	lawLive        = "after the faults every partition takes a record soon"
	lawRuns        = "a node ends only for a reason"
	lawStops       = "a node stops when told"
	lawOneCluster  = "there is one cluster"
	lawClone       = "of two nodes under one identity one ends and says why (law 6)"
	lawIdentity    = "an identity stays and its boot counter rises (law 6)"
	lawReadBack    = "what was acknowledged can be read at once"
	lawNamed       = "a damaged disk is named as what it is (law 8)"
	lawMended      = "a damaged replica is fetched anew while the others have a majority (law 8)"
	lawLinear      = "appends and reads are linearizable"
	lawEnds        = "a run ends"
)

// history is what clients did and saw, and what is known of each partition from it. Everything that
// can be checked at once is.
type history struct {
	w *world

	mu     sync.Mutex
	topics map[string]*topic
	groups map[record.GroupID]map[record.Epoch]record.NodeID // who led, as any node said
	ops    []*sent
	acked  int
	read   int
	lives  int
	hash   uint64 // of all that happened, in order: equal for equal runs
}

// topic is what the script knows of a topic that it made.
type topic struct {
	name       string
	relaxed    bool          // may lose what was acknowledged
	transient  bool          // will be deleted
	retention  bool          // its log start may move
	keepBytes  int64         // retention.bytes, if above 0
	keepTime   time.Duration // retention.ms, unless it is unlimited
	deleted    atomic.Bool
	partitions []*part
}

// part is what is known of a partition.
type part struct {
	topic  *topic
	number int32
	// seen is what readers got at each offset, which nobody may ever see otherwise.
	seen map[record.Offset]string
	// acked is what was acknowledged, safe for good, by offset.
	acked    map[record.Offset]string
	ackedEnd record.Offset
	ops      []*sent
	reads    []fetched     // the first ones
	voters   string        // as last seen
	changed  time.Duration // when they were others
}

// sent is one batch that a producer sent, however many times it tried.
type sent struct {
	number    int
	part      *part
	client    string
	pid       int64
	seq       int32
	values    []string
	stamp     int64 // by the clock that people set
	acks      int16
	call, ret time.Duration
	callNo    int // place in the order of all calls and answers
	retNo     int
	outcome   outcome
	offset    record.Offset // -1 if not known
	epoch     record.Epoch
	tries     int
	strong    bool // acknowledged with a promise that survives everything
}

// outcome of a batch.
type outcome uint8

const (
	open outcome = iota // may be in the log, may come to be
	acked
	refused // is not in the log
)

func (o outcome) String() string { return [...]string{"open", "acknowledged", "refused"}[o] }

func newHistory(w *world) *history {
	return &history{w: w, topics: map[string]*topic{}, groups: map[record.GroupID]map[record.Epoch]record.NodeID{}}
}

// note mixes something that happened into the run's hash.
func (h *history) note(format string, args ...any) {
	f := fnv.New64a()
	fmt.Fprintf(f, "%d %d ", h.hash, h.w.since())
	fmt.Fprintf(f, format, args...)
	h.hash = f.Sum64()
}

func (h *history) addTopic(t *topic, partitions int) *topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range partitions {
		t.partitions = append(t.partitions, &part{topic: t, number: int32(i), seen: map[record.Offset]string{}, acked: map[record.Offset]string{}})
	}
	h.topics[t.name] = t
	return t
}

// parts are the partitions of all topics that were not deleted, in a fixed order.
func (h *history) parts() []*part {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := make([]string, 0, len(h.topics))
	for n, t := range h.topics {
		if !t.deleted.Load() {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	var ps []*part
	for _, n := range names {
		ps = append(ps, h.topics[n].partitions...)
	}
	return ps
}

func (p *part) String() string { return p.topic.name + "/" + strconv.Itoa(int(p.number)) }

// begin notes a batch before it is sent for the first time. Its values name it.
func (h *history) begin(p *part, client string, pid int64, seq int32, count, pad int, acks int16) *sent {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &sent{number: len(h.ops), part: p, client: client, pid: pid, seq: seq, acks: acks, offset: -1, stamp: h.w.clock.now().UnixMilli(), call: h.w.since(), callNo: h.order()}
	for i := range count {
		v := fmt.Sprintf("%d.%d.%s", s.number, i, p)
		s.values = append(s.values, v+strings.Repeat("~", pad))
	}
	h.ops = append(h.ops, s)
	p.ops = append(p.ops, s)
	return s
}

func (h *history) order() int {
	h.lives++
	return h.lives
}

func (s *sent) String() string {
	return fmt.Sprintf("batch %d of %s to %s (pid %d seq %d, %d records, acks %d, %v, offset %d, epoch %d)",
		s.number, s.client, s.part, s.pid, s.seq, len(s.values), s.acks, s.outcome, s.offset, s.epoch)
}

// ack notes an acknowledgement. strong is what a majority's disks hold.
func (h *history) ack(s *sent, r wire.ProduceResponse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.note("ack %d %d", s.number, r.BaseOffset)
	// What a weak acknowledgement promised may be lost with its leader, and the batch, sent again, be appended anew.
	if s.outcome == acked && s.offset != r.BaseOffset && (s.strong || s.epoch == r.Epoch) {
		h.w.fail(lawDense, "%v was answered with offset %d and then with %d", s, s.offset, r.BaseOffset)
		return
	}
	h.acked++
	s.outcome, s.ret, s.offset, s.epoch, s.retNo = acked, h.w.since(), r.BaseOffset, r.Epoch, h.order()
	s.strong = s.acks == wire.AcksAll && !s.part.topic.relaxed
	if !s.strong {
		return
	}
	p := s.part
	for i, v := range s.values {
		o := r.BaseOffset + record.Offset(i)
		if other, ok := p.acked[o]; ok && other != v {
			h.w.fail(lawDense, "%v: offset %d was given to %s before", s, o, short(other))
		}
		if other, ok := p.seen[o]; ok && other != v {
			h.w.fail(lawDense, "%v: at offset %d somebody read %s before", s, o, short(other))
		}
		p.acked[o] = v
	}
	p.ackedEnd = max(p.ackedEnd, r.BaseOffset+record.Offset(len(s.values)))
}

func (h *history) refuse(s *sent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.note("refuse %d", s.number)
	s.outcome, s.ret, s.retNo = refused, h.w.since(), h.order()
}

// short is a value without its padding.
func short(v string) string { return strings.TrimRight(v, "~") }

// op is the batch that a value is of.
func (h *history) op(v string) *sent {
	n, _, ok := strings.Cut(v, ".")
	i, err := strconv.Atoi(n)
	if !ok || err != nil || i < 0 || i >= len(h.ops) || !slices.Contains(h.ops[i].values, v) {
		return nil
	}
	return h.ops[i]
}

// got checks one record that a reader or a replica has at an offset.
func (h *history) got(p *part, who string, o record.Offset, v string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.read++
	s := h.op(v)
	switch {
	case s == nil || s.part != p:
		h.w.fail(lawInvented, "%s has %q at offset %d of %s", who, short(v), o, p)
		return
	case s.outcome == refused:
		h.w.fail(lawRefused, "%s has %s at offset %d of %s: %v", who, short(v), o, p, s)
	}
	if p.topic.relaxed {
		return
	}
	if other, ok := p.acked[o]; ok && other != v {
		h.w.fail(lawAckedKept, "%s has %s at offset %d of %s where %s was acknowledged", who, short(v), o, p, short(other))
	}
	if other, ok := p.seen[o]; ok && other != v {
		h.w.fail(lawDense, "%s has %s at offset %d of %s where somebody read %s before", who, short(v), o, p, short(other))
	}
	p.seen[o] = v
}

// steady tells whether the voters of a partition have been the same for a while: what was committed by
// earlier ones is not yet on the disks of a new one.
func (h *history) steady(p *part, voters string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.voters != voters {
		p.voters, p.changed = voters, h.w.since()
	}
	return h.w.since()-p.changed >= steadyAfter
}

// steadyAfter is how long a new voter may take to catch up.
const steadyAfter = 3 * time.Second

// led notes that somebody said who leads a group in an epoch.
func (h *history) led(who string, g record.GroupID, e record.Epoch, leader record.NodeID) {
	if leader == record.NoNode {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.groups[g]
	if m == nil {
		m = map[record.Epoch]record.NodeID{}
		h.groups[g] = m
	}
	if old, ok := m[e]; ok && old != leader {
		h.w.fail(lawOneLeader, "%s says that %s leads group %d in epoch %d, where %s did", who, h.w.name(leader), g, e, h.w.name(old))
	}
	m[e] = leader
}

// lifeEnds takes what a node remembers before it dies.
func (h *history) lifeEnds(l *life) {
	for _, c := range l.n.LeaderChanges() {
		h.led(l.m.name, c.Group, c.Epoch, c.Leader)
	}
}

// removed checks that what is before the log start was old enough to go. Of what was there when a node
// started it knows nothing but the timestamps, so only what was sent later counts.
func (h *history) removed(p *part, who string, start record.Offset) {
	if p.topic.keepTime == 0 || start == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range p.ops {
		if !s.strong || s.offset >= start || s.call < time.Duration(h.w.booted.Load()) {
			continue
		}
		if age := h.w.since() - s.call; age < p.topic.keepTime {
			h.w.fail(lawStart, "%s: the log of %s starts at %d, but the batch at %d is %v old and %v were to be kept", who, p, start, s.offset, age, p.topic.keepTime)
			return
		}
	}
}
