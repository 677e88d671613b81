package groups

import (
	"fmt"
	"maps"
	"slices"

	"edged/record"
)

// Description is a group from inside. State is Kafka's word, [Dead] for a group that there is not.
type Description struct {
	Group, State           string
	ProtocolType, Protocol string
	Generation             int32
	Leader                 string
	Members                []Member // with metadata and assignment in a stable group only
}

// Describe shows a group.
func (c *Coordinator) Describe(name string) Description {
	g := c.find(name)
	if g == nil {
		return Description{Group: name, State: Dead}
	}
	d := Description{Group: name, State: g.phase.String(), ProtocolType: g.protocolType, Generation: g.generation, Leader: g.leader}
	for _, m := range g.members {
		o := m.Member
		if g.phase == stable {
			d.Protocol = g.protocol
		} else {
			o.Protocols, o.Assignment = nil, nil
		}
		d.Members = append(d.Members, o)
	}
	return d
}

// Metadata is what a member said with the group's protocol.
func (d *Description) Metadata(m *Member) []byte {
	for _, p := range m.Protocols {
		if p.Name == d.Protocol {
			return p.Metadata
		}
	}
	return nil
}

// Listing is one group of a list.
type Listing struct {
	Group, ProtocolType, State string
	Members                    int
}

// List gives all groups by name.
func (c *Coordinator) List() []Listing {
	all := map[string]Listing{}
	for _, s := range c.cfg.State.Groups() {
		all[s.Name] = Listing{s.Name, s.ProtocolType, empty.String(), 0}
	}
	for name, g := range c.groups {
		all[name] = Listing{name, g.protocolType, g.phase.String(), len(g.members)}
	}
	out := make([]Listing, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[name])
	}
	return out
}

// Delete forgets a group without members, with its offsets.
func (c *Coordinator) Delete(name string, done func(error)) {
	g := c.find(name)
	switch {
	case g == nil:
		done(fmt.Errorf("group %.80q: %w", name, record.ErrUnknownGroup))
	case g.phase != empty:
		done(fmt.Errorf("group %.80q has %d members: %w", name, len(g.members), record.ErrGroupNotEmpty))
	default:
		c.propose(&DeleteGroup{Group: name, UpTo: 1<<64 - 1}, done)
	}
}
