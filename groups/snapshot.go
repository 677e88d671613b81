package groups

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"slices"

	"edged/record"
)

// snapshotVersion is the newest snapshot format that this software writes and reads.
const snapshotVersion = 1

// A snapshot is the version u8, the CRC32C of the rest u32, and the state in order: what was
// skipped, the last index, the epoch, the groups by name. Equal states give equal bytes.
const snapshotHead = 5

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Snapshot gives the whole state. It takes no lock: the only writer is the caller.
func (s *State) Snapshot() []byte {
	x := encoder()
	x.out = append(make([]byte, 0, snapshotHead+20+s.bytes), snapshotVersion, 0, 0, 0, 0)
	groups := make([]*stored, 0, len(s.groups))
	for _, name := range slices.Sorted(maps.Keys(s.groups)) {
		groups = append(groups, s.groups[name])
	}
	h := header{s.unknown.Load(), s.applied, s.epoch}
	snapshotFields(x, &h, &groups)
	if x.err != nil {
		panic(fmt.Sprintf("groups: a state that passed its checks cannot be written: %v", x.err))
	}
	binary.BigEndian.PutUint32(x.out[1:], crc32.Checksum(x.out[snapshotHead:], castagnoli))
	return x.out
}

// Restore puts a snapshot in place of the state; an empty one stands for the state before the first
// command. Damage is record.ErrDamaged, newer formats are record.ErrUnsupported; the state is as it
// was then.
func (s *State) Restore(data []byte) error {
	var h header
	var groups []*stored
	if len(data) > 0 {
		if err := readSnapshot(data, &h, &groups); err != nil {
			return err
		}
	}
	m, size := make(map[string]*stored, len(groups)), 0
	for i, g := range groups {
		if i > 0 && g.Name <= groups[i-1].Name {
			return fmt.Errorf("groups snapshot: group %.80q is not in order: %w", g.Name, record.ErrDamaged)
		}
		if err := g.check(); err != nil {
			return fmt.Errorf("groups snapshot: group %.80q: %w: %w", g.Name, record.ErrDamaged, err)
		}
		g.bytes = g.size()
		size += g.bytes
		m[g.Name] = g
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groups, s.bytes, s.applied, s.epoch = m, size, h.applied, h.epoch
	s.unknown.Store(h.unknown)
	return nil
}

func readSnapshot(data []byte, h *header, groups *[]*stored) error {
	if data[0] > snapshotVersion {
		return fmt.Errorf("groups snapshot in format %d, this software knows formats up to %d; update this node: %w", data[0], snapshotVersion, record.ErrUnsupported)
	}
	if len(data) < snapshotHead || data[0] == 0 || crc32.Checksum(data[snapshotHead:], castagnoli) != binary.BigEndian.Uint32(data[1:]) {
		return fmt.Errorf("groups snapshot: its format or checksum is wrong: %w", record.ErrDamaged)
	}
	x := decoder(data[snapshotHead:])
	snapshotFields(x, h, groups)
	x.end()
	if x.err != nil {
		return fmt.Errorf("groups snapshot: %w: %w", record.ErrDamaged, x.err)
	}
	return nil
}

// header is the state beside the groups.
type header struct {
	unknown, applied uint64
	epoch            record.Epoch
}

func snapshotFields(x *codec, h *header, groups *[]*stored) {
	number(x, "unknown command", &h.unknown, math.MaxUint64)
	number(x, "index", &h.applied, math.MaxUint64)
	number(x, "epoch", &h.epoch, math.MaxInt32)
	list(x, "groups", groups, MaxGroups, 9, func(p **stored) {
		if *p == nil {
			*p = &stored{}
		}
		(*p).fields(x)
	})
}

func (g *stored) fields(x *codec) {
	g.Group.fields(x)
	number(x, "index", &g.changed, math.MaxUint64)
	list(x, "topics", &g.topics, MaxStateBytes, 4, func(t *topicOffsets) {
		x.str("topic", &t.name, 1, maxTopicNameBytes)
		number(x, "first partition", &t.first, math.MaxInt64)
		list(x, "partitions", &t.parts, maxPartition, 6, func(p *kept) {
			number(x, "partition", &p.Partition, maxPartition)
			number(x, "offset", &p.Offset, math.MaxInt64)
			signed(x, "epoch", &p.Epoch)
			x.str("metadata", &p.Metadata, 0, MaxMetadataBytes)
			number(x, "time", &p.at, math.MaxInt64)
			number(x, "index", &p.index, math.MaxUint64)
		})
	})
}

// check holds what came in a snapshot against what commands can make: topics and partitions in
// order, each once, none empty.
func (g *stored) check() error {
	for i, t := range g.topics {
		if i > 0 && t.name <= g.topics[i-1].name || len(t.parts) == 0 {
			return fmt.Errorf("topic %q is empty or not in order", t.name)
		}
		for j, p := range t.parts {
			if j > 0 && p.Partition <= t.parts[j-1].Partition {
				return fmt.Errorf("%s/%d is not in order", t.name, p.Partition)
			}
		}
	}
	return nil
}
