package node

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// virtualInterfaces begin the names of bridges and tunnels that lead to containers on
// the same machine. Their addresses are the same on many machines and reach no peer.
var virtualInterfaces = []string{"docker", "br-", "veth", "virbr", "cni", "flannel", "cali", "lxc", "podman"}

// network is what AdvertiseHost asks the machine.
type network struct {
	// source is the address that packets to the outside leave from, by the default route.
	source func(family string) (netip.Addr, bool)
	// addrs lists the addresses of all interfaces that are up.
	addrs func() ([]ifaceAddr, error)
}

type ifaceAddr struct {
	iface string
	addr  netip.Addr
}

// AdvertiseHost is the host that others are told to connect to, and the reason for it.
// It is Advertise if that is set. Otherwise it is the one address that the listeners
// are bound to; with listeners on all addresses it is the one that the default route
// uses, or else the only one that the machine has. Two that are equally good are
// refused, never drawn. A single node without any network advertises loopback.
//
// The error may go away by itself while a machine boots, so it is no *ConfigError.
func (c Config) AdvertiseHost() (host, why string, err error) {
	return c.advertiseHost(systemNetwork())
}

func (c Config) advertiseHost(nw network) (host, why string, err error) {
	if c.Advertise != "" {
		return explicitAdvertise(c.Advertise, nw)
	}
	var bound []string
	for _, a := range []string{c.NativeAddr, c.GossipAddr, c.KafkaAddr} {
		h, _, err := splitAddr(a)
		if err != nil {
			return "", "", fmt.Errorf("%q: %w", a, err)
		}
		if !wildcard(h) && !slices.Contains(bound, h) {
			bound = append(bound, h)
		}
	}
	switch len(bound) {
	case 0:
		return c.guessFromRoutes(nw)
	case 1:
		return bound[0], "the listeners are bound to it", nil
	}
	return "", "", fmt.Errorf("the listeners are bound to different addresses (%s); say with --advertise which one others reach", strings.Join(bound, ", "))
}

func explicitAdvertise(a string, nw network) (host, why string, err error) {
	a = strings.Trim(a, "[]")
	if _, err := netip.ParseAddr(a); err == nil {
		return a, "set", nil
	}
	addrs, err := nw.addrs()
	if err != nil {
		return "", "", err
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
	if !known {
		return a, "set", nil // a host name
	}
	if len(found) == 0 {
		return "", "", fmt.Errorf("the interface %s has no address that others can reach yet", a)
	}
	slices.SortStableFunc(found, v4First)
	return found[0].String(), "address of the interface " + a, nil
}

func (c Config) guessFromRoutes(nw network) (host, why string, err error) {
	for _, family := range []string{"udp4", "udp6"} {
		if a, ok := nw.source(family); ok && reachable(a) {
			return a.String(), "the default route leaves from it", nil
		}
	}
	addrs, err := nw.addrs()
	if err != nil {
		return "", "", err
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
	switch {
	case len(found) == 1:
		return found[0].addr.String(), "the only address of this machine, on " + found[0].iface, nil
	case len(found) > 1:
		var list []string
		for _, ia := range found {
			list = append(list, ia.iface+" "+ia.addr.String())
		}
		return "", "", fmt.Errorf("this machine has several addresses (%s) and no default route says which one others reach; set --advertise to an address or an interface", strings.Join(list, ", "))
	case len(c.Join) > 0 || c.BootstrapExpect > 1:
		return "", "", errors.New("this machine has no network address yet, and other nodes need one; connect it or set --advertise")
	}
	return "127.0.0.1", "this machine has no network: nobody else can reach the node until it is restarted with one", nil
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

func systemNetwork() network { return network{source: routeSource, addrs: interfaceAddrs} }

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
		if i.Flags&net.FlagUp == 0 {
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
