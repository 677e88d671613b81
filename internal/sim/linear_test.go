package sim

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"edged/record"

	"github.com/anishathalye/porcupine"
)

// The search for a linear order grows quickly with the history, so that only the first appends of
// each partition, and the reads among them, are looked at. What takes longer proves nothing.
const (
	linearAppends = 60
	linearReads   = 60
	linearWithin  = 2 * time.Second
)

// fetched is one read that a reader made.
type fetched struct {
	call, ret int // place in the order of all calls and answers
	from      record.Offset
	values    []string
}

// A partition as porcupine sees it: a list of values, as indices of 4 bytes each.
type (
	appendOp struct{ values []uint32 }
	appended struct{ offset record.Offset }
	readOp   struct{ from record.Offset }
	listed   struct{ values []uint32 }
)

// logModel says what a partition is: an append goes to the end, and its offset is where the end was; a
// read sees what stands from its offset on. It may see less than there is: a leader that was
// replaced and has not noticed serves what it knows to be committed.
var logModel = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		log := state.(string)
		switch in := input.(type) {
		case appendOp:
			return int(output.(appended).offset) == len(log)/4, log + packed(in.values)
		case readOp:
			want := packed(output.(listed).values)
			from := int(in.from) * 4
			return from+len(want) <= len(log) && log[from:from+len(want)] == want, log
		}
		return false, log
	},
}

func packed(vs []uint32) string {
	b := make([]byte, 0, 4*len(vs))
	for _, v := range vs {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return string(b)
}

// saw notes a read for the search.
func (h *history) saw(p *part, f fetched) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.ret = h.order(); len(p.reads) < linearReads && len(f.values) > 0 {
		p.reads = append(p.reads, f)
	}
}

func (h *history) now() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.order()
}

// checkLinear searches, for each partition, an order of its first appends and reads that fits what each
// client was told and when. It is called outside the bubble: it takes real time.
func (w *world) checkLinear() {
	for _, p := range w.hist.parts() {
		if p.topic.relaxed || p.topic.retention {
			continue
		}
		h := p.linear()
		if len(h) == 0 {
			continue
		}
		switch porcupine.CheckOperationsTimeout(logModel, h, linearWithin) {
		case porcupine.Illegal:
			w.fail(lawLinear, "no order of the first %d appends and reads of %s fits", len(h), p)
		case porcupine.Unknown:
			w.undecided++
		case porcupine.Ok:
			w.decided++
		}
	}
}

// reachable leaves out what came into the log behind something that was sent after the cut, unless somebody was
// told of it before: then that something is missing.
func reachable(ops []porcupine.Operation) []porcupine.Operation {
	offset := func(op porcupine.Operation) int { return int(op.Output.(appended).offset) }
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return offset(a) - offset(b) })
	end := 0
	return slices.DeleteFunc(ops, func(op porcupine.Operation) bool {
		if offset(op) == end {
			end += len(op.Input.(appendOp).values)
			return false
		}
		return op.Return == math.MaxInt64
	})
}

// linear makes porcupine's history of a partition. What became of a batch that nobody was told of
// is known in the end, only not when.
func (p *part) linear() []porcupine.Operation {
	cut := math.MaxInt
	if len(p.ops) > linearAppends {
		cut = p.ops[linearAppends].callNo
	}
	number := map[string]uint32{}
	index := func(vs []string) []uint32 {
		out := make([]uint32, len(vs))
		for i, v := range vs {
			if _, ok := number[v]; !ok {
				number[v] = uint32(len(number))
			}
			out[i] = number[v]
		}
		return out
	}
	at := map[string]record.Offset{}
	for o, v := range p.seen {
		at[v] = o
	}
	var ops []porcupine.Operation
	for _, s := range p.ops {
		o, there := at[s.values[0]] // the whole log was read in the end
		if s.callNo >= cut || !there {
			continue
		}
		op := porcupine.Operation{Input: appendOp{index(s.values)}, Call: int64(s.callNo), Output: appended{o}, Return: math.MaxInt64}
		if s.strong && s.retNo < cut {
			op.Output, op.Return = appended{s.offset}, int64(s.retNo)
		}
		ops = append(ops, op)
	}
	ops = reachable(ops)
	for _, f := range p.reads {
		if f.ret < cut {
			ops = append(ops, porcupine.Operation{Input: readOp{f.from}, Call: int64(f.call), Output: listed{index(f.values)}, Return: int64(f.ret)})
		}
	}
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	return ops
}
