package node

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"edged/record"
	"edged/transport/peer"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/vmihailenco/msgpack/v5"
)

// smallFS says that its disk has so many bytes, and room enough.
type smallFS struct {
	vfs.FS
	total uint64
}

func (f smallFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{TotalBytes: f.total, AvailBytes: 1 << 40}, nil
}

// A node whose disk is smaller than the others' asks the leaders of its partitions for room, and the oldest records go
// there; of what is no topic's, or not committed, nothing does.
func TestTrim_leadersMakeRoomForASmallDisk(t *testing.T) {
	t.Parallel()
	const small, percent = 1 << 20, 20
	made := 0
	nodes := startClusterWith(t, 2, func(c *Config, o *Options) {
		fs := smallFS{vfs.Default, 1 << 40}
		if made++; made == 2 {
			fs.total = small
		}
		c.RetentionPercent, o.FS, o.MemTable = percent, fs, 64<<10
	})
	var records []*kgo.Record
	noise := rand.NewChaCha8([32]byte{}) // that no codec makes small
	for i := range 180 {
		value := make([]byte, 4<<10)
		_, _ = noise.Read(value)
		records = append(records, &kgo.Record{Topic: "t", Value: value, Partition: int32(i % 6)})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := newProducer(t, nodes).ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	var groups []record.GroupID
	for _, p := range nodes[0].machine.Picture().Topic("t").Partitions {
		groups = append(groups, p.Group)
	}
	asked := func() bool { // the other node, with room for all of it, has moved a beginning
		for _, g := range groups {
			if p := nodes[0].host.Load().Lookup(g); p.View().Serving && p.LogStart() > 0 {
				return true
			}
		}
		return false
	}
	await(t, "room", func() bool {
		nodes[1].trimOldest()
		return asked() && nodes[1].store.LiveBytes() <= small/100*percent+64<<10
	})
	for _, g := range groups {
		p := nodes[0].host.Load().Lookup(g)
		nodes[0].trim(g, p.HighWatermark()+1000)
		nodes[1].trim(g, p.HighWatermark()+1000)
	}
	await(t, "all that is committed is gone", func() bool { return nodes[1].store.LiveBytes() < 64<<10 })
	for _, g := range groups {
		if p := nodes[0].host.Load().Lookup(g); p.LogStart() > p.HighWatermark() {
			t.Errorf("group %d begins at %d, committed is %d", g, p.LogStart(), p.HighWatermark())
		}
	}
	body, err := msgpack.Marshal(trimCall{record.MetadataGroup, 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nodes[0].trimFor(peer.Identity{}, body); !errors.Is(err, record.ErrRefused) {
		t.Errorf("trimming the metadata: %v", err)
	}
}
