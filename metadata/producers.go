package metadata

import (
	"fmt"
	"math"

	"edged/record"
)

const firstProducerID = 1

// AllocProducerIDs takes a block of producer ids that no other node will be given. The
// node hands them out one by one and forgets what is left of them when it stops. The
// result is ProducerIDBlock.
type AllocProducerIDs struct {
	Node  record.NodeID
	Count int32 // 1 to MaxProducerBlock
}

// ProducerIDBlock holds the ids First to First+Count-1.
type ProducerIDBlock struct {
	First int64
	Count int32
}

func (*AllocProducerIDs) kind() kind { return kindAllocProducerIDs }

func (c *AllocProducerIDs) fields(x *codec) {
	x.node("node id", &c.Node)
	signed(x, "count", &c.Count, 1, MaxProducerBlock)
}

func (c *AllocProducerIDs) apply(p *Picture) (*Picture, any, error) {
	if p.Node(c.Node) == nil {
		return nil, nil, fmt.Errorf("producer ids for node %d: %w", c.Node, record.ErrUnknownNode)
	}
	if p.nextProducer > math.MaxInt64-int64(c.Count) {
		return nil, nil, fmt.Errorf("producer ids are used up: %w", record.ErrLimit)
	}
	next := *p
	next.nextProducer += int64(c.Count)
	return &next, ProducerIDBlock{p.nextProducer, c.Count}, nil
}
