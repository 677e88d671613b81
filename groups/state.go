package groups

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"edged/record"
)

// State is what every replica of a coordinator's log holds: groups and their offsets. Apply,
// Snapshot and Restore are called by one goroutine, the one of the log; the rest by any.
type State struct {
	mu      sync.RWMutex // held by Apply and Restore while they write, by others while they read
	groups  map[string]*stored
	bytes   int           // upper bound of the snapshot, without what every snapshot has
	applied uint64        // index of the last command
	epoch   record.Epoch  // of the coordinator that began last: nobody else's commands are taken
	unknown atomic.Uint64 // see Unknown
}

// stored is one group of the state.
type stored struct {
	Group
	changed uint64 // index of the last command that wrote to it
	topics  []topicOffsets
	bytes   int
}

// topicOffsets are a group's offsets in one topic, by partition.
type topicOffsets struct {
	name  string
	first record.GroupID
	parts []kept
}

// kept is one offset.
type kept struct {
	Commit
	at    int64  // ms since 1970, 0 if no clock told
	index uint64 // of the command that brought it
}

// New gives the state before the first command.
func New() *State { return &State{groups: map[string]*stored{}} }

// Apply carries out one command. The result is nil or an error, which leaves the state as it was.
func (s *State) Apply(index uint64, data []byte) any {
	epoch, cmd, err := Decode(data)
	if err != nil {
		if record.Code(err) == record.ErrUnsupported.Code {
			s.unknown.CompareAndSwap(0, index)
		}
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applied = index
	if _, begins := cmd.(*Begin); begins && epoch > s.epoch {
		s.epoch = epoch
	}
	if epoch != s.epoch {
		return fmt.Errorf("a command of epoch %d in epoch %d: %w", epoch, s.epoch, record.ErrNotCoordinator)
	}
	if err := cmd.apply(s, index); err != nil {
		return err
	}
	return nil
}

// Unknown is the index of the first command that this software did not understand, 0 if there was
// none. From there on the state may differ from that of newer nodes: it must not be served.
func (s *State) Unknown() uint64 { return s.unknown.Load() }

// Bytes is how much of MaxStateBytes is used.
func (s *State) Bytes() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.bytes
}

// room refuses what would make the state too large.
func (s *State) room(group string, grow int) error {
	if grow > 0 && s.bytes+grow > MaxStateBytes {
		return fmt.Errorf("group %.80q: the coordinator's state has %d bytes of at most %d; delete groups or keep less beside offsets: %w", group, s.bytes, MaxStateBytes, record.ErrLimit)
	}
	if s.groups[group] == nil && len(s.groups) >= MaxGroups {
		return fmt.Errorf("group %.80q: the coordinator has %d groups, the most it can have: %w", group, MaxGroups, record.ErrLimit)
	}
	return nil
}

// grow counts a change of a group's size.
func (s *State) grow(g *stored, by int) {
	g.bytes += by
	s.bytes += by
}

func (c *PutGroup) apply(s *State, index uint64) error {
	g := s.groups[c.Name]
	by := c.size()
	if g != nil {
		by -= g.Group.size()
	}
	if err := s.room(c.Name, by); err != nil {
		return err
	}
	if g == nil {
		g = &stored{}
		s.groups[c.Name] = g
	}
	g.Group, g.changed = c.Group, index
	s.grow(g, by)
	return nil
}

func (c *CommitOffsets) apply(s *State, index uint64) error {
	g := s.groups[c.Group]
	if g == nil {
		g = &stored{Group: Group{Name: c.Group}}
		g.bytes = g.Group.size()
	}
	most := 0 // that it can grow by
	if s.groups[c.Group] == nil {
		most = g.bytes
	}
	for _, t := range c.Topics {
		if i, ok := g.find(t.Name); ok && g.topics[i].first > t.First {
			return fmt.Errorf("topic %q was made anew meanwhile: %w", t.Name, record.ErrUnknownTopic)
		}
		most += g.growth(&t)
	}
	if err := s.room(c.Group, most); err != nil {
		return err
	}
	if s.groups[c.Group] == nil {
		s.groups[c.Group] = g
		s.bytes += g.bytes
	}
	for _, t := range c.Topics {
		s.grow(g, g.commit(&t, c.At, index))
	}
	g.changed = index
	return nil
}

func (g *stored) find(topic string) (int, bool) {
	return slices.BinarySearchFunc(g.topics, topic, func(t topicOffsets, name string) int { return strings.Compare(t.name, name) })
}

func (t *topicOffsets) find(n int32) (int, bool) {
	return slices.BinarySearchFunc(t.parts, n, func(k kept, n int32) int { return cmp.Compare(k.Partition, n) })
}

// growth is an upper bound of what a commit adds to the size of the group.
func (g *stored) growth(c *TopicCommit) int {
	i, known := g.find(c.Name)
	n := 0
	if !known {
		n = topicCost + len(c.Name)
	}
	for _, p := range c.Parts {
		if p.Offset < 0 {
			continue
		}
		n += p.size()
		if known {
			if j, ok := g.topics[i].find(p.Partition); ok && g.topics[i].first == c.First {
				n -= g.topics[i].parts[j].size()
			}
		}
	}
	return n
}

