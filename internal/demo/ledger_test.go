package main

import (
	"errors"
	"testing"

	"edged/client"
	"edged/record"
)

// The comparison must see each kind of fault, or the demo proves nothing.
func TestCompare_seesEveryFault(t *testing.T) {
	seq := func(b []byte) (int64, error) {
		if len(b) == 0 {
			return 0, errors.New("empty")
		}
		return int64(b[0] - '0'), nil
	}
	// Records 0, 1, 2 in partition 0 and 3 in partition 1 are acknowledged, 4 is not.
	fill := func() *ledger {
		l := newLedger()
		for s := range int64(5) {
			l.sent[s] = []byte{byte('0' + s)}
			if s < 4 {
				l.answered(s, client.Ack{Partition: int32(s / 3), Offset: record.Offset(s % 3)})
			}
		}
		return l
	}
	msg := func(offset record.Offset, value string) client.Message {
		return client.Message{Record: record.Record{Offset: offset, Value: []byte(value)}}
	}
	p0 := []client.Message{msg(0, "0"), msg(1, "1"), msg(2, "2")}
	p1 := []client.Message{msg(0, "3")}
	for name, tc := range map[string]struct {
		p0, p1 []client.Message
		want   verdict
	}{
		"all there":       {p0, p1, verdict{read: 4}},
		"kept, not acked": {p0, append(p1[:1:1], msg(1, "4")), verdict{read: 5, unanswered: 1}},
		"lost":            {p0[:2], p1, verdict{read: 3, lost: 1}},
		"lost partition":  {p0, nil, verdict{read: 3, lost: 1}},
		"doubled":         {append(p0[:3:3], msg(3, "2")), p1, verdict{read: 5, doubled: 1}},
		"doubled apart":   {p0, append(p1[:1:1], msg(1, "2")), verdict{read: 5, doubled: 1}},
		"swapped":         {[]client.Message{p0[0], msg(1, "2"), msg(2, "1")}, p1, verdict{read: 4, misplaced: 2}},
		"altered":         {[]client.Message{p0[0], p0[1], msg(2, "2x")}, p1, verdict{read: 4, altered: 1, lost: 1}},
		"foreign":         {append(p0[:3:3], msg(3, "9")), p1, verdict{read: 5, altered: 1}},
		"empty":           {append(p0[:3:3], msg(3, "")), p1, verdict{read: 5, altered: 1}},
	} {
		got := fill().compare(map[int32][]client.Message{0: tc.p0, 1: tc.p1}, seq)
		first := got.first
		got.first = ""
		if got != tc.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.want)
		}
		if got.bad() != (first != "") || got.bad() != (tc.want.lost+tc.want.doubled+tc.want.misplaced+tc.want.altered > 0) {
			t.Errorf("%s: bad %v with the fault %q", name, got.bad(), first)
		}
	}
}

func TestCompare_outOfOrder(t *testing.T) {
	l := newLedger()
	l.sent[1], l.sent[2] = []byte("1"), []byte("2")
	l.answered(1, client.Ack{Offset: 1})
	l.answered(2, client.Ack{Offset: 0})
	messages := []client.Message{{Record: record.Record{Offset: 0, Value: []byte("2")}}, {Record: record.Record{Offset: 1, Value: []byte("1")}}}
	v := l.compare(map[int32][]client.Message{0: messages}, func(b []byte) (int64, error) { return int64(b[0] - '0'), nil })
	if v.misplaced != 1 || !v.bad() {
		t.Errorf("got %+v", v)
	}
}

func TestAwait_firstAcknowledgementOfANewerEpoch(t *testing.T) {
	l := newLedger()
	l.await(2, 5)
	l.answered(1, client.Ack{Partition: 2, Epoch: 5})
	l.answered(2, client.Ack{Partition: 1, Epoch: 6})
	l.answered(3, client.Ack{Partition: 2, Epoch: 9, Err: errors.New("x")})
	if h := l.heard(2); !h.at.IsZero() {
		t.Errorf("heard %+v too early", h)
	}
	l.answered(4, client.Ack{Partition: 2, Epoch: 6})
	first := l.heard(2)
	l.answered(5, client.Ack{Partition: 2, Epoch: 7})
	if h := l.heard(2); first.at.IsZero() || h != first || h.epoch != 6 {
		t.Errorf("heard %+v, then %+v", first, h)
	}
	if l.failed != 1 || l.failure == nil || l.ackedCount() != 4 {
		t.Errorf("failed %d, %v; %d acknowledged", l.failed, l.failure, l.ackedCount())
	}
}
