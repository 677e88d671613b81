//go:build linux

package test

import (
	"strings"
	"testing"
)

// whole is a history without a fault: two producers, one partition, one election.
func whole() history {
	return history{
		sent: []sent{
			{producer: 1, seq: 0, offset: 0, outcome: acked}, {producer: 1, seq: 1, offset: 2, outcome: acked},
			{producer: 2, seq: 0, offset: -1, outcome: acked}, {producer: 2, seq: 1, offset: -1, outcome: unknown},
			{producer: 2, seq: 2, offset: -1, outcome: refused}, {producer: 2, seq: 3, offset: 3, outcome: acked},
		},
		read: []read{
			{offset: 0, epoch: 1, producer: 1, seq: 0}, {offset: 1, epoch: 1, producer: 2, seq: 0},
			{offset: 2, epoch: 2, producer: 1, seq: 1}, {offset: 3, epoch: 2, producer: 2, seq: 3},
		},
		tails:   [][]read{{{offset: 1, epoch: 1, producer: 2, seq: 0}, {offset: 2, epoch: 2, producer: 1, seq: 1}}},
		sighted: []ledBy{{epoch: 1, leader: 7}, {epoch: 2, leader: 8}, {epoch: 2, leader: 8}, {epoch: 3, leader: -1}},
	}
}

// The checker itself has to find what it is there for.
func TestCheck_findsEachBrokenLaw(t *testing.T) {
	if faults := check(whole()); faults != nil {
		t.Fatalf("a whole history has faults: %q", faults)
	}
	for law, breakIt := range map[string]func(h *history){
		"acked is kept":             func(h *history) { h.read = h.read[:3] },
		"acked is kept: record":     func(h *history) { h.sent[1].offset = 1 },
		"nothing is doubled":        func(h *history) { h.read = append(h.read, read{offset: 4, epoch: 2, producer: 1, seq: 1}) },
		"nothing is invented":       func(h *history) { h.read = append(h.read, read{offset: 4, epoch: 2, producer: 3}) },
		"refused is not kept":       func(h *history) { h.read = append(h.read, read{offset: 4, epoch: 2, producer: 2, seq: 2}) },
		"order is kept":             func(h *history) { h.read = append(h.read, read{offset: 4, epoch: 2, producer: 2, seq: 1}) },
		"offsets are dense":         func(h *history) { h.read[3].offset, h.sent[5].offset = 4, 4 },
		"epochs never go back":      func(h *history) { h.read[3].epoch = 1 },
		"what was read stays":       func(h *history) { h.tails[0][1].producer = 2 },
		"a consumer misses nothing": func(h *history) { h.tails[0][1].offset = 3 },
		"one leader per epoch":      func(h *history) { h.sighted = append(h.sighted, ledBy{epoch: 1, leader: 8}) },
	} {
		h := whole()
		breakIt(&h)
		if faults := strings.Join(check(h), "\n"); !strings.Contains(faults, law) {
			t.Errorf("%q is not found; faults: %q", law, faults)
		}
	}
}
