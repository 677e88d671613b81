package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"edged/record"
)

// life is what we remember of a node: the newest process that showed itself.
type life struct {
	instance record.InstanceID
	boot     record.BootID
	counter  uint64
}

const maxSeen = 4096 // node ids of our cluster remembered until we stop

// dial connects, shakes hands and gives a connection that counts on both sides. want is the
// node that should be there, 0 if any. The context bounds the handshake, not the connection.
func (t *Transport) dial(ctx context.Context, addr string, p purpose, want record.NodeID) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, t.limits.Handshake)
	defer cancel()
	nc, err := t.cfg.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	c, err := t.open(nc)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.close(context.Cause(ctx)) })
	err = t.greet(c, p, want)
	if !stop() {
		err = fmt.Errorf("in the handshake: %w", context.Cause(ctx))
	}
	if err != nil {
		c.close(err)
		return nil, err
	}
	return c, nil
}

// greet is the dialer's side of the handshake.
func (t *Transport) greet(c *conn, p purpose, want record.NodeID) error {
	if err := c.sayHello(p, Magic); err != nil {
		return err
	}
	h, err := c.hearHello()
	if err != nil {
		return err
	}
	err = t.check(h.id, p)
	if err == nil && want != 0 && h.id.Node != want {
		err = fmt.Errorf("%w: node %d and not node %d", ErrWrongNode, h.id.Node, want)
	}
	if err == nil {
		err = t.remember(h.id)
	}
	if err != nil {
		_ = c.write(newFrame(frameRefuse, appendError(nil, err)))
		return err
	}
	c.remote = h.id
	return c.write(newFrame(frameReady))
}

// welcome is the acceptor's side of the handshake. The connection must not count before the
// dialer has said ready: only then has the dialer accepted us.
func (t *Transport) welcome(c *conn) (purpose, error) {
	// All of it is under one deadline, so that a stranger who sends a byte now and then holds
	// a connection no longer than one who sends nothing.
	slow := time.AfterFunc(t.limits.Handshake, func() { c.close(errors.New("the handshake took too long")) })
	defer slow.Stop()
	magic := make([]byte, len(Magic))
	if _, err := io.ReadFull(c.r, magic); err != nil || string(magic) != Magic {
		return 0, errors.New("the connection does not begin with the magic of edged nodes")
	}
	h, err := c.hearHello()
	if err != nil {
		if errors.Is(err, ErrVersion) {
			_ = c.write(newFrame(frameRefuse, appendError(nil, err)))
		}
		return 0, err
	}
	c.remote = h.id // also of one that is refused
	err = t.check(h.id, h.purpose)
	if err == nil {
		err = t.checkPlace(h)
	}
	if err != nil {
		_ = c.write(newFrame(frameRefuse, appendError(nil, err)))
		return 0, err
	}
	if err := c.sayHello(h.purpose, ""); err != nil {
		return 0, err
	}
	typ, payload, err := c.next(maxHello, 0, nil)
	if err != nil {
		return 0, err
	}
	if typ != frameReady {
		return 0, unexpected(typ, payload)
	}
	return h.purpose, t.remember(h.id)
}

func (c *conn) sayHello(p purpose, magic string) error {
	f := newFrame(frameHello, hello{p, c.t.cfg.Identity()}.encode())
	if err := c.nc.SetWriteDeadline(time.Now().Add(c.t.limits.Write)); err != nil {
		return err
	}
	_, err := c.nc.Write(append(f.appendHeader([]byte(magic)), f.body[0]...))
	return err
}

func (c *conn) hearHello() (hello, error) {
	typ, payload, err := c.next(maxHello, 0, nil)
	if err != nil {
		return hello{}, err
	}
	if typ != frameHello {
		return hello{}, unexpected(typ, payload)
	}
	return parseHello(payload)
}

// unexpected turns a frame that should not have come into an error: the other side's if it is one.
func unexpected(typ byte, payload []byte) error {
	if typ == frameRefuse {
		if err, ok := parseError(payload); ok {
			return &RemoteRefusal{err}
		}
	}
	return fmt.Errorf("a frame of type %d was not expected here", typ)
}

