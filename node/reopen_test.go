package node

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"edged/partition"
	"edged/record"
	"edged/transport/wire"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// lateFullFS tells only with a sync of a log that it is full, as file systems on a network do.
type lateFullFS struct {
	vfs.FS
	full *atomic.Bool
}

type lateFullFile struct {
	vfs.File
	full *atomic.Bool
}

func (f *lateFullFS) wrap(name string, file vfs.File, err error) (vfs.File, error) {
	if err == nil && strings.HasSuffix(name, ".log") {
		file = &lateFullFile{file, f.full}
	}
	return file, err
}

func (f *lateFullFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	return f.wrap(name, file, err)
}

func (f *lateFullFS) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(old, name, c)
	return f.wrap(name, file, err)
}

func (f *lateFullFile) sync(do func() error) error {
	if f.full.Load() {
		return syscall.ENOSPC
	}
	return do()
}

func (f *lateFullFile) Sync() error     { return f.sync(f.File.Sync) }
func (f *lateFullFile) SyncData() error { return f.sync(f.File.SyncData) }

// A disk that tells only at a sync that it is full has stopped the store for good: no sync is tried twice. When it takes
// writes again the node ends by itself, to be made anew, and then has all that it acknowledged.
func TestReopen_afterASyncThatFoundTheDiskFull(t *testing.T) {
	t.Parallel()
	var full atomic.Bool
	fs := &lateFullFS{vfs.Default, &full}
	dir := t.TempDir()
	start := func() *testNode {
		return startNodeWith(t, dir, func(_ *Config, o *Options) { o.FS, o.Reopen = fs, true }, 0)
	}
	n := start()
	await(t, "a cluster", func() bool { return n.notReady() == nil && n.caughtUp() })
	if _, err := (broker{n.Node}).CreateTopic(t.Context(), wire.CreateTopicRequest{Name: "t", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	produceTo(t, []*testNode{n}, 0, "acknowledged")
	full.Store(true)
	batch := record.NewBuilder(record.None, 1<<10)
	batch.Append(1, nil, []byte("refused"), nil)
	done := make(chan wire.ProduceResponse, 1)
	broker{n.Node}.Produce(wire.ProduceRequest{Topic: "t", Acks: wire.AcksAll, Epoch: record.NoEpoch, Batch: batch.Build()}, func(r wire.ProduceResponse) { done <- r })
	if r := <-done; r.Err == nil {
		t.Fatal("a record was acknowledged whose sync had failed")
	}
	full.Store(false)
	err := n.ended(t)
	var again *ReopenError
	if !errors.As(err, &again) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the node ended with %v", err)
	}
	n = start()
	await(t, "the node serves again", func() bool { return n.notReady() == nil && n.caughtUp() })
	produceTo(t, []*testNode{n}, 0, "after that")
	part := n.host.Load().Partition(n.machine.Picture().Topic("t").Partitions[0].Group)
	if v := part.View(); v.Role != partition.RoleLeader || part.HighWatermark() < 2 {
		t.Errorf("%v with a high watermark of %d", v.Role, part.HighWatermark())
	}
}
