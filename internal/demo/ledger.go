package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"edged/client"
	"edged/record"
)

// ledger remembers what was sent and what was acknowledged, to hold the topic against.
type ledger struct {
	mu      sync.Mutex
	sent    map[int64][]byte // by seq: the whole record
	acked   map[int64]place
	failed  int
	failure error // the first
	news    map[int32]*ackNews
}

// place is where an acknowledgement said that a record is.
type place struct {
	partition int32
	offset    record.Offset
}

// ackNews waits for the first acknowledgement of a partition under a newer leader epoch.
type ackNews struct {
	newerThan record.Epoch
	at        time.Time // of that acknowledgement, zero before
	epoch     record.Epoch
}

func newLedger() *ledger {
	return &ledger{sent: map[int64][]byte{}, acked: map[int64]place{}, news: map[int32]*ackNews{}}
}

func (l *ledger) send(r reading) []byte {
	line := r.line()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent[r.Seq] = line
	return line
}

// answered hears what became of a record.
func (l *ledger) answered(seq int64, a client.Ack) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.Err != nil {
		l.failed++
		if l.failure == nil {
			l.failure = fmt.Errorf("record %d: %w", seq, a.Err)
		}
		return
	}
	l.acked[seq] = place{a.Partition, a.Offset}
	if n := l.news[a.Partition]; n != nil && n.at.IsZero() && a.Epoch > n.newerThan {
		n.at, n.epoch = now, a.Epoch
	}
}

// await asks to note when a record of the partition is acknowledged under a newer epoch.
func (l *ledger) await(partition int32, epoch record.Epoch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.news[partition] = &ackNews{newerThan: epoch}
}

func (l *ledger) heard(partition int32) ackNews {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *l.news[partition]
}

func (l *ledger) ackedCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// verdict is what came of the comparison. All but read and unanswered should be 0.
type verdict struct {
	read       int // records read back
	lost       int // acknowledged and not there
	doubled    int // there more than once
	misplaced  int // not where the acknowledgement said, or out of order in their partition
	altered    int // not what was sent
	unanswered int // there without an acknowledgement: kept, but nobody was told
	first      string
}

func (v *verdict) note(count *int, format string, args ...any) {
	*count++
	if v.first == "" {
		v.first = fmt.Sprintf(format, args...)
	}
}

func (v *verdict) bad() bool { return v.lost+v.doubled+v.misplaced+v.altered > 0 }

// compare holds what was read, each partition in the order of its offsets, against what
// was sent and acknowledged. seqOf finds the number of a record in its value.
func (l *ledger) compare(partitions map[int32][]client.Message, seqOf func([]byte) (int64, error)) verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	var v verdict
	seen := map[int64]bool{}
	for _, p := range slices.Sorted(maps.Keys(partitions)) {
		last := int64(-1)
		for _, m := range partitions[p] {
			v.read++
			seq, err := seqOf(m.Value)
			if err != nil || !bytes.Equal(l.sent[seq], m.Value) {
				v.note(&v.altered, "partition %d offset %d holds %q, which was not sent", p, m.Offset, m.Value)
				continue
			}
			if seen[seq] {
				v.note(&v.doubled, "record %d is there again at partition %d offset %d", seq, p, m.Offset)
				continue
			}
			seen[seq] = true
			said, acked := l.acked[seq]
			switch {
			case !acked:
				v.unanswered++
			case said.partition != p || said.offset >= 0 && said.offset != m.Offset:
				v.note(&v.misplaced, "record %d is at partition %d offset %d, the acknowledgement said %d and %d", seq, p, m.Offset, said.partition, said.offset)
			case seq < last:
				v.note(&v.misplaced, "record %d stands behind %d in partition %d", seq, last, p)
			}
			last = max(last, seq)
		}
	}
	for seq, at := range l.acked {
		if !seen[seq] {
			v.note(&v.lost, "record %d was acknowledged at partition %d offset %d and is not there", seq, at.partition, at.offset)
		}
	}
	return v
}
