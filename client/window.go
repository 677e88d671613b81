package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"edged/record"
	"edged/transport/wire"
)

// maxInFlight is how many batches of one partition are under way at once. The cluster
// remembers as many per producer to tell a repeated batch from a new one.
const maxInFlight = 5

// maxGaps is how often a partition may claim that the oldest batch does not follow what it
// has, before it is believed.
const maxGaps = 3

// producerIdentity makes sequences of one producer differ from those of any other.
type producerIdentity struct {
	id    int64
	epoch int16
}

// batch is records of one partition that travel together.
type batch struct {
	builder  *record.Builder
	records  []waiting
	bytes    int64 // of the producer's buffer
	opened   time.Time
	deadline time.Time
	topic    string // id of the topic that it is for; empty: the first one that is found

	// What follows belongs to the window.

	data    record.Batch // nil until it has a sequence
	sends   int          // how often it was sent under this identity
	pending int          // sends whose answer or failure has not come back
	unsure  int          // sends that came back without telling whether it was appended
	acked   bool
	ack     wire.ProduceResponse
	refused error // it will not be appended; told when its turn comes
	over    bool  // it has left the window
}

// waiting is one record whose producer wants to know.
type waiting struct {
	done func(Ack)
}

// maybeAppended: it may stand in the log, or may still get there.
func (b *batch) maybeAppended() bool { return b.pending > 0 || b.unsure > 0 }

// finished is a batch whose fate is known: err nil means appended.
type finished struct {
	*batch
	err error
}

// window decides in which order and how often the batches of one partition are sent, so
// that each stands in the log once and in order. It has no clock and does no I/O.
//
// A batch gets its sequence when it is first sent, and keeps it as long as it can: the
// cluster takes a batch only if its sequence follows the last one, and knows a repeated
// one. From that follow the rules:
//
//   - Batches are sent in order. After a failure everything that is not acked is sent again
//     from the oldest on, in a new round; the oldest goes alone until it is acked, which
//     costs one round trip and keeps four batches from nodes that do not lead.
//   - A sequence is never given to another batch under the same identity: an old copy could
//     still be on its way. Whenever a batch is given up after it was sent, the rest goes on
//     under a new identity.
//   - Under a new identity the cluster cannot tell a repeated batch from a new one. So a
//     batch that may stand in the log is not sent under a second identity: it is given up
//     with an error that says so.
type window struct {
	acks    int16
	id      producerIdentity
	hasID   bool
	nextSeq int32
	batches []*batch // oldest first
	sent    int      // batches[:sent] have been sent in this round, or are acked
	round   uint64
	probing bool // only the oldest is sent
	renew   bool // all that is not acked goes on under a new identity, once nothing is pending
	gaps    int  // how often the oldest was refused as out of order
	done    []finished
}

// event is what came back of one send.
type event struct {
	round uint64
	batch *batch
	ack   wire.ProduceResponse
	err   error
}

// add puts a batch behind the others.
func (w *window) add(b *batch) { w.batches = append(w.batches, b) }

// identify begins a new identity. Only to be called when hasID is false.
func (w *window) identify(id producerIdentity) {
	w.id, w.hasID, w.nextSeq = id, true, 0
}

// next gives the batch to send now, nil if there is none. The caller sends it and says so
// by markSent before it calls next again.
func (w *window) next() *batch {
	if !w.hasID || w.renew {
		return nil
	}
	for w.sent < len(w.batches) && w.batches[w.sent].acked {
		w.sent++
	}
	limit := maxInFlight
	if w.probing {
		limit = 1
	}
	if w.sent >= min(limit, len(w.batches)) {
		return nil
	}
	b := w.batches[w.sent]
	if b.refused != nil {
		return nil
	}
	if b.data == nil && !w.number(b) {
		return nil
	}
	return b
}

// number gives the batch its sequence. Sequences do not wrap: near the end a new identity
// is asked for, once nothing is on its way under the old one.
func (w *window) number(b *batch) bool {
	if w.nextSeq > math.MaxInt32-b.builder.Count() {
		w.renew = true
		w.settle()
		return false
	}
	b.builder.SetProducer(w.id.id, w.id.epoch, w.nextSeq)
	b.data = b.builder.Build()
	w.nextSeq += b.builder.Count()
	return true
}

func (w *window) markSent(b *batch) {
	b.sends++
	b.pending++
	w.sent++
}

// answer takes what came back of a send. It tells whether the round has failed: then what
// is not acked is to be sent again, to a node that err may name.
func (w *window) answer(ev event) (failed bool) {
	b := ev.batch
	b.pending--
	if ev.err != nil && !certain(ev.err) {
		b.unsure++
	}
	if b.over {
		w.settle()
		return false
	}
	first := len(w.batches) > 0 && w.batches[0] == b
	current := ev.round == w.round
	switch {
	case ev.err == nil, errors.Is(ev.err, record.ErrDuplicateSequence) && b.sends > 1:
		b.acked, b.ack = true, ev.ack
		if ev.err != nil {
			b.ack.BaseOffset = -1
		}
		w.probing, w.gaps = false, 0
	case !current || w.draining():
	case errors.Is(ev.err, record.ErrOutOfOrder):
		failed = !first || w.gap(ev.err)
	case errors.Is(ev.err, record.ErrUnknownProducer):
		failed = !first || w.forgotten(ev.err)
	case isUnknown(ev.err), judge(ev.err) != stop:
		failed = true
	default:
		b.refused = ev.err
	}
	if failed {
		w.rewind()
	}
	w.settle()
	return failed
}

// rewind begins a new round.
func (w *window) rewind() {
	w.round++
	w.sent = 0
	w.probing = true
}

// refuse gives up a batch of the window for good.
func (w *window) refuse(b *batch, err error) {
	b.refused = err
	w.settle()
}

