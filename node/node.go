package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"edged/gossip"
	"edged/metadata"
	"edged/partition"
	"edged/record"
	"edged/storage"
	"edged/transport"
	"edged/transport/peer"
	"edged/transport/wire"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/memberlist"
)

// Options is what the process around a node gives it. Zero fields take the real thing.
type Options struct {
	// Logger takes everything the node has to say; nil drops it.
	Logger *slog.Logger
	// Version of the program, for other nodes and for people; at most 32 bytes.
	Version string
	// Built is when the program was made: no clock that is right shows an earlier time.
	Built time.Time
	// Status, if set, is told in one line what the node is doing, once per change and for
	// each step of progress while it starts and stops. It must not block.
	Status func(line string)
	// Quiet, if set, is called now and then while nothing is stored (quietAfter, quietEvery): memory that
	// belongs to the process as a whole can be given back.
	Quiet func()
	// Reopen lets Run end with a *ReopenError when a store that had stopped writing could go on: for who
	// makes the node anew then.
	Reopen bool

	// The rest lets a simulator stand in for the machine.
	FS     vfs.FS
	Listen func(addr string) (net.Listener, error)
	Dial   func(ctx context.Context, addr string) (net.Conn, error)
	Gossip memberlist.Transport
	Rand   *rand.Rand
	Timing partition.Timing
	Limits partition.Limits
	// Wall is the clock that people set; retention by time goes by it, and nothing else may.
	Wall func() time.Time
	// ClockSynced tells whether Wall is kept right, and how that is known. nil: the kernel is asked; a Wall
	// that stands in for the real one is believed.
	ClockSynced func() (bool, string)
	// MemTable is storage.Options.MemTableSize.
	MemTable int64
	// network stands in for the machine's in tests.
	network network
}

// shutdownPatience bounds each step of a graceful stop.
const shutdownPatience = 3 * time.Second

// Node is one running node.
type Node struct {
	cfg     Config
	opts    Options
	log     *slog.Logger
	place   atomic.Pointer[place] // where others are told to find us; followPlace changes it
	placing sync.Mutex            // one look at it at a time
	memory  memoryBounds
	boot    record.BootID
	started time.Time

	ident   *storage.IdentityFile
	store   *storage.Store
	machine *machine
	native  net.Listener
	http    net.Listener
	// listeners are all of them, for the watchdog.
	listeners  []*watched
	server     *transport.Server
	wire       *wire.Server
	kafka      kafkaServing
	groups     *groupLogs
	peers      *peer.Transport
	gossip     *gossip.Gossip
	history    history
	came       arrivals // the janitor's
	disk       diskHealth
	lost       lostCopies
	froze      chan struct{} // closed when the store has stopped writing
	freezeOnce sync.Once
	reopen     atomic.Bool // the disk takes writes again
	wear       *wear
	notes      *eventLog
	clock      *clock
	committed  int64 // the janitor's
	quiet      quiet // the janitor's
	leadership leadership
	pausing    pausing
	live       atomic.Pointer[Config] // the settings with what a reload has changed; cfg is as it was at the start
	metrics    *metrics

	host      atomic.Pointer[partition.Host] // nil until the node is in a cluster
	cluster   atomic.Pointer[record.ClusterID]
	bootstrap bootstrap
	producers producerIDs
	alive     aliveness
	failed    atomic.Pointer[error]
	stopping  atomic.Bool
	problems  problems
	refusals  refusals
	strangers problems // that the log was told of
	unnamed   unnamed
	lags      lags

	ctx    context.Context // ends when Run begins to stop
	cancel context.CancelFunc
	wg     sync.WaitGroup
	events chan struct{} // something that reconcile looks at has changed
	led    leaderNews
	done   configured
	addrs  addresses
}

// Addrs are the addresses a node listens at.
type Addrs struct {
	NodeID record.NodeID `json:"node_id"`
	Native string        `json:"native"`
	Gossip string        `json:"gossip"`
	Kafka  string        `json:"kafka"`
	HTTP   string        `json:"http"`
	PID    int           `json:"pid"`
}

