package partition

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edged/internal/leak"
	"edged/record"
	"edged/storage"
)

func TestMain(m *testing.M) { leak.Main(m) }

// hostStore is a memStore for several goroutines, with a disk that takes time and may fail.
type hostStore struct {
	mu    sync.Mutex
	s     *memStore
	takes time.Duration
	err   error
	syncs int
	gate  chan struct{} // commits wait for it if set
	hang  chan struct{} // syncs alone wait for it if set
}

func (h *hostStore) Sync() error {
	h.mu.Lock()
	hang, n := h.hang, len(h.s.wal)
	h.mu.Unlock()
	if hang != nil {
		<-hang
	}
	<-time.After(h.takes)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		h.syncs++
		h.s.synced = max(h.s.synced, n)
	}
	return h.err
}

func (h *hostStore) Commit(us []storage.Update, sync bool) error {
	h.mu.Lock()
	gate := h.gate
	h.mu.Unlock()
	if gate != nil {
		<-gate
	}
	<-time.After(h.takes)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return h.err
	}
	if sync {
		h.syncs++
	}
	return h.s.Commit(us, sync)
}

func (h *hostStore) Groups() []storage.GroupState {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.s.Groups()
}

func (h *hostStore) Entries(g record.GroupID, lo, hi uint64, n int64) ([]storage.Entry, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.s.Entries(g, lo, hi, n)
}

func (h *hostStore) Headers(g record.GroupID, lo, hi uint64, fn func(storage.Entry, int64) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.s.Headers(g, lo, hi, fn)
}

// hostNet connects Hosts directly; a frame arrives a little later.
type hostNet struct {
	mu    sync.Mutex
	hosts map[record.NodeID]*Host
}

type hostOutbox struct {
	net  *hostNet
	node record.NodeID
}

func (o hostOutbox) Send(to record.NodeID, class Class, payload [][]byte) bool {
	b := slices.Concat(payload...)
	time.AfterFunc(200*time.Microsecond, func() {
		o.net.mu.Lock()
		h := o.net.hosts[to]
		o.net.mu.Unlock()
		if h != nil {
			h.PeerFrame(o.node, record.BootID(o.node), class, b)
		}
	})
	return true
}

// startHosts starts n Hosts that know each other, with one group on all of them.
func startHosts(t *testing.T, n int, with func(*HostConfig)) []*Host {
	t.Helper()
	net := &hostNet{hosts: map[record.NodeID]*Host{}}
	var hosts []*Host
	var rs []record.ReplicaID
	for i := range n {
		id := record.NodeID(i + 1)
		cfg := HostConfig{
			Node: id, Boot: record.BootID(id), Store: &hostStore{s: newMemStore(), takes: 2 * time.Millisecond},
			Outbox: hostOutbox{net, id}, Rand: rand.New(rand.NewPCG(1, uint64(i))), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		}
		if with != nil {
			with(&cfg)
		}
		h := NewHost(cfg)
		h.Start()
		hosts = append(hosts, h)
		net.mu.Lock()
		net.hosts[id] = h
		net.mu.Unlock()
		rs = append(rs, record.MakeReplicaID(id, 1))
	}
	for i, h := range hosts {
		for j := range hosts {
			if i != j {
				h.PeerUp(record.NodeID(j+1), record.BootID(j+1))
			}
		}
		h.Configure(&Assignment{Group: 1, Voters: rs, Initial: rs})
	}
	t.Cleanup(func() {
		for _, h := range hosts {
			if err := h.Close(); err != nil && !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		}
	})
	return hosts
}

func leaderOf(hosts []*Host) *Host {
	for _, h := range hosts {
		if v := h.Partition(1).View(); v.Role == RoleLeader && v.Serving {
			return h
		}
	}
	return nil
}

func hostBatch(value string) record.Batch {
	b := record.NewBuilder(record.None, 1<<20)
	b.Append(1, nil, []byte(value), nil)
	return b.Build()
}

// produceTo waits for the answer.
func produceTo(h *Host, acks Acks) ProduceResult {
	done := make(chan ProduceResult, 1)
	h.Produce(&ProduceRequest{Group: 1, Batch: hostBatch("v"), Acks: acks, Epoch: record.NoEpoch, Done: func(r ProduceResult) { done <- r }})
	return <-done
}

