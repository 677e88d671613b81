package metadata

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"edged/record"
)

const firstGroup = record.MetadataGroup + 1

// CreateTopic makes a topic. The proposer has chosen the id and, with Place, the nodes.
// The result is CreateTopicResult, also if the topic exists under the same id already,
// so that a proposal of unknown fate can be repeated. Failures: ErrTopicExists,
// ErrInvalidTopic, ErrInvalidConfig, ErrUnknownNode, ErrLimit.
type CreateTopic struct {
	Name       string
	ID         record.TopicID
	Partitions int32
	// Replication is the "replication" setting; it may stand in Configs instead, but the
	// two must not contradict each other. AutoReplication leaves it to Configs.
	Replication int16
	Configs     map[string]string // only what differs from the defaults
	// Assignments are the nodes of each partition, the preferred leader first. With
	// replication auto there may be fewer than there will be.
	Assignments [][]record.NodeID
	Created     int64 // milliseconds since 1970
}

// CreateTopicResult is the topic as it is now.
type CreateTopicResult struct{ Topic *Topic }

func (*CreateTopic) kind() kind { return kindCreateTopic }

func (c *CreateTopic) fields(x *codec) {
	x.str("topic name", &c.Name, 1, maxTopicNameBytes)
	x.id16("topic id", (*[16]byte)(&c.ID))
	signed(x, "partitions", &c.Partitions, 1, MaxPartitionsPerTopic)
	signed(x, "replication", &c.Replication, AutoReplication, MaxReplication)
	x.settings("configs", &c.Configs)
	x.assignments(&c.Assignments)
	x.time("created", &c.Created)
}

func (x *codec) assignments(a *[][]record.NodeID) {
	list(x, "assignments", a, MaxPartitionsPerTopic, func(nodes *[]record.NodeID) {
		list(x, "assignment", nodes, MaxReplication, func(n *record.NodeID) { x.node("node id", n) })
	})
}

func (c *CreateTopic) apply(p *Picture) (*Picture, any, error) {
	if err := ValidTopicName(c.Name); err != nil {
		return nil, nil, err
	}
	if t := p.Topic(c.Name); t != nil {
		if t.ID == c.ID {
			return p, CreateTopicResult{t}, nil
		}
		return nil, nil, fmt.Errorf("topic %s: %w", c.Name, record.ErrTopicExists)
	}
	if c.ID == (record.TopicID{}) || p.TopicByID(c.ID) != nil {
		return nil, nil, fmt.Errorf("topic %s: its id %v is zero or taken: %w", c.Name, c.ID, record.ErrInvalidRequest)
	}
	if len(p.byName) >= MaxTopics {
		return nil, nil, fmt.Errorf("topic %s: the cluster has %d topics, the most it can have: %w", c.Name, MaxTopics, record.ErrLimit)
	}
	given, configs, err := c.configs()
	if err != nil {
		return nil, nil, fmt.Errorf("topic %s: %w", c.Name, err)
	}
	if err := p.checkSettings(nil, given); err != nil {
		return nil, nil, fmt.Errorf("topic %s: %w", c.Name, err)
	}
	t := &Topic{Name: c.Name, ID: c.ID, Created: c.Created, Settings: given, Configs: configs}
	t.Class = t.class()
	next, t, err := p.extend(t, c.Partitions, c.Assignments)
	if err != nil {
		return nil, nil, err
	}
	return next.withTopic(t), CreateTopicResult{t}, nil
}

// configs joins Replication and Configs.
func (c *CreateTopic) configs() (map[string]string, Configs, error) {
	given := c.Configs
	if c.Replication != AutoReplication {
		n := strconv.Itoa(int(c.Replication))
		if has, ok := given[ReplicationKey]; ok && has != n {
			return nil, Configs{}, fmt.Errorf("%w: replication is given as %s and as %.40q", record.ErrInvalidConfig, n, has)
		}
		given = maps.Clone(given)
		if given == nil {
			given = map[string]string{}
		}
		given[ReplicationKey] = n
	}
	configs, err := ParseConfigs(given)
	return given, configs, err
}

