package groups

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"edged/record"
)

// CommitRequest keeps offsets for a group.
type CommitRequest struct {
	Identity
	Offsets []PartitionCommit
}

// PartitionCommit is a commit with its topic.
type PartitionCommit struct {
	Topic string
	Commit
}

// Commit keeps offsets. done is given an error for each, or one for all; it is called when they are
// written down.
func (c *Coordinator) Commit(req CommitRequest, done func([]error, error)) {
	if err := c.mayCommit(req.Identity); err != nil {
		done(nil, err)
		return
	}
	if len(req.Offsets) > MaxCommitPartitions {
		done(nil, fmt.Errorf("a commit of %d partitions, at most %d are taken: %w", len(req.Offsets), MaxCommitPartitions, record.ErrLimit))
		return
	}
	cmd := &CommitOffsets{Group: req.Group, At: c.cfg.Wall()}
	errs := make([]error, len(req.Offsets))
	place := map[string]int{} // of topics in the command
	for i, o := range req.Offsets {
		t, err := c.locate(o.Topic, o.Partition)
		if err == nil && len(o.Metadata) > MaxMetadataBytes {
			err = fmt.Errorf("%d bytes beside the offset, at most %d are kept: %w", len(o.Metadata), MaxMetadataBytes, record.ErrOffsetMetadataLarge)
		}
		if errs[i] = err; err != nil {
			continue
		}
		at, ok := place[o.Topic]
		if !ok {
			at = len(cmd.Topics)
			place[o.Topic] = at
			cmd.Topics = append(cmd.Topics, TopicCommit{Name: o.Topic, First: t.First})
		}
		cmd.Topics[at].Parts = append(cmd.Topics[at].Parts, o.Commit)
	}
	if len(cmd.Topics) == 0 {
		done(errs, nil)
		return
	}
	slices.SortFunc(cmd.Topics, func(a, b TopicCommit) int { return strings.Compare(a.Name, b.Name) })
	c.propose(cmd, func(err error) {
		if err != nil {
			errs = nil
		}
		done(errs, err)
	})
}

// mayCommit tells whether somebody may commit: a member of the present generation, or anybody while
// the group has no members.
func (c *Coordinator) mayCommit(id Identity) error {
	if id.Group == "" || len(id.Group) > MaxNameBytes {
		return fmt.Errorf("a group's name of %d bytes, 1 to %d are allowed: %w", len(id.Group), MaxNameBytes, record.ErrInvalidGroup)
	}
	g := c.find(id.Group)
	stranger := id.Generation < 0 && id.Member == "" && id.Instance == ""
	switch {
	case g == nil && id.Generation >= 0:
		return record.ErrIllegalGeneration
	case g == nil || g.phase == empty && id.Generation < 0:
		return nil
	case stranger:
		return record.ErrUnknownMember
	}
	m, err := g.checkGeneration(id)
	if err != nil {
		return err
	}
	c.refresh(g, m)
	if g.phase == completing {
		return record.ErrRebalance
	}
	return nil
}

func (c *Coordinator) locate(topic string, partition int32) (Topic, error) {
	t, ok := c.cfg.Topic(topic)
	switch {
	case !ok || topic == "" || len(topic) > maxTopicNameBytes:
		return Topic{}, fmt.Errorf("topic %.80q: %w", topic, record.ErrUnknownTopic)
	case partition < 0 || partition >= t.Partitions:
		return Topic{}, fmt.Errorf("topic %q has no partition %d: %w", topic, partition, record.ErrUnknownPartition)
	}
	return t, nil
}

// dead tells whether an offset is of a topic that is no more, also if another has its name. What this
// node has not heard of yet is not dead.
func (c *Coordinator) dead(o *Offset) bool {
	known := c.cfg.Born() // first: the topics are as of then or later
	if t, ok := c.cfg.Topic(o.Topic); ok {
		return t.First > o.First
	}
	return o.First < known
}

