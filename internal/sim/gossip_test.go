package sim

import (
	"errors"

	"edged/gossip"
	"edged/internal/memnet"
)

const gossipPort = 7946

// gossipOn lets a node on this host gossip over the network in memory.
func gossipOn(h *memnet.Host) (*gossip.Transport, error) {
	ln, err := h.Listen(gossipPort)
	if err != nil {
		return nil, err
	}
	p, err := h.ListenPackets(gossipPort)
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return gossip.NewTransport(ln, p, h.Dial), nil
}