// gone gives up a batch whose partition or topic does not exist: no log can have it.
func (w *window) gone(b *batch, err error) {
	b.unsure = 0
	w.refuse(b, err)
}

// halt gives up what was never sent under any identity, or is certainly not in the log.
func (w *window) halt(err error) {
	for _, b := range w.batches {
		if b.sends == 0 && b.refused == nil {
			b.refused = err
		}
	}
	w.settle()
}

// draining: something has been decided that waits for what is pending.
func (w *window) draining() bool {
	return w.renew || (len(w.batches) > 0 && w.batches[0].refused != nil)
}

// gap deals with an oldest batch that does not follow what the partition has. Said once,
// that may be a leader that is not up to date. Said again and again, the partition has lost
// what it acked before: with acks=all that is told and not papered over. What the leader
// says it lacks is certainly not in its log, so nothing of it is unsure any more.
func (w *window) gap(err error) (failed bool) {
	w.gaps++
	if w.gaps <= maxGaps {
		return true
	}
	w.gaps = 0
	for _, b := range w.batches {
		b.unsure = 0
	}
	w.renew = true
	if w.acks == wire.AcksAll {
		w.batches[0].refused = fmt.Errorf("%w: earlier batches of this producer were acked and are gone", err)
	}
	return false
}

// forgotten deals with a partition that no longer knows the producer.
func (w *window) forgotten(err error) (failed bool) {
	w.renew = true
	if b := w.batches[0]; b.unsure > 0 {
		b.refused = err
	}
	return false
}

// settle finishes what can be finished, in order.
func (w *window) settle() {
	for len(w.batches) > 0 && w.batches[0].acked {
		w.pop(nil)
	}
	if !w.draining() || w.anyPending() {
		return
	}
	if len(w.batches) > 0 && w.batches[0].refused != nil {
		err := w.batches[0].refused
		if w.batches[0].maybeAppended() { // by an earlier attempt, of which we did not hear
			err = fmt.Errorf("%w: %w", record.ErrInterrupted, err)
		}
		w.pop(err)
	}
	w.renumber()
}

func (w *window) anyPending() bool {
	for _, b := range w.batches {
		if b.pending > 0 {
			return true
		}
	}
	return false
}

// pop finishes the oldest batch.
func (w *window) pop(err error) {
	w.finish(w.batches[0], err)
	w.batches[0] = nil
	w.batches = w.batches[1:]
	w.sent = max(w.sent-1, 0)
}

func (w *window) finish(b *batch, err error) {
	b.over = true
	w.done = append(w.done, finished{b, err})
}

// renumber lets what is left go on under a new identity. What may be in the log already
// cannot, and is given up; what is acked is finished.
func (w *window) renumber() {
	rest := w.batches
	w.batches = nil
	for _, b := range rest {
		switch {
		case b.acked:
			w.finish(b, nil)
		case b.maybeAppended():
			w.finish(b, fmt.Errorf("%w: a batch before it failed", record.ErrInterrupted))
		default:
			b.data, b.sends = nil, 0
			w.batches = append(w.batches, b)
		}
	}
	w.hasID, w.renew, w.gaps = false, false, 0
	w.rewind()
	w.probing = false
	w.settle()
}

// expire gives up the oldest batch if its time has come. What was sent behind it is given
// up with it, unless it is certainly not in the log.
func (w *window) expire(now time.Time, last error) {
	for len(w.batches) > 0 && !now.Before(w.batches[0].deadline) {
		b := w.batches[0]
		numbered := b.data != nil
		w.pop(overdue(b.maybeAppended(), last))
		if numbered {
			w.renumber()
		}
	}
}

// overdueError is a batch whose time is over: the cause first, then whether the record may be in the log.
type overdueError struct {
	text string
	is   []error
}

func (e *overdueError) Error() string   { return e.text }
func (e *overdueError) Unwrap() []error { return e.is }

func overdue(doubt bool, last error) error {
	e := &overdueError{"its time is over; nothing was written", []error{context.DeadlineExceeded}}
	if doubt {
		e = &overdueError{"its time is over; it may or may not have been written", []error{record.ErrTimeout}}
	}
	if last == nil {
		return e
	}
	e.text, e.is = last.Error()+"; "+e.text, append(e.is, last)
	if !doubt {
		e.is[0], e.is[1] = e.is[1], e.is[0] // the cause is the code
	}
	return e
}

// abandon gives up everything.
func (w *window) abandon(cause error) {
	for len(w.batches) > 0 {
		err := cause
		if w.batches[0].maybeAppended() {
			err = fmt.Errorf("%w: %w", record.ErrInterrupted, cause)
		}
		w.pop(err)
	}
}

// takeDone gives the batches that were finished since the last call.
func (w *window) takeDone() []finished {
	done := w.done
	w.done = nil
	return done
}

// certain tells whether an error means that the batch was not appended by the request
// that it answers. Everything not listed may have been, also where it is gone now: a
// replica that is removed answers what it had taken with unknown_partition.
func certain(err error) bool {
	var nl *record.NotLeaderError
	if errors.As(err, &nl) {
		return true
	}
	for _, e := range []error{
		record.ErrOutOfOrder, record.ErrUnknownProducer, record.ErrFencedProducer, record.ErrDuplicateSequence,
		record.ErrBusy, record.ErrNotReady, record.ErrTooLarge, record.ErrCorrupt, record.ErrUnsupportedMagic,
		record.ErrInvalidTimestamp, record.ErrInvalidRequest, record.ErrUnsupported, record.ErrRefused, record.ErrInvalidTopic,
		record.ErrLimit, record.ErrFencedEpoch, record.ErrUnknownEpoch, record.ErrUnknownTopicID, record.ErrDiskFull,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