func TestHost_threeHostsReplicateAndSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts := startHosts(t, 3, nil)
		time.Sleep(time.Second)
		l := leaderOf(hosts)
		if l == nil {
			t.Fatal("no leader after a second")
		}
		for i := range 50 {
			if r := produceTo(l, AcksAll); r.Err != nil || r.BaseOffset != record.Offset(i) {
				t.Fatalf("record %d: %+v", i, r)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Partition(1).WaitAbove(ctx, 49); err != nil || l.Partition(1).HighWatermark() != 50 || l.Partition(1).Readable() != 50 {
			t.Errorf("%v, high watermark %d, readable %d", err, l.Partition(1).HighWatermark(), l.Partition(1).Readable())
		}
		time.Sleep(10 * time.Second)
		turns, commits := l.Progress()
		time.Sleep(time.Minute)
		t2, c2 := l.Progress()
		if c2 != commits || t2-turns > 60*14 {
			t.Errorf("an idle minute: %d turns, %d commits", t2-turns, c2-commits)
		}
		if n := l.produceBytes.Load(); n != 0 {
			t.Errorf("%d bytes are counted as not answered", n)
		}
	})
}

// The watchdog goes by this: it grows only while the log writer gets nothing done.
func TestHost_oldestSaveGrowsOnlyWhileNothingIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHosts(t, 1, nil)[0]
		time.Sleep(time.Second)
		if wait := h.OldestSave(); wait != 0 {
			t.Errorf("idle, and a save waits for %v", wait)
		}
		st := h.cfg.Store.(*hostStore)
		slow := 7 * time.Second
		st.mu.Lock()
		st.takes = slow
		st.mu.Unlock()
		for range 20 {
			go produceTo(h, AcksAll)
			time.Sleep(slow / 2)
			if wait := h.OldestSave(); wait > 2*slow {
				t.Errorf("a slow disk looks like a dead one: %v", wait)
			}
		}
		time.Sleep(time.Minute)
		if wait := h.OldestSave(); wait != 0 {
			t.Errorf("all is written, and a save waits for %v", wait)
		}
		gate := make(chan struct{})
		st.mu.Lock()
		st.gate, st.takes = gate, 0
		st.mu.Unlock()
		go produceTo(h, AcksAll)
		for range 10 {
			time.Sleep(20 * time.Second)
			go produceTo(h, AcksAll) // what comes later does not hide what waits
		}
		if wait := h.OldestSave(); wait < 3*time.Minute {
			t.Errorf("the writer has stood still for 200 s, and a save waits for %v", wait)
		}
		close(gate)
		time.Sleep(time.Second)
	})
}

func TestHost_closeAnswersEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		hosts := startHosts(t, 1, nil)
		h := hosts[0]
		time.Sleep(time.Second)
		st := h.cfg.Store.(*hostStore)
		st.mu.Lock()
		st.gate = gate
		st.mu.Unlock()
		var wg sync.WaitGroup
		var errs []error
		for range 20 {
			wg.Add(1)
			h.Produce(&ProduceRequest{Group: 1, Batch: hostBatch("v"), Acks: AcksAll, Epoch: record.NoEpoch, Done: func(r ProduceResult) {
				errs = append(errs, r.Err) // all on the core's goroutine
				wg.Done()
			}})
		}
		h.Remove(2, 1, func(error) {})
		synctest.Wait()
		go func() { close(gate) }()
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil && !errors.Is(err, record.ErrShuttingDown) {
				t.Errorf("answered %v", err)
			}
		}
		if r := produceTo(h, AcksAll); !errors.Is(r.Err, record.ErrShuttingDown) {
			t.Errorf("after Close: %v", r.Err)
		}
		if !errors.Is(h.Close(), ErrClosed) {
			t.Error("closed twice without a word")
		}
		if h.Inspect(func(*Core) {}) {
			t.Error("Inspect ran after Close")
		}
		if st.s.synced != len(st.s.wal) {
			t.Errorf("%d commits of %d are synced after Close", st.s.synced, len(st.s.wal))
		}
		if n := h.produceBytes.Load(); n != 0 {
			t.Errorf("%d bytes are counted as not answered", n)
		}
	})
}

func TestHost_failedStoreFallsSilentAndSaysSoOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		var mu sync.Mutex
		hosts := startHosts(t, 3, func(c *HostConfig) {
			c.OnFailed = func(error) { mu.Lock(); told++; mu.Unlock() }
		})
		time.Sleep(time.Second)
		l := leaderOf(hosts)
		st := l.cfg.Store.(*hostStore)
		st.mu.Lock()
		st.err = errors.New("the disk is gone")
		st.mu.Unlock()
		if r := produceTo(l, AcksAll); r.Err != nil && !errors.Is(r.Err, record.ErrStorage) { // the others may have had it first
			t.Errorf("the answer was %v", r.Err)
		}
		if r := produceTo(l, AcksOne); !errors.Is(r.Err, record.ErrStorage) {
			t.Errorf("the next answer was %v", r.Err)
		}
		removed := make(chan error, 1)
		l.Remove(1, record.MakeReplicaID(l.cfg.Node, 1), func(err error) { removed <- err })
		if err := <-removed; err == nil {
			t.Error("a replica was removed without a disk")
		}
		time.Sleep(5 * time.Second)
		if now := leaderOf(hosts); now == nil || now == l {
			t.Error("nobody else leads")
		}
		mu.Lock()
		defer mu.Unlock()
		if told != 1 {
			t.Errorf("OnFailed was called %d times", told)
		}
	})
}

