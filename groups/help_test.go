package groups

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"edged/record"
)

// world is a coordinator with everything around it, under virtual time. Its log applies what is
// proposed in order, when it is told to.
type world struct {
	t      testing.TB
	now    Time
	wall   int64
	timing Timing
	topics map[string]Topic
	born   record.GroupID
	state  *State
	c      *Coordinator
	ids    int
	epoch  record.Epoch
	index  uint64
	log    [][]byte // every command that was applied
	queue  []proposed
	hold   bool  // the log applies nothing until it is told to
	refuse error // what the log answers instead of taking a command
	said   func(string)
}

type proposed struct {
	data []byte
	done func(error)
	err  error
}

// plausible is a time at which a node's clock was plainly set.
const plausible = 1_800_000_000_000

func newWorld(t testing.TB) *world {
	w := &world{
		t: t, wall: plausible, timing: DefaultTiming(), state: New(), said: func(string) {}, born: 100,
		topics: map[string]Topic{"t": {First: 10, Partitions: 4}, "u": {First: 20, Partitions: 4}, "v": {First: 30, Partitions: 100}},
	}
	w.lead()
	return w
}

// lead makes a new coordinator of the state.
func (w *world) lead() {
	w.epoch++
	epoch := w.epoch
	if begin, err := Encode(epoch, &Begin{}); err != nil || w.commit(begin) != nil {
		w.t.Fatal("the epoch does not begin", err)
	}
	w.c = NewCoordinator(Config{
		State: w.state, Timing: w.timing, Wall: func() int64 { return w.wall },
		MemberID: func(prefix string) string { w.ids++; return fmt.Sprintf("%s-%d", prefix, w.ids) },
		Topic:    func(name string) (Topic, bool) { t, ok := w.topics[name]; return t, ok },
		Born:     func() record.GroupID { return w.born },
		Notice:   func(text string) { w.said("(" + text + ")") },
		Propose: func(cmd Command, done func(error)) {
			data, err := Encode(epoch, cmd)
			if err == nil {
				err = w.refuse
			}
			w.queue = append(w.queue, proposed{data, done, err})
		},
	}, w.now)
}

// failOver lets another node take over: what was proposed and not applied is kept without anybody
// hearing of it, or comes too late; the state comes from a snapshot or from the whole log.
func (w *world) failOver(kept int, replay bool) {
	w.c.Close(record.ErrNotCoordinator)
	lost := w.queue
	w.queue = nil
	var late [][]byte
	for i, p := range lost {
		switch {
		case p.err != nil:
		case i < kept:
			w.commit(p.data)
		default:
			late = append(late, p.data)
		}
		p.done(record.ErrInterrupted)
	}
	s := New()
	if replay {
		for i, data := range w.log {
			s.Apply(uint64(i+1), data)
		}
	} else if err := s.Restore(w.state.Snapshot()); err != nil {
		w.t.Fatal(err)
	}
	w.state = s
	w.lead()
	for _, data := range late { // a leader that has come back may still have them in hand
		if err := w.commit(data); !errors.Is(err, record.ErrNotCoordinator) {
			w.t.Errorf("a command of an earlier coordinator is taken: %v", err)
		}
	}
}

func (w *world) commit(data []byte) error {
	w.index++
	w.log = append(w.log, data)
	err, _ := w.state.Apply(w.index, data).(error)
	return err
}

// settle applies what is proposed until nothing more is.
func (w *world) settle() {
	for !w.hold && len(w.queue) > 0 {
		w.applyOne()
	}
}

func (w *world) applyOne() {
	p := w.queue[0]
	w.queue = w.queue[1:]
	err := p.err
	if err == nil {
		err = w.commit(p.data)
	}
	p.done(err)
}

// advance lets time go by, from one deadline to the next.
func (w *world) advance(d time.Duration) {
	end := w.now + d
	for {
		next := min(w.c.NextWake(), end)
		if w.wall > 0 {
			w.wall += (next - w.now).Milliseconds()
		}
		w.now = next
		w.c.Advance(next)
		w.settle()
		if next == end {
			return
		}
	}
}

// consumer is the metadata of a Kafka consumer that wants topics.
func consumer(topics ...string) []byte {
	b := []byte{0, 1}
	b = binary.BigEndian.AppendUint32(b, uint32(len(topics)))
	for _, t := range topics {
		b = binary.BigEndian.AppendUint16(b, uint16(len(t)))
		b = append(b, t...)
	}
	return append(b, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0)
}
