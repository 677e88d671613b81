package groups

import (
	"fmt"
	"testing"
	"time"

	"edged/record"
)

// BenchmarkApply commits ten partitions of a group that reads a hundred.
func BenchmarkApply(b *testing.B) {
	s := New()
	var parts []Commit
	for p := range int32(100) {
		parts = append(parts, Commit{Partition: p, Offset: 1})
	}
	s.Apply(1, mustEncode(b, 0, &CommitOffsets{"g", 1, []TopicCommit{{"t", 1, parts}}}))
	data := mustEncode(b, 0, &CommitOffsets{"g", 1, []TopicCommit{{"t", 1, parts[:10]}}})
	b.ReportAllocs()
	index := uint64(1)
	for b.Loop() {
		index++
		s.Apply(index, data)
	}
}

// BenchmarkSnapshot writes and reads a state that is full.
func BenchmarkSnapshot(b *testing.B) {
	s := New()
	for g := range 300 {
		var parts []Commit
		for p := range int32(100) {
			parts = append(parts, Commit{Partition: p, Offset: record.Offset(p) * 1e6})
		}
		s.Apply(uint64(g+1), mustEncode(b, 0, &CommitOffsets{fmt.Sprint("group-", g), plausible, []TopicCommit{{"t", 1, parts}}}))
	}
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			b.SetBytes(int64(len(s.Snapshot())))
		}
	})
	snapshot := s.Snapshot()
	b.Run("read", func(b *testing.B) {
		b.SetBytes(int64(len(snapshot)))
		for b.Loop() {
			if err := New().Restore(snapshot); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkHeartbeat keeps the members of a thousand groups alive.
func BenchmarkHeartbeat(b *testing.B) {
	w := newWorld(b)
	w.timing.InitialDelay = 0
	w.lead()
	var ids []Identity
	for g := range 1000 {
		id := Identity{Group: fmt.Sprint("g", g)}
		w.c.Join(JoinRequest{Group: id.Group, ProtocolType: "consumer", Protocols: []Protocol{{"range", consumer("t")}}, Session: 45 * time.Second}, func(r JoinResult) {
			id.Member, id.Generation = r.Member, r.Generation
		})
		w.c.Sync(SyncRequest{Identity: id}, func(SyncResult) {})
		w.settle()
		ids = append(ids, id)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		w.now += time.Millisecond
		w.c.Advance(w.now)
		if err := w.c.Heartbeat(ids[i%len(ids)]); err != nil {
			b.Fatal(err)
		}
		i++
	}
}
