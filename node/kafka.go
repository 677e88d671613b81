package node

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"edged/metadata"
	"edged/record"
	"edged/transport"
	"edged/transport/kafka"
)

// kafkaBroker serves Kafka's protocol; see kafka.Broker.
type kafkaBroker struct{ n *Node }

var _ kafka.Broker = kafkaBroker{}

// electionPatience is how long a request for metadata waits for leaders: about an election.
const electionPatience = 400 * time.Millisecond

// Cluster is the cluster as a client of the listener should see it.
func (b kafkaBroker) Cluster(at kafka.Listener) kafka.Cluster {
	n := b.n
	self := n.ident.Get()
	c := kafka.Cluster{Self: self.Node, Controller: self.Node}
	if !self.Cluster.IsZero() {
		c.ID = self.Cluster.String()
	}
	up := n.up()
	for _, node := range n.machine.Picture().NodesSorted() {
		if !up[node.ID] {
			continue
		}
		listeners := node.KafkaAddr
		if node.ID == self.Node {
			listeners = n.kafkaAddr() // the registry may lag behind
		}
		if e, ok := endpointFor(at, node.ID, listeners); ok {
			e.Rack = node.Zone
			c.Nodes = append(c.Nodes, e)
		}
	}
	if len(c.Nodes) == 0 {
		if e, ok := endpointFor(at, self.Node, n.kafkaAddr()); ok {
			c.Nodes = []kafka.Endpoint{e}
		}
	}
	if leader := n.metadataLeader(); slices.ContainsFunc(c.Nodes, func(e kafka.Endpoint) bool { return e.ID == leader }) {
		c.Controller = leader
	}
	return c
}

// endpointFor picks from a node's listeners the address for a client that came in at one of ours. An
// address on loopback means that the node is on this machine: from elsewhere it is reached where
// this node was.
func endpointFor(at kafka.Listener, id record.NodeID, listeners string) (kafka.Endpoint, bool) {
	for _, l := range parseKafkaAddr(listeners) {
		if l.name != at.Name {
			continue
		}
		host, port, err := net.SplitHostPort(l.addr)
		p, err2 := strconv.ParseUint(port, 10, 16)
		if err != nil || err2 != nil {
			return kafka.Endpoint{}, false
		}
		if isLoopback(host) && !isLoopback(hostOf(at.Remote)) {
			host = hostOf(at.Local)
		}
		return kafka.Endpoint{ID: id, Host: host, Port: int32(p)}, true
	}
	return kafka.Endpoint{}, false
}

