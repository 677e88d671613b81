package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"edged/internal/memnet"
	"edged/node"
	"edged/partition"
	"edged/record"
	"edged/storage"
	"edged/transport/wire"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	nativePort = 7400
	dataDir    = "data"
	memTable   = 64 << 10 // so that buckets turn over within a run
)

// world is one run: machines, a network, clients, and what is known about them.
type world struct {
	t        *testing.T
	seed     uint64
	rng      *rand.Rand // the script's; nobody else draws from it
	began    time.Time
	net      *memnet.Network
	story    *story
	hist     *history
	clock    wall
	booted   atomic.Int64 // when a machine was last started, since the world began
	broken   atomic.Pointer[violation]
	stop     chan struct{} // ends the clients
	wg       sync.WaitGroup
	clients  sync.WaitGroup
	machines []*machine // changed by the script only, under mu

	// What the script keeps in mind.
	link               memnet.Link                 // as long as nothing is wrong with it
	quiet              bool                        // few records, so that porcupine sees all of the run
	small              bool                        // limits that make every queue and cache turn over
	diskPace           time.Duration               // of a healthy disk
	made               int                         // topics
	states             map[int64]string            // of the metadata, by entry
	clusters           map[record.ClusterID]string // that there ever were, and who said so
	wiped              bool
	clones             int
	decided, undecided int           // partitions that porcupine judged, or not in time
	liveWithin         time.Duration // of every partition, after the faults
	moved              time.Duration // when a machine was last given another address

	// mu guards what clients look up while the script changes it: which machines there are, and the
	// life of each.
	mu    sync.RWMutex
	names map[record.NodeID]string
}

// violation is a law that was broken.
type violation struct{ law, text string }

// wall is the clock that people set.
type wall struct{ ahead atomic.Int64 }

func (c *wall) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), began: time.Now(), net: memnet.New(), story: newStory(), stop: make(chan struct{}), liveWithin: liveWithin}
	w.net.SetRand(rand.New(rand.NewPCG(seed, 2)))
	w.hist = newHistory(w)
	w.names, w.states, w.clusters = map[record.NodeID]string{}, map[int64]string{}, map[record.ClusterID]string{}
	return w
}

// fail notes the first law that was broken. The run ends soon after.
func (w *world) fail(law, format string, args ...any) {
	v := &violation{law, fmt.Sprintf(format, args...)}
	if !w.broken.CompareAndSwap(nil, v) {
		return
	}
	w.story.tell("LAW", "broken: %s: %s", v.law, v.text)
	for _, l := range w.lives() {
		w.story.tell(l.m.name, "%s", l.state())
	}
	// Now, because a run that is broken may not end.
	fmt.Fprintf(os.Stderr, "\n--- seed %d: what happened last, in virtual time\n%s--- seed %d broke the law %q: %s\n", w.seed, w.told(), w.seed, v.law, w.named(v.text))
}

// told is the story with the nodes' ids replaced by the names of their machines.
func (w *world) told() string { return w.named(w.story.String()) }

func (w *world) named(text string) string {
	w.mu.RLock()
	defer w.mu.RUnlock()
	var ids []string
	for id, name := range w.names {
		ids = append(ids, id.String(), name)
	}
	return strings.NewReplacer(ids...).Replace(text)
}

func (w *world) over() bool { return w.broken.Load() != nil }

func (w *world) since() time.Duration { return time.Since(w.began) }

// name is what the story calls a node.
func (w *world) name(id record.NodeID) string {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if n := w.names[id]; n != "" {
		return n
	}
	return id.String()
}

// machine is one computer with a disk. Its life is the process on it.
type machine struct {
	w      *world
	index  int
	name   string
	addrs  int // addresses it had so far
	host   *memnet.Host
	ahead  atomic.Int64 // of the clock that all see
	mem    *vfs.MemFS
	disk   *disk
	born   func(*disk) // makes the disk of the next life a bad one; nil for a good one
	life   *life       // nil while nothing runs
	boots  int
	clone  bool             // of another machine
	of     *machine         // that one
	last   storage.Identity // of the last life; zero if the disk is another one
	backup *backup          // what the disk was once
	old    bool             // it runs with that
	rotten bool             // a bit of its disk is flipped
	// nodes that form the cluster together; 0 joins one
	expect int
	join   []string
}