// New opens everything that can fail: the data directory, then the listeners, then gossip. It serves
// nothing yet. After an error everything is closed again.
func New(cfg Config, opts Options) (_ *Node, err error) {
	n := &Node{cfg: cfg, opts: opts, boot: record.NewBootID(), started: time.Now(), events: make(chan struct{}, 1), froze: make(chan struct{})}
	n.live.Store(&cfg)
	n.defaults()
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.machine = newMachine()
	n.groups = newGroupLogs(n)
	n.done.bell = make(chan struct{}, 1)
	n.disk.bell = make(chan struct{}, 1)
	n.producers.lock = make(chan struct{}, 1)
	defer func() {
		if err != nil {
			n.closeOpened()
		}
	}()
	p, err := cfg.place(n.opts.network)
	if err != nil {
		return nil, err
	}
	n.place.Store(&p)
	if err := n.openData(); err != nil {
		return nil, oneLine(err)
	}
	if err := n.openListeners(); err != nil {
		return nil, err
	}
	if err := n.openGossip(); err != nil {
		return nil, err
	}
	if opts.FS == nil {
		if err := n.writeAddresses(); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// oneLine makes an error fit for people. What no restart can help with (a directory of a newer
// version, of something else, or of a node that lost its identity or its data) is a fault of the configuration.
func oneLine(err error) error {
	text := inLine(err)
	for _, e := range []error{storage.ErrNewerFormat, storage.ErrNotOurs, storage.ErrIdentityLost, storage.ErrDamaged, storage.ErrLostTail} {
		if errors.Is(err, e) {
			return beyondRestart(&lineError{text, err})
		}
	}
	if !strings.Contains(text, ";") {
		text += "; use --data-dir to name another directory"
	}
	return &lineError{text, err}
}

// inLine is an error's text in one line.
func inLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; ")
}

// lineError is an error with a text of one line.
type lineError struct {
	text string
	err  error
}

func (e *lineError) Error() string { return e.text }
func (e *lineError) Unwrap() error { return e.err }

func (n *Node) defaults() {
	n.log = n.opts.Logger
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	n.memory = n.cfg.Budget().bounds()
	if n.opts.MemTable != 0 {
		n.memory.memTable = n.opts.MemTable
	}
	if n.opts.Limits != (partition.Limits{}) {
		n.memory.core = n.opts.Limits
	}
	if n.opts.Status == nil {
		n.opts.Status = func(string) {}
	}
	if n.opts.Listen == nil {
		n.opts.Listen = func(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }
	}
	if n.opts.ClockSynced == nil {
		n.opts.ClockSynced = kernelClock
		if n.opts.Wall != nil {
			n.opts.ClockSynced = func() (bool, string) { return true, "" }
		}
	}
	if n.opts.Wall == nil {
		n.opts.Wall = time.Now
	}
	if n.opts.network.addrs == nil {
		n.opts.network = systemNetwork()
	}
	if n.opts.Rand == nil {
		n.opts.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
}

func (n *Node) fs() vfs.FS {
	if n.opts.FS != nil {
		return n.opts.FS
	}
	return vfs.Default
}

func (n *Node) openData() (err error) {
	n.opts.Status("opening " + n.cfg.DataDir)
	storage.GiveUpReserve(n.cfg.DataDir, n.fs(), startRoom)
	if n.ident, err = storage.OpenIdentity(n.cfg.DataDir, n.fs()); err != nil {
		return err
	}
	n.clock = newClock(n.opts.Wall, n.opts.ClockSynced, n.cfg.ClockTrust == clockAlways, n.opts.Built, n.dataFile(clockFileName))
	n.notes = openEventLog(n.dataFile(eventsFileName), n.opts.Wall)
	if err := n.ident.Damage(); err != nil {
		n.note(eventDisk, "one of the two copies of the node's identity was damaged and is written anew from the other: "+inLine(err))
	}
	reserve := int64(0)
	if u, err := n.fs().GetDiskUsage(n.cfg.DataDir); err == nil {
		reserve = reserveSize(int64(u.TotalBytes))
	}
	n.store, err = storage.Open(n.cfg.DataDir, n.fs(), storage.Options{
		MemTableSize: n.memory.memTable, CacheSize: n.memory.cache, Logger: n.log, Unclean: n.ident.Get().State != stateClean,
		Reserve: reserve, OnEvent: n.onStorage,
	})
	if err != nil {
		return err
	}
	tbw, _ := parseBytes(n.cfg.CardTBW) // Validate has looked
	dir := n.dataFile("")
	n.wear = openWear("/", dir, n.dataFile(wearFileName), tbw, func() (int64, int64) {
		m := n.store.Metrics()
		return m.WALBytesWritten + m.FlushBytesWritten + m.CompactBytesWritten, m.PayloadBytes
	})
	n.came = newArrivals(n.store.Groups())
	return nil
}

func (n *Node) openListeners() (err error) {
	if n.native, err = n.listen("native-addr", n.cfg.NativeAddr); err != nil {
		return err
	}
	if n.http, err = n.listen("http-addr", n.cfg.HTTPAddr); err != nil {
		return err
	}
	n.peers = peer.New(peer.Config{Identity: n.identity, Handler: peerHandler{n}, Admit: n.admit, Dial: n.opts.Dial, Logger: n.log, Limits: n.memory.peers})
	n.wire = wire.NewServer(n.memory.wire(wire.Config{Broker: broker{n}, Groups: nativeGroups{n.groups}, Logger: n.log}))
	n.server = transport.New(transport.Config{Logger: n.log, Route: func(first [4]byte) transport.Handler {
		if string(first[:]) == peer.Magic {
			return n.peers.Accept
		}
		return n.wire.Handle
	}})
	if err := n.openKafka(); err != nil {
		return err
	}
	n.metrics = newMetrics(n)
	return nil
}

func (n *Node) listen(setting, addr string) (net.Listener, error) {
	ln, err := n.opts.Listen(addr)
	if err != nil {
		return nil, listenError(setting, addr, err)
	}
	w := &watched{Listener: ln, setting: setting, epoch: n.started}
	n.listeners = append(n.listeners, w)
	return w, nil
}

// listenError names the setting to change. What package net says of the address is left out: it stands
// there already.
func listenError(setting, addr string, err error) error {
	cause := err
	var op *net.OpError
	if errors.As(err, &op) {
		cause = op.Err
	}
	var call *os.SyscallError
	if errors.As(cause, &call) {
		cause = call.Err
	}
	return &lineError{fmt.Sprintf("cannot listen at %s (%s): %v; choose another with --%s, port 0 takes a free one", addr, setting, cause, setting), err}
}

func (n *Node) openGossip() (err error) {
	key, err := n.cfg.ClusterSecret()
	if err != nil {
		return err
	}
	n.gossip, err = gossip.Start(gossip.Config{
		Meta: n.gossipMeta(), ClusterName: n.cfg.Cluster, Key: key, BindAddr: n.cfg.GossipAddr, AdvertiseHost: n.place.Load().ip,
		Join: n.cfg.Join, Transport: n.opts.Gossip, Logger: n.log,
		SavedFile: n.savedMembers, Save: n.saveMembers,
	})
	var op *net.OpError
	switch {
	case errors.As(err, &op) && op.Op == "listen":
		return listenError("gossip-addr", n.cfg.GossipAddr, err)
	case err != nil:
		return fmt.Errorf("gossip: %w", err)
	}
	return nil
}

// Addrs are the addresses that the node listens at, with the real ports.
func (n *Node) Addrs() Addrs {
	return Addrs{
		NodeID: n.ident.Get().Node, Native: n.reachable(n.native.Addr()), Gossip: n.gossip.Addr(),
		Kafka: n.kafkaAt(n.kafka.listeners[0]), HTTP: n.http.Addr().String(), PID: os.Getpid(),
	}
}

// reachable is a listener's address as others dial it.
func (n *Node) reachable(a net.Addr) string {
	_, port, _ := net.SplitHostPort(a.String())
	return net.JoinHostPort(n.place.Load().host, port)
}

// writeAddresses tells scripts the real ports; after a power cut too nobody reads half.
func (n *Node) writeAddresses() error {
	b, err := json.Marshal(n.Addrs())
	if err != nil {
		return err
	}
	path := filepath.Join(n.cfg.DataDir, "addresses.json")
	if err := replaceFile(path, append(b, '\n')); err != nil {
		return err
	}
	return os.Chmod(path, 0o644)
}

// identity is what peers are told. The cluster is set once, by bootstrap.
func (n *Node) identity() peer.Identity {
	id := n.ident.Get()
	p := peer.Identity{ClusterName: n.cfg.Cluster, Node: id.Node, Instance: id.Instance, Boot: n.boot, BootCounter: id.BootCounter}
	if c := n.cluster.Load(); c != nil {
		p.Cluster = *c
	}
	return p
}

// admit has the registry's word about a peer: removed nodes stay out, and an older life of a
// node that the registry knows of is a clone or a restored backup.
func (n *Node) admit(id peer.Identity) error {
	p := n.machine.Picture()
	if p.Banned(id.Node) {
		return metadata.ErrNodeBanned
	}
	if known := p.Node(id.Node); known != nil {
		if known.Instance != id.Instance {
			return metadata.ErrNodeIDTaken
		}
		if id.BootCounter < known.BootCounter || id.BootCounter == known.BootCounter && id.Boot != known.Boot {
			return metadata.ErrNodeStale
		}
	}
	return nil
}

// Run serves until ctx ends, then hands leadership over and closes. It returns nil after a
// graceful stop and the cause if the node could not go on.
func (n *Node) Run(ctx context.Context) error {
	n.wg.Go(func() { _ = n.server.Serve(n.native) })
	n.serveKafka()
	n.wg.Go(func() { n.serveHTTP() })
	n.wg.Go(func() { n.runBootstrap() })
	n.wg.Go(func() { n.runReconcile() })
	n.wg.Go(func() { n.runReports() })
	n.wg.Go(func() { n.groups.runGroups() })
	n.wg.Go(func() { n.runJanitor() })
	if n.opts.Reopen {
		n.wg.Go(func() { n.runReopen() })
	}
	n.wg.Go(func() { n.followPlace() })
	n.notes.add(eventStart, fmt.Sprintf("edged %s started, start %d of node %d", n.opts.Version, n.ident.Get().BootCounter, n.ident.Get().Node))
	n.cfg.Budget().log(n.log)
	n.lookAtClock()
	n.log.Info("listening", "node", n.ident.Get().Node, "native", n.native.Addr(), "gossip", n.gossip.Addr(), "kafka", n.kafkaAddr(), "http", n.http.Addr(), "advertise", n.place.Load().host, "why", n.place.Load().why)
	select {
	case <-ctx.Done():
	case <-n.ctx.Done(): // a fault that the node cannot live with
	}
	return n.stop()
}

// stop is the start list backwards: hand over, leave, stop accepting, close.
func (n *Node) stop() error {
	n.opts.Status("handing leadership over")
	n.stopping.Store(true)
	if n.failure() != nil {
		_ = n.peers.Close() // who must not go on, a clone above all, must not vote while it takes its leave either
	} else if h := n.host.Load(); h != nil {
		n.handOver(h)
	}
	// While gossip tells the others, clients that ask here still hear who leads now.
	n.opts.Status("leaving")
	n.gossip.Leave(time.Second)
	n.opts.Status("stopping")
	n.cancel()
	failed := n.failure()
	n.store.EndWaits() // the Host's log writer would else wait for room, and we for it
	_ = n.http.Close()
	_ = n.server.Close()
	_ = n.wire.Close()
	n.closeKafka()
	n.gossip.Close()
	_ = n.peers.Close()
	n.wg.Wait()
	if h := n.host.Load(); h != nil {
		h.CheckpointAll()
		_ = h.Close()
	}
	n.notes.add(eventStop, "stopped")
	_ = errors.Join(n.clock.save(true), n.wear.save(true), n.notes.save(true)) // what they miss is no loss that a stop could mend
	err := n.store.Close()
	if failed != nil && n.reopen.Load() {
		return &ReopenError{failed}
	}
	if failed != nil {
		return failed
	}
	if err == nil {
		err = n.markClean()
	} else if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, record.ErrDiskFull) {
		return err
	}
	if err != nil {
		n.log.Warn("stopped, but that could not be written down; the next start takes this for a stop that was cut off, and recovers", "err", inLine(err))
	}
	return nil
}

// markClean writes down that this life ended in good order. For that a full disk's reserve is there.
func (n *Node) markClean() error {
	storage.GiveUpReserve(n.cfg.DataDir, n.fs(), startRoom)
	return n.ident.Update(func(id *storage.Identity) { id.State = stateClean })
}

// handOver gives leadership away and waits, bounded, until it is gone.
func (n *Node) handOver(h *partition.Host) {
	h.Resign()
	deadline := time.NewTimer(shutdownPatience)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		movable := 0
		h.Inspect(func(c *partition.Core) { movable = c.Transferring() })
		if movable == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			n.log.Warn("stopping although not all leadership was handed over", "groups", movable)
			return
		}
	}
}

