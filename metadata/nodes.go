package metadata

import (
	"fmt"
	"slices"

	"edged/record"
)

// Why a node is refused. Each has a code of its own: a node that joins hears it from another node.
var (
	// ErrNodeIDTaken: the joining node draws a new id and asks again.
	ErrNodeIDTaken = &record.Error{Code: "node_id_taken", Message: "the node id belongs to another instance"}
	// ErrNodeBanned: the node was removed from the cluster; it stays out for good.
	ErrNodeBanned = &record.Error{Code: "node_banned", Message: "the node was removed from this cluster; wipe its data directory to join as a new node"}
	// ErrNodeStale: the cluster has seen a later life of this node.
	ErrNodeStale = &record.Error{Code: "node_stale", Message: "the cluster has seen a later start of this node: a copied card, a backup that was put back, or a card that lost what it had confirmed"}
)

// NodeInfo is what a node says about itself. Addresses are host:port, as peers and clients
// dial them. A node that keeps its own can tell by == whether the registry is up to date.
type NodeInfo struct {
	ID          record.NodeID
	Instance    record.InstanceID
	Name        string // for people; not empty, need not be unique
	Host        string
	NativeAddr  string
	KafkaAddr   string // empty if the node does not speak Kafka
	HTTPAddr    string
	Version     string
	BootCounter uint64 // in the registry: the highest seen
	Boot        record.BootID
	Zone        string // empty if none was given
}

// Node is one registered node.
type Node struct {
	NodeInfo
	// Leaving means that the node is to be emptied before it is removed: it is given
	// nothing new, and Plan moves away what it holds.
	Leaving bool
}

// Banned is a removed node.
type Banned struct {
	ID       record.NodeID
	Instance record.InstanceID
}

// RegisterNode tells who a node is and where it is reached. A node proposes it at every
// start and when an address changes. If nothing changed the state stays as it is; look at
// the Picture first and save the log entry. The result is RegisterNodeResult;
// ErrNodeIDTaken, ErrNodeBanned, ErrNodeStale and ErrLimit are the refusals.
type RegisterNode struct{ NodeInfo }

// RegisterNodeResult tells what a registration changed.
type RegisterNodeResult struct {
	New     bool // the node was not known before
	Changed bool // the record was written, which is always so for a new node
}

func (*RegisterNode) kind() kind { return kindRegisterNode }

func (n *NodeInfo) fields(x *codec) {
	x.node("node id", &n.ID)
	x.id16("instance id", (*[16]byte)(&n.Instance))
	x.str("node name", &n.Name, 1, maxNodeNameBytes)
	x.str("host", &n.Host, 0, maxHostBytes)
	x.str("native address", &n.NativeAddr, 0, maxAddrBytes)
	x.str("kafka address", &n.KafkaAddr, 0, maxAddrBytes)
	x.str("http address", &n.HTTPAddr, 0, maxAddrBytes)
	x.str("version", &n.Version, 0, maxVersionBytes)
	unsigned(x, "boot counter", &n.BootCounter)
	unsigned(x, "boot id", &n.Boot)
	x.str("zone", &n.Zone, 0, maxZoneBytes)
}

func (c *RegisterNode) apply(p *Picture) (*Picture, any, error) {
	for _, b := range p.banned {
		if b.ID == c.ID || b.Instance == c.Instance {
			return nil, nil, fmt.Errorf("node %d: %w", c.ID, ErrNodeBanned)
		}
	}
	node := &Node{NodeInfo: c.NodeInfo}
	next := *p
	i, known := findNode(p.nodes, c.ID)
	if !known {
		if len(p.nodes) >= MaxNodes {
			return nil, nil, fmt.Errorf("node %d cannot join: the cluster has %d nodes, the most it can have; remove dead ones: %w", c.ID, MaxNodes, record.ErrLimit)
		}
		next.nodes = inserted(p.nodes, i, node)
		return &next, RegisterNodeResult{New: true, Changed: true}, nil
	}
	old := p.nodes[i]
	switch {
	case old.Instance != c.Instance:
		return nil, nil, fmt.Errorf("node %d: %w", c.ID, ErrNodeIDTaken)
	case c.BootCounter < old.BootCounter, c.BootCounter == old.BootCounter && c.Boot != old.Boot:
		// The counter is made durable before a node uses the network, so two lives with
		// one counter are two copies of one disk.
		return nil, nil, fmt.Errorf("node %d at start number %d, seen is %d: %w", c.ID, c.BootCounter, old.BootCounter, ErrNodeStale)
	}
	node.Leaving = old.Leaving
	if node.NodeInfo == old.NodeInfo {
		return p, RegisterNodeResult{}, nil
	}
	next.nodes = replaced(p.nodes, i, node)
	return &next, RegisterNodeResult{Changed: true}, nil
}

