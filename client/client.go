package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"edged/record"
	"edged/transport/wire"
)

// ErrClosed is what everything of a closed Client, Producer or Consumer returns.
var ErrClosed = errors.New("the client is closed")

// MaxNodes bounds the addresses that a client remembers.
const MaxNodes = 1024

// Config says where the cluster is. Zero fields but Nodes get defaults.
type Config struct {
	// Nodes are addresses (host:port of the native protocol) to begin with; one that
	// answers is enough, the others are learned.
	Nodes []string
	// Name is how the client calls itself in the logs of nodes. Default: program name.
	Name string
	// Dial makes connections, for TLS and tests. Default: TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Silence is how long a node may owe an answer without moving a byte before it counts
	// as lost. Default: DefaultSilence. It doubles, up to 8 s, for links found slow.
	Silence time.Duration
	// StopAtWrongNodes ends a request when no address can be right: none resolves, or what answers there
	// does not speak the protocol. Without it a request goes on until its time is over, because names may
	// come to resolve and ports may come to be edged's: a service that starts with its machine wants that.
	StopAtWrongNodes bool
	// Logger gets what an operator should see. nil: nothing.
	Logger *slog.Logger
}

// Client knows a cluster. It is safe for concurrent use and does nothing until asked.
//
// Goroutines: one per node that it is connected to, plus the reader and writer of that
// connection. Close ends them, and those of producers and consumers, and waits.
type Client struct {
	cfg    Config
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	stats  counters

	// mu may be held when a peer's is taken, never the other way round.
	mu struct {
		sync.Mutex
		peers  map[string]*peer // by address
		addrs  []string         // all known addresses, Config.Nodes first; at most MaxNodes
		next   int              // where the next pick begins
		topics map[string]*topic
		// cluster is the one of the first node that was in any; nodes of another are not listened to.
		cluster string
	}
	life struct {
		sync.Mutex
		closed  bool
		running sync.WaitGroup // added to only under the lock and only while not closed
	}
}

// Stats counts since New.
type Stats struct {
	Redirects int64 // not_leader answers that named another node
	Retries   int64 // requests repeated for any reason
	Dials     int64
	Lost      int64 // connections that ended, after they had been made
}

type counters struct{ redirects, retries, dials, lost atomic.Int64 }

// New makes a client without asking any node yet.
func New(cfg Config) (*Client, error) {
	if len(cfg.Nodes) == 0 {
		return nil, fmt.Errorf("no node to connect to: give at least one host:port")
	}
	for _, addr := range cfg.Nodes {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, fmt.Errorf("node address %q is not HOST:PORT, such as pi1.local:7400", addr)
		}
		if n, err := net.DefaultResolver.LookupPort(context.Background(), "tcp", port); err != nil || n == 0 {
			return nil, fmt.Errorf("node address %q: %q is not a port, which is 1 to 65535", addr, port)
		}
	}
	if cfg.Name == "" {
		cfg.Name = os.Args[0]
	}
	if cfg.Dial == nil {
		cfg.Dial = dialTCP
	}
	if cfg.Silence <= 0 {
		cfg.Silence = DefaultSilence
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Client{cfg: cfg}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.mu.peers = map[string]*peer{}
	c.mu.topics = map[string]*topic{}
	for _, addr := range cfg.Nodes {
		c.rememberLocked(addr)
	}
	return c, nil
}

// sendBuffer bounds in bytes what the kernel keeps unsent for us: bytes that left for the
// kernel and not yet for the node look like a node that does not answer.
const sendBuffer = 256 << 10

func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if tcp, ok := nc.(*net.TCPConn); ok && err == nil {
		_ = tcp.SetWriteBuffer(sendBuffer) // a hint; without it slow links are found silent more often
	}
	return nc, err
}

// Close ends producers, consumers and connections, and waits. What a producer still holds
// fails with ErrClosed: Flush first. It may be called again.
func (c *Client) Close() error {
	c.life.Lock()
	c.life.closed = true
	c.life.Unlock()
	c.cancel()
	c.life.running.Wait()
	return nil
}

// goFunc starts a goroutine that Close waits for. False: the client is closed.
func (c *Client) goFunc(f func()) bool {
	c.life.Lock()
	defer c.life.Unlock()
	if c.life.closed {
		return false
	}
	c.life.running.Go(f)
	return true
}

// Stats may be called at any time.
func (c *Client) Stats() Stats {
	return Stats{
		Redirects: c.stats.redirects.Load(), Retries: c.stats.retries.Load(),
		Dials: c.stats.dials.Load(), Lost: c.stats.lost.Load(),
	}
}

func (c *Client) peer(addr string) *peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.mu.peers[addr]
	if !ok {
		p = &peer{c: c, addr: addr}
		p.mu.silence = c.cfg.Silence
		c.mu.peers[addr] = p
	}
	return p
}

// connect gives a connection to the node at addr.
func (c *Client) connect(ctx context.Context, addr string) (*conn, error) {
	return c.peer(addr).connect(ctx)
}

