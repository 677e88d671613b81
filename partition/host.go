package partition

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"edged/record"
	"edged/storage"
)

// Store is what a Host needs of the node's storage.
type Store interface {
	Reader
	Groups() []storage.GroupState
	// Commit is called by the log writer alone.
	Commit(us []storage.Update, sync bool) error
	// Sync makes durable what was committed without sync; commits go on beside it.
	Sync() error
}

// HostConfig of a Host. Zero Timing and Limits take the defaults.
type HostConfig struct {
	Node    record.NodeID
	Boot    record.BootID
	Cluster record.ClusterID
	Unclean bool
	Store   Store
	Outbox  Outbox
	Rand    *rand.Rand
	Timing  Timing
	Limits  Limits
	Logger  *slog.Logger
	Machine func(record.GroupID, MachineKind) StateMachine
	// OnLeader, OnConfigured, OnDamaged, OnPause: see Config. OnFailed is told once when the store can no longer write.
	OnLeader     func(LeaderChange)
	OnConfigured func(g record.GroupID, voters, learners []record.ReplicaID)
	OnDamaged    func(g record.GroupID, r record.ReplicaID, err error)
	OnFailed     func(error)
	OnPause      func(LinkPause)
	// Room, if set, tells whether the disk has room for more. It is asked after each mebibyte that
	// was written, and by LookForRoom.
	Room func() bool
	// Tight, if set, is asked with it: whether nothing may be written any more but what makes room. Without it a
	// full disk is tight.
	Tight func() bool
}

// Host runs a Core with a clock and a disk. Its goroutines:
//
//	core        owns the Core; takes events from the inbox, hands saves to the log writer
//	log writer  makes one commit of everything that was queued while the last one ran: one
//	            fsync for all groups
//
// Everyone else talks to the core by posting events, and reads Partitions.
type Host struct {
	cfg   HostConfig
	core  *Core
	start time.Time

	inbox inbox
	// saves go from the core to the log writer.
	saves struct {
		sync.Mutex
		queue []Save
		since time.Time // when the oldest of queue came
		taken time.Time // when the oldest of what is being written came; zero while nothing is
		done  bool
		wake  chan struct{}
	}
	parts struct {
		sync.RWMutex
		m map[record.GroupID]*Partition
	}
	produceBytes atomic.Int64 // batches posted and not answered
	turns        atomic.Int64 // of the core
	commits      atomic.Int64 // of the log writer
	full         atomic.Bool  // what Room said last
	stop, ended  chan struct{}
	wg           sync.WaitGroup
}

// inbox is the queue to the core. Control events overtake data. Frames of peers are bounded in
// bytes, each class for itself, and make their sender wait.
type inbox struct {
	sync.Mutex
	control, data []Event
	bytes         [2]int64 // of frames, by class
	room          *sync.Cond
	closed        bool
	wake          chan struct{}
}

// FlushInterval is the longest that what was written without an fsync waits for one.
const FlushInterval = time.Second

// ErrClosed is what a Host answers after Close.
var ErrClosed = errors.New("partition: closed")

// NewHost opens every group of the store. Start runs it.
func NewHost(cfg HostConfig) *Host {
	if cfg.Timing == (Timing{}) {
		cfg.Timing = DefaultTiming()
	}
	if cfg.Limits == (Limits{}) {
		cfg.Limits = DefaultLimits()
	}
	h := &Host{cfg: cfg, start: time.Now(), stop: make(chan struct{}), ended: make(chan struct{})}
	h.inbox.wake = make(chan struct{}, 1)
	h.inbox.room = sync.NewCond(&h.inbox.Mutex)
	h.saves.wake = make(chan struct{}, 1)
	h.parts.m = map[record.GroupID]*Partition{}
	h.core = NewCore(Config{
		Node: cfg.Node, Boot: cfg.Boot, Cluster: cfg.Cluster, Unclean: cfg.Unclean, Rand: cfg.Rand, Timing: cfg.Timing, Limits: cfg.Limits,
		Logger: cfg.Logger, Store: cfg.Store, Outbox: cfg.Outbox, Machine: cfg.Machine, Publish: h.Partition,
		OnLeader: cfg.OnLeader, OnConfigured: cfg.OnConfigured, OnDamaged: cfg.OnDamaged, OnPause: cfg.OnPause,
	}, 0, cfg.Store.Groups())
	return h
}

