package node

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"edged/metadata"
	"edged/record"
	"edged/storage"
	"edged/transport/peer"
	"edged/transport/wire"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// What no restart can help with is an error of the configuration, so that systemd does not try again; what may
// pass is none.
func TestBeyondRestart(t *testing.T) {
	for _, err := range []error{storage.ErrNewerFormat, storage.ErrNotOurs, storage.ErrIdentityLost, storage.ErrDamaged, storage.ErrLostTail} {
		var ce *ConfigError
		if got := oneLine(err); !errors.As(got, &ce) || !errors.Is(got, err) {
			t.Errorf("%v: %T", err, got)
		}
	}
	for _, err := range []error{storage.ErrLocked, storage.ErrReadOnly, syscall.EIO} {
		var ce *ConfigError
		if errors.As(oneLine(err), &ce) {
			t.Errorf("%v is not tried again", err)
		}
	}
	for err, want := range map[error]bool{peer.ErrClone: true, peer.ErrOldLife: true, metadata.ErrNodeStale: true, metadata.ErrNodeIDTaken: true, syscall.EIO: false} {
		var ce *ConfigError
		if got := twinError(err, 7, "dir"); errors.As(got, &ce) != want || !errors.Is(got, err) {
			t.Errorf("%v: %T, want one beyond restart: %v", err, got, want)
		}
	}
}

func awaitReady(t *testing.T, n *testNode) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("it is not ready: %v", n.unready())
		}
	}()
	await(t, "ready", func() bool { return n.unready() == nil })
}

// A store that is gone under its identity: the node must not vote again, and a restart does not bring it back.
func TestRun_lostStoreIsBeyondRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := startNodeIn(t, dir, 0)
	awaitReady(t, n)
	n.stop()
	if err := os.RemoveAll(filepath.Join(dir, "store")); err != nil {
		t.Fatal(err)
	}
	again := startNodeIn(t, dir, 0)
	err := <-again.done
	again.done <- err
	var ce *ConfigError
	if !errors.As(err, &ce) || !strings.Contains(err.Error(), "lost data") {
		t.Errorf("it ended with %v (%T)", err, err)
	}
}

// fullFS has no room for a new file while full.
type fullFS struct {
	vfs.FS
	full func(name string) bool
}

func (f fullFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if f.full(name) {
		return nil, &os.PathError{Op: "open", Path: name, Err: syscall.ENOSPC}
	}
	return f.FS.Create(name, c)
}

// A full disk keeps no node from stopping in good order: what cannot be written down is said in one line, and the
// next start takes the stop for one that was cut off.
func TestStop_onAFullDisk(t *testing.T) {
	t.Parallel()
	var full atomic.Bool
	var log lockedBuffer
	mem := vfs.NewMem()
	fs := fullFS{mem, func(name string) bool { return full.Load() && strings.Contains(name, "identity") }}
	start := func() *testNode {
		n := startNodeWith(t, "data", func(_ *Config, o *Options) {
			o.FS, o.Logger = fs, slog.New(slog.NewTextHandler(&log, nil))
		}, 0)
		await(t, "ready", func() bool { return n.unready() == nil })
		return n
	}
	end := func(n *testNode) error {
		n.cancel()
		err := <-n.done
		n.done <- err
		return err
	}
	n := start()
	full.Store(true)
	if err := end(n); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if text := log.String(); strings.Count(text, "that could not be written down") != 1 || strings.Contains(text, "cannot open") {
		t.Errorf("the log says:\n%s", text)
	}
	full.Store(false)
	n = start()
	if state := n.ident.Get(); state.BootCounter != 2 {
		t.Errorf("start %d", state.BootCounter)
	}
	if !strings.Contains(log.String(), "did not end cleanly") {
		t.Error("the next start takes the stop for a clean one")
	}
	if err := end(n); err != nil {
		t.Error(err)
	}
}

// fullLogFS has no room in its logs while full.
type fullLogFS struct {
	vfs.FS
	full *atomic.Bool
}

func (f fullLogFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	return fullLog{file, f.full, strings.HasSuffix(name, ".log")}, err
}

func (f fullLogFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(from, to, c)
	return fullLog{file, f.full, strings.HasSuffix(to, ".log")}, err
}

type fullLog struct {
	vfs.File
	full *atomic.Bool
	log  bool
}

func (f fullLog) Write(p []byte) (int, error) {
	if f.log && f.full.Load() {
		return 0, syscall.ENOSPC
	}
	return f.File.Write(p)
}