// Fetch gives what a group has committed, for each partition asked for, in that order: one without
// an offset has the offset -1. nil partitions are all that have one.
func (c *Coordinator) Fetch(group string, partitions []record.TopicPartition) []Offset {
	if partitions == nil {
		return slices.DeleteFunc(c.cfg.State.Offsets(group), func(o Offset) bool { return c.dead(&o) })
	}
	out := make([]Offset, len(partitions))
	for i, tp := range partitions {
		o, ok := c.cfg.State.Offset(group, tp)
		if !ok || c.dead(&o) {
			o = Offset{Topic: tp.Topic, Commit: Commit{Partition: tp.Partition, Offset: -1, Epoch: record.NoEpoch}}
		}
		out[i] = o
	}
	return out
}

// DeleteOffsets forgets offsets of topics that no member reads. done is given an error for each
// partition, or one for all.
func (c *Coordinator) DeleteOffsets(name string, partitions []record.TopicPartition, done func([]error, error)) {
	g := c.find(name)
	if g == nil {
		done(nil, fmt.Errorf("group %.80q: %w", name, record.ErrUnknownGroup))
		return
	}
	reads, known := g.reads()
	if len(g.members) > 0 && g.protocolType != consumerType {
		done(nil, record.ErrGroupNotEmpty)
		return
	}
	drop := map[string][]int32{}
	errs := make([]error, len(partitions))
	for i, tp := range partitions {
		if _, errs[i] = c.locate(tp.Topic, tp.Partition); errs[i] != nil {
			continue
		}
		if len(g.members) > 0 && (!known || reads[tp.Topic]) {
			errs[i] = record.ErrGroupSubscribed
			continue
		}
		drop[tp.Topic] = append(drop[tp.Topic], tp.Partition)
	}
	if len(drop) == 0 {
		done(errs, nil)
		return
	}
	c.propose(dropCommand(name, c.cfg.State.Applied(), drop), func(err error) {
		if err != nil && !errors.Is(err, record.ErrUnknownGroup) {
			done(nil, err)
			return
		}
		done(errs, nil)
	})
}

func dropCommand(group string, upTo uint64, drop map[string][]int32) *DropOffsets {
	cmd := &DropOffsets{Group: group, UpTo: upTo}
	for _, topic := range slices.Sorted(maps.Keys(drop)) {
		cmd.Topics = append(cmd.Topics, TopicDrop{topic, drop[topic]})
	}
	return cmd
}

// maxSweep bounds the commands that one look for old offsets proposes.
const maxSweep = 100

// dropOld forgets offsets that nobody has read on from for too long, those of topics that are no
// more, and groups without members and offsets.
func (c *Coordinator) dropOld() {
	now := c.cfg.Wall()
	if c.began == 0 {
		c.began = now
	}
	upTo := c.cfg.State.Applied() // read first: what comes later is not judged by what was seen
	proposed := 0
	for _, s := range c.cfg.State.Groups() {
		if proposed == maxSweep {
			c.sweep = c.now + c.cfg.Timing.SaveAgain
			return
		}
		live := c.groups[s.Name]
		kept, drop := 0, map[string][]int32{}
		for _, o := range c.cfg.State.Offsets(s.Name) {
			if c.dead(&o) || c.expired(&s, live, &o, now) {
				drop[o.Topic] = append(drop[o.Topic], o.Partition)
			} else {
				kept++
			}
		}
		var cmd Command
		switch {
		case kept == 0 && live == nil && len(s.Members) == 0:
			cmd = &DeleteGroup{Group: s.Name, UpTo: upTo}
		case len(drop) > 0:
			cmd = dropCommand(s.Name, upTo, drop)
		default:
			continue
		}
		proposed++
		c.propose(cmd, func(error) {}) // the next look tries again
	}
}

// expired tells whether an offset has been kept long enough: since it was committed, and since
// the group has had no members that want its topic. now is 0 while no clock tells.
func (c *Coordinator) expired(s *Group, live *group, o *Offset, now int64) bool {
	since := max(o.at, s.EmptySince)
	if live != nil {
		reads, known := live.reads()
		if !known || reads[o.Topic] || len(live.members) == 0 {
			return false
		}
	}
	if since == 0 {
		since = c.began
	}
	return now > 0 && since > 0 && now-since >= c.cfg.Timing.Retention.Milliseconds()
}
