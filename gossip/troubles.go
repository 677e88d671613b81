package gossip

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"syscall"
)

// troubles keeps, for each address of the join list, why the last look there found nobody. memberlist logs
// it in words of its own and gives it as a text; a person who waits for a node to join needs to know what
// to change.
type troubles struct {
	mu sync.Mutex
	of map[string]string // by the address as configured; at most one for each
}

// set notes why an address led to nobody; an empty text says that it led to somebody.
func (t *troubles) set(join, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if why == "" {
		delete(t.of, join)
		return
	}
	if t.of == nil {
		t.of = map[string]string{}
	}
	t.of[join] = why
}

// Troubles says for each address of Config.Join that led to nobody when it was tried last why, and what to
// do, in the order of Join.
func (g *Gossip) Troubles() (lines []string) {
	g.troubles.mu.Lock()
	defer g.troubles.mu.Unlock()
	for _, join := range g.cfg.Join {
		if why := g.troubles.of[join]; why != "" {
			lines = append(lines, join+" "+why)
		}
	}
	return lines
}

// unreachable begins the text of an error of DialTimeout: memberlist hands only texts on.
const unreachable = "no connection: "

// dialError is why no connection was made, for people.
type dialError struct{ err error }

func (e dialError) Error() string { return unreachable + e.reason() }
func (e dialError) Unwrap() error { return e.err }

func (e dialError) reason() string {
	var timeout net.Error
	switch {
	case errors.Is(e.err, syscall.ECONNREFUSED):
		return "refuses connections: no edged runs there, or its gossip port is another"
	case errors.Is(e.err, context.DeadlineExceeded), errors.As(e.err, &timeout) && timeout.Timeout():
		return "does not answer: check that the machine is on, and that nothing on the way blocks its gossip port (TCP and UDP)"
	}
	return "cannot be reached: " + e.err.Error()
}

// joinTrouble says why a join failed. Who has another cluster name or another secret only hangs up.
func joinTrouble(err error) string {
	text := err.Error()
	if _, reason, ok := strings.Cut(text, unreachable); ok {
		return strings.TrimSpace(reason)
	}
	if strings.Contains(text, "crypt") { // memberlist: … encrypted …, … decrypt …
		return "answers, but not to this node: check that cluster-secret-file holds the same secret there, and that this is its gossip port"
	}
	return "answers, but not to this node: check that cluster and cluster-secret-file are the same there, and that this is its gossip port"
}

// nameTrouble says why a name of the join list led to no address.
func nameTrouble(err error) string {
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return "does not resolve: no such host; correct the name, or give an address"
	case errors.As(err, &dns):
		return "does not resolve: " + dns.Err + "; check this machine's DNS, or give an address"
	}
	return "is no address: " + err.Error()
}
