package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"edged/record"
)

// Gossip is this node's part in the gossip of its cluster. See the package comment for its
// goroutines. All methods are safe for concurrent use.
type Gossip struct {
	cfg       Config
	log       *slog.Logger
	transport memberlist.Transport // outlives each list
	members   *members
	leaders   *leaders
	troubles  troubles
	at        atomic.Pointer[place]

	events chan struct{}
	wake   chan struct{} // for rejoin
	looked chan struct{} // closed when every known address was asked once

	ctx    context.Context // ends when Leave or Close begins
	cancel context.CancelFunc
	wg     sync.WaitGroup
	// ending is full while SetMeta, Move, Leave or Close runs, one at a time: memberlist panics on a leave
	// behind a shutdown. It is no mutex because they wait for time: whoever waits for a mutex
	// stops virtual time.
	ending chan struct{}
	left   bool // guarded by ending
	closed bool // guarded by ending
}

// place is where others reach us, and what speaks from there.
type place struct {
	addr string // host:port
	list *memberlist.Memberlist
	over *atomic.Bool // of its delegate
}

// Start opens the sockets and begins to look for others. It does not wait for them.
func Start(cfg Config) (*Gossip, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	ip, err := advertised(cfg.AdvertiseHost)
	if err != nil {
		return nil, err
	}
	t := cfg.Transport
	if t == nil {
		own, err := listen(cfg.BindAddr)
		if err != nil {
			return nil, err
		}
		t = own
	}
	g := &Gossip{
		cfg: cfg, log: cfg.Logger, transport: t,
		events: make(chan struct{}, 1), wake: make(chan struct{}, 1), ending: make(chan struct{}, 1), looked: make(chan struct{}),
	}
	g.members = newMembers(cfg.Meta, cfg.Limits.Members, forgetMembersOver, tokens(g.events, g.wake))
	g.leaders = newLeaders(cfg.Meta.Cluster, cfg.Limits.Groups, tokens(g.events))
	if _, err = g.settle(ip); err != nil {
		_ = t.Shutdown()
		return nil, err
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.wg.Go(g.rejoin)
	return g, nil
}

// settle begins to speak from an address, and returns the place that was left for it, nil if there was
// none or it is the same.
func (g *Gossip) settle(ip string) (old *place, err error) {
	advertiseIP, port, err := g.transport.FinalAdvertiseAddr(ip, 0)
	if err != nil {
		return nil, fmt.Errorf("gossip: %w", err)
	}
	now := &place{addr: net.JoinHostPort(advertiseIP.String(), strconv.Itoa(port)), over: new(atomic.Bool)}
	if old = g.at.Load(); old != nil {
		if old.addr == now.addr {
			return nil, nil
		}
		old.over.Store(true)
		g.members.move()
	}
	if now.list, err = memberlist.Create(g.cfg.memberlist(lent{g.transport}, delegate{g.members, g.leaders, now.over}, ip)); err != nil {
		return nil, fmt.Errorf("gossip: %w", err)
	}
	g.at.Store(now)
	return old, nil
}

// lent is a transport that is not its user's to shut down.
type lent struct{ memberlist.Transport }

func (lent) Shutdown() error { return nil }

// leaveTime is how long Move tries to tell the others that nobody is to be found at the old address.
const leaveTime = 500 * time.Millisecond

// Move tells the others that this node is reached at another address from now on. They would take the
// same name at another address for a clone, so the node leaves and joins again under a new one. Who was
// known is looked for from there.
func (g *Gossip) Move(host string) error {
	ip, err := advertised(host)
	if err != nil {
		return err
	}
	g.ending <- struct{}{}
	defer func() { <-g.ending }()
	if g.left || g.closed {
		return errClosed
	}
	old, err := g.settle(ip)
	if old != nil {
		_ = old.list.Leave(leaveTime) // an error only says that nobody has heard it
		_ = old.list.Shutdown()
	}
	return err
}

// tokens gives a function that leaves a token in each channel where there is none.
func tokens(chs ...chan struct{}) func() {
	return func() {
		for _, ch := range chs {
			select {
			case ch <- struct{}{}:
			default:
			}
		}
	}
}

// advertised resolves the host that others are told, preferring IPv4. Empty stays empty.
func advertised(host string) (string, error) {
	if host == "" || net.ParseIP(host) != nil {
		return host, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), resolveTime)
	defer cancel()
	for _, network := range []string{"ip4", "ip6"} {
		if ips, err := net.DefaultResolver.LookupIP(ctx, network, host); err == nil && len(ips) > 0 {
			return ips[0].String(), nil
		}
	}
	return "", fmt.Errorf("gossip: the address to advertise, %q, has no IP address right now", host)
}

// Addr is where others reach our gossip, host:port.
func (g *Gossip) Addr() string { return g.at.Load().addr }

