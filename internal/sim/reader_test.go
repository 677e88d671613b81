package sim

import (
	"testing"

	"edged/record"
	"edged/transport/wire"
)

// A leader that was stopped and replaced answers once more when it goes on, with what it knows to be committed. A
// reader who has heard of its successor, be it by an error, takes that for the past; nobody else is ever shown less
// than before.
func TestReader_listensToNoLeaderBeforeTheOneItHeardLast(t *testing.T) {
	gone := record.ErrOffsetOutOfRange
	for _, c := range []struct {
		name   string
		heard  []wire.FetchResponse
		broken string
		next   record.Offset
	}{
		{"its own leader goes on", []wire.FetchResponse{{Epoch: 2, HighWatermark: 400}, {Epoch: 2, HighWatermark: 460}}, "", 0},
		{"the leader before the one that was heard", []wire.FetchResponse{{Epoch: 3, HighWatermark: 554}, {Epoch: 2, HighWatermark: 460}}, "", 0},
		{"the same, and the newer one only refused", []wire.FetchResponse{{Epoch: 3, HighWatermark: 554, LogStart: 420, Err: gone}, {Epoch: 2, HighWatermark: 460}}, "", 420},
		{"an error of the leader before", []wire.FetchResponse{{Epoch: 3, HighWatermark: 554, LogStart: 420}, {Epoch: 2, HighWatermark: 460, LogStart: 430, Err: gone}}, "", 0},
		{"one leader shows less than before", []wire.FetchResponse{{Epoch: 2, HighWatermark: 554}, {Epoch: 2, HighWatermark: 460}}, lawHighRises, 0},
		{"the same, first with an error", []wire.FetchResponse{{Epoch: 2, HighWatermark: 554, LogStart: 420, Err: gone}, {Epoch: 2, HighWatermark: 460, LogStart: 420}}, lawHighRises, 420},
		{"the next leader shows less", []wire.FetchResponse{{Epoch: 2, HighWatermark: 554}, {Epoch: 3, HighWatermark: 460}}, lawHighRises, 0},
		{"the next leader begins earlier", []wire.FetchResponse{{Epoch: 2, HighWatermark: 554, LogStart: 420}, {Epoch: 3, HighWatermark: 554}}, lawHighRises, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 0)
			top := w.hist.addTopic(&topic{name: "a", retention: true}, 1)
			cur := &cursor{router: newRouter(w, 0), part: top.partitions[0], epoch: record.NoEpoch}
			for _, res := range c.heard {
				cur.hear("a reader", res, &fetched{})
			}
			broken := ""
			if v := w.broken.Load(); v != nil {
				broken = v.law
			}
			if broken != c.broken || cur.next != c.next {
				t.Errorf("broke %q, wanted %q; the next offset is %d, wanted %d", broken, c.broken, cur.next, c.next)
			}
		})
	}
}