// commit takes one topic's offsets and says by how much the group's size changed.
func (g *stored) commit(c *TopicCommit, at int64, index uint64) (by int) {
	i, ok := g.find(c.Name)
	if !ok {
		g.topics = slices.Insert(g.topics, i, topicOffsets{name: c.Name, first: c.First})
		by = g.topics[i].size()
	}
	t := &g.topics[i]
	if t.first < c.First { // another topic had this name when the others were committed
		by -= t.size()
		*t = topicOffsets{name: c.Name, first: c.First}
		by += t.size()
	}
	for _, p := range c.Parts {
		j, found := t.find(p.Partition)
		if found {
			by -= t.parts[j].size()
		}
		switch k := (kept{p, at, index}); {
		case p.Offset < 0 && found:
			t.parts = slices.Delete(t.parts, j, j+1)
		case p.Offset < 0:
		case found:
			t.parts[j] = k
			by += k.size()
		default:
			t.parts = slices.Insert(t.parts, j, k)
			by += k.size()
		}
	}
	return by + g.dropEmpty()
}

// dropEmpty forgets topics without offsets and says by how much the size changed.
func (g *stored) dropEmpty() (by int) {
	g.topics = slices.DeleteFunc(g.topics, func(t topicOffsets) bool {
		if len(t.parts) == 0 {
			by -= t.size()
		}
		return len(t.parts) == 0
	})
	return by
}

func (c *DropOffsets) apply(s *State, _ uint64) error {
	g := s.groups[c.Group]
	if g == nil {
		return fmt.Errorf("group %.80q: %w", c.Group, record.ErrUnknownGroup)
	}
	for _, d := range c.Topics {
		i, ok := g.find(d.Name)
		if !ok {
			continue
		}
		drop := make(map[int32]bool, len(d.Parts))
		for _, p := range d.Parts {
			drop[p] = true
		}
		t, by := &g.topics[i], 0
		t.parts = slices.DeleteFunc(t.parts, func(k kept) bool {
			gone := drop[k.Partition] && k.index <= c.UpTo
			if gone {
				by -= k.size()
			}
			return gone
		})
		s.grow(g, by)
	}
	s.grow(g, g.dropEmpty())
	return nil
}

func (c *DeleteGroup) apply(s *State, _ uint64) error {
	g := s.groups[c.Group]
	switch {
	case g == nil:
		return fmt.Errorf("group %.80q: %w", c.Group, record.ErrUnknownGroup)
	case len(g.Members) > 0 || g.changed > c.UpTo:
		return fmt.Errorf("group %.80q: %w", c.Group, record.ErrGroupNotEmpty)
	}
	s.bytes -= g.bytes
	delete(s.groups, c.Group)
	return nil
}

// Upper bounds of what numbers and lengths take in a snapshot, in bytes.
const (
	groupCost    = 64
	memberCost   = 32
	protocolCost = 8
	topicCost    = 20
	partCost     = 44
)

// The sizes are upper bounds of what things take in a snapshot.

func (g *stored) size() int {
	n := g.Group.size()
	for _, t := range g.topics {
		n += t.size()
	}
	return n
}

func (t *topicOffsets) size() int {
	n := topicCost + len(t.name)
	for i := range t.parts {
		n += t.parts[i].size()
	}
	return n
}

func (c *Commit) size() int { return partCost + len(c.Metadata) }

func (g *Group) size() int {
	n := groupCost + len(g.Name) + len(g.ProtocolType) + len(g.Protocol) + len(g.Leader)
	for i := range g.Members {
		n += g.Members[i].size()
	}
	return n
}

func (m *Member) size() int { return m.broughtSize() + len(m.Assignment) }

// broughtSize is the size without the assignment.
func (m *Member) broughtSize() int {
	n := memberCost + len(m.ID) + len(m.Instance) + len(m.ClientID) + len(m.ClientHost)
	for _, p := range m.Protocols {
		n += protocolCost + len(p.Name) + len(p.Metadata)
	}
	return n
}

// Applied is the index of the last command. What is proposed later gets a higher one.
func (s *State) Applied() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.applied
}

// Group finds a group. The answer's slices must not be written to.
func (s *State) Group(name string) (Group, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if g := s.groups[name]; g != nil {
		return g.Group, true
	}
	return Group{}, false
}

// Groups gives all groups by name. Their slices must not be written to.
func (s *State) Groups() []Group {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]Group, 0, len(s.groups))
	for _, name := range slices.Sorted(maps.Keys(s.groups)) {
		out = append(out, s.groups[name].Group)
	}
	return out
}

// Offset is a committed offset with its topic.
type Offset struct {
	Topic string
	Commit
	First record.GroupID // of the topic that it was committed for
	at    int64
	index uint64
}

// Offsets gives the offsets that a group has committed, by topic and partition; nil if there is none.
func (s *State) Offsets(group string) []Offset {
	s.mu.RLock()
	defer s.mu.RUnlock()
	g := s.groups[group]
	if g == nil {
		return nil
	}
	var out []Offset
	for _, t := range g.topics {
		for _, p := range t.parts {
			out = append(out, t.offset(p))
		}
	}
	return out
}

// Offset finds what a group has committed for one partition.
func (s *State) Offset(group string, tp record.TopicPartition) (Offset, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	g := s.groups[group]
	if g == nil {
		return Offset{}, false
	}
	i, ok := g.find(tp.Topic)
	if !ok {
		return Offset{}, false
	}
	j, ok := g.topics[i].find(tp.Partition)
	if !ok {
		return Offset{}, false
	}
	return g.topics[i].offset(g.topics[i].parts[j]), true
}

func (t *topicOffsets) offset(k kept) Offset {
	return Offset{t.name, k.Commit, t.first, k.at, k.index}
}