// SetMeta changes what others are told of this node. Node, Instance, BootCounter and Boot are
// those of Start. Another Cluster empties the table of leaders. It is refused if it could not be
// understood elsewhere.
func (g *Gossip) SetMeta(m Meta) error {
	m.Node = g.cfg.Meta.Node
	if err := m.validate(); err != nil {
		return fmt.Errorf("gossip: %w", err)
	}
	g.ending <- struct{}{}
	defer func() { <-g.ending }()
	if g.closed {
		return errClosed
	}
	g.members.setSelf(m)
	g.leaders.setCluster(m.Cluster)
	_ = g.at.Load().list.UpdateNode(time.Nanosecond) // an error only says that nobody has heard it within that time
	g.members.token()
	return nil
}

// Members gives the newest life of each node that gossip has met, ourselves included, by node
// id. Nodes of other clusters are not among them, unless they or we are virgin.
func (g *Gossip) Members() []Member { return g.members.list() }

// Strangers are nodes that are heard under our cluster's name and are of another cluster.
func (g *Gossip) Strangers() []Member { return g.members.newest(false) }

// Looked is closed when the addresses that were known at the start have been asked once.
func (g *Gossip) Looked() <-chan struct{} { return g.looked }

// Twins are other lives of this node that gossip holds to be alive: most often its last one, which has
// just ended.
func (g *Gossip) Twins() []Member { return g.members.twins() }

// Events holds a token when members or leaders have changed since it was taken last.
func (g *Gossip) Events() <-chan struct{} { return g.events }

// PublishLeaders spreads who leads groups that this node has a replica of. What is not newer
// than what is known already is left out, and all of it while this node is in no cluster.
func (g *Gossip) PublishLeaders(ls []Leader) { g.leaders.publish(ls, retransmits(g.members.count())) }

// Leader tells who led a group when somebody last said so. It may be out of date; the
// node it names will say so.
func (g *Gossip) Leader(group record.GroupID) (Leader, bool) { return g.leaders.get(group) }

// RetainLeaders forgets the leaders of all groups that keep does not want. Groups are never
// reused, so without it the groups of deleted topics would fill the table in the end.
func (g *Gossip) RetainLeaders(keep func(record.GroupID) bool) { g.leaders.retain(keep) }

var errClosed = errors.New("gossip: closed already")

// Stats counts since Start.
type Stats struct {
	Refused     uint64 // members that were not taken: garbage, other clusters, no room
	LastRefused string
	RefusedAt   time.Time // of the last one
	Clones      uint64    // times that a second process under our own identity was heard
	LastClone   string
	CloneAt     time.Time // the last one
	Garbled     uint64    // messages about leaders that could not be read
	Dropped     uint64    // leaders that found no room
	Leaders     int       // in the table
}

// Stats tells what went wrong. Clones above 0 is a reason for alarm.
func (g *Gossip) Stats() Stats {
	var s Stats
	g.members.mu.Lock()
	s.Refused, s.LastRefused, s.RefusedAt = g.members.mu.refused, g.members.mu.lastWhy, g.members.mu.refusedAt
	s.Clones, s.LastClone, s.CloneAt = g.members.mu.clones, g.members.mu.lastTwin, g.members.mu.twinAt
	g.members.mu.Unlock()
	g.leaders.mu.RLock()
	s.Garbled, s.Dropped, s.Leaders = g.leaders.mu.garbled, g.leaders.mu.dropped, len(g.leaders.mu.table)
	g.leaders.mu.RUnlock()
	return s
}

// Leave tells the others that we go, and waits at most timeout until one has heard it. It stops
// looking for others; Close is still to be called. It says nothing about membership: a node that
// left comes back under its next life.
func (g *Gossip) Leave(timeout time.Duration) error {
	g.ending <- struct{}{}
	defer func() { <-g.ending }()
	if g.closed {
		return errClosed
	}
	g.left = true
	g.cancel()
	return g.at.Load().list.Leave(timeout)
}

// Close ends gossip without a word to the others. It returns when our goroutines have ended;
// some of memberlist's may take a moment more, and only touch tables that nobody reads then.
func (g *Gossip) Close() error {
	g.ending <- struct{}{}
	defer func() { <-g.ending }()
	if g.closed {
		return nil
	}
	g.closed = true
	g.cancel()
	// The transport first: it ends dials, streams and with them the joins of rejoin.
	err := errors.Join(g.transport.Shutdown(), g.at.Load().list.Shutdown())
	g.wg.Wait()
	return err
}

// Ping asks a member over UDP whether it is there, and waits up to memberlist's probe timeout for the answer.
func (g *Gossip) Ping(m Member) (time.Duration, error) {
	addr, err := net.ResolveUDPAddr("udp", m.Addr)
	if err != nil {
		return 0, fmt.Errorf("gossip: %w", err)
	}
	return g.at.Load().list.Ping(m.memberName(), addr)
}