func hostOf(addr string) string {
	if ap, err := netip.ParseAddrPort(addr); err == nil {
		return ap.Addr().Unmap().WithZone("").String()
	}
	return ""
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// kafkaAddr is what the registry says of this node's listeners for Kafka clients: the default one as
// host:port, then those with a name as name=host:port, with commas between them.
func (n *Node) kafkaAddr() string {
	parts := make([]string, 0, len(n.kafka.listeners))
	for _, l := range n.kafka.listeners {
		if l.name == "" {
			parts = append(parts, n.kafkaAt(l))
		} else {
			parts = append(parts, l.name+"="+n.kafkaAt(l))
		}
	}
	return strings.Join(parts, ",")
}

// kafkaAt is what Kafka clients of a listener are told to connect to, host:port.
func (n *Node) kafkaAt(l *kafkaListener) string {
	if l.advertise == "" {
		return n.reachable(l.ln.Addr())
	}
	return advertised(l.advertise, l.ln.Addr())
}

type namedAddr struct{ name, addr string }

// parseKafkaAddr reads what kafkaAddr wrote, here or on another node.
func parseKafkaAddr(s string) []namedAddr {
	if s == "" {
		return nil
	}
	var out []namedAddr
	for part := range strings.SplitSeq(s, ",") {
		name, addr, named := strings.Cut(part, "=")
		if !named {
			name, addr = "", part
		}
		out = append(out, namedAddr{name, addr})
	}
	return out
}

// kafkaServing is the node's side of Kafka's protocol.
type kafkaServing struct {
	listeners []*kafkaListener
	server    *kafka.Server
}

// kafkaFirstByte is how long a Kafka client may take to say anything: some connect ahead of need.
const kafkaFirstByte = time.Minute

// kafkaListener is one of the places where Kafka clients come in.
type kafkaListener struct {
	name      string // empty for the default one
	ln        net.Listener
	advertise string // HOST or HOST:PORT; empty: where the node is found
	accept    *transport.Server
}

// openKafka opens the listeners for Kafka clients.
func (n *Node) openKafka() error {
	ln, err := n.listen("kafka-addr", n.cfg.KafkaAddr)
	if err != nil {
		return err
	}
	n.kafka.listeners = append(n.kafka.listeners, &kafkaListener{ln: ln, advertise: n.cfg.KafkaAdvertise})
	for _, l := range n.cfg.kafkaListeners() {
		if l.err != nil {
			return fmt.Errorf("kafka-listener %w", l.err)
		}
		ln, err := n.listen("kafka-listener", l.listen)
		if err != nil {
			return err
		}
		n.kafka.listeners = append(n.kafka.listeners, &kafkaListener{name: l.name, ln: ln, advertise: l.advertise})
	}
	if all := n.kafkaAddr(); len(all) > maxKafkaAddrBytes {
		return fmt.Errorf("the addresses for Kafka clients take %d characters together (%s), at most %d; use shorter names", len(all), all, maxKafkaAddrBytes)
	}
	n.kafka.server = kafka.NewServer(n.memory.kafka(kafka.Config{Broker: kafkaBroker{n}, Groups: kafkaGroups{n.groups}, AutoCreate: n.cfg.KafkaAutoCreate > 0, Logger: n.log}))
	for _, l := range n.kafka.listeners {
		handle := n.kafka.server.Handler(l.name)
		l.accept = transport.New(transport.Config{
			FirstByteTimeout: kafkaFirstByte, Logger: n.log, Route: func([4]byte) transport.Handler { return handle },
		})
	}
	return nil
}

// serveKafka takes Kafka clients in until closeKafka.
func (n *Node) serveKafka() {
	for _, l := range n.kafka.listeners {
		n.wg.Go(func() { _ = l.accept.Serve(l.ln) })
	}
}

// closeKafka ends the connections of Kafka clients and waits for them.
func (n *Node) closeKafka() {
	for _, l := range n.kafka.listeners {
		_ = l.ln.Close() // if it was never served
		if l.accept != nil {
			_ = l.accept.Close()
		}
	}
	if n.kafka.server != nil {
		_ = n.kafka.server.Close()
	}
}

// Topics gives all topics by name. It waits about an election for those that are being made. One that
// has lost its leader for long must not hold up everybody, so it is not waited for.
func (b kafkaBroker) Topics(ctx context.Context) (out []kafka.Topic) {
	if b.n.notMember() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, electionPatience)
	defer cancel()
	_ = b.n.awaitPicture(ctx, func(p *metadata.Picture) bool {
		out = b.topics(p)
		return !slices.ContainsFunc(out, isNew)
	})
	return out
}

func (b kafkaBroker) topics(p *metadata.Picture) (out []kafka.Topic) {
	up := b.n.up()
	for _, t := range p.Topics() {
		if !t.Internal() {
			out = append(out, b.n.kafkaTopic(t, up))
		}
	}
	return out
}

// firstLeaders is the epoch of a partition's first leader, unless nobody won its first election. Before it
// there is epoch 1; a replica that has voted and not heard of the leader is in it too.
const firstLeaders record.Epoch = 2

// isNew tells of a topic that is most likely being made: this node knows of no leader of a partition that
// has hardly had any.
func isNew(t kafka.Topic) bool {
	return slices.ContainsFunc(t.Partitions, func(p kafka.Partition) bool { return p.Leader == record.NoNode && p.Epoch <= firstLeaders })
}

// Topic finds a topic by its name.
func (b kafkaBroker) Topic(name string) (kafka.Topic, error) {
	return b.topic(b.n.machine.Picture().Topic(name), name)
}

// TopicByID finds a topic by its id.
func (b kafkaBroker) TopicByID(id record.TopicID) (kafka.Topic, error) {
	return b.topic(b.n.machine.Picture().TopicByID(id), id.String())
}

func (b kafkaBroker) topic(t *metadata.Topic, asked string) (kafka.Topic, error) {
	if err := b.n.notMember(); err != nil {
		return kafka.Topic{}, err
	}
	if t == nil {
		return kafka.Topic{}, b.n.unknownTopic(asked)
	}
	if err := ownTopic(t.Name); err != nil {
		return kafka.Topic{}, err
	}
	return b.n.kafkaTopic(t, b.n.up()), nil
}

func (n *Node) kafkaTopic(t *metadata.Topic, up map[record.NodeID]bool) kafka.Topic {
	out := kafka.Topic{Name: t.Name, ID: t.ID, Internal: t.Internal(), Partitions: make([]kafka.Partition, len(t.Partitions))}
	for i, mp := range t.Partitions {
		d := n.describePartition(int32(i), mp)
		p := kafka.Partition{Leader: d.Leader, Epoch: d.Epoch, Replicas: d.Replicas, Adding: nodesOf(mp.Adding), Removing: nodesOf(mp.Removing)}
		p.ISR = n.inSync(mp.Group, &d, up)
		for _, r := range d.Replicas {
			if !up[r] {
				p.Offline = append(p.Offline, r)
			}
		}
		out.Partitions[i] = p
	}
	return out
}
