package metadata

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"edged/record"
)

// snapshotVersion is the newest snapshot format that this software writes and reads.
const snapshotVersion = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Snapshot gives the whole state: a msgpack stream of version, CRC32C of the rest, and
// the state in order. Equal states give equal bytes, so replicas can be compared.
func (c *Cluster) Snapshot() []byte { return c.Picture().snapshot() }

func (p *Picture) snapshot() []byte {
	var body bytes.Buffer
	x := encoder(&body)
	state := *p
	state.fields(x)
	var out bytes.Buffer
	head := encoder(&out)
	snapshotHead(head, crc32.Checksum(body.Bytes(), castagnoli))
	if x.err != nil || head.err != nil {
		panic(fmt.Sprintf("metadata: a state that passed its checks cannot be written: %v %v", x.err, head.err))
	}
	out.Write(body.Bytes())
	return out.Bytes()
}

// Restore puts a snapshot in place of the state. Damage is ErrDamaged and newer formats
// are ErrUnsupported; the state is as it was then.
func (c *Cluster) Restore(data []byte) error {
	if len(data) > MaxSnapshotBytes {
		return fmt.Errorf("metadata snapshot of %d bytes, more than %d: %w", len(data), MaxSnapshotBytes, record.ErrLimit)
	}
	p, err := readSnapshot(data)
	if err != nil {
		return err
	}
	c.picture.Store(p)
	c.unknown.Store(0)
	return nil
}

func readSnapshot(data []byte) (*Picture, error) {
	x := decoder(data)
	version, sum := snapshotHead(x, 0)
	if x.err == nil && version > snapshotVersion {
		return nil, fmt.Errorf("metadata snapshot in format %d, this software knows formats up to %d; update this node: %w", version, snapshotVersion, record.ErrUnsupported)
	}
	if x.err == nil && (version == 0 || crc32.Checksum(data[len(data)-x.in.Len():], castagnoli) != sum) {
		return nil, fmt.Errorf("metadata snapshot: its format or checksum is wrong: %w", record.ErrDamaged)
	}
	p := newPicture()
	p.fields(x)
	x.end()
	if x.err != nil {
		return nil, fmt.Errorf("metadata snapshot: %w: %w", record.ErrDamaged, x.err)
	}
	if err := p.derive(); err != nil {
		return nil, fmt.Errorf("metadata snapshot: %w: %w", record.ErrDamaged, err)
	}
	if err := p.verify(); err != nil {
		return nil, fmt.Errorf("metadata snapshot: %w: %w", record.ErrDamaged, err)
	}
	return p, nil
}

func snapshotHead(x *codec, sum uint32) (uint8, uint32) {
	version := uint8(snapshotVersion)
	x.u8("version", &version)
	unsigned(x, "checksum", &sum)
	return version, sum
}

func (p *Picture) fields(x *codec) {
	x.id16("cluster id", (*[16]byte)(&p.cluster))
	x.str("cluster name", &p.name, 0, maxClusterNameBytes)
	x.time("created", &p.created)
	x.group("next group", &p.nextGroup)
	unsigned(x, "next attempt", &p.nextAttempt)
	signed(x, "next producer id", &p.nextProducer, firstProducerID, math.MaxInt64)
	list(x, "nodes", &p.nodes, MaxNodes, func(n **Node) { pointed(n).fields(x) })
	list(x, "removed nodes", &p.banned, MaxBanned, func(b *Banned) {
		x.node("node id", &b.ID)
		x.id16("instance id", (*[16]byte)(&b.Instance))
	})
	list(x, "topics", &p.byName, MaxTopics, func(t **Topic) { pointed(t).fields(x) })
	list(x, "nodes with tombstones", &p.tombs, MaxNodes, func(t *nodeTombs) {
		x.node("node id", &t.node)
		list(x, "tombstones", &t.list, MaxTombstones, x.tombstone)
	})
}

// pointed makes the value behind a pointer that is to be decoded.
func pointed[T any](p **T) *T {
	if *p == nil {
		*p = new(T)
	}
	return *p
}

func (n *Node) fields(x *codec) {
	v := *n // so that encoding a published node writes nothing
	v.NodeInfo.fields(x)
	x.bool("leaving", &v.Leaving)
	if x.dec != nil {
		*n = v
	}
}

func (t *Topic) fields(x *codec) {
	v := *t
	x.str("topic name", &v.Name, 1, maxTopicNameBytes)
	x.id16("topic id", (*[16]byte)(&v.ID))
	x.time("created", &v.Created)
	class := uint64(v.Class)
	x.uint("retention class", &class, 0, maxClass)
	v.Class = uint8(class)
	x.settings("settings", &v.Settings)
	list(x, "partitions", &v.Partitions, MaxPartitionsPerTopic, func(p **Partition) { pointed(p).fields(x) })
	if x.dec != nil {
		*t = v
	}
}

func (p *Partition) fields(x *codec) {
	v := *p
	x.group("group", &v.Group)
	replicas := func(what string, rs *[]record.ReplicaID, hi int) {
		list(x, what, rs, hi, func(r *record.ReplicaID) { x.replica("replica id", r) })
	}
	replicas("replicas", &v.Replicas, MaxReplication)
	replicas("initial replicas", &v.Initial, MaxReplication)
	replicas("replicas to be added", &v.Adding, MaxReplication)
	replicas("replicas to be removed", &v.Removing, MaxRemoving)
	if x.dec == nil {
		return
	}
	if slices.Equal(v.Initial, v.Replicas) {
		v.Initial = v.Replicas // as it is for most; half the memory
	}
	*p = v
}

// derive fills in what the snapshot does not hold because it follows from the rest.
func (p *Picture) derive() error {
	p.byID = slices.Clone(p.byName)
	slices.SortFunc(p.byID, func(a, b *Topic) int { return slices.Compare(a.ID[:], b.ID[:]) })
	for _, t := range p.byName {
		var err error
		if t.Configs, err = ParseConfigs(t.Settings); err != nil {
			return fmt.Errorf("topic %s: %w", t.Name, err)
		}
		p.partitions += len(t.Partitions)
		for n, part := range t.Partitions {
			if last := len(p.spans) - 1; n > 0 && part.Group == p.spans[last].first+record.GroupID(p.spans[last].count) {
				p.spans[last].count++
			} else {
				p.spans = append(p.spans, span{part.Group, 1, t.ID, int32(n)})
			}
		}
	}
	slices.SortFunc(p.spans, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	for _, t := range p.tombs {
		p.tombstones += len(t.list)
	}
	return nil
}
