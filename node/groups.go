package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"edged/groups"
	"edged/metadata"
	"edged/partition"
	"edged/record"
)

// groupLogs is this node's part in coordinating consumer groups. A group belongs to one partition of
// the internal topic metadata.GroupsTopic, by a hash of its name; who leads that partition is the
// group's coordinator. Every replica has the groups.State of its partition, the leader a
// groups.Coordinator too, from when it has read its log until it leads no more.
//
// One goroutine, runGroups, owns all coordinators of the node. Requests and what became of commands
// come to it as functions; each of them stands for a request that somebody waits for, or for a command
// that counts against partition.Limits.Produce, so their number is bounded by those.
type groupLogs struct {
	n    *Node
	bell chan struct{}
	mu   struct {
		sync.Mutex
		states map[record.GroupID]*groups.State // of all replicas here
		queue  []func()
		closed bool
	}
	start time.Time
	led   map[record.GroupID]*ledLog // by runGroups
	again bool                       // a log could not be read: look at it again soon
}

// ledLog is a log that this node leads in one epoch. c is nil until it has been read; settled is
// closed then, or when it comes to nothing.
type ledLog struct {
	epoch   record.Epoch
	c       *groups.Coordinator
	settled chan struct{}
}

// readAgain is the pause before a log is tried again that could not be read.
const readAgain = 50 * time.Millisecond

func newGroupLogs(n *Node) *groupLogs {
	s := &groupLogs{n: n, bell: make(chan struct{}, 1), start: time.Now(), led: map[record.GroupID]*ledLog{}}
	s.mu.states = map[record.GroupID]*groups.State{}
	return s
}

// machineKind says what the partitions of a topic are.
func machineKind(t *metadata.Topic) partition.MachineKind {
	if t.Internal() {
		return partition.GroupsLog
	}
	return partition.DataPartition
}

// machine makes the state of a log that the Core opens here.
func (s *groupLogs) machine(g record.GroupID) partition.StateMachine {
	st := groups.New()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.states[g] = st
	return st
}

// forget drops the state of a replica that was removed.
func (s *groupLogs) forget(g record.GroupID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.states, g)
}

func (s *groupLogs) state(g record.GroupID) *groups.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.states[g]
}

// wake makes runGroups look at who leads. It never blocks.
func (s *groupLogs) wake() {
	select {
	case s.bell <- struct{}{}:
	default:
	}
}

// post gives runGroups something to do. It never blocks; false after the end.
func (s *groupLogs) post(fn func()) bool {
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return false
	}
	s.mu.queue = append(s.mu.queue, fn)
	s.mu.Unlock()
	s.wake()
	return true
}

func (s *groupLogs) take() []func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.mu.queue
	s.mu.queue = nil
	return q
}

// runGroups is the goroutine that owns the coordinators.
func (s *groupLogs) runGroups() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-s.bell:
		case <-timer.C:
		case <-s.n.ctx.Done():
			s.end()
			return
		}
		timer.Reset(s.turn())
	}
}

// turn does all that waits and says when there is more at the latest.
func (s *groupLogs) turn() time.Duration {
	s.again = false
	s.look()
	now := time.Since(s.start)
	for _, l := range s.led {
		if l.c != nil {
			l.c.Advance(now)
		}
	}
	for _, fn := range s.take() {
		fn()
	}
	next := now + time.Hour
	if s.again {
		next = now + readAgain
	}
	for _, l := range s.led {
		if l.c != nil {
			next = min(next, l.c.NextWake())
		}
	}
	return max(next-time.Since(s.start), 0)
}

// end answers everybody: first those whose requests have not begun.
func (s *groupLogs) end() {
	s.mu.Lock()
	s.mu.closed = true
	s.mu.Unlock()
	for g := range s.led {
		s.resign(g)
	}
	for _, fn := range s.take() {
		fn()
	}
}

// resign ends this node's part as the coordinator of a log.
func (s *groupLogs) resign(g record.GroupID) {
	if l := s.led[g]; l.c != nil {
		l.c.Close(record.ErrNotCoordinator)
	} else {
		close(l.settled)
	}
	delete(s.led, g)
}

// look compares what this node leads with what it coordinates.
func (s *groupLogs) look() {
	h := s.n.host.Load()
	if h == nil {
		return
	}
	s.mu.Lock()
	here := make([]record.GroupID, 0, len(s.mu.states))
	for g := range s.mu.states {
		here = append(here, g)
	}
	s.mu.Unlock()
	for _, g := range here {
		v := h.Partition(g).View()
		l := s.led[g]
		if l != nil && (v.Role != partition.RoleLeader || v.Epoch != l.epoch) {
			s.resign(g)
			l = nil
		}
		if l == nil && v.Role == partition.RoleLeader {
			s.read(h, g, v.Epoch)
		}
	}
}