// ErrOtherCluster is why a node is not listened to that is not of the cluster that the client found first:
// a new one at an old address, say, whose topics are others.
var ErrOtherCluster = errors.New("the node is of another cluster")

// belongs tells whether a node of that cluster may be listened to.
func (c *Client) belongs(cluster string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case cluster == "":
	case c.mu.cluster == "":
		c.mu.cluster = cluster
	case c.mu.cluster != cluster:
		return fmt.Errorf("%w: %s, this client is of %s", ErrOtherCluster, cluster, c.mu.cluster)
	}
	return nil
}

// rememberLocked adds an address to those that are tried.
func (c *Client) rememberLocked(addr string) {
	if addr != "" && len(c.mu.addrs) < MaxNodes && !slices.Contains(c.mu.addrs, addr) {
		c.mu.addrs = append(c.mu.addrs, addr)
	}
}

// resetLocked goes back to the addresses of the configuration and takes those of the
// cluster as it is now; peers that are in neither and not connected are forgotten.
func (c *Client) resetLocked(nodes []wire.Node) {
	c.mu.addrs = nil
	for _, addr := range c.cfg.Nodes {
		c.rememberLocked(addr)
	}
	for _, n := range nodes {
		c.rememberLocked(n.Native)
	}
	for addr, p := range c.mu.peers {
		if !slices.Contains(c.mu.addrs, addr) && p.idle() {
			delete(c.mu.peers, addr)
		}
	}
}

// pick chooses a node in turn, one that is not among those to avoid and has not failed in
// the last second if there is such a one.
func (c *Client) pick(avoid ...string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pickLocked(c.mu.addrs, avoid)
}

// pickFrom is pick among some nodes; there is at least one.
func (c *Client) pickFrom(addrs []string, avoid ...string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pickLocked(addrs, avoid)
}

// hopeless tells that err, and what is known of every address, leaves nobody to ask again.
func (c *Client) hopeless(err error) bool {
	if !c.cfg.StopAtWrongNodes || !wrongAddress(err) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, addr := range c.mu.addrs {
		if p := c.mu.peers[addr]; p == nil || !p.isWrong() {
			return false
		}
	}
	return true
}

// failurePause is how long a node that failed is only asked if there is no other.
const failurePause = time.Second

func (c *Client) pickLocked(from []string, avoid []string) string {
	c.mu.next++
	for _, strict := range []bool{true, false} {
		for i := range from {
			addr := from[(c.mu.next+i)%len(from)]
			p := c.mu.peers[addr]
			if slices.Contains(avoid, addr) || (strict && p != nil && p.failedWithin(failurePause)) {
				continue
			}
			return addr
		}
	}
	return from[c.mu.next%len(from)]
}

// Metadata asks a node for the cluster and the topics: nil is all of them. What it says
// of leaders is remembered.
func (c *Client) Metadata(ctx context.Context, topics []string) (wire.Metadata, error) {
	var md wire.Metadata
	err := c.do(ctx, &anyNode{c: c}, c.attemptTimeout(), wire.APIMetadata, &wire.MetadataRequest{Topics: topics}, &md)
	if err == nil {
		c.learnMetadata(md)
	}
	return md, err
}

// Offsets asks the leader of a partition: wire.AtEnd, wire.AtStart, or ms since 1970.
func (c *Client) Offsets(ctx context.Context, topic string, partition int32, at int64) (wire.OffsetsResponse, error) {
	return c.offsets(ctx, record.TopicPartition{Topic: topic, Partition: partition}, at, record.NoEpoch)
}

// staleFor is how long the offsets that a leader of an earlier epoch names are not believed: within that time one
// that was cut off misses its majority. After it they are those of another topic under the same name.
const staleFor = 5 * time.Second

// offsets asks the leader of a partition, for somebody who has heard of epoch.
func (c *Client) offsets(ctx context.Context, tp record.TopicPartition, at int64, epoch record.Epoch) (resp wire.OffsetsResponse, err error) {
	route := &toLeader{c: c, tp: tp}
	for began := time.Now(); ; {
		err = c.do(ctx, route, c.attemptTimeout(), wire.APIOffsets, &wire.OffsetsRequest{Topic: tp.Topic, Partition: tp.Partition, At: at}, &resp)
		if err != nil || resp.Epoch >= c.newest(tp, epoch) || time.Since(began) > staleFor {
			return resp, err
		}
		c.distrust(tp, route.tried)
		c.stats.retries.Add(1)
		_, _ = c.fetchTopic(ctx, tp.Topic, "") // it may be another one, whose epochs begin anew
		if !c.sleep(ctx, maxBackoff) {
			return resp, outOfTime(ctx, wire.APIOffsets, record.ErrNoLeader, nil)
		}
	}
}

func (c *Client) producerID(ctx context.Context) (producerIdentity, error) {
	var resp wire.ProducerIDResponse
	err := c.do(ctx, &anyNode{c: c}, c.attemptTimeout(), wire.APIProducerID, &wire.ProducerIDRequest{}, &resp)
	return producerIdentity{resp.ID, resp.Epoch}, err
}
