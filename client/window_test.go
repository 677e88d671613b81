package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"edged/record"
	"edged/transport/wire"
)

func windowBatch(t *testing.T, values ...string) *batch {
	t.Helper()
	b := &batch{builder: record.NewBuilder(record.None, 1<<20), deadline: time.Unix(1000, 0)}
	for _, v := range values {
		b.builder.Append(1, nil, []byte(v), nil)
	}
	return b
}

// sendAll sends what the window gives and returns the batches in that order.
func sendAll(w *window) (sent []*batch) {
	for b := w.next(); b != nil; b = w.next() {
		w.markSent(b)
		sent = append(sent, b)
	}
	return sent
}

func newWindow(t *testing.T, batches int) *window {
	t.Helper()
	w := &window{acks: wire.AcksAll}
	w.identify(producerIdentity{id: 7})
	for range batches {
		w.add(windowBatch(t, "a", "b"))
	}
	return w
}

func answerAll(w *window, sent []*batch, err error) {
	round := w.round
	for _, b := range sent {
		w.answer(event{round: round, batch: b, err: err})
	}
}

func TestWindow_sequencesFollowEachOther(t *testing.T) {
	w := newWindow(t, 7)
	sent := sendAll(w)
	if len(sent) != maxInFlight {
		t.Fatalf("%d under way", len(sent))
	}
	for i, b := range sent {
		if b.data.BaseSequence() != int32(2*i) || b.data.ProducerID() != 7 {
			t.Errorf("batch %d: producer %d, sequence %d", i, b.data.ProducerID(), b.data.BaseSequence())
		}
	}
}

// After a failure the oldest goes alone, then the rest, the same bytes as before.
func TestWindow_sendsAgainFromTheOldest(t *testing.T) {
	w := newWindow(t, 5)
	sent := sendAll(w)
	first := string(sent[0].data)
	if !w.answer(event{batch: sent[0], err: record.ErrBusy}) {
		t.Fatal("busy did not end the round")
	}
	for _, b := range sent[1:] {
		if w.answer(event{batch: b, err: record.ErrOutOfOrder}) {
			t.Error("an answer of the last round ended this one")
		}
	}
	again := sendAll(w)
	if len(again) != 1 || again[0] != sent[0] || string(again[0].data) != first {
		t.Fatalf("%d batches are sent again", len(again))
	}
	w.answer(event{round: w.round, batch: again[0]})
	if rest := sendAll(w); len(rest) != 4 || rest[0] != sent[1] {
		t.Errorf("%d batches follow", len(rest))
	}
}

// An answer that comes late, from a round that was given up, still counts if it is good.
func TestWindow_lateAckCounts(t *testing.T) {
	w := newWindow(t, 3)
	sent := sendAll(w)
	w.answer(event{batch: sent[0], err: &ConnError{"a", errSilent}})
	w.answer(event{batch: sent[1]})
	if done := w.takeDone(); len(done) != 0 {
		t.Fatal("the second batch was told before the first")
	}
	again := sendAll(w)
	w.answer(event{round: w.round, batch: again[0]})
	if done := w.takeDone(); len(done) != 2 || done[0].batch != sent[0] || done[1].batch != sent[1] {
		t.Errorf("%d are done", len(done))
	}
}

// A batch that may be in the log is not sent under a second identity.
func TestWindow_unsureIsNotSentUnderAnotherIdentity(t *testing.T) {
	w := newWindow(t, 3)
	sent := sendAll(w)
	answerAll(w, sent, &ConnError{"a", errSilent})
	again := sendAll(w)
	w.answer(event{round: w.round, batch: again[0], err: record.ErrUnknownProducer})
	done := w.takeDone()
	if len(done) != 3 || w.hasID {
		t.Fatalf("%d are done, identity kept: %v", len(done), w.hasID)
	}
	for _, f := range done {
		if !errors.Is(f.err, record.ErrInterrupted) {
			t.Errorf("%v", f.err)
		}
	}
	if !errors.Is(done[0].err, record.ErrUnknownProducer) {
		t.Errorf("%v does not say why", done[0].err)
	}
}

// One that certainly is not there goes on under another identity.
func TestWindow_certainIsSentUnderAnotherIdentity(t *testing.T) {
	w := newWindow(t, 3)
	sent := sendAll(w)
	w.answer(event{batch: sent[0], err: record.ErrUnknownProducer})
	if w.next() != nil {
		t.Error("something is sent while answers are missing")
	}
	w.answer(event{batch: sent[1], err: record.ErrUnknownProducer})
	w.answer(event{batch: sent[2], err: record.ErrOutOfOrder})
	w.identify(producerIdentity{id: 8})
	again := sendAll(w)
	if len(again) != 3 || again[0] != sent[0] || again[0].data.ProducerID() != 8 || again[2].data.BaseSequence() != 4 {
		t.Errorf("%d are sent again", len(again))
	}
	if len(w.takeDone()) != 0 {
		t.Error("something was given up")
	}
}

