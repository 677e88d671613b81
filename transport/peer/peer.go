package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"edged/record"
)

// Magic is what a connection between nodes begins with.
const Magic = "EDGP"

// Identity is what a node proves nothing about but says of itself in each handshake.
type Identity struct {
	Cluster     record.ClusterID // zero: in no cluster yet; such a node can call and be called, nothing else
	ClusterName string           // at most 64 bytes
	Node        record.NodeID
	Instance    record.InstanceID
	Boot        record.BootID
	BootCounter uint64 // grows with each start of the process
}

// Class says which of the two connections of a pair carries a message.
type Class uint8

// Control is for what must not wait: beats, votes, answers. Data is for everything large.
const (
	Control Class = iota
	Data
)

func (c Class) String() string {
	if c == Control {
		return "control"
	}
	return "data"
}

// Handler takes what the transport brings. For one node the calls come as
// PeerUp, any number of PeerFrame, PeerDown, and again; they do not overlap, except that
// PeerFrame of the two classes come from two goroutines. A PeerFrame that blocks stops
// reading from that connection and nothing else. No method may call Transport.Close.
type Handler interface {
	// PeerUp tells that the control connection with this life of a node stands. Send works already.
	PeerUp(id Identity)
	// PeerDown tells that it is lost, once for each PeerUp, except when Close is the reason.
	// refused is true only if an attempt to connect, made at once, was answered with
	// "connection refused": the machine is there and the process is not.
	PeerDown(node record.NodeID, boot record.BootID, refused bool)
	// PeerFrame brings one message. The payload belongs to the callee.
	PeerFrame(node record.NodeID, boot record.BootID, class Class, payload []byte)
	// PeerCall answers one request. An error reaches the caller with its record code and, if it
	// is a *record.NotLeaderError, with the leader. The context ends with the caller's patience
	// or the connection.
	PeerCall(ctx context.Context, from Identity, payload []byte) ([]byte, error)
	// PeerRefused tells that a node (NoNode: it did not say which) at addr was refused by us, or refused us, for a reason that
	// does not go away by itself (see the errors of this package). A *RemoteRefusal is theirs. It may repeat.
	PeerRefused(node record.NodeID, addr string, err error)
}