type backup struct {
	mem  *vfs.MemFS
	life int // in which it was made
}

func (w *world) addMachine(expect int, join []string) *machine {
	m := &machine{w: w, index: len(w.machines) + 1, mem: vfs.NewCrashableMem(), expect: expect, join: join}
	m.name = "n" + strconv.Itoa(m.index)
	m.host = w.net.Host(m.addr())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.machines = append(w.machines, m)
	return m
}

// addr is the address that the machine has now.
func (m *machine) addr() string { return fmt.Sprintf("10.0.%d.%d", m.addrs, m.index) }

// move gives a machine that is off another address.
func (m *machine) move() {
	m.addrs++
	m.host.PowerOff()
	m.host = m.w.net.Host(m.addr())
	m.w.story.tell(m.name, "has the address %s now", m.addr())
}

// life is one run of a node's process.
type life struct {
	m      *machine
	n      *node.Node
	id     record.NodeID
	number int
	fake   bool // a clone, or an old disk: not the node whose name it bears
	cancel context.CancelFunc
	ended  chan struct{} // Run returned
	err    error         // what Run returned
	gone   chan struct{} // the process is dead, whatever its goroutines still do

	still  atomic.Pointer[chan struct{}] // closed when the process goes on; nil while it does
	silent *atomic.Bool                  // as dead, for its log
	gate   sync.RWMutex                  // an answer is taken before a death or not at all
	dead   bool
}

// state is what a node says of itself, in one line per group.
func (l *life) state() string {
	p := l.n.Picture()
	s := fmt.Sprintf("is of cluster %v; knows %d nodes, %d topics; failure: %v", l.n.Identity().Cluster, len(p.NodesSorted()), len(p.Topics()), l.n.Failure())
	h := l.n.Host()
	if h == nil {
		return s
	}
	groups := []record.GroupID{record.MetadataGroup}
	for _, t := range p.Topics() {
		for _, part := range t.Partitions {
			groups = append(groups, part.Group)
		}
	}
	for _, g := range groups {
		pp := h.Lookup(g)
		if pp == nil {
			continue
		}
		v := pp.View()
		name := "metadata"
		if at, ok := p.Group(g); ok {
			name = fmt.Sprintf("%s/%d", at.Topic.Name, at.Number)
		}
		s += fmt.Sprintf("\n%24s group %d %s: %v of epoch %d, leader %s, serving %v, log %d to %d, voters %s, learners %s", "", g, name, v.Role, v.Epoch, l.m.w.name(v.Leader), v.Serving, pp.LogStart(), pp.HighWatermark(), l.m.w.replicaNames(v.Voters), l.m.w.replicaNames(v.Learners))
		if v.Err != nil {
			s += ", " + v.Err.Error()
		}
	}
	return s
}

func (w *world) replicaNames(rs []record.ReplicaID) string {
	names := make([]string, len(rs))
	for i, r := range rs {
		names[i] = fmt.Sprintf("%s/%d", w.name(r.Node()), r.Attempt())
	}
	return strings.Join(names, " ")
}

