package storage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"edged/record"
)

// TestReadersBesideTheWriter: readers in any number, Reclaim and metrics run beside a writer
// that appends, replaces suffixes, moves bases, resets, removes and makes groups again.
// Each reader sees one state as a whole: entries that follow each other and say what they are.
func TestReadersBesideTheWriter(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), Options{MemTableSize: minMemTableSize})
	const groups = 4
	var stop atomic.Bool
	var reads atomic.Int64
	var wg sync.WaitGroup
	for n := range 3 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(n), 1))
			for !stop.Load() {
				if err := readSomething(s, record.GroupID(rng.IntN(groups)), rng); err != nil {
					t.Error(err)
					return
				}
				reads.Add(1)
			}
		})
	}
	wg.Go(func() {
		for !stop.Load() {
			if _, err := s.Reclaim(); err != nil {
				t.Error(err)
				return
			}
			_ = s.Metrics()
		}
	})
	rng := rand.New(rand.NewPCG(9, 9))
	m := newModel()
	for i := 0; i < 800 && !t.Failed(); i++ {
		u := plainUpdate(m, record.GroupID(rng.IntN(groups)), rng)
		m.apply([]Update{u})
		if err := s.Commit([]Update{u}, i%4 == 0); err != nil {
			t.Error(err)
		}
	}
	stop.Store(true)
	wg.Wait()
	if reads.Load() < 100 {
		t.Errorf("only %d reads", reads.Load())
	}
	mustClose(t, s)
}

// plainUpdate makes updates whose entries say what they are.
func plainUpdate(m *model, id record.GroupID, rng *rand.Rand) Update {
	g := m.groups[id]
	entries := func(after, term uint64, next record.Offset) []Entry {
		es := make([]Entry, 1+rng.IntN(20))
		for i := range es {
			data := fmt.Sprintf("%d/%d/%d/", after+1+uint64(i), term, next)
			es[i] = Entry{Index: after + 1 + uint64(i), Term: term, Kind: KindBatch, BaseOffset: next, Count: 3, MaxTimestamp: int64(next),
				Data: []byte(data + strings.Repeat("x", rng.IntN(600)))}
			next += 3
		}
		return es
	}
	switch {
	case g == nil || rng.IntN(80) == 0:
		return Update{Group: id, Reset: &Base{}, Checkpoint: &Checkpoint{}, Entries: entries(0, 1, 0)}
	case rng.IntN(80) == 0:
		return Update{Group: id, Remove: true}
	case rng.IntN(5) == 0 && g.last() > g.checkpoint.Applied:
		from := g.checkpoint.Applied + rng.Uint64N(g.last()-g.checkpoint.Applied)
		return Update{Group: id, Entries: entries(from, g.term(g.last())+1, g.nextAt(from))}
	case rng.IntN(5) == 0 && g.last() > g.base.Index:
		to := g.base.Index + rng.Uint64N(g.last()-g.base.Index) + 1
		c := Checkpoint{Applied: max(to, g.checkpoint.Applied)}
		return Update{Group: id, Base: &Base{Index: to, Term: g.term(to), NextOffset: g.nextAt(to), LogStart: g.nextAt(to)}, Checkpoint: &c}
	}
	return Update{Group: id, Entries: entries(g.last(), max(1, g.term(g.last())), g.next())}
}

