package storage

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"edged/record"
)

func mustOpen(t testing.TB, fs vfs.FS, o Options) *Store {
	t.Helper()
	s, err := Open("data", fs, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustClose(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func mustCommit(t testing.TB, s *Store, us ...Update) {
	t.Helper()
	if err := s.Commit(us, true); err != nil {
		t.Fatal(err)
	}
}

func create(g record.GroupID) Update {
	return Update{Group: g, Replica: record.MakeReplicaID(1, 1), Reset: &Base{}, Checkpoint: &Checkpoint{}}
}

// batches makes n entries of size bytes, from index and offset on.
func batches(index, term uint64, offset record.Offset, n, size int) []Entry {
	es := make([]Entry, n)
	for i := range es {
		data := make([]byte, size)
		copy(data, fmt.Sprintf("%d/%d/%d", index, term, offset))
		es[i] = Entry{Index: index, Term: term, Kind: KindBatch, BaseOffset: offset, Count: 2, MaxTimestamp: int64(1000 + index), Data: data}
		index++
		offset += 2
	}
	return es
}

func TestSaveReadReopen(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, fs, Options{MemTableSize: 256 << 10})
	mustCommit(t, s, create(7), Update{Group: 7, HardState: &HardState{Term: 3, Vote: 9}, Entries: batches(1, 3, 0, 1000, 1000)})
	for range 2 {
		es, err := s.Entries(7, 1, 1001, 1<<30)
		if err != nil || len(es) != 1000 {
			t.Fatal(len(es), err)
		}
		out, next, err := s.ReadFrom(7, 1001, 1500, 1<<30, nil)
		if err != nil || next != 1500 || len(out) != 250*1000 {
			t.Fatal(len(out), next, err)
		}
		st, ok := s.State(7)
		if !ok || st.Err != nil || st.LastIndex != 1000 || st.NextOffset != 2000 || st.HardState.Term != 3 || len(st.TermRuns) != 1 || s.Size(7) != 1e6 {
			t.Fatalf("%+v", st)
		}
		o, ts, ok, err := s.OffsetForTime(7, 1501, 2000)
		if err != nil || !ok || ts != 1501 || o != 1000 {
			t.Fatal(o, ts, ok, err)
		}
		mustClose(t, s)
		s = mustOpen(t, fs, Options{})
	}
	mustClose(t, s)
}