// start boots the machine. What New returns as an error is returned.
func (m *machine) start() error {
	w := m.w
	m.boots++
	w.booted.Store(int64(w.since()))
	m.disk = newDisk(m.mem, w.seed<<8|uint64(m.boots))
	m.disk.setSlow(w.diskPace)
	if m.born != nil {
		m.born(m.disk)
	}
	g, err := gossipOn(m.host)
	if err != nil {
		return err
	}
	cfg := node.DefaultConfig()
	cfg.DataDir, cfg.NodeName, cfg.Cluster = dataDir, m.name, "sim"
	cfg.Advertise, cfg.BootstrapExpect, cfg.Join = m.addr(), m.expect, m.join
	cfg.MemoryLimit = "1GiB" // whatever the machine has, a seed runs alike
	host, dead := m.host, new(atomic.Bool)
	n, err := node.New(cfg, node.Options{
		Logger: slog.New(teller{s: w.story, name: m.name, dead: dead}), Version: "sim", FS: m.disk, Gossip: g,
		Listen: func(addr string) (net.Listener, error) {
			_, p, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			port, _ := strconv.Atoi(p)
			return host.Listen(port)
		},
		Dial: func(ctx context.Context, addr string) (net.Conn, error) { return host.Dial(ctx, addr) },
		Rand: rand.New(rand.NewPCG(w.seed, uint64(m.index)<<32|uint64(m.boots))),
		Wall: func() time.Time { return w.clock.now().Add(time.Duration(m.ahead.Load())) }, MemTable: memTable, Limits: w.limits(),
	})
	if err != nil {
		_ = g.Shutdown()
		w.story.tell(m.name, "does not start: %v", err)
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &life{fake: m.clone || m.old, silent: dead, m: m, n: n, id: n.Identity().Node, number: m.boots, cancel: cancel, ended: make(chan struct{}), gone: make(chan struct{})}
	w.mu.Lock()
	if m.life = l; !m.clone {
		w.names[l.id] = m.name
	}
	w.mu.Unlock()
	w.checkIdentity(m, l)
	w.story.tell(m.name, "starts as node %d, boot %d, at %s", l.id, n.Identity().BootCounter, m.addr())
	w.wg.Go(func() {
		l.err = n.Run(ctx)
		close(l.ended)
	})
	return nil
}

// limits of the partitions' queues and caches: the usual ones, or small ones, so that all of them turn over.
func (w *world) limits() partition.Limits {
	l := partition.DefaultLimits()
	if w.small {
		l.CheckpointEntries, l.EntryCache, l.MachineLog, l.Message, l.Inflight = 20, 8<<10, 8, 4<<10, 32<<10
	}
	return l
}

// checkIdentity compares who a machine is with who it was in its last life on the same disk.
func (w *world) checkIdentity(m *machine, l *life) {
	id := l.n.Identity()
	if was := m.last; was.Node != 0 && (id.Node != was.Node || id.Instance != was.Instance || id.BootCounter <= was.BootCounter) {
		w.fail(lawIdentity, "%s was node %d, instance %v, boot %d and is node %d, instance %v, boot %d", m.name, was.Node, was.Instance, was.BootCounter, id.Node, id.Instance, id.BootCounter)
	}
	m.last = id
}

// answer runs f unless the process is dead: a dead one answers nobody.
func (l *life) answer(f func()) bool {
	l.gate.RLock()
	defer l.gate.RUnlock()
	if !l.dead {
		f()
	}
	return !l.dead
}

// pause makes the process stand still, as SIGSTOP does: its groups take no turn, no byte leaves or reaches it,
// and its clients hear nothing. What it did until then stays as it is.
func (l *life) pause() {
	h := l.n.Host()
	if h == nil || l.still.Load() != nil {
		return
	}
	l.m.w.story.tell(l.m.name, "STOPPED, as by SIGSTOP")
	on := make(chan struct{})
	l.still.Store(&on)
	l.m.host.Freeze(true)
	l.m.w.wg.Go(func() { h.Inspect(func(*partition.Core) { <-on }) })
}

// resume lets it go on.
func (l *life) resume() {
	if on := l.still.Swap(nil); on != nil {
		l.m.w.story.tell(l.m.name, "goes on")
		l.m.host.Freeze(false)
		close(*on)
	}
}

// hears waits until the process does not stand still; false if the caller's patience ends before.
func (l *life) hears(patience time.Duration) bool {
	on := l.still.Load()
	if on == nil {
		return true
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-*on:
		return true
	case <-l.gone:
	case <-timer.C:
	}
	return false
}

// die makes the process dead. What its goroutines do from here on reaches nobody: its host is off
// the network and its disk is not the machine's any more.
func (l *life) die(end func()) {
	l.m.w.hist.lifeEnds(l)
	l.gate.Lock()
	l.dead = true
	l.silent.Store(true)
	end()
	l.gate.Unlock()
	close(l.gone)
	l.cancel()
	l.m.w.mu.Lock()
	l.m.life = nil
	l.m.w.mu.Unlock()
	l.resume()
}

// powerCut takes the power away: kept percent of what was not synced is on the disk afterwards.
func (m *machine) powerCut(kept int) {
	m.w.story.tell(m.name, "POWER CUT, %d%% of what was not synced is kept", kept)
	rng := rand.New(rand.NewPCG(m.w.rng.Uint64(), 4))
	old := m.disk
	m.life.die(func() {
		m.host.PowerOff()
		m.mem = m.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: rng})
	})
	old.heal() // or its goroutines never end
}