func TestHost_relaxedEntriesAreSyncedWithinTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts := startHosts(t, 1, nil)
		h, id := hosts[0], record.MakeReplicaID(1, 1)
		h.Configure(&Assignment{Group: 1, Voters: []record.ReplicaID{id}, Initial: []record.ReplicaID{id}, Relaxed: true})
		time.Sleep(time.Second)
		st := h.cfg.Store.(*hostStore)
		unsynced := func() int { st.mu.Lock(); defer st.mu.Unlock(); return len(st.s.wal) - st.s.synced }
		if r := produceTo(h, AcksAll); r.Err != nil || unsynced() == 0 {
			t.Errorf("%v; %d commits not synced", r.Err, unsynced())
		}
		time.Sleep(FlushInterval + 10*time.Millisecond)
		if unsynced() != 0 {
			t.Errorf("%d commits not synced after %v", unsynced(), FlushInterval)
		}
	})
}

// A card takes a tenth of a second and more for a sync. Whoever asked not to wait for it does not.
func TestHost_relaxedProduceDoesNotWaitForTheFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts := startHosts(t, 1, nil)
		h, id := hosts[0], record.MakeReplicaID(1, 1)
		h.Configure(&Assignment{Group: 1, Voters: []record.ReplicaID{id}, Initial: []record.ReplicaID{id}, Relaxed: true})
		time.Sleep(time.Second)
		st := h.cfg.Store.(*hostStore)
		hang := make(chan struct{})
		st.mu.Lock()
		st.hang = hang
		st.mu.Unlock()
		if r := produceTo(h, AcksAll); r.Err != nil {
			t.Error(r.Err)
		}
		time.Sleep(FlushInterval + 10*time.Millisecond) // now it hangs
		began := time.Now()
		if r := produceTo(h, AcksAll); r.Err != nil || time.Since(began) > FlushInterval/10 {
			t.Errorf("answered after %v, %v", time.Since(began), r.Err)
		}
		st.mu.Lock()
		st.hang = nil
		st.mu.Unlock()
		close(hang)
		time.Sleep(FlushInterval + 50*time.Millisecond)
		st.mu.Lock()
		defer st.mu.Unlock()
		if n := len(st.s.wal) - st.s.synced; n != 0 {
			t.Errorf("%d commits not synced", n)
		}
	})
}

// A Core that stands still makes the senders of frames wait, in bytes and not in memory.
func TestHost_framesWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts := startHosts(t, 1, func(c *HostConfig) {
			c.Limits = DefaultLimits()
			c.Limits.Inbox = 1000
		})
		h := hosts[0]
		hold, held := make(chan struct{}), make(chan struct{})
		go h.Inspect(func(*Core) { close(held); <-hold })
		<-held
		sent := 0
		var mu sync.Mutex
		for _, class := range []Class{Control, Data} {
			go func() {
				for range 50 {
					h.PeerFrame(9, 9, class, make([]byte, 100))
					mu.Lock()
					sent++
					mu.Unlock()
				}
			}()
		}
		synctest.Wait()
		mu.Lock()
		if sent > 24 {
			t.Errorf("%d frames of 100 bytes were taken at a bound of 1000 for each class", sent)
		}
		mu.Unlock()
		close(hold)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if sent != 100 {
			t.Errorf("%d frames went through in the end", sent)
		}
	})
}

func TestHost_boundsProduces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts := startHosts(t, 1, func(c *HostConfig) {
			c.Limits = DefaultLimits()
			c.Limits.Produce = 1000
		})
		h := hosts[0]
		time.Sleep(time.Second)
		var mu sync.Mutex
		busy, done := 0, 0
		for range 100 {
			h.Produce(&ProduceRequest{Group: 1, Batch: hostBatch("v"), Acks: AcksAll, Epoch: record.NoEpoch, Done: func(r ProduceResult) {
				mu.Lock()
				defer mu.Unlock()
				if done++; errors.Is(r.Err, record.ErrBusy) {
					busy++
				}
			}})
		}
		h.Propose(1, make([]byte, 2000), func(_ any, err error) {
			if !errors.Is(err, record.ErrBusy) {
				t.Errorf("a command above the bound: %v", err)
			}
		})
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		if done != 100 || busy == 0 || busy > 90 {
			t.Errorf("%d answered, %d of them busy", done, busy)
		}
		if n := h.produceBytes.Load(); n != 0 {
			t.Errorf("%d bytes are counted as not answered", n)
		}
	})
}