// closeOpened is for a New that failed half-way.
func (n *Node) closeOpened() {
	n.cancel()
	n.closeKafka()
	if n.gossip != nil {
		n.gossip.Close()
	}
	if n.peers != nil {
		_ = n.peers.Close()
	}
	for _, ln := range []net.Listener{n.native, n.http} {
		if ln != nil {
			_ = ln.Close()
		}
	}
	if n.store != nil {
		_ = n.store.Close()
	}
}

// fail notes why the node cannot go on as a member; health turns red at once. Reads go on.
func (n *Node) fail(err error) {
	if err == nil {
		err = errors.New("unknown fault")
	}
	if n.failed.CompareAndSwap(nil, &err) {
		n.notes.add(eventDisk, "this node can no longer take part: "+err.Error())
		n.log.Error("this node can no longer take part: it writes nothing more; others take over", "err", err)
		n.opts.Status("failed: " + err.Error())
	}
}

func (n *Node) failure() error {
	if p := n.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// wake makes reconcile look again.
func (n *Node) wake() {
	select {
	case n.events <- struct{}{}:
	default:
	}
}

// info is what the registry should say of this node.
func (n *Node) info() metadata.NodeInfo {
	id := n.ident.Get()
	return metadata.NodeInfo{
		ID: id.Node, Instance: id.Instance, Name: n.cfg.NodeName, Host: n.place.Load().host, NativeAddr: n.reachable(n.native.Addr()),
		KafkaAddr: n.kafkaAddr(), HTTPAddr: n.reachable(n.http.Addr()), Version: n.opts.Version, BootCounter: id.BootCounter, Boot: n.boot, Zone: n.cfg.Zone,
	}
}

func portOf(a net.Addr) uint16 {
	_, p, _ := net.SplitHostPort(a.String())
	v, _ := strconv.ParseUint(p, 10, 16)
	return uint16(v)
}

func (n *Node) gossipMeta() gossip.Meta {
	id := n.identity()
	m := gossip.Meta{
		Node: id.Node, Instance: id.Instance, BootCounter: id.BootCounter, Boot: id.Boot, Cluster: id.Cluster, Name: n.cfg.NodeName,
		NativePort: portOf(n.native.Addr()), KafkaPort: portOf(n.kafka.listeners[0].ln.Addr()), HTTPPort: portOf(n.http.Addr()), Expect: uint8(n.cfg.BootstrapExpect), Version: n.opts.Version,
	}
	m.State = n.bootstrap.gossipState()
	return m
}