// check decides whether we talk to id at all.
func (t *Transport) check(id Identity, p purpose) error {
	self := t.cfg.Identity()
	switch {
	case id.ClusterName != self.ClusterName:
		return fmt.Errorf("%w: node %d is of %q, node %d of %q", ErrClusterName, id.Node, id.ClusterName, self.Node, self.ClusterName)
	case !id.Cluster.IsZero() && !self.Cluster.IsZero() && id.Cluster != self.Cluster:
		return fmt.Errorf("%w: node %d is of cluster %v, node %d of cluster %v", ErrOtherCluster, id.Node, id.Cluster, self.Node, self.Cluster)
	case id.Node == self.Node && id.Boot == self.Boot:
		return ErrSelf
	case id.Node == self.Node:
		return fmt.Errorf("%w (node %d, boot counters %d and %d)", ErrClone, id.Node, id.BootCounter, self.BootCounter)
	case p.isLink() && (id.Cluster.IsZero() || self.Cluster.IsZero()):
		return fmt.Errorf("%w (nodes %d and %d)", record.ErrNotReady, id.Node, self.Node)
	}
	t.mu.Lock()
	err := t.checkLifeLocked(id)
	t.mu.Unlock()
	if err == nil && t.cfg.Admit != nil {
		err = t.cfg.Admit(id)
	}
	return err
}

// checkLifeLocked refuses a process that is older than the newest life we know of its node.
func (t *Transport) checkLifeLocked(id Identity) error {
	old, known := t.mu.seen[id.Node]
	switch {
	case known && old.instance != id.Instance:
		return fmt.Errorf("%w (node %d is held by instance %v and claimed by %v)", ErrClone, id.Node, old.instance, id.Instance)
	case known && (id.BootCounter < old.counter || id.BootCounter == old.counter && id.Boot != old.boot):
		if l := t.mu.links[id.Node]; l != nil && l.shared.session != nil && l.shared.session.remote.Boot == old.boot {
			return fmt.Errorf("%w (node %d is connected in its start %d, another comes in start %d)", ErrClone, id.Node, old.counter, id.BootCounter)
		}
		return fmt.Errorf("%w (node %d was seen in its start %d, which is not connected now, and comes in start %d)", ErrOldLife, id.Node, old.counter, id.BootCounter)
	case !known && len(t.mu.seen) >= maxSeen:
		return fmt.Errorf("%w: %d node ids have been seen since the start of this node", record.ErrLimit, maxSeen)
	}
	return nil
}

// remember makes id the newest life of its node, when both sides have accepted each other and
// not before: a clone that was refused must not put the true node in the wrong. Nodes that are
// in no cluster yet are not remembered, because anybody can say that.
func (t *Transport) remember(id Identity) error {
	if id.Cluster.IsZero() || id.Cluster != t.cfg.Identity().Cluster {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.checkLifeLocked(id); err != nil {
		return err
	}
	t.mu.seen[id.Node] = life{id.Instance, id.Boot, id.BootCounter}
	return nil
}

// checkPlace decides whether a connection of this purpose has a place here now. It may take
// Limits.Probe, when another life of the same node is still connected and has to show whether it lives.
func (t *Transport) checkPlace(h hello) error {
	if !h.purpose.isLink() {
		return nil
	}
	if h.purpose == forControl {
		if h.id.Node > t.self {
			return fmt.Errorf("%w: node %d, which node %d does not dial", ErrWrongNode, t.self, h.id.Node) // an address changed hands
		}
		if err := t.roomFor(h.id.Node); err != nil {
			return err
		}
	}
	s := t.session(h.id.Node)
	if h.purpose == forData && (s == nil || s.remote.Boot != h.id.Boot) {
		return fmt.Errorf("%w: the control connection comes first", ErrNotConnected)
	}
	if s == nil || s.remote.Boot == h.id.Boot {
		return nil
	}
	if s.alive(t.limits.Probe) {
		return fmt.Errorf("%w (node %d lives with boot counter %d, another comes with %d)", ErrClone, h.id.Node, s.remote.BootCounter, h.id.BootCounter)
	}
	s.control.close(fmt.Errorf("node %d has restarted", h.id.Node))
	return nil
}
