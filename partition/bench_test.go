package partition

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"edged/record"
)

// benchCluster is three Cores in memory whose network and disks take no time at all: what is
// measured is the Core.
type benchCluster struct {
	now   Time
	cores []*Core
	boxes []benchBox
}

type benchBox struct {
	c      *benchCluster
	from   int
	frames [3][][]byte
}

func (b *benchBox) Send(to record.NodeID, _ Class, payload [][]byte) bool {
	b.frames[to-1] = append(b.frames[to-1], slices.Concat(payload...))
	return true
}

// nullStore takes everything and holds nothing: the cache has what is asked for.
type nullStore struct{ Reader }

func newBenchCluster(tb testing.TB, groups int) *benchCluster {
	b := &benchCluster{boxes: make([]benchBox, 3)}
	for i := range 3 {
		b.boxes[i] = benchBox{c: b, from: i}
		b.cores = append(b.cores, NewCore(Config{
			Node: record.NodeID(i + 1), Boot: record.BootID(i + 1), Rand: rand.New(rand.NewPCG(1, uint64(i))), Timing: DefaultTiming(), Limits: DefaultLimits(),
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Store: nullStore{}, Outbox: &b.boxes[i],
			Publish: func(g record.GroupID) *Partition { return NewPartition(g) },
		}, 0, nil))
	}
	for i, c := range b.cores {
		for j := range b.cores {
			if i != j {
				c.Step(b.now, PeerUp{record.NodeID(j + 1), record.BootID(j + 1)})
			}
		}
		for g := range groups {
			var rs []record.ReplicaID
			for j := range b.cores {
				rs = append(rs, record.MakeReplicaID(record.NodeID(j+1), uint32(g+1)))
			}
			c.Step(b.now, &Assignment{Group: record.GroupID(g + 1), Voters: rs, Initial: rs})
		}
	}
	for end := time.Second; b.now < end; b.now += 5 * time.Millisecond {
		b.settle()
	}
	for g := range groups {
		if b.leader(record.GroupID(g+1)) == nil {
			tb.Fatalf("group %d has no leader", g+1)
		}
	}
	return b
}

func (b *benchCluster) leader(g record.GroupID) *Core {
	for _, c := range b.cores {
		if c.find(g).role == RoleLeader {
			return c
		}
	}
	return nil
}

// settle runs turns until nobody has anything to say.
func (b *benchCluster) settle() {
	for busy := true; busy; {
		busy = false
		for _, c := range b.cores {
			to := int(c.cfg.Node) - 1
			for j := range b.boxes {
				frames := b.boxes[j].frames[to]
				b.boxes[j].frames[to] = nil
				for _, f := range frames {
					c.Step(b.now, PeerFrame{record.NodeID(j + 1), record.BootID(j + 1), f})
				}
			}
			c.Flush(b.now)
			if saves := c.TakeSaves(); len(saves) > 0 {
				c.Step(b.now, &Saved{Saves: saves})
				busy = true
			}
		}
		for _, c := range b.cores {
			for j := range b.boxes {
				busy = busy || len(b.boxes[j].frames[c.cfg.Node-1]) > 0
			}
		}
	}
}

// BenchmarkProduce puts batches of 1 KiB through three Cores to the acknowledgement, so many in one turn.
func BenchmarkProduce(b *testing.B) {
	for _, window := range []int{1, 16, 128} {
		b.Run(fmt.Sprintf("window=%d", window), func(b *testing.B) {
			cluster := newBenchCluster(b, 1)
			leader := cluster.leader(1)
			builder := record.NewBuilder(record.None, 1<<20)
			builder.Append(1, nil, bytes.Repeat([]byte("x"), 1024), nil)
			batch := builder.Build()
			acked := 0
			done := func(r ProduceResult) {
				if r.Err != nil {
					b.Fatal(r.Err)
				}
				acked++
			}
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += window {
				for range min(window, b.N-n) {
					leader.Step(cluster.now, &ProduceRequest{Group: 1, Batch: slices.Clone(batch), Acks: AcksAll, Epoch: record.NoEpoch, Done: done})
				}
				cluster.settle()
			}
			if acked != b.N {
				b.Fatalf("%d acknowledged of %d", acked, b.N)
			}
		})
	}
}

// BenchmarkIdleTurn is one turn of a node with 1,000 sleeping groups: every beat costs one.
func BenchmarkIdleTurn(b *testing.B) {
	cluster := newBenchCluster(b, 1000)
	for end := cluster.now + 5*time.Second; cluster.now < end; cluster.now += 20 * time.Millisecond {
		cluster.settle()
	}
	c := cluster.cores[0]
	if n := c.Status().Awake; n != 0 {
		b.Fatalf("%d groups awake", n)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		cluster.now += 50 * time.Millisecond
		cluster.settle()
		c.NextWake()
	}
}

// BenchmarkAwakeTurn is one tick of a node with 1,000 groups that are awake, a third of them led here.
func BenchmarkAwakeTurn(b *testing.B) {
	cluster := newBenchCluster(b, 1000)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		cluster.now += 100 * time.Millisecond
		for _, c := range cluster.cores {
			for _, g := range c.order {
				c.wakeGroup(g)
			}
		}
		cluster.settle()
	}
}

// BenchmarkFailover is the death of a node that led a third of 1,000 sleeping groups: from the news to
// the last group that is led again.
func BenchmarkFailover(b *testing.B) {
	for range b.N {
		b.StopTimer()
		cluster := newBenchCluster(b, 1000)
		b.StartTimer()
		for _, c := range cluster.cores[1:] {
			c.Step(cluster.now, PeerDown{1, 1, true})
		}
		cluster.cores = cluster.cores[1:]
		for end := cluster.now + 400*time.Millisecond; cluster.now < end; cluster.now += 5 * time.Millisecond {
			cluster.settle()
		}
		b.StopTimer()
		for g := range 1000 {
			if cluster.leader(record.GroupID(g+1)) == nil {
				b.Fatalf("group %d has no leader", g+1)
			}
		}
		b.StartTimer()
	}
}
