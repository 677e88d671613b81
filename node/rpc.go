package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"edged/gossip"
	"edged/metadata"
	"edged/partition"
	"edged/record"
	"edged/transport/peer"
	"edged/transport/wire"

	"github.com/vmihailenco/msgpack/v5"
)

// What one node asks another, as the first byte of a call. Bodies are msgpack. The peer transport bounds
// a call's size, so no claimed length allocates more than it carried.
const (
	opInfo     byte = 1  // -> infoAnswer
	opForm     byte = 2  // a formation message -> a formation message
	opJoin     byte = 3  // metadata.NodeInfo -> welcome
	opPropose  byte = 4  // a metadata command -> proposeAnswer
	opTransfer byte = 5  // transferCall -> transferAnswer
	opDescribe byte = 6  // nothing -> wire.NodeDescription
	opTrim     byte = 7  // trimCall -> nothing
	opEvents   byte = 8  // wire.EventsRequest -> []wire.NodeEvent
	opNetwork  byte = 9  // nothing -> []wire.Reach
	opReadmit  byte = 10 // nothing -> readmission
	opLagging  byte = 11 // lagCall -> nothing
)

// infoAnswer is what a node says of itself beyond its identity.
type infoAnswer struct {
	Expect int
	Now    int64 // of its clock, ms
}

// welcome lets a node in: the cluster it is in now, and who votes on the metadata.
type welcome struct {
	Cluster record.ClusterID
	Voters  []record.NodeID
}

// proposeAnswer carries the results that a proposer elsewhere needs; the rest it reads from its
// own copy of the metadata.
type proposeAnswer struct {
	Index int64 // the metadata applied at least up to here
	First int64 // of a producer id block
	Count int32
}

type transferCall struct {
	Topic     string
	Partition int32
	To        record.NodeID
}

type transferAnswer struct {
	Leader record.NodeID
	Epoch  record.Epoch
}

func encodeCall(op byte, body any) ([]byte, error) {
	b, err := msgpack.Marshal(body)
	if err != nil {
		return nil, err
	}
	return append([]byte{op}, b...), nil
}

// decodeBody takes what another node sent. It goes over all of it once before: the library makes room for as many elements
// as a list claims to have.
func decodeBody(b []byte, into any) error {
	err := msgpack.NewDecoder(bytes.NewReader(b)).Skip()
	if err == nil {
		err = msgpack.Unmarshal(b, into)
	}
	if err != nil {
		return fmt.Errorf("a call between nodes: %v: %w", err, record.ErrInvalidRequest)
	}
	return nil
}

// peerHandler takes what the connections to other nodes bring.
type peerHandler struct{ n *Node }

func (h peerHandler) PeerUp(id peer.Identity) {
	if host := h.n.host.Load(); host != nil {
		host.PeerUp(id.Node, id.Boot)
	}
	h.n.notes.add(eventMembership, h.n.nodeText(id.Node)+" is connected")
	h.n.refusals.forget(id.Node)
	h.n.alive.connected(id.Node)
	h.n.wake()
}

func (h peerHandler) PeerDown(node record.NodeID, boot record.BootID, refused bool) {
	if host := h.n.host.Load(); host != nil {
		host.PeerDown(node, boot, refused)
	}
	h.n.notes.add(eventMembership, h.n.nodeText(node)+" is lost")
	h.n.alive.lost(node)
	h.n.wake()
}

func (h peerHandler) PeerFrame(node record.NodeID, boot record.BootID, class peer.Class, payload []byte) {
	if host := h.n.host.Load(); host != nil {
		c := partition.Control
		if class == peer.Data {
			c = partition.Data
		}
		host.PeerFrame(node, boot, c, payload)
	}
}

func (h peerHandler) PeerRefused(node record.NodeID, addr string, err error) {
	if errors.Is(err, peer.ErrSelf) || errors.Is(err, peer.ErrWrongNode) {
		return // an address changed hands; gossip will tell
	}
	if h.n.refusals.add(node, addr, err) {
		h.n.note(eventMembership, "peer refused: "+err.Error(), "addr", addr)
	}
	// The others know a later life of this node, or another one under its identity: it must not go on.
	var theirs *peer.RemoteRefusal
	if errors.As(err, &theirs) && isTwin(err) {
		h.n.checkClone(err)
	}
	if errors.As(err, &theirs) && errors.Is(err, metadata.ErrNodeBanned) {
		h.n.wasRemoved()
	}
}