// read begins to coordinate a log: when its first command is applied, so is everything before it.
func (s *groupLogs) read(h *partition.Host, g record.GroupID, epoch record.Epoch) {
	l := &ledLog{epoch: epoch, settled: make(chan struct{})}
	s.led[g] = l
	s.propose(h, g, epoch, &groups.Begin{}, func(err error) {
		st := s.state(g)
		switch {
		case s.led[g] != l:
		case err != nil || st == nil:
			close(l.settled)
			delete(s.led, g)
			s.again = true
		case st.Unknown() != 0:
			s.n.problems.add(fmt.Sprintf("entry %d of %s was written by newer software: this node cannot coordinate its consumer groups; update it", st.Unknown(), s.n.groupText(g)))
		default:
			l.c = groups.NewCoordinator(s.config(h, g, epoch, st), time.Since(s.start))
			close(l.settled)
		}
	})
}

func (s *groupLogs) config(h *partition.Host, g record.GroupID, epoch record.Epoch, st *groups.State) groups.Config {
	n := s.n
	timing := groups.DefaultTiming()
	timing.InitialDelay = time.Duration(n.cfg.KafkaGroupDelay) * time.Millisecond
	return groups.Config{
		State: st, Timing: timing,
		Propose:  func(cmd groups.Command, done func(error)) { s.propose(h, g, epoch, cmd, done) },
		MemberID: func(prefix string) string { return prefix + "-" + rand.Text() },
		Topic:    n.groupTopic,
		Born:     func() record.GroupID { return n.machine.Picture().NextGroup() },
		Wall:     n.groupTime,
		Notice:   func(text string) { n.log.Info(text) },
	}
}

// propose appends a command to the log that this node leads in an epoch: should it lead it in another by
// then, the command has no effect. done is called by runGroups, not at all after its end.
func (s *groupLogs) propose(h *partition.Host, g record.GroupID, epoch record.Epoch, cmd groups.Command, done func(error)) {
	data, err := groups.Encode(epoch, cmd)
	if err != nil {
		s.post(func() { done(err) })
		return
	}
	h.Propose(g, data, func(result any, err error) {
		if err == nil {
			err, _ = result.(error)
		}
		s.post(func() { done(err) })
	})
}

// groupTopic is a topic as coordinators know it.
func (n *Node) groupTopic(name string) (groups.Topic, bool) {
	t := n.machine.Picture().Topic(name)
	if t == nil || t.Internal() {
		return groups.Topic{}, false
	}
	return groups.Topic{First: t.Partitions[0].Group, Partitions: int32(len(t.Partitions))}, true
}

// groupTime is the time of the clock that people set, 0 while nothing may be deleted by it.
func (n *Node) groupTime() int64 {
	if n.clock.mayDelete() {
		return n.opts.Wall().UnixMilli()
	}
	return 0
}

// groupLog finds the partition that a group belongs to; nil while there is no such topic yet.
func (n *Node) groupLog(group string) *metadata.Partition {
	t := n.machine.Picture().Topic(metadata.GroupsTopic)
	if t == nil {
		return nil
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(group))
	return t.Partitions[h.Sum32()%uint32(len(t.Partitions))]
}

// coordinates finds the log of a group that this node leads, without waiting for anything.
func (s *groupLogs) coordinates(group string) (record.GroupID, error) {
	if err := s.n.notReady(); err != nil {
		return 0, err
	}
	p := s.n.groupLog(group)
	if p == nil {
		return 0, record.ErrNotCoordinator
	}
	part := s.n.host.Load().Lookup(p.Group)
	if part == nil || part.View().Role != partition.RoleLeader {
		return 0, record.ErrNotCoordinator
	}
	return p.Group, nil
}

// leads are the logs that this node leads.
func (s *groupLogs) leads() []record.GroupID {
	t := s.n.machine.Picture().Topic(metadata.GroupsTopic)
	if t == nil {
		return nil
	}
	var out []record.GroupID
	for _, p := range t.Partitions {
		if part := s.n.host.Load().Lookup(p.Group); part != nil && part.View().Role == partition.RoleLeader {
			out = append(out, p.Group)
		}
	}
	return out
}

// coordinator gives the coordinator of a log, for runGroups. With record.ErrCoordinatorLoading comes
// what is closed when there is more to say, if that is known.
func (s *groupLogs) coordinator(g record.GroupID) (*groups.Coordinator, <-chan struct{}, error) {
	switch l := s.led[g]; {
	case l != nil && l.c != nil:
		return l.c, nil, nil
	case l != nil:
		return nil, l.settled, record.ErrCoordinatorLoading
	case s.n.host.Load().Partition(g).View().Role == partition.RoleLeader:
		return nil, nil, record.ErrCoordinatorLoading
	}
	return nil, nil, record.ErrNotCoordinator
}