// A node whose log waits for room on a full disk stops when it is told to, and keeps what it acknowledged.
func TestStop_whileTheLogWaitsForRoom(t *testing.T) {
	t.Parallel()
	var full atomic.Bool
	fs := fullLogFS{vfs.NewMem(), &full}
	start := func() *testNode {
		n := startNodeWith(t, "data", func(_ *Config, o *Options) { o.FS = fs }, 0)
		await(t, "ready", func() bool { return n.unready() == nil })
		return n
	}
	send := func(n *testNode) chan wire.ProduceResponse {
		batch := record.NewBuilder(record.None, 1<<10)
		batch.Append(1, nil, []byte("x"), nil)
		done := make(chan wire.ProduceResponse, 1)
		broker{n.Node}.Produce(wire.ProduceRequest{Topic: "t", Acks: wire.AcksAll, Epoch: record.NoEpoch, Batch: batch.Build()}, func(r wire.ProduceResponse) { done <- r })
		return done
	}
	n := start()
	if _, err := (broker{n.Node}).CreateTopic(t.Context(), wire.CreateTopicRequest{Name: "t", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	acked := record.Offset(-1)
	await(t, "a record is taken", func() bool {
		r := <-send(n)
		acked = r.BaseOffset
		return r.Err == nil
	})
	full.Store(true)
	waits := send(n)
	await(t, "the log waits for room", func() bool { return n.disk.full.Load() })
	n.cancel()
	select {
	case err := <-n.done:
		n.done <- err
		if err != nil {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		full.Store(false) // or the test would never end
		t.Error("it does not stop")
	}
	if r := <-waits; r.Err == nil {
		t.Error("a record that is not on the disk was acknowledged")
	}
	full.Store(false)
	n = start()
	await(t, "the record is there", func() bool {
		topic := n.machine.Picture().Topic("t") // known when the metadata has been applied, which may be after ready
		if topic == nil {
			return false
		}
		p := n.host.Load().Lookup(topic.Partitions[0].Group)
		return p != nil && p.HighWatermark() > acked
	})
}

// An identity that is mended is said.
func TestNew_mendedIdentityIsAnEvent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := startNodeIn(t, dir, 0)
	awaitReady(t, n)
	n.stop()
	if err := os.WriteFile(filepath.Join(dir, "identity"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	n = startNodeIn(t, dir, 0)
	events, _ := n.notes.after(0)
	if !slices.ContainsFunc(events, func(e event) bool {
		return e.Kind == eventDisk && strings.Contains(e.Text, "identity was damaged") && strings.Contains(e.Text, filepath.Join(dir, "identity"))
	}) {
		t.Errorf("%v", events)
	}
}

// Clients are sent elsewhere while the cluster can decide nothing, and /livez does not mind.
func TestReadyz_withoutALeader(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	await(t, "three voters", func() bool { return len(nodes[0].votersOf(record.MetadataGroup)) == 3 && nodes[0].unready() == nil })
	nodes[1].stop()
	nodes[2].stop()
	await(t, "the reason", func() bool {
		err := nodes[0].unready()
		return err != nil && strings.Contains(err.Error(), "the cluster's metadata has no leader")
	})
	if err := nodes[0].Alive(t.Context()); err != nil {
		t.Errorf("livez: %v", err)
	}
}

// lowFS has no room to speak of while low.
type lowFS struct {
	vfs.FS
	low *atomic.Bool
}

func (f lowFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	u := vfs.DiskUsage{TotalBytes: 1 << 30, AvailBytes: 1 << 29}
	if f.low.Load() {
		u.AvailBytes = 1 << 20
	}
	u.UsedBytes = u.TotalBytes - u.AvailBytes
	return u, nil
}

// A node that takes no records for want of room is not ready, says why, and is ready again with room.
func TestReadyz_withAFullDisk(t *testing.T) {
	t.Parallel()
	var low atomic.Bool
	n := startNodeWith(t, "data", func(_ *Config, o *Options) { o.FS = lowFS{vfs.NewMem(), &low} }, 0)
	await(t, "ready", func() bool { return n.unready() == nil })
	low.Store(true)
	n.host.Load().LookForRoom()
	if err := n.unready(); !errors.Is(err, record.ErrDiskFull) || n.Alive(t.Context()) != nil {
		t.Errorf("with a full disk: %v", err)
	}
	low.Store(false)
	n.host.Load().LookForRoom()
	await(t, "ready with room", func() bool { return n.unready() == nil })
}