// PeerCall answers one question of another node.
func (h peerHandler) PeerCall(ctx context.Context, from peer.Identity, payload []byte) ([]byte, error) {
	if len(payload) == 0 {
		return nil, record.ErrInvalidRequest
	}
	op, body := payload[0], payload[1:]
	var answer any
	var err error
	switch op {
	case opInfo:
		answer = infoAnswer{Expect: h.n.cfg.BootstrapExpect, Now: h.n.opts.Wall().UnixMilli()}
	case opForm:
		m, e := metadata.DecodeMessage(body)
		if e != nil {
			return nil, e
		}
		if m, e = h.n.answerForm(from, m); e != nil {
			return nil, e
		}
		return m.Encode(), nil
	case opJoin:
		answer, err = h.n.letIn(ctx, from, body)
	case opPropose:
		answer, err = h.n.proposeFor(ctx, from, body)
	case opTransfer:
		answer, err = h.n.transferFor(ctx, from, body)
	case opDescribe:
		answer, err = h.n.describeSelf(), nil
	case opNetwork:
		answer, err = h.n.probeNetwork(ctx), nil
	case opEvents:
		answer, err = h.n.eventsFor(ctx, from, body)
	case opReadmit:
		answer, err = h.n.readmit(from)
	case opLagging:
		answer, err = h.n.laggingFor(from, body)
	case opTrim:
		answer, err = h.n.trimFor(from, body)
	default:
		return nil, fmt.Errorf("call %d: %w", op, record.ErrUnsupported)
	}
	if err != nil {
		return nil, err
	}
	return msgpack.Marshal(answer)
}

// letIn registers a node that wants to join. Any member takes the request; the metadata's leader decides.
func (n *Node) letIn(ctx context.Context, from peer.Identity, body []byte) (welcome, error) {
	var info metadata.NodeInfo
	if err := decodeBody(body, &info); err != nil {
		return welcome{}, err
	}
	c := n.cluster.Load()
	p := n.machine.Picture()
	if c == nil || p.ClusterID().IsZero() {
		return welcome{}, record.ErrNotReady
	}
	if info.ID != from.Node || info.Instance != from.Instance {
		return welcome{}, fmt.Errorf("node %d asks for node %d: %w", from.Node, info.ID, record.ErrRefused)
	}
	if _, err := n.propose(ctx, &metadata.RegisterNode{NodeInfo: info}); err != nil {
		return welcome{}, err
	}
	w := welcome{Cluster: *c}
	for _, v := range n.host.Load().Partition(record.MetadataGroup).View().Voters {
		w.Voters = append(w.Voters, v.Node())
	}
	return w, nil
}

func (n *Node) askInfo(ctx context.Context, addr string) (peer.Identity, infoAnswer, error) {
	var a infoAnswer
	id, b, err := n.peers.CallAddr(ctx, addr, []byte{opInfo})
	if err == nil {
		err = decodeBody(b, &a)
	}
	return id, a, err
}

func (n *Node) callForm(ctx context.Context, addr string, m metadata.Message) (peer.Identity, metadata.Message, error) {
	id, b, err := n.peers.CallAddr(ctx, addr, append([]byte{opForm}, m.Encode()...))
	if err != nil {
		return id, metadata.Message{}, err
	}
	answer, err := metadata.DecodeMessage(b)
	return id, answer, err
}

func (n *Node) askJoin(ctx context.Context, addr string) (welcome, error) {
	var w welcome
	call, err := encodeCall(opJoin, n.info())
	if err != nil {
		return w, err
	}
	_, b, err := n.peers.CallAddr(ctx, addr, call)
	if err != nil {
		return w, err
	}
	return w, decodeBody(b, &w)
}

// call asks a node that this one is connected with.
func (n *Node) call(ctx context.Context, to record.NodeID, op byte, body, into any) error {
	call, err := encodeCall(op, body)
	if err != nil {
		return err
	}
	b, err := n.peers.Call(ctx, to, call)
	if err != nil {
		return err
	}
	return decodeBody(b, into)
}

func nativeAddr(m gossip.Member) string {
	return net.JoinHostPort(m.Host, strconv.Itoa(int(m.NativePort)))
}

// gossipAddrOf is where gossip last saw a node's native port, empty if it does not know it.
func (n *Node) gossipAddrOf(id record.NodeID) string {
	for _, m := range n.gossip.Members() {
		if m.Node == id {
			return nativeAddr(m)
		}
	}
	return ""
}

// describeNode asks another node for its insides.
func (n *Node) describeNode(ctx context.Context, id record.NodeID) (wire.NodeDescription, error) {
	var d wire.NodeDescription
	return d, n.call(ctx, id, opDescribe, struct{}{}, &d)
}