// A refusal after an attempt that nobody heard of leaves a doubt, and says so.
func TestWindow_refusedAfterALostAnswer(t *testing.T) {
	w := newWindow(t, 1)
	sent := sendAll(w)
	answerAll(w, sent, &ConnError{"a", errSilent})
	answerAll(w, sendAll(w), record.ErrTooLarge)
	done := w.takeDone()
	if len(done) != 1 || !errors.Is(done[0].err, record.ErrTooLarge) || !errors.Is(done[0].err, record.ErrInterrupted) {
		t.Errorf("%+v", done)
	}
}

// A node that calls a batch repeated which it gets for the first time is not believed.
func TestWindow_firstCannotBeARepetition(t *testing.T) {
	w := newWindow(t, 1)
	answerAll(w, sendAll(w), record.ErrDuplicateSequence)
	if done := w.takeDone(); len(done) != 1 || !errors.Is(done[0].err, record.ErrDuplicateSequence) {
		t.Errorf("%+v", done)
	}
	w = newWindow(t, 1)
	answerAll(w, sendAll(w), record.ErrInterrupted)
	answerAll(w, sendAll(w), record.ErrDuplicateSequence)
	if done := w.takeDone(); len(done) != 1 || done[0].err != nil || done[0].ack.BaseOffset != -1 {
		t.Errorf("%+v", done)
	}
}

// Sequences do not wrap: what does not fit waits for another identity.
func TestWindow_sequencesEnd(t *testing.T) {
	w := newWindow(t, 3)
	w.nextSeq = math.MaxInt32 - 3
	sent := sendAll(w)
	if len(sent) != 1 || !w.hasID {
		t.Fatalf("%d sent, identity kept: %v", len(sent), w.hasID)
	}
	answerAll(w, sent, nil)
	if w.hasID || len(sendAll(w)) != 0 {
		t.Fatal("it goes on under the old identity")
	}
	w.identify(producerIdentity{id: 8})
	if again := sendAll(w); len(again) != 2 || again[0].data.BaseSequence() != 0 || again[1].data.BaseSequence() != 2 {
		t.Errorf("%d sent", len(again))
	}
}

// What was sent behind a batch that is given up in doubt is in doubt as well; what was
// not sent goes on.
func TestWindow_expires(t *testing.T) {
	w := newWindow(t, 7)
	for _, b := range w.batches[1:] {
		b.deadline = time.Unix(2000, 0)
	}
	sendAll(w)
	w.expire(time.Unix(999, 0), nil)
	if len(w.takeDone()) != 0 {
		t.Fatal("too early")
	}
	w.expire(time.Unix(1000, 0), record.ErrNoLeader)
	done := w.takeDone()
	if len(done) != maxInFlight || len(w.batches) != 2 {
		t.Fatalf("%d are done, %d go on", len(done), len(w.batches))
	}
	if !errors.Is(done[0].err, record.ErrTimeout) || !errors.Is(done[0].err, record.ErrNoLeader) || !errors.Is(done[1].err, record.ErrInterrupted) {
		t.Errorf("%v; %v", done[0].err, done[1].err)
	}
	// Their answers come after all; nobody minds.
	for _, f := range done {
		if w.answer(event{batch: f.batch, err: record.ErrBusy}) {
			t.Error("the answer to a batch that is over ended a round")
		}
	}
	w.identify(producerIdentity{id: 8})
	if again := sendAll(w); len(again) != 2 {
		t.Errorf("%d sent", len(again))
	}
}

// Whoever is told that a record failed reads the cause first, and whether it may be in the log: a refusal is
// certain, what was sent and not answered is not.
func TestWindow_overdueSaysTheCauseAndWhetherItIsWritten(t *testing.T) {
	full := fmt.Errorf("connection to n1: %w", record.ErrDiskFull)
	for name, tt := range map[string]struct {
		answer, last error
		want         error
		begins, ends string
	}{
		"refused by a full disk":         {record.ErrDiskFull, full, record.ErrDiskFull, "connection to n1: the node's disk is nearly full", "nothing was written"},
		"no answer, then a full disk":    {record.ErrInterrupted, full, record.ErrTimeout, "connection to n1: the node's disk is nearly full", "it may or may not have been written"},
		"nobody to send it to":           {nil, record.ErrNoLeader, record.ErrNoLeader, record.ErrNoLeader.Message, "nothing was written"},
		"nothing is known of any reason": {nil, nil, context.DeadlineExceeded, "its time is over", "nothing was written"},
	} {
		w := newWindow(t, 1)
		if tt.answer != nil {
			sendAll(w)
			w.answer(event{round: w.round, batch: w.batches[0], err: tt.answer})
		}
		w.expire(time.Unix(1000, 0), tt.last)
		done := w.takeDone()
		if len(done) != 1 || !errors.Is(done[0].err, tt.want) || !strings.HasPrefix(done[0].err.Error(), tt.begins) || !strings.HasSuffix(done[0].err.Error(), tt.ends) {
			t.Errorf("%s: %v", name, done)
			continue
		}
		if doubt := errors.Is(done[0].err, record.ErrTimeout); doubt != (tt.want == record.ErrTimeout) || record.Code(done[0].err) != record.Code(tt.want) && tt.last != nil {
			t.Errorf("%s: in doubt %v, code %s", name, doubt, record.Code(done[0].err))
		}
	}
}