// Start starts the goroutines.
func (h *Host) Start() {
	h.wg.Go(h.runCore)
	h.wg.Go(h.runLogWriter)
}

// Close ends both goroutines after the saves that are queued were written. Requests that are not
// answered by then are answered with record.ErrShuttingDown. It does not hand leadership over: Resign does.
func (h *Host) Close() error {
	h.inbox.Lock()
	if h.inbox.closed {
		h.inbox.Unlock()
		return ErrClosed
	}
	h.inbox.closed = true
	h.inbox.room.Broadcast()
	h.inbox.Unlock()
	close(h.stop)
	h.wg.Wait()
	return nil
}

// Partition is the view of a group, made on first use. It stays the same for ever.
func (h *Host) Partition(id record.GroupID) *Partition {
	h.parts.RLock()
	p := h.parts.m[id]
	h.parts.RUnlock()
	if p != nil {
		return p
	}
	h.parts.Lock()
	defer h.parts.Unlock()
	if p = h.parts.m[id]; p == nil {
		p = NewPartition(id)
		h.parts.m[id] = p
	}
	return p
}

// Lookup is Partition without making one: nil where there never was a replica or a view.
func (h *Host) Lookup(id record.GroupID) *Partition {
	h.parts.RLock()
	defer h.parts.RUnlock()
	return h.parts.m[id]
}