// checkSettings tells whether there is room for the settings of one topic, in place of its old ones.
func (p *Picture) checkSettings(old, given map[string]string) error {
	size := func(settings map[string]string) (n int) {
		for k, v := range settings {
			n += len(k) + len(v)
		}
		return n
	}
	if len(given) > maxSettings {
		return fmt.Errorf("%d settings, a topic can have %d: %w", len(given), maxSettings, record.ErrLimit)
	}
	total := size(given) - size(old)
	if total <= 0 {
		return nil
	}
	for _, t := range p.byName {
		total += size(t.Settings)
	}
	if total > MaxSettingsBytes {
		return fmt.Errorf("the settings of all topics would take %d bytes, the most is %d: %w", total, MaxSettingsBytes, record.ErrLimit)
	}
	return nil
}

// extend gives t its partitions up to number count, one for each assignment, under new
// groups. It returns a picture that counts them and a new topic, not yet in it.
func (p *Picture) extend(t *Topic, count int32, assignments [][]record.NodeID) (*Picture, *Topic, error) {
	base := int32(len(t.Partitions))
	if int32(len(assignments)) != count-base {
		return nil, nil, fmt.Errorf("topic %s: nodes are given for %d partitions, not for %d: %w", t.Name, len(assignments), count-base, record.ErrInvalidRequest)
	}
	if count > MaxPartitionsPerTopic || p.partitions+len(assignments) > MaxPartitions {
		return nil, nil, fmt.Errorf("topic %s: %d partitions are too many: %d are the most for a topic, %d for the cluster, which has %d: %w",
			t.Name, count, MaxPartitionsPerTopic, MaxPartitions, p.partitions, record.ErrLimit)
	}
	if err := p.checkAssignments(t, assignments); err != nil {
		return nil, nil, fmt.Errorf("topic %s: %w", t.Name, err)
	}
	next, longer := *p, *t
	longer.Partitions = slices.Grow(slices.Clone(t.Partitions), len(assignments))
	for _, nodes := range assignments {
		part := &Partition{Group: next.nextGroup}
		next.nextGroup++
		for _, n := range nodes {
			part.Replicas = append(part.Replicas, next.newReplica(n))
		}
		part.Initial = part.Replicas
		longer.Partitions = append(longer.Partitions, part)
	}
	next.spans = append(slices.Clip(p.spans), span{p.nextGroup, int32(len(assignments)), t.ID, base})
	next.partitions += len(assignments)
	return &next, &longer, nil
}

// checkAssignments tells whether the nodes can take these new partitions.
func (p *Picture) checkAssignments(t *Topic, assignments [][]record.NodeID) error {
	loads := p.Loads()
	var replicas uint32
	for i, nodes := range assignments {
		want := int(t.Configs.Replication)
		if len(nodes) == 0 || want != AutoReplication && len(nodes) != want {
			return fmt.Errorf("new partition %d is given %d nodes, replication is %s: %w", i, len(nodes), t.Configs.Map()[ReplicationKey], record.ErrInvalidRequest)
		}
		if err := p.checkTargets(nodes, nil); err != nil {
			return err
		}
		for _, n := range nodes {
			l := loads[n]
			l.Replicas++
			loads[n] = l
			if l.Replicas > MaxReplicasPerNode {
				return fmt.Errorf("node %d would hold more than %d replicas: %w", n, MaxReplicasPerNode, record.ErrLimit)
			}
			replicas++
		}
	}
	return p.checkAttempts(replicas)
}

// withTopic gives a picture in which t is put in or takes the place of its older value.
func (p *Picture) withTopic(t *Topic) *Picture {
	next := *p
	if i, ok := findTopicName(p.byName, t.Name); ok {
		next.byName = replaced(p.byName, i, t)
	} else {
		next.byName = inserted(p.byName, i, t)
	}
	if i, ok := findTopicID(p.byID, t.ID); ok {
		next.byID = replaced(p.byID, i, t)
	} else {
		next.byID = inserted(p.byID, i, t)
	}
	return &next
}

// named finds the topic that a command means. An id that is not zero has to be the
// topic's, so that a command meant for a deleted topic never hits its successor.
func (p *Picture) named(name string, id record.TopicID) (*Topic, error) {
	t := p.Topic(name)
	if t == nil || id != (record.TopicID{}) && id != t.ID {
		return nil, fmt.Errorf("topic %.80q: %w", name, record.ErrUnknownTopic)
	}
	return t, nil
}