// NodeLeft marks a node as leaving, so that Plan empties it, or takes the mark back. It
// changes nothing about whether the node may vote or serve. The result is nil.
type NodeLeft struct {
	ID     record.NodeID
	Cancel bool
}

func (*NodeLeft) kind() kind { return kindNodeLeft }

func (c *NodeLeft) fields(x *codec) {
	x.node("node id", &c.ID)
	x.bool("cancel", &c.Cancel)
}

func (c *NodeLeft) apply(p *Picture) (*Picture, any, error) {
	i, ok := findNode(p.nodes, c.ID)
	if !ok {
		return nil, nil, fmt.Errorf("node %d: %w", c.ID, record.ErrUnknownNode)
	}
	if p.nodes[i].Leaving == !c.Cancel {
		return p, nil, nil
	}
	if !c.Cancel && len(p.usable()) == 1 {
		return nil, nil, fmt.Errorf("node %d is the last one that is not leaving: %w", c.ID, record.ErrRefused)
	}
	node := *p.nodes[i]
	node.Leaving = !c.Cancel
	next := *p
	next.nodes = replaced(p.nodes, i, &node)
	return &next, nil, nil
}

// RemoveNode removes a node for good: its id and instance are banned. It is refused while
// the node holds replicas, which NodeLeft and Plan move away; Force removes it all the
// same, for a node whose disk is gone. What it held alone is lost to the cluster then,
// and the partition stays without a leader until it is deleted. The result is nil.
type RemoveNode struct {
	ID    record.NodeID
	Force bool
}

func (*RemoveNode) kind() kind { return kindRemoveNode }

func (c *RemoveNode) fields(x *codec) {
	x.node("node id", &c.ID)
	x.bool("force", &c.Force)
}

func (c *RemoveNode) apply(p *Picture) (*Picture, any, error) {
	at, banned := findBanned(p.banned, c.ID)
	if banned {
		return p, nil, nil
	}
	i, ok := findNode(p.nodes, c.ID)
	switch {
	case !ok:
		return nil, nil, fmt.Errorf("node %d: %w", c.ID, record.ErrUnknownNode)
	case len(p.banned) >= MaxBanned:
		return nil, nil, fmt.Errorf("%d nodes were removed from this cluster, the most that are remembered: %w", MaxBanned, record.ErrLimit)
	case len(p.nodes) == 1 || !p.nodes[i].Leaving && len(p.usable()) == 1:
		return nil, nil, fmt.Errorf("node %d is the last one: %w", c.ID, record.ErrRefused)
	}
	if held := len(p.ReplicasOn(c.ID)); held > 0 && !c.Force {
		return nil, nil, fmt.Errorf("node %d holds %d replicas; let it leave first, or force it if its disk is lost: %w", c.ID, held, record.ErrRefused)
	}
	next := *p
	next.nodes = removed(p.nodes, i)
	next.banned = inserted(p.banned, at, Banned{c.ID, p.nodes[i].Instance})
	if t, ok := findTombs(p.tombs, c.ID); ok { // nobody will come to delete them
		next.tombstones -= len(p.tombs[t].list)
		next.tombs = removed(p.tombs, t)
	}
	return &next, nil, nil
}

// usable gives the nodes that may be given replicas, by id.
func (p *Picture) usable() []*Node {
	return slices.DeleteFunc(slices.Clone(p.nodes), func(n *Node) bool { return n.Leaving })
}

// checkTargets tells whether replicas may stand on these nodes. Those in keep may stay
// where they are whatever became of the node.
func (p *Picture) checkTargets(nodes []record.NodeID, keep []record.ReplicaID) error {
	for i, id := range nodes {
		if slices.Contains(nodes[:i], id) {
			return fmt.Errorf("node %d is named twice: %w", id, record.ErrInvalidRequest)
		}
		if _, kept := replicaOn(keep, id); kept {
			continue
		}
		switch n := p.Node(id); {
		case n == nil:
			return fmt.Errorf("node %d: %w", id, record.ErrUnknownNode)
		case n.Leaving:
			return fmt.Errorf("node %d is leaving: %w", id, record.ErrRefused)
		}
	}
	return nil
}
