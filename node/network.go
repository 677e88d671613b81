package node

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"edged/gossip"
	"edged/metadata"
	"edged/record"
	"edged/transport/peer"
	"edged/transport/wire"
)

// Protocols that nodes and clients need between each other.
const (
	protocolNative = "native"
	protocolGossip = "gossip"
	protocolKafka  = "kafka"
)

// probePatience is how long one probe of the network may take.
const probePatience = 3 * time.Second

// Network tries the way to each other node; see wire.Broker.
func (b broker) Network(ctx context.Context, req wire.NetworkRequest) ([]wire.Reach, error) {
	n := b.n
	if req.Node == record.NoNode || req.Node == n.ident.Get().Node {
		return n.probeNetwork(ctx), nil
	}
	if n.machine.Picture().Node(req.Node) == nil {
		return nil, fmt.Errorf("node %d: %w", req.Node, record.ErrUnknownNode)
	}
	var out []wire.Reach
	return out, n.call(ctx, req.Node, opNetwork, struct{}{}, &out)
}

// probeNetwork tries all protocols to all registered nodes at once. It is bounded by the registry.
func (n *Node) probeNetwork(ctx context.Context) []wire.Reach {
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	var out []wire.Reach
	var mu sync.Mutex
	var wg sync.WaitGroup
	probe := func(id record.NodeID, protocol, addr string, try func(r *wire.Reach) error) {
		wg.Go(func() {
			r := wire.Reach{Node: id, Protocol: protocol, Addr: addr}
			began := time.Now()
			err := try(&r)
			if r.RTTMicros == 0 {
				r.RTTMicros = time.Since(began).Microseconds()
			}
			if r.Up = err == nil; err != nil {
				r.Problem = inLine(err)
			}
			mu.Lock()
			defer mu.Unlock()
			out = append(out, r)
		})
	}
	members := map[record.NodeID]gossip.Member{}
	for _, m := range n.gossip.Members() {
		members[m.Node] = m
	}
	for _, node := range n.machine.Picture().NodesSorted() {
		if node.ID == n.ident.Get().Node {
			continue
		}
		probe(node.ID, protocolNative, node.NativeAddr, func(r *wire.Reach) error { return n.probeNative(ctx, node, r) })
		if kafka := parseKafkaAddr(node.KafkaAddr); len(kafka) > 0 {
			probe(node.ID, protocolKafka, kafka[0].addr, func(*wire.Reach) error { return probeTCP(ctx, kafka[0].addr) })
		}
		m := members[node.ID]
		probe(node.ID, protocolGossip, m.Addr, func(*wire.Reach) error {
			if m.Addr == "" {
				return fmt.Errorf("gossip does not know it: %w", record.ErrUnknownNode)
			}
			_, err := n.gossip.Ping(m)
			return err
		})
	}
	wg.Wait()
	return out
}

// probeNative shakes hands with a node anew, and compares clocks: its answer is from the middle of the
// question's time.
func (n *Node) probeNative(ctx context.Context, node *metadata.Node, r *wire.Reach) error {
	began := time.Now()
	id, info, err := n.askInfo(ctx, node.NativeAddr)
	took := time.Since(began)
	if err != nil {
		return err
	}
	if id.Node != node.ID {
		return fmt.Errorf("there is node %d: %w", id.Node, peer.ErrWrongNode)
	}
	r.RTTMicros = took.Microseconds()
	if info.Now > 0 {
		r.SkewMs = info.Now - n.opts.Wall().Add(-took/2).UnixMilli()
	}
	return nil
}

// probeTCP connects and says nothing.
func probeTCP(ctx context.Context, addr string) error {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return c.Close()
}