// asked is the answer to a question to a coordinator. Until settled is closed the answer is the same.
type asked[T any] struct {
	value   T
	err     error
	settled <-chan struct{}
}

// askGroup asks the coordinator of a group, if it is here. fn runs in runGroups; its done has to be called once.
func askGroup[T any](ctx context.Context, s *groupLogs, group string, fn func(c *groups.Coordinator, done func(T, error))) (T, error) {
	g, err := s.coordinates(group)
	if err != nil {
		var none T
		return none, err
	}
	return askLog(ctx, s, g, fn)
}

// askLog waits about an election for a log that is still being read: a log is read in a moment, but
// clients take the word that it is for a crash of their own (kafkajs) or pause for long.
func askLog[T any](ctx context.Context, s *groupLogs, g record.GroupID, fn func(c *groups.Coordinator, done func(T, error))) (T, error) {
	patience := time.NewTimer(electionPatience)
	defer patience.Stop()
	for {
		a := askOnce(ctx, s, g, fn)
		if a.settled == nil {
			return a.value, a.err
		}
		select {
		case <-a.settled:
		case <-patience.C:
			return a.value, a.err
		case <-ctx.Done():
			return a.value, a.err
		}
	}
}

func askOnce[T any](ctx context.Context, s *groupLogs, g record.GroupID, fn func(c *groups.Coordinator, done func(T, error))) asked[T] {
	answer := make(chan asked[T], 1)
	posted := s.post(func() {
		c, settled, err := s.coordinator(g)
		if err != nil {
			answer <- asked[T]{err: err, settled: settled}
			return
		}
		fn(c, func(v T, err error) { answer <- asked[T]{value: v, err: err} })
	})
	if !posted {
		return asked[T]{err: record.ErrShuttingDown}
	}
	select {
	case a := <-answer:
		return a
	case <-ctx.Done():
		return asked[T]{err: record.ErrTimeout}
	case <-s.n.ctx.Done():
		return asked[T]{err: record.ErrShuttingDown}
	}
}

// counts says how many groups with members this node coordinates, and how many members they have.
func (s *groupLogs) counts() (groups, members int) {
	done := make(chan struct{})
	if !s.post(func() {
		for _, l := range s.led {
			if l.c != nil {
				g, m := l.c.Counts()
				groups, members = groups+g, members+m
			}
		}
		close(done)
	}) {
		return 0, 0
	}
	<-done // end runs what is queued
	return groups, members
}

// findCoordinator gives the node that coordinates a group. The first time it makes the topic.
func (n *Node) findCoordinator(ctx context.Context, group string) (record.NodeID, error) {
	if err := n.notReady(); err != nil {
		return record.NoNode, err
	}
	if group == "" || len(group) > groups.MaxNameBytes {
		return record.NoNode, fmt.Errorf("a group's name of %d bytes, 1 to %d are allowed: %w", len(group), groups.MaxNameBytes, record.ErrInvalidGroup)
	}
	if n.groupLog(group) == nil {
		if !n.caughtUp() {
			return record.NoNode, n.unknownTopic(metadata.GroupsTopic)
		}
		if err := n.makeGroupsTopic(ctx); err != nil {
			return record.NoNode, err
		}
	}
	g := n.groupLog(group).Group
	ctx, cancel := context.WithTimeout(ctx, electionPatience)
	defer cancel()
	leader := record.NoNode
	_ = n.awaitPicture(ctx, func(*metadata.Picture) bool {
		leader, _ = n.leaderOf(g, n.host.Load().Lookup(g))
		return leader != record.NoNode
	})
	if leader == record.NoNode {
		return leader, record.ErrNoCoordinator
	}
	return leader, nil
}

// makeGroupsTopic makes the topic of the coordinators' logs, unless another node does.
func (n *Node) makeGroupsTopic(ctx context.Context) error {
	n.awaitNodes(ctx, metadata.AutoReplication)
	cmd := &metadata.CreateTopic{
		Name: metadata.GroupsTopic, ID: record.NewTopicID(), Partitions: metadata.GroupsPartitions, Created: n.opts.Wall().UnixMilli(),
	}
	var err error
	if cmd.Assignments, err = metadata.Place(n.machine.Picture(), n.up(), cmd.Partitions, metadata.AutoReplication); err != nil {
		return err
	}
	_, err = n.makeTopic(ctx, cmd)
	if errors.Is(err, record.ErrTopicExists) {
		err = n.awaitPicture(ctx, func(p *metadata.Picture) bool { return p.Topic(metadata.GroupsTopic) != nil })
	}
	return err
}

// ownTopic keeps clients away from the topics that the cluster has for itself.
func ownTopic(name string) error {
	if t := (&metadata.Topic{Name: name}); t.Internal() {
		return &record.Error{Code: record.ErrInvalidTopic.Code, Message: "topic " + name + " is the cluster's own: no client makes, reads or writes it"}
	}
	return nil
}
