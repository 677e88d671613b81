package node

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// How often a node looks whether others find it where it says, besides when the kernel tells of a change. A board
// boots before its network is up, and DHCP may give it another address at any time. A name may lead elsewhere
// without the kernel's knowing.
const (
	lookAtPlace   = time.Minute
	lookUntold    = 5 * time.Second        // where the kernel does not tell, or the last look failed
	settlePause   = 200 * time.Millisecond // changes come in groups
	longestFaulty = 5                      // looks in a row that fail before it is said
)

// followPlace keeps what others are told about this node's address true, until the node stops.
func (n *Node) followPlace() {
	if p := n.place.Load(); p.waits {
		n.log.Warn("nobody finds this node yet", "advertise", p.host, "why", p.why)
	}
	if !n.place.Load().follows {
		return
	}
	changes, every := networkChanges(n.ctx, &n.wg), lookAtPlace
	if changes == nil {
		every = lookUntold
	}
	pause := settlePause // something may have changed before the kernel was asked to tell
	for faulty := 0; n.place.Load().follows; {
		select {
		case <-time.After(pause):
		case <-changes:
			time.Sleep(settlePause)
		case <-n.ctx.Done():
			return
		}
		err := n.checkPlace()
		if err == nil {
			faulty, pause = 0, every
			continue
		}
		pause = lookUntold
		if faulty++; faulty == longestFaulty {
			n.log.Warn("cannot tell whether others still find this node", "advertise", n.place.Load().host, "err", err)
		}
	}
}

// checkPlace looks once, and moves if it has to.
func (n *Node) checkPlace() error {
	n.placing.Lock()
	defer n.placing.Unlock()
	next, err := n.cfg.place(n.opts.network)
	if err != nil || n.stays(n.place.Load(), next) {
		return err
	}
	return n.moveTo(next)
}

// stays tells whether what others are told holds. An address that still is on an interface with a link is kept,
// though the default route may have gone elsewhere: each change costs the peers a connection. And nothing is
// better than what worked.
func (n *Node) stays(now *place, next place) bool {
	if next.waits || now.host == next.host && now.ip == next.ip {
		return true
	}
	if now.waits || now.host != now.ip || n.cfg.Advertise != "" {
		return false
	}
	addrs, err := n.opts.network.addrs()
	ip, _ := netip.ParseAddr(now.ip)
	return err != nil || slices.ContainsFunc(addrs, func(a ifaceAddr) bool { return a.addr == ip })
}

// moveTo tells everybody that this node is found elsewhere: peers by gossip, clients by the registry, scripts
// and people of this machine by the file and the event.
func (n *Node) moveTo(p place) error {
	if err := n.gossip.Move(p.ip); err != nil {
		return err // the next look tries again
	}
	before := n.place.Swap(&p)
	n.noteWell(eventNetwork, fmt.Sprintf("others find this node at %s now (%s), before at %s", p.host, p.why, before.host))
	n.wake()
	if n.opts.FS != nil {
		return nil
	}
	return n.writeAddresses()
}
