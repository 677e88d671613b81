//go:build linux

package test

import (
	"fmt"
	"sort"
)

// outcome is what a producer knows of one of its records.
type outcome int8

const (
	unknown outcome = iota // timed out or interrupted: it may be in the log, once
	acked                  // it is in the log, once, at the offset that was told
	refused                // any other error: it is not in the log
)

// sent is one record of one producer. Sequences count from 0 for each producer and partition,
// over all that was tried.
type sent struct {
	producer, partition int32
	seq                 int64
	offset              int64 // -1 if not told
	outcome             outcome
}

// read is one record of the log as a consumer was given it.
type read struct {
	partition, epoch int32
	offset           int64
	producer         int32
	seq              int64
}

// ledBy is one sighting of a leader, by whoever asked a node.
type ledBy struct {
	partition, epoch, leader int32
}

// history is all that was seen of one topic.
type history struct {
	start    map[int32]int64 // where each log begins at the end; 0 if absent
	sent     []sent
	read     []read   // all of it, at the end, partition by partition in order of arrival
	tails    [][]read // what consumers were given meanwhile
	sighted  []ledBy
	weakAcks bool // acked means less than kept: loss is no fault
}

// maxFaults bounds how many faults of one kind are told.
const maxFaults = 5

type verdict struct {
	faults []string
	counts map[string]int
}

func (v *verdict) fault(law, format string, args ...any) {
	if v.counts == nil {
		v.counts = map[string]int{}
	}
	if v.counts[law]++; v.counts[law] <= maxFaults {
		v.faults = append(v.faults, law+": "+fmt.Sprintf(format, args...))
	}
}

// check gives every broken law that shows in the history, nil if there is none.
func check(h history) []string {
	v := &verdict{}
	v.dense(h.start, h.read)
	v.kept(h)
	v.ordered(h.read)
	v.stable(h.read, h.tails)
	v.oneLeader(h.sighted, h.read)
	for law, n := range v.counts {
		if n > maxFaults {
			v.faults = append(v.faults, fmt.Sprintf("%s: %d in all", law, n))
		}
	}
	sort.Strings(v.faults)
	return v.faults
}

// dense: offsets follow each other from the start of the log, epochs never go back.
func (v *verdict) dense(start map[int32]int64, log []read) {
	next, epoch := map[int32]int64{}, map[int32]int32{}
	for p, o := range start {
		next[p] = o
	}
	for _, r := range log {
		if r.offset != next[r.partition] {
			v.fault("offsets are dense", "partition %d has offset %d after %d", r.partition, r.offset, next[r.partition]-1)
		}
		if r.epoch < epoch[r.partition] {
			v.fault("epochs never go back", "partition %d, offset %d: epoch %d after %d", r.partition, r.offset, r.epoch, epoch[r.partition])
		}
		next[r.partition], epoch[r.partition] = r.offset+1, r.epoch
	}
}

type recordID struct {
	producer, partition int32
	seq                 int64
}

// kept: what was acked is there, where it was said to be; nothing is there twice, and nothing that
// nobody sent or that was refused.
func (v *verdict) kept(h history) {
	found := map[recordID]int64{}
	for _, r := range h.read {
		id := recordID{r.producer, r.partition, r.seq}
		if at, twice := found[id]; twice {
			v.fault("nothing is doubled", "record %+v is at offset %d and at %d", id, at, r.offset)
			continue
		}
		found[id] = r.offset
	}
	known := map[recordID]bool{}
	for _, s := range h.sent {
		id := recordID{s.producer, s.partition, s.seq}
		known[id] = true
		at, there := found[id]
		switch {
		case s.outcome == refused && there:
			v.fault("refused is not kept", "record %+v is at offset %d", id, at)
		case s.outcome != acked || h.weakAcks:
		case !there && (s.offset < 0 || s.offset >= h.start[s.partition]):
			v.fault("acked is kept", "record %+v was acked at offset %d and is not in the log", id, s.offset)
		case there && s.offset >= 0 && s.offset != at:
			v.fault("acked is kept", "record %+v was acked at offset %d and is at %d", id, s.offset, at)
		}
	}
	for id, at := range found {
		if !known[id] {
			v.fault("nothing is invented", "record %+v at offset %d was never sent", id, at)
		}
	}
}

// ordered: the records of a producer are in the order in which it sent them.
func (v *verdict) ordered(log []read) {
	type stream struct{ producer, partition int32 }
	last := map[stream]read{}
	for _, r := range log {
		s := stream{r.producer, r.partition}
		if before, ok := last[s]; ok && r.seq <= before.seq {
			v.fault("order is kept", "producer %d, partition %d: %d at offset %d comes after %d at offset %d",
				r.producer, r.partition, r.seq, r.offset, before.seq, before.offset)
		}
		last[s] = r
	}
}

// stable: whatever a consumer was given stays in the log as it was.
func (v *verdict) stable(log []read, tails [][]read) {
	type place struct {
		partition int32
		offset    int64
	}
	now := map[place]read{}
	for _, r := range log {
		now[place{r.partition, r.offset}] = r
	}
	for i, tail := range tails {
		next := map[int32]int64{}
		for _, r := range tail {
			if want, ok := next[r.partition]; ok && r.offset != want {
				v.fault("a consumer misses nothing", "consumer %d, partition %d: offset %d instead of %d", i, r.partition, r.offset, want)
			}
			next[r.partition] = r.offset + 1
			if is, ok := now[place{r.partition, r.offset}]; ok && is != r {
				v.fault("what was read stays", "consumer %d read %+v, now it is %+v", i, r, is)
			}
		}
	}
}

// oneLeader: an epoch of a partition has one leader, in all that anybody was told.
func (v *verdict) oneLeader(sighted []ledBy, _ []read) {
	type term struct{ partition, epoch int32 }
	leader := map[term]int32{}
	for _, s := range sighted {
		if s.leader < 0 {
			continue
		}
		t := term{s.partition, s.epoch}
		if was, ok := leader[t]; ok && was != s.leader {
			v.fault("one leader per epoch", "partition %d, epoch %d: nodes %d and %d", s.partition, s.epoch, was, s.leader)
		}
		leader[t] = s.leader
	}
}
