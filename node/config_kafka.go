package node

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"edged/metadata"
)

const (
	// maxKafkaListeners bounds the listeners beside the default one: the registry keeps their addresses.
	maxKafkaListeners    = 3
	maxListenerNameBytes = 16
	maxGroupDelay        = 60_000 // milliseconds
	maxKafkaHostBytes    = 128
	maxKafkaAddrBytes    = 264 // all of them together
)

// namedListener is one KafkaListeners entry taken apart.
type namedListener struct {
	name, listen, advertise string
	err                     error
}

// kafkaListeners takes the entries apart; a fault stands in the entry.
func (c Config) kafkaListeners() []namedListener {
	out := make([]namedListener, len(c.KafkaListeners))
	for i, entry := range c.KafkaListeners {
		l := &out[i]
		var rest string
		var named, slashed bool
		l.name, rest, named = strings.Cut(entry, "=")
		l.listen, l.advertise, slashed = strings.Cut(rest, "/")
		if !named || !slashed {
			l.err = fmt.Errorf("is %q; it needs the form NAME=HOST:PORT/HOST:PORT, such as vpn=10.8.0.5:9093/pi1.vpn:9093: where to listen, and what clients are told", entry)
			continue
		}
		bad := strings.Trim(l.name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
		if l.name == "" || bad != "" || len(l.name) > maxListenerNameBytes {
			l.err = fmt.Errorf("has the name %q; it is 1 to %d of the characters a-z A-Z 0-9 _ -", l.name, maxListenerNameBytes)
			continue
		}
		if _, _, err := splitAddr(l.listen); err != nil {
			l.err = fmt.Errorf("%q: %w", l.name, err)
			continue
		}
		if err := checkAdvertised(l.advertise); err != nil {
			l.err = fmt.Errorf("%q: %w", l.name, err)
		}
	}
	return out
}

// checkAdvertised tells whether clients can be told to connect to a: HOST or HOST:PORT.
func checkAdvertised(a string) error {
	host, _, err := splitAdvertised(a)
	if err != nil {
		return err
	}
	ip, ipErr := netip.ParseAddr(host)
	switch {
	case host == "":
		return fmt.Errorf("advertises %q, which names no host; name one that clients can reach", a)
	case ipErr == nil && (ip.IsUnspecified() || ip.IsMulticast()):
		return fmt.Errorf("advertises %s, which nobody can connect to; name an address that clients can reach", host)
	case strings.ContainsAny(host, ",=/ "):
		return fmt.Errorf("advertises %q; the host is an address or a name", a)
	case len(host) > maxKafkaHostBytes:
		return fmt.Errorf("advertises a host of %d characters; at most %d", len(host), maxKafkaHostBytes)
	}
	return nil
}

// splitAdvertised takes HOST or HOST:PORT apart; the port is 0 if there is none.
func splitAdvertised(a string) (host string, port uint16, err error) {
	if _, err := netip.ParseAddr(a); err == nil || !strings.Contains(a, ":") {
		return strings.Trim(a, "[]"), 0, nil
	}
	return splitAddr(a)
}

// advertised completes what is advertised by the port of the listener.
func advertised(a string, ln net.Addr) string {
	host, port, err := splitAdvertised(a)
	if err != nil || port == 0 {
		port = portOf(ln)
	}
	return net.JoinHostPort(host, fmt.Sprint(port))
}

func (v *validator) kafka() {
	if a := v.c.KafkaAdvertise; a != "" {
		if err := checkAdvertised(a); err != nil {
			v.fault("kafka-advertise", "%v", err)
		}
	}
	if n := len(v.c.KafkaListeners); n > maxKafkaListeners {
		v.fault("kafka-listener", "is given %d times; at most %d", n, maxKafkaListeners)
	}
	seen := map[string]bool{}
	for _, l := range v.c.kafkaListeners() {
		if l.err != nil {
			v.fault("kafka-listener", "%v", l.err)
		} else if seen[l.name] {
			v.fault("kafka-listener", "has the name %q twice", l.name)
		}
		seen[l.name] = true
	}
	if n := v.c.KafkaGroupDelay; n < 0 || n > maxGroupDelay {
		v.fault("kafka-group-delay", "is %d; it is 1 to %d milliseconds, or 0 for none", n, maxGroupDelay)
	}
	if n := v.c.KafkaAutoCreate; n < 0 || n > metadata.MaxPartitionsPerTopic {
		v.fault("kafka-auto-create", "is %d; it is 1 to %d, or 0 for not to", n, metadata.MaxPartitionsPerTopic)
	}
}