func readSomething(s *Store, id record.GroupID, rng *rand.Rand) error {
	st, ok := s.State(id)
	if !ok {
		return nil
	}
	if st.Err != nil {
		return st.Err
	}
	es, err := s.Entries(id, st.Base.Index+1, st.LastIndex+1, 1<<40)
	if err != nil && !harmless(err) {
		return err
	}
	next := record.Offset(-1)
	for i := range es {
		e := &es[i]
		says := fmt.Sprintf("%d/%d/%d/", e.Index, e.Term, e.BaseOffset)
		if !strings.HasPrefix(string(e.Data), says) || next >= 0 && e.BaseOffset != next {
			return fmt.Errorf("group %d: entry %q, offset %d, wanted %q", id, e.Data[:min(20, len(e.Data))], next, says)
		}
		next = e.End()
	}
	from := st.Base.LogStart + record.Offset(rng.IntN(100))
	out, next, err := s.ReadFrom(id, from, st.NextOffset, 5000, nil)
	if err != nil && !harmless(err) {
		return err
	}
	if err == nil && (len(out) == 0) != (next == from) {
		return fmt.Errorf("group %d: %d bytes from %d to %d", id, len(out), from, next)
	}
	if _, _, _, err := s.OffsetForTime(id, int64(from), st.NextOffset); err != nil && !harmless(err) {
		return err
	}
	s.RetentionPoint(id, 0, rng.Int64N(10_000), st.NextOffset)
	s.EpochEnd(id, record.Epoch(newestTerm(st)), st.NextOffset)
	return nil
}

// newestTerm is the newest term, 0 if there is none.
func newestTerm(st GroupState) uint64 {
	if len(st.TermRuns) == 0 {
		return 0
	}
	return st.TermRuns[len(st.TermRuns)-1].Term
}

// harmless are the errors of a reader that came a moment too late.
func harmless(err error) bool {
	for _, e := range []error{ErrUnknownGroup, ErrCompacted, ErrUnavailable, record.ErrOffsetOutOfRange} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// TestReadersDoNotWaitForTheSync: a hanging disk must not keep anybody from reading.
func TestReadersDoNotWaitForTheSync(t *testing.T) {
	fs := newHookFS(vfs.NewMem())
	s := mustOpen(t, fs, Options{})
	mustCommit(t, s, create(1), Update{Group: 1, Entries: batches(1, 1, 0, 10, 100)})
	hang, hangs := make(chan struct{}), make(chan struct{})
	var once sync.Once
	fs.set(func(op fsOp) error {
		if op.is(opSync, "*.log") && !op.after {
			once.Do(func() { close(hangs) })
			<-hang
		}
		return nil
	})
	done := make(chan error, 1)
	go func() { // with a deletion, for which readers are held off while it is applied
		done <- s.Commit([]Update{{Group: 1, Entries: batches(5, 2, 8, 3, 100)}}, true)
	}()
	<-hangs
	if es, err := s.Entries(1, 1, 5, 1<<20); err != nil || len(es) != 4 {
		t.Error(err)
	}
	if _, _, err := s.ReadFrom(1, 0, 8, 1<<20, nil); err != nil {
		t.Error(err)
	}
	if st, ok := s.State(1); !ok || st.Err != nil {
		t.Error(st.Err)
	}
	select {
	case err := <-done:
		t.Error("the commit did not wait", err)
	default:
	}
	close(hang)
	if err := <-done; err != nil {
		t.Error(err)
	}
	fs.set(nil)
	mustClose(t, s)
}

// TestCloseWaitsForReaders and refuses what comes after it.
func TestCloseWaitsForReaders(t *testing.T) {
	fs := newHookFS(vfs.NewMem())
	s := mustOpen(t, fs, Options{MemTableSize: minMemTableSize, CacheSize: 1 << 16})
	mustCommit(t, s, create(1))
	for i := range uint64(40) {
		mustCommit(t, s, Update{Group: 1, Entries: batches(1+10*i, 1, record.Offset(20*i), 10, 1000)})
	}
	started, goOn := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		n := 0
		done <- s.Headers(1, 1, 401, func(Entry, int64) error {
			if n++; n == 5 {
				close(started)
				<-goOn
			}
			return nil
		})
	}()
	<-started
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	for s.begin() == nil { // until Close has begun
		s.using.Done()
	}
	select {
	case <-closed:
		t.Fatal("Close did not wait")
	default:
	}
	close(goOn)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, err := s.Entries(1, 1, 2, 1); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := s.Commit(nil, true); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := s.Reclaim(); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := s.Close(); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	_ = s.Metrics()
}
