package node

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// virtualInterfaces begin the names of bridges and tunnels that lead to containers on
// the same machine. Their addresses are the same on many machines and reach no peer.
var virtualInterfaces = []string{"docker", "br-", "veth", "virbr", "cni", "flannel", "cali", "lxc", "podman"}

// network is what AdvertiseHost asks the machine.
type network struct {
	// source is the address that packets to the outside leave from, by the default route.
	source func(family string) (netip.Addr, bool)
	// addrs lists the addresses of all interfaces that are up. One without a link is not.
	addrs func() ([]ifaceAddr, error)
	// resolve gives an address that a name leads to.
	resolve func(name string) (netip.Addr, bool)
}

type ifaceAddr struct {
	iface string
	addr  netip.Addr
}

// place is where others are told to find this node.
type place struct {
	host string // for peers and clients: an address, or the name that is set
	ip   string // for gossip, which takes no names
	why  string
	// waits says that it is loopback for want of anything better.
	waits bool
	// follows says that another look may find another place.
	follows bool
}

const loopback = "127.0.0.1"

// AdvertiseHost is the host that others are told to connect to, and the reason for it.
// It is Advertise if that is set. Otherwise it is the one address that the listeners
// are bound to; with listeners on all addresses it is the one that the default route
// uses, or else the only one that the machine has. Two that are equally good are
// refused, never drawn. Without any network it is loopback, until there is one.
//
// The error may go away by itself while a machine boots, so it is no *ConfigError.
func (c Config) AdvertiseHost() (host, why string, err error) {
	p, err := c.place(systemNetwork())
	return p.host, p.why, err
}

func (c Config) place(nw network) (place, error) {
	if c.Advertise != "" {
		return explicitPlace(c.Advertise, nw)
	}
	var bound []string
	for _, a := range []string{c.NativeAddr, c.GossipAddr, c.KafkaAddr} {
		h, _, err := splitAddr(a)
		if err != nil {
			return place{}, fmt.Errorf("%q: %w", a, err)
		}
		if !wildcard(h) && !slices.Contains(bound, h) {
			bound = append(bound, h)
		}
	}
	switch len(bound) {
	case 0:
		return guessedPlace(nw)
	case 1:
		return named(bound[0], "the listeners are bound to it", nw), nil
	}
	return place{}, fmt.Errorf("the listeners are bound to different addresses (%s); say with --advertise which one others reach", strings.Join(bound, ", "))
}

// named is a place that is an address, or a name that leads to one now or later.
func named(host, why string, nw network) place {
	if _, err := netip.ParseAddr(host); err == nil {
		return place{host: host, ip: host, why: why}
	}
	if ip, ok := nw.resolve(host); ok {
		return place{host: host, ip: ip.String(), why: why, follows: true}
	}
	return place{host: host, ip: loopback, why: why + "; it does not resolve yet, so other nodes cannot find this one", waits: true, follows: true}
}

// nowhere is the place of a machine that has none yet.
func nowhere(why string) place {
	return place{host: loopback, ip: loopback, why: why + ": nobody else can reach this node until there is one", waits: true, follows: true}
}

func explicitPlace(a string, nw network) (place, error) {
	a = strings.Trim(a, "[]")
	if _, err := netip.ParseAddr(a); err == nil {
		return named(a, "set", nw), nil
	}
	addrs, err := nw.addrs()
	if err != nil {
		return place{}, err
	}
	var found []netip.Addr
	known := false
	for _, ia := range addrs {
		if ia.iface == a {
			known = true
			if reachable(ia.addr) {
				found = append(found, ia.addr)
			}
		}
	}
	switch {
	case len(found) > 0:
		slices.SortStableFunc(found, v4First)
		return at(found[0], "address of the interface "+a), nil
	case known:
		return nowhere("the interface " + a + " has no address that others can reach yet"), nil
	}
	return named(a, "set", nw), nil // a host name
}

// at is a place that was found, and may be lost.
func at(a netip.Addr, why string) place {
	return place{host: a.String(), ip: a.String(), why: why, follows: true}
}

func guessedPlace(nw network) (place, error) {
	for _, family := range []string{"udp4", "udp6"} {
		if a, ok := nw.source(family); ok && reachable(a) {
			return at(a, "the default route leaves from it"), nil
		}
	}
	addrs, err := nw.addrs()
	if err != nil {
		return place{}, err
	}
	var found []ifaceAddr
	for _, ia := range addrs {
		virtual := slices.ContainsFunc(virtualInterfaces, func(p string) bool { return strings.HasPrefix(ia.iface, p) })
		if reachable(ia.addr) && !virtual {
			found = append(found, ia)
		}
	}
	// A machine commonly has an IPv4 and IPv6 addresses on one interface: IPv4 first,
	// as long as there is only one of it.
	if v4 := slices.DeleteFunc(slices.Clone(found), func(ia ifaceAddr) bool { return !ia.addr.Is4() }); len(v4) > 0 {
		found = v4
	}
	switch len(found) {
	case 0:
		return nowhere("this machine has no network address yet"), nil
	case 1:
		return at(found[0].addr, "the only address of this machine, on "+found[0].iface), nil
	}
	var list []string
	for _, ia := range found {
		list = append(list, ia.iface+" "+ia.addr.String())
	}
	return place{}, fmt.Errorf("this machine has several addresses (%s) and no default route says which one others reach; set --advertise to an address or an interface", strings.Join(list, ", "))
}

// reachable tells that another machine may be able to connect to a.
func reachable(a netip.Addr) bool { return a.IsGlobalUnicast() }

func v4First(a, b netip.Addr) int {
	switch {
	case a.Is4() == b.Is4():
		return 0
	case a.Is4():
		return -1
	}
	return 1
}

func systemNetwork() network {
	return network{source: routeSource, addrs: interfaceAddrs, resolve: resolveHost}
}

// resolveTime is how long a name may take to resolve.
const resolveTime = 5 * time.Second

func resolveHost(name string) (netip.Addr, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), resolveTime)
	defer cancel()
	for _, family := range []string{"ip4", "ip6"} {
		if ips, err := net.DefaultResolver.LookupNetIP(ctx, family, name); err == nil && len(ips) > 0 {
			return ips[0].Unmap(), true
		}
	}
	return netip.Addr{}, false
}

// routeSource asks the kernel for its choice: connecting a UDP socket looks up the route
// and sends nothing. The addresses are reserved for documentation, no network has them.
func routeSource(family string) (netip.Addr, bool) {
	target := "192.0.2.1:9"
	if family == "udp6" {
		target = "[2001:db8::1]:9"
	}
	conn, err := net.Dial(family, target)
	if err != nil {
		return netip.Addr{}, false
	}
	defer conn.Close()
	ap, err := netip.ParseAddrPort(conn.LocalAddr().String())
	return ap.Addr().Unmap(), err == nil
}

func interfaceAddrs() ([]ifaceAddr, error) {
	ifaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var all []ifaceAddr
	for _, i := range ifaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagRunning == 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			return nil, err
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				all = append(all, ifaceAddr{i.Name, p.Addr().Unmap()})
			}
		}
	}
	return all, nil
}