// DeleteTopic deletes a topic and leaves a tombstone for each of its replicas. ID may be
// zero for whichever topic has the name. The result is nil.
type DeleteTopic struct {
	Name string
	ID   record.TopicID
}

func (*DeleteTopic) kind() kind { return kindDeleteTopic }

func (c *DeleteTopic) fields(x *codec) {
	x.str("topic name", &c.Name, 1, maxTopicNameBytes)
	x.id16("topic id", (*[16]byte)(&c.ID))
}

func (c *DeleteTopic) apply(p *Picture) (*Picture, any, error) {
	t, err := p.named(c.Name, c.ID)
	if err != nil {
		return nil, nil, err
	}
	if err := t.notInternal(); err != nil {
		return nil, nil, err
	}
	var dead []Tombstone
	for _, part := range t.Partitions {
		for _, r := range slices.Concat(part.Replicas, part.Removing) {
			dead = append(dead, Tombstone{part.Group, r})
		}
	}
	next, err := p.withTombstones(dead)
	if err != nil {
		return nil, nil, fmt.Errorf("topic %s: %w", t.Name, err)
	}
	i, _ := findTopicName(p.byName, t.Name)
	next.byName = removed(p.byName, i)
	i, _ = findTopicID(p.byID, t.ID)
	next.byID = removed(p.byID, i)
	next.spans = slices.DeleteFunc(slices.Clone(p.spans), func(s span) bool { return s.topic == t.ID })
	next.partitions -= len(t.Partitions)
	return next, nil, nil
}

// AlterTopic changes settings, adds partitions, or both. ID may be zero for whichever
// topic has the name. A new replication takes effect step by step, by Plan. The result is
// AlterTopicResult.
type AlterTopic struct {
	Name  string
	ID    record.TopicID
	Set   map[string]string // settings to write
	Unset []string          // settings to put back to their defaults
	// Partitions is how many there shall be, 0 to leave them; there are never fewer than
	// before. Assignments are the nodes of the new ones.
	Partitions  int32
	Assignments [][]record.NodeID
}

// AlterTopicResult is the topic as it is now.
type AlterTopicResult struct{ Topic *Topic }

func (*AlterTopic) kind() kind { return kindAlterTopic }

func (c *AlterTopic) fields(x *codec) {
	x.str("topic name", &c.Name, 1, maxTopicNameBytes)
	x.id16("topic id", (*[16]byte)(&c.ID))
	x.settings("settings", &c.Set)
	list(x, "settings to unset", &c.Unset, maxSettings, func(s *string) { x.str("setting", s, 1, maxSettingBytes) })
	signed(x, "partitions", &c.Partitions, 0, MaxPartitionsPerTopic)
	x.assignments(&c.Assignments)
}

func (c *AlterTopic) apply(p *Picture) (*Picture, any, error) {
	old, err := p.named(c.Name, c.ID)
	if err != nil {
		return nil, nil, err
	}
	given := maps.Clone(old.Settings)
	if given == nil {
		given = map[string]string{}
	}
	maps.Copy(given, c.Set)
	for _, name := range c.Unset {
		delete(given, name)
	}
	configs, err := ParseConfigs(given)
	if err == nil {
		err = p.checkSettings(old.Settings, given)
	}
	if err == nil && int(configs.Replication) > len(p.usable()) && configs.Replication > old.Configs.Replication {
		err = fmt.Errorf("replication %d with %d nodes: %w", configs.Replication, len(p.usable()), record.ErrNoNodes)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("topic %s: %w", c.Name, err)
	}
	t, next := *old, p
	t.Settings, t.Configs = given, configs
	grown := &t
	if has := int32(len(old.Partitions)); c.Partitions < has && c.Partitions != 0 {
		return nil, nil, invalid("topic %s has %d partitions and cannot have fewer", c.Name, has)
	} else if c.Partitions > has {
		if err := old.notInternal(); err != nil {
			return nil, nil, err
		}
		if next, grown, err = p.extend(&t, c.Partitions, c.Assignments); err != nil {
			return nil, nil, err
		}
	} else if maps.Equal(given, old.Settings) {
		return p, AlterTopicResult{old}, nil
	}
	return next.withTopic(grown), AlterTopicResult{grown}, nil
}