// kill ends the process as kill -9 does: the system lives and keeps what was written.
func (m *machine) kill() {
	m.w.story.tell(m.name, "KILLED")
	rng := rand.New(rand.NewPCG(m.w.rng.Uint64(), 4))
	old := m.disk
	m.life.die(func() {
		m.host.Kill()
		m.mem = m.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
		m.host = m.host.Replace()
	})
	old.heal()
}

// powerOn lets the machine answer on the network again; no process runs on it yet.
func (m *machine) powerOn() { m.host = m.host.Replace() }

// shutDown stops the process as an operator does, and waits for it.
func (m *machine) shutDown() error {
	l := m.life
	l.resume()
	m.w.story.tell(m.name, "is told to stop")
	l.cancel()
	select {
	case <-l.ended:
	case <-time.After(30 * time.Second):
		m.w.fail(lawStops, "%s does not stop within 30 s", m.name)
		return errors.New("does not stop")
	}
	m.life.die(func() {})
	m.host = m.host.Replace()
	m.w.story.tell(m.name, "stopped: %v", l.err)
	return l.err
}

// lives are the processes that run, in the order of their machines.
func (w *world) lives() []*life {
	w.mu.RLock()
	defer w.mu.RUnlock()
	var ls []*life
	for _, m := range w.machines {
		if m.life != nil {
			ls = append(ls, m.life)
		}
	}
	return ls
}

// errGone is what a client gets from a node that died before it answered.
var errGone = errors.New("the node is gone")

// produce sends one batch and calls done once, with errGone if the node dies or takes too long.
func (l *life) produce(req wire.ProduceRequest, patience time.Duration) <-chan wire.ProduceResponse {
	out := make(chan wire.ProduceResponse, 2)
	gone := wire.ProduceResponse{BaseOffset: -1, Err: errGone}
	if !l.hears(patience) || !l.answer(func() {}) {
		out <- gone
		return out
	}
	answered := make(chan struct{})
	var once sync.Once
	finish := func(r wire.ProduceResponse) {
		once.Do(func() {
			out <- r
			close(answered)
		})
	}
	end := req.Batch.Span()
	l.n.Broker().Produce(req, func(r wire.ProduceResponse) {
		if r.Err == nil && req.Acks == wire.AcksAll {
			l.readable(req, r.BaseOffset+record.Offset(end))
		}
		l.answer(func() { finish(r) })
	})
	go func() {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-answered:
		case <-l.gone:
			finish(gone)
		case <-timer.C:
			finish(gone)
		}
	}()
	return out
}

// readable checks, at the moment when a batch is acknowledged, that it can be read.
func (l *life) readable(req wire.ProduceRequest, end record.Offset) {
	t := l.n.Picture().Topic(req.Topic)
	if t == nil {
		return
	}
	if pp := l.n.Host().Lookup(t.Partitions[req.Partition].Group); pp.HighWatermark() < end {
		l.m.w.fail(lawReadBack, "%s acknowledged a batch of %s/%d up to offset %d while its high watermark was %d", l.m.name, req.Topic, req.Partition, end, pp.HighWatermark())
	}
}

// ask calls a node; false if it died before it answered.
func ask[T any](l *life, patience time.Duration, f func(ctx context.Context, b wire.Broker) T) (out T, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	go func() {
		select {
		case <-l.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	if !l.hears(patience) || !l.answer(func() {}) {
		return out, false
	}
	r := f(ctx, l.n.Broker())
	ok = l.hears(patience) && l.answer(func() { out = r })
	return out, ok
}
