package partition

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"edged/record"
)

// batchWindow is how many of a producer's last batches a partition remembers: Kafka's clients
// keep at most five in flight.
const batchWindow = 5

// appended is one remembered batch of a producer.
type appended struct {
	first, last int32 // sequences
	base        record.Offset
}

// producer is what a partition knows of one producer id.
type producer struct {
	epoch   int16
	n       uint8
	batches [batchWindow]appended // oldest first, n of them
	// joined: its first batch that is known here did not begin at 0, so what lies before it may be
	// in the log or not.
	joined bool
	// tail counts the entries above applied that are reflected here; used in the overlay only.
	tail int32
}

func (p *producer) lastSequence() int32       { return p.batches[p.n-1].last }
func (p *producer) lastOffset() record.Offset { return p.batches[p.n-1].base }

func (p *producer) add(epoch int16, a appended) {
	if epoch != p.epoch {
		p.epoch, p.n = epoch, 0
	}
	if p.n == 0 {
		p.joined = a.first != 0
	}
	if p.n == batchWindow {
		copy(p.batches[:], p.batches[1:])
		p.n--
	}
	p.batches[p.n] = a
	p.n++
}

// stamp is the producer's part of a batch header. id < 0 means that there is none.
type stamp struct {
	id    int64
	epoch int16
	app   appended
}

func stampOf(b record.Batch) stamp {
	s := stamp{id: b.ProducerID(), epoch: b.ProducerEpoch()}
	if s.id >= 0 {
		s.app = appended{first: b.BaseSequence(), base: b.BaseOffset()}
		s.app.last = addSequence(s.app.first, b.Count()-1)
	}
	return s
}

// addSequence adds to a sequence number, which wraps from 2^31-1 to 0.
func addSequence(s, n int32) int32 { return int32((int64(s) + int64(n)) & 0x7fffffff) }

// behind tells whether a sequence number lies before another, by less than half the ring.
func behind(s, want int32) bool { return (s-want)&0x7fffffff > 1<<30 }

// producers is the producer table of one partition: a state machine over its log, equal on
// every replica that has applied the same entries. It makes a retried batch harmless.
type producers struct {
	max   int
	table map[int64]*producer
}

func newProducers(max int) *producers { return &producers{max: max, table: map[int64]*producer{}} }

// apply takes a committed batch. The bound on the table is kept here, by forgetting the producer
// whose last batch is oldest, so that all replicas forget the same one.
func (t *producers) apply(s stamp) {
	if s.id < 0 {
		return
	}
	p := t.table[s.id]
	if p == nil {
		if len(t.table) >= t.max {
			t.forgetOldest()
		}
		p = &producer{epoch: s.epoch}
		t.table[s.id] = p
	}
	p.add(s.epoch, s.app)
}

func (t *producers) forgetOldest() {
	oldest, at := int64(-1), record.Offset(0)
	for id, p := range t.table {
		// Offsets are given once, so the oldest is one and the same on every replica.
		if oldest < 0 || p.lastOffset() < at {
			oldest, at = id, p.lastOffset()
		}
	}
	delete(t.table, oldest)
}

// check judges a batch against what the partition knows of its producer. ok means append;
// otherwise err is nil for a batch that was appended before, at base. mayJoin says that a producer
// that is not known may begin at any sequence.
func (p *producer) check(s stamp, mayJoin bool) (base record.Offset, ok bool, err error) {
	switch {
	case p == nil:
		if s.app.first != 0 && !mayJoin {
			return 0, false, fmt.Errorf("producer %d, sequence %d: %w", s.id, s.app.first, record.ErrUnknownProducer)
		}
		return 0, true, nil
	case s.epoch < p.epoch:
		return 0, false, fmt.Errorf("producer %d has epoch %d, the batch %d: %w", s.id, p.epoch, s.epoch, record.ErrFencedProducer)
	case s.epoch > p.epoch:
		if s.app.first != 0 {
			return 0, false, fmt.Errorf("producer %d begins epoch %d at sequence %d, not 0: %w", s.id, s.epoch, s.app.first, record.ErrOutOfOrder)
		}
		return 0, true, nil
	}
	for _, b := range p.batches[:p.n] {
		if b.first == s.app.first && b.last == s.app.last {
			return b.base, false, nil
		}
	}
	switch want := addSequence(p.lastSequence(), 1); {
	case s.app.first == want:
		return 0, true, nil
	case behind(s.app.first, want) && behind(s.app.last, want) && !p.joined:
		// Everything in it is in the log, in batches that are not remembered one by one. What begins
		// there and goes beyond it has records that are not: a client takes this error for success.
		return 0, false, fmt.Errorf("producer %d, sequence %d of which the last %d are known up to %d: %w",
			s.id, s.app.first, batchWindow, p.lastSequence(), record.ErrDuplicateSequence)
	default:
		return 0, false, fmt.Errorf("producer %d, sequence %d where %d should follow: %w", s.id, s.app.first, want, record.ErrOutOfOrder)
	}
}

// The stored form: version u8, count u32, then per producer, ordered by id: id i64, epoch i16,
// n u8 (with the highest bit if it has joined) and n times first i32, last i32, base i64. Equal tables
// give equal bytes.
const (
	producersVersion  = 1
	producerFixed     = 8 + 2 + 1
	producerBatchSize = 4 + 4 + 8
	joinedBit         = 0x80
)

func (t *producers) snapshot() []byte {
	ids := make([]int64, 0, len(t.table))
	for id := range t.table {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	b := make([]byte, 1, 5+len(ids)*(producerFixed+batchWindow*producerBatchSize))
	b[0] = producersVersion
	b = binary.BigEndian.AppendUint32(b, uint32(len(ids)))
	for _, id := range ids {
		p := t.table[id]
		b = binary.BigEndian.AppendUint64(b, uint64(id))
		b = binary.BigEndian.AppendUint16(b, uint16(p.epoch))
		n := p.n
		if p.joined {
			n |= joinedBit
		}
		b = append(b, n)
		for _, a := range p.batches[:p.n] {
			b = binary.BigEndian.AppendUint32(b, uint32(a.first))
			b = binary.BigEndian.AppendUint32(b, uint32(a.last))
			b = binary.BigEndian.AppendUint64(b, uint64(a.base))
		}
	}
	return b
}

var errProducers = errors.New("damaged producer table")

func (t *producers) restore(b []byte) error {
	if len(b) == 0 {
		t.table = map[int64]*producer{}
		return nil
	}
	if len(b) < 5 || b[0] != producersVersion {
		return errProducers
	}
	count := binary.BigEndian.Uint32(b[1:])
	b = b[5:]
	if uint64(count)*producerFixed > uint64(len(b)) {
		return errProducers
	}
	table := make(map[int64]*producer, count)
	for range count {
		if len(b) < producerFixed {
			return errProducers
		}
		id := int64(binary.BigEndian.Uint64(b))
		p := &producer{epoch: int16(binary.BigEndian.Uint16(b[8:])), n: b[10] &^ joinedBit, joined: b[10]&joinedBit != 0}
		b = b[producerFixed:]
		if p.n == 0 || p.n > batchWindow || len(b) < int(p.n)*producerBatchSize || table[id] != nil || id < 0 {
			return errProducers
		}
		for i := range p.batches[:p.n] {
			p.batches[i] = appended{int32(binary.BigEndian.Uint32(b)), int32(binary.BigEndian.Uint32(b[4:])), record.Offset(binary.BigEndian.Uint64(b[8:]))}
			b = b[producerBatchSize:]
		}
		table[id] = p
	}
	if len(b) != 0 {
		return errProducers
	}
	t.table = table
	return nil
}