// Limits bounds what others can make us hold and wait for. The zero value of a field means
// its default.
type Limits struct {
	MaxFrame     int           // bytes of one message; default 8 MiB
	MaxCall      int           // bytes of one request or answer; default 256 KiB: they share the control connection with the beats
	ControlQueue int64         // bytes queued for one peer; default 1 MiB; one message always fits an empty queue
	DataQueue    int64         // bytes queued for one peer; default 4 MiB; one message always fits an empty queue
	Calls        int           // requests served at one time, for one peer and for all short connections together; default 32
	Peers        int           // nodes known at one time; default 256
	Handshake    time.Duration // for a dial with its handshake; default 3 s
	Write        time.Duration // for the kernel to take 128 KiB; default 5 s
	Silence      time.Duration // without any frame on control, after half of which a ping is sent; default 5 s
	Probe        time.Duration // for the dial that tells refused from silent, and for a doubted life to answer a ping; default 500 ms
	RedialMin    time.Duration // first pause between dials; default 50 ms
	RedialMax    time.Duration // longest pause between dials; default 2 s
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (l Limits) withDefaults() Limits {
	orDefault(&l.MaxFrame, 8<<20)
	orDefault(&l.MaxCall, 256<<10)
	orDefault(&l.ControlQueue, 1<<20)
	orDefault(&l.DataQueue, 4<<20)
	orDefault(&l.Calls, 32)
	orDefault(&l.Peers, 256)
	orDefault(&l.Handshake, 3*time.Second)
	orDefault(&l.Write, 5*time.Second)
	orDefault(&l.Silence, 5*time.Second)
	orDefault(&l.Probe, 500*time.Millisecond)
	orDefault(&l.RedialMin, 50*time.Millisecond)
	orDefault(&l.RedialMax, 2*time.Second)
	return l
}

// Config is what a Transport needs. Identity and Handler are required.
type Config struct {
	// Identity is asked at each handshake. Node, Instance, Boot and BootCounter must not change;
	// Cluster may change from zero once.
	Identity func() Identity
	Handler  Handler
	// Admit, if set, has the last word about a node of our own cluster (or of none yet) that
	// passed every other check: the registry knows bans and boot counters from before our start.
	// It must not block.
	Admit func(Identity) error
	// Dial opens a connection; TCP if nil.
	Dial   func(ctx context.Context, addr string) (net.Conn, error)
	Logger *slog.Logger // slog.Default if nil
	Limits Limits
}

// Transport holds the connections of this node with its peers. See the package comment for
// its goroutines. All methods are safe for concurrent use.
type Transport struct {
	cfg     Config
	limits  Limits
	handler Handler
	log     *slog.Logger
	self    record.NodeID

	ctx    context.Context // ends when Close begins
	cancel context.CancelFunc
	wg     sync.WaitGroup // every goroutine and every Accept; added to only under mu and before closing
	short  chan struct{}  // one token for each request being served on a short connection

	mu struct {
		sync.Mutex
		closing bool
		links   map[record.NodeID]*link // at most Limits.Peers
		conns   map[*conn]struct{}      // open; bounded by links, by the server's connection limit, and by our own calls
		seen    map[record.NodeID]life  // newest life of each node of our cluster; at most maxSeen
	}
}

// New makes a Transport. It dials nobody before SetPeer.
func New(cfg Config) *Transport {
	if cfg.Dial == nil {
		var d net.Dialer
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	t := &Transport{cfg: cfg, limits: cfg.Limits.withDefaults(), handler: cfg.Handler, log: cfg.Logger, self: cfg.Identity().Node}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.short = make(chan struct{}, t.limits.Calls)
	t.mu.links = make(map[record.NodeID]*link)
	t.mu.conns = make(map[*conn]struct{})
	t.mu.seen = make(map[record.NodeID]life)
	return t
}

// SetPeer asks to keep connected with node, which listens at addr (host:port, resolved anew at
// each dial). Called again it takes the new address, for the next dial, and ends the pause
// between dials: call it whenever there is a sign that the node is back. It is refused with
// record.ErrLimit beyond Limits.Peers.
func (t *Transport) SetPeer(node record.NodeID, addr string) error {
	if node == t.self {
		return nil
	}
	if addr == "" {
		return fmt.Errorf("%w: no address for node %d", record.ErrInvalidRequest, node)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	l, err := t.linkLocked(node)
	if err != nil {
		return err
	}
	l.shared.wanted, l.shared.addr = true, addr
	l.wakeUp()
	return nil
}

// RemovePeer ends the connections with node and stops dialing it. If the node dials us again
// it is let in again, unless Config.Admit refuses it.
func (t *Transport) RemovePeer(node record.NodeID) {
	t.mu.Lock()
	l := t.mu.links[node]
	var s *session
	if l != nil {
		l.shared.wanted, l.shared.addr, l.shared.knocked = false, "", ""
		s = l.shared.session
		l.wakeUp()
	}
	t.mu.Unlock()
	if s != nil {
		s.control.close(errRemoved)
	}
}

// linkLocked finds the link of node or starts one.
func (t *Transport) linkLocked(node record.NodeID) (*link, error) {
	if l := t.mu.links[node]; l != nil {
		return l, nil
	}
	if t.mu.closing {
		return nil, record.ErrShuttingDown
	}
	if err := t.roomLocked(node); err != nil {
		return nil, err
	}
	l := newLink(t, node)
	t.mu.links[node] = l
	t.wg.Go(l.run)
	return l, nil
}

func (t *Transport) roomLocked(node record.NodeID) error {
	if t.mu.links[node] == nil && len(t.mu.links) >= t.limits.Peers {
		return fmt.Errorf("%w: %d peers are known already, node %d is one too many", record.ErrLimit, len(t.mu.links), node)
	}
	return nil
}

func (t *Transport) roomFor(node record.NodeID) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.roomLocked(node)
}

// goIfOpen starts f through the one door that Close waits at. It tells whether it did.
func (t *Transport) goIfOpen(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closing {
		return false
	}
	t.wg.Go(f)
	return true
}

// session gives the current session with node, nil if there is none.
func (t *Transport) session(node record.NodeID) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.mu.links[node]; l != nil {
		return l.shared.session
	}
	return nil
}

// Send queues one message, the concatenation of the payload's parts, for node, if boot is the
// life we are connected with; boot 0 means whichever. It never blocks. False means not
// connected, another life, or queue full: the message is gone, and Raft repeats. After true the
// parts must not change any more. Answers to a vote must name the boot they answer.
func (t *Transport) Send(node record.NodeID, boot record.BootID, class Class, payload [][]byte) bool {
	s := t.session(node)
	if s == nil || boot != 0 && boot != s.remote.Boot {
		return false
	}
	f := newFrame(frameMessage, payload...)
	if f.size-headerSize > int64(t.limits.MaxFrame) {
		return false
	}
	if class == Control {
		return s.controlQ.push(f)
	}
	return s.dataQ.push(f)
}

// Status is what Peers tells of one node.
type Status struct {
	Node          record.NodeID
	Addr          string // what SetPeer said; empty for a node that only dialed us
	Up            bool   // the control connection stands; the fields from here on to Dropped are of this session
	DataUp        bool
	Identity      Identity
	Since         time.Time
	QueuedControl int64  // bytes
	QueuedData    int64  // bytes
	Dropped       uint64 // messages refused because a queue was full
	LastError     string // why the last attempt to connect failed or the last connection ended
}

// Peers tells the state of each known node, by node id.
func (t *Transport) Peers() []Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]Status, 0, len(t.mu.links))
	for _, l := range t.mu.links {
		st := Status{Node: l.node, Addr: l.shared.addr, LastError: l.shared.lastErr}
		if s := l.shared.session; s != nil {
			st.Up, st.Identity, st.Since, st.DataUp = true, s.remote, s.since, s.dataUp.Load()
			var dc, dd uint64
			st.QueuedControl, dc = s.controlQ.stats()
			st.QueuedData, dd = s.dataQ.stats()
			st.Dropped = dc + dd
		}
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b Status) int { return int(a.Node) - int(b.Node) })
	return out
}

// Close ends every connection and returns when all goroutines and Accept calls have ended.
// The Handler must go on taking calls until then; PeerDown is not among them: our own end is
// no news about a peer.
func (t *Transport) Close() error {
	t.mu.Lock()
	t.mu.closing = true
	conns := make([]*conn, 0, len(t.mu.conns))
	for c := range t.mu.conns {
		conns = append(conns, c)
	}
	t.mu.Unlock()
	t.cancel()
	for _, c := range conns {
		c.close(errClosing)
	}
	t.wg.Wait()
	return nil
}

var (
	errClosing = errors.New("this node is stopping")
	errRemoved = errors.New("the peer was removed")
)
