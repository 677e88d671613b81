package metadata

import (
	"fmt"
	"sync/atomic"

	"edged/record"
)

// Cluster is the state machine. Apply, Snapshot and Restore are called by one goroutine;
// Picture and Unknown by any.
type Cluster struct {
	picture atomic.Pointer[Picture]
	unknown atomic.Uint64
}

// New gives the state before the first command.
func New() *Cluster {
	c := &Cluster{}
	c.picture.Store(newPicture())
	return c
}

func newPicture() *Picture {
	return &Picture{nextGroup: firstGroup, nextAttempt: firstAttempt, nextProducer: firstProducerID}
}

// Picture is the state as of the last command. It costs nothing to take.
func (c *Cluster) Picture() *Picture { return c.picture.Load() }

// Unknown is the index of the first command that this software did not understand, 0 if
// there was none. From there on this node's state may differ from that of newer nodes:
// it has to be updated, and what it knows fetched anew.
func (c *Cluster) Unknown() uint64 { return c.unknown.Load() }

// Apply carries out one command. It returns the command's typed result, nil for a command
// that has none, or an error, which leaves the state as it was.
func (c *Cluster) Apply(index uint64, data []byte) any {
	cmd, err := Decode(data)
	if err != nil {
		if record.Code(err) == record.ErrUnsupported.Code {
			c.unknown.CompareAndSwap(0, index)
		}
		return err
	}
	next, result, err := cmd.apply(c.picture.Load())
	if err != nil {
		return err
	}
	c.picture.Store(next)
	return result
}

// InitCluster gives the cluster its identity. It comes once; repeating it does no harm.
// The result is nil.
type InitCluster struct {
	Cluster record.ClusterID
	Name    string
	Created int64 // milliseconds since 1970
}

func (*InitCluster) kind() kind { return kindInitCluster }

func (c *InitCluster) fields(x *codec) {
	x.id16("cluster id", (*[16]byte)(&c.Cluster))
	x.str("cluster name", &c.Name, 0, maxClusterNameBytes)
	x.time("created", &c.Created)
}

func (c *InitCluster) apply(p *Picture) (*Picture, any, error) {
	switch {
	case c.Cluster.IsZero():
		return nil, nil, fmt.Errorf("the cluster id is zero: %w", record.ErrInvalidRequest)
	case p.cluster == c.Cluster:
		return p, nil, nil
	case !p.cluster.IsZero():
		return nil, nil, fmt.Errorf("this is cluster %v, not %v: %w", p.cluster, c.Cluster, record.ErrRefused)
	}
	next := *p
	next.cluster, next.name, next.created = c.Cluster, c.Name, c.Created
	return &next, nil, nil
}