// post queues an event that is small or already bounded.
func (h *Host) post(ev Event) bool {
	h.inbox.Lock()
	if h.inbox.closed {
		h.inbox.Unlock()
		return false
	}
	h.inbox.control = append(h.inbox.control, ev)
	h.inbox.Unlock()
	signal(h.inbox.wake)
	return true
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Produce asks for a batch to be appended. It never blocks; r.Done is called exactly once, possibly
// before Produce returns, and must not block.
func (h *Host) Produce(r *ProduceRequest) {
	r.bytes, r.budget = int64(len(r.Batch)), &h.produceBytes
	if h.produceBytes.Add(r.bytes) > h.cfg.Limits.Produce {
		r.finish(ProduceResult{Err: record.ErrBusy})
		return
	}
	h.inbox.Lock()
	if h.inbox.closed {
		h.inbox.Unlock()
		r.finish(ProduceResult{Err: record.ErrShuttingDown})
		return
	}
	h.inbox.data = append(h.inbox.data, r)
	h.inbox.Unlock()
	signal(h.inbox.wake)
}

// Propose asks for a command to be appended to a state machine's log. Commands count against the
// same bound as batches until they are answered.
func (h *Host) Propose(g record.GroupID, data []byte, done func(result any, err error)) {
	n := int64(len(data))
	finish := func(result any, err error) {
		h.produceBytes.Add(-n)
		done(result, err)
	}
	switch {
	case h.produceBytes.Add(n) > h.cfg.Limits.Produce:
		finish(nil, record.ErrBusy)
	case !h.post(&ProposeRequest{Group: g, Data: data, Done: finish}):
		finish(nil, record.ErrShuttingDown)
	}
}

// MoveLogStart moves the beginning of a partition that is led here.
func (h *Host) MoveLogStart(r *LogStartRequest) {
	if !h.post(r) {
		r.Done(record.ErrShuttingDown)
	}
}

// Transfer starts to hand a group that is led here to another node; nil means that it was started.
func (h *Host) Transfer(g record.GroupID, to record.NodeID, done func(error)) {
	if !h.post(&TransferRequest{Group: g, To: to, Done: done}) {
		done(record.ErrShuttingDown)
	}
}

// Confirm asks whether a group is still led here; see ConfirmRequest. Done may be called before Confirm returns, and
// must not block.
func (h *Host) Confirm(r *ConfirmRequest) {
	if !h.post(r) {
		r.Done(record.ErrShuttingDown)
	}
}

// Configure tells the Core what the metadata wants of a group.
func (h *Host) Configure(a *Assignment) { h.post(a) }

// Remove forgets a replica and its data.
func (h *Host) Remove(g record.GroupID, r record.ReplicaID, done func(error)) {
	if !h.post(&RemoveReplica{Group: g, Replica: r, Done: done}) {
		done(record.ErrShuttingDown)
	}
}

// Refill empties a damaged replica; see RefillReplica.
func (h *Host) Refill(r *RefillReplica) {
	if !h.post(r) {
		r.Done(record.ErrShuttingDown)
	}
}

// Resign hands over all leadership, before a planned stop.
func (h *Host) Resign() { h.post(Resign{}) }

// roomEvery is how many bytes are written between two looks at the room on the disk.
const roomEvery = 1 << 20

// LookForRoom asks for room on the disk and tells the Core; call it now and then, because others
// fill and empty disks too.
func (h *Host) LookForRoom() {
	if h.cfg.Room == nil {
		return
	}
	full := !h.cfg.Room()
	if was := h.full.Swap(full); full || was {
		h.post(DiskRoom{Full: full, Tight: full && (h.cfg.Tight == nil || h.cfg.Tight())})
	}
}

// DiskFull tells what the last look for room found.
func (h *Host) DiskFull() bool { return h.full.Load() }

// CheckpointAll writes checkpoints, so that the next start is quick.
func (h *Host) CheckpointAll() { h.post(CheckpointAll{}) }

// PeerUp tells of a control connection to a life of a peer.
func (h *Host) PeerUp(n record.NodeID, b record.BootID) { h.post(PeerUp{n, b}) }

// PeerDown tells that the control connection was lost; refused as in the event of that name.
func (h *Host) PeerDown(n record.NodeID, b record.BootID, refused bool) {
	h.post(PeerDown{n, b, refused})
}

// PeerFrame brings a frame. It waits while too many bytes of its class are queued, which makes the
// peer's sender wait in turn.
func (h *Host) PeerFrame(n record.NodeID, b record.BootID, class Class, payload []byte) {
	h.inbox.Lock()
	for h.inbox.bytes[class] > h.cfg.Limits.Inbox && !h.inbox.closed {
		h.inbox.room.Wait()
	}
	if h.inbox.closed {
		h.inbox.Unlock()
		return
	}
	h.inbox.bytes[class] += int64(len(payload))
	queue := &h.inbox.data
	if class == Control {
		queue = &h.inbox.control
	}
	*queue = append(*queue, PeerFrame{n, b, payload})
	h.inbox.Unlock()
	signal(h.inbox.wake)
}

// Inspect runs fn on the core's goroutine and waits for it; false after Close.
func (h *Host) Inspect(fn func(*Core)) bool {
	done := make(chan struct{})
	if !h.post(Inspect{func(c *Core) { fn(c); close(done) }}) {
		return false
	}
	select {
	case <-done:
		return true
	case <-h.ended:
	}
	select { // the last turn may have run it
	case <-done:
		return true
	default:
		return false
	}
}

// Progress counts turns of the core and commits of the log writer: an idle node has hardly any.
func (h *Host) Progress() (turns, commits int64) { return h.turns.Load(), h.commits.Load() }

// OldestSave is how long the oldest save that is not on the disk yet has been waiting for it; 0 if there is none.
func (h *Host) OldestSave() time.Duration {
	h.saves.Lock()
	defer h.saves.Unlock()
	switch {
	case !h.saves.taken.IsZero():
		return time.Since(h.saves.taken)
	case len(h.saves.queue) > 0:
		return time.Since(h.saves.since)
	}
	return 0
}

func (h *Host) now() Time { return time.Since(h.start) }

// runCore is the core goroutine: all that waits makes one turn. Its timer is only set anew when it has rung or is to
// ring earlier. A turn too many now and then costs less than a timer that is set in every turn: a thread that
// sleeps until the next timer would have to be woken for it each time.
func (h *Host) runCore() {
	rings := h.now()
	timer := time.AfterFunc(0, func() { signal(h.inbox.wake) })
	defer timer.Stop()
	for {
		select {
		case <-h.inbox.wake:
		case <-h.stop:
			h.endCore()
			return
		}
		for _, ev := range h.take() {
			h.core.Step(h.now(), ev)
		}
		h.core.Flush(h.now())
		h.turns.Add(1)
		h.handSaves()
		if next, now := h.core.NextWake(), h.now(); next < rings || rings <= now {
			rings = next
			timer.Reset(next - now)
		}
	}
}

// take empties the inbox, control first.
func (h *Host) take() []Event {
	h.inbox.Lock()
	defer h.inbox.Unlock()
	evs := append(h.inbox.control, h.inbox.data...)
	h.inbox.control, h.inbox.data = nil, nil
	if h.inbox.bytes != [2]int64{} {
		h.inbox.bytes = [2]int64{}
		h.inbox.room.Broadcast()
	}
	return evs
}

func (h *Host) handSaves() {
	saves := h.core.TakeSaves()
	if len(saves) == 0 {
		return
	}
	h.saves.Lock()
	if len(h.saves.queue) == 0 {
		h.saves.since = time.Now()
	}
	h.saves.queue = append(h.saves.queue, saves...)
	h.saves.Unlock()
	signal(h.saves.wake)
}

// endCore is the last turn: what came before Close is taken, everybody is answered.
func (h *Host) endCore() {
	defer close(h.ended)
	for _, ev := range h.take() {
		h.core.Step(h.now(), ev)
	}
	h.core.Flush(h.now())
	h.core.stopServing()
	h.handSaves()
	h.saves.Lock()
	h.saves.done = true
	h.saves.Unlock()
	signal(h.saves.wake)
}

// runLogWriter is the log writer goroutine. While one commit waits for the disk the next
// gathers: a slow card makes larger commits, not longer queues. What was written without an
// fsync gets one within FlushInterval, beside the commits that come meanwhile.
func (h *Host) runLogWriter() {
	var updates []storage.Update
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var flushed chan error // of a sync that is under way
	unsynced, failed := false, false
	written := int64(0)
	fail := func(err error) {
		if err != nil && !failed && h.cfg.OnFailed != nil {
			h.cfg.OnFailed(err)
		}
		failed = failed || err != nil
	}
	for {
		select {
		case <-h.saves.wake:
		case <-timer.C:
			if unsynced && flushed == nil {
				unsynced, flushed = false, make(chan error, 1)
				go h.runFlush(flushed)
			}
		case err := <-flushed:
			flushed = nil
			fail(err)
			if unsynced {
				timer.Reset(FlushInterval)
			}
		}
		h.saves.Lock()
		saves, done := h.saves.queue, h.saves.done
		h.saves.queue = nil
		if len(saves) > 0 {
			h.saves.taken = h.saves.since
		}
		h.saves.Unlock()
		clear(updates)
		updates = updates[:0]
		sync := done && unsynced
		for i := range saves {
			if !saves[i].empty {
				updates = append(updates, saves[i].Update)
				written += saves[i].bytes
				sync = sync || saves[i].Sync || done // Close leaves nothing to a power cut
			}
		}
		ev := &Saved{Saves: saves}
		if len(updates) > 0 || sync {
			began := time.Now()
			ev.Err = h.cfg.Store.Commit(updates, sync)
			ev.Took = time.Since(began)
			h.commits.Add(1)
			if !sync && !unsynced && flushed == nil {
				timer.Reset(FlushInterval)
			}
			unsynced = !sync
		}
		if written >= roomEvery {
			written = 0
			h.LookForRoom()
		}
		fail(ev.Err)
		if len(saves) > 0 {
			h.postSaved(ev)
		}
		h.saves.Lock()
		h.saves.taken = time.Time{}
		h.saves.Unlock()
		if done {
			if flushed != nil {
				fail(<-flushed)
			}
			return
		}
	}
}

// runFlush is a goroutine for as long as one sync takes.
func (h *Host) runFlush(done chan<- error) { done <- h.cfg.Store.Sync() }

func (h *Host) postSaved(ev *Saved) {
	if h.post(ev) {
		return
	}
	for _, s := range ev.Saves { // the core has ended: only who waits for a removal is told
		if s.then != nil {
			s.then(record.ErrShuttingDown)
		}
	}
}

// stopServing answers everybody, at the end of the Core's life.
func (c *Core) stopServing() {
	for _, g := range c.order {
		c.dropWaiters(g, record.ErrShuttingDown)
		c.dropHeld(g, record.ErrShuttingDown)
	}
}
