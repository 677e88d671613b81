package storage

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"edged/record"
)

// world is a store, a model, and random updates for both.
type world struct {
	t      testing.TB
	rng    *rand.Rand
	fs     *vfs.MemFS
	hooks  *hookFS
	s      *Store
	m      *model
	opts   Options
	nGroup int
	// history holds the digests of all states since the last durable one, that one first.
	// The hooks of the file system read it from other goroutines.
	historyMu sync.Mutex
	history   []digests
	life      uint32
	quiet     atomic.Bool // no camera takes pictures
}

func newWorld(t testing.TB, seed uint64) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), fs: vfs.NewCrashableMem(), m: newModel(), nGroup: 5}
	w.hooks = newHookFS(w.fs)
	w.opts = Options{MemTableSize: minMemTableSize}
	w.s = mustOpen(t, w.hooks, w.opts)
	w.record()
	return w
}

// record starts a history with the model's state.
func (w *world) record() {
	w.durable()
	w.m.step = func() {
		d := w.m.digests()
		w.historyMu.Lock()
		defer w.historyMu.Unlock()
		w.history = append(w.history, d)
	}
}

// durable forgets all states before the model's.
func (w *world) durable() {
	d := w.m.digests()
	w.historyMu.Lock()
	defer w.historyMu.Unlock()
	w.history = []digests{d}
}

// possible are the states that a crash may leave now.
func (w *world) possible() []digests {
	w.historyMu.Lock()
	defer w.historyMu.Unlock()
	return slices.Clone(w.history)
}

// commit applies updates to the model and the store.
func (w *world) commit(sync bool, us ...Update) {
	w.t.Helper()
	w.m.apply(us)
	if err := w.s.Commit(us, sync); err != nil {
		w.t.Fatal(err)
	}
	if sync {
		w.durable()
	}
}

func (w *world) group() record.GroupID { return record.GroupID(w.rng.IntN(w.nGroup)) }

// data is random but tells what it belongs to.
func (w *world) data(index uint64) []byte {
	n := w.rng.IntN(400)
	switch w.rng.IntN(40) {
	case 0:
		n = w.rng.IntN(20_000)
	case 1:
		n = 0
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(w.rng.Uint32())
	}
	return append(b, fmt.Sprintf("entry %d", index)...)
}

// entries makes n entries after index and offset, of term or later.
func (w *world) entries(index, term uint64, next record.Offset, n int) []Entry {
	es := make([]Entry, n)
	for i := range es {
		index++
		if w.rng.IntN(20) == 0 {
			term++
		}
		es[i] = Entry{Index: index, Term: term, Kind: Kind(w.rng.IntN(int(kindEnd))), Data: w.data(index)}
		if w.rng.IntN(3) > 0 {
			es[i].Kind = KindBatch
		}
		if es[i].Kind == KindBatch {
			es[i].BaseOffset, es[i].Count = next, 1+int32(w.rng.IntN(5))
			es[i].MaxTimestamp = int64(index)*10_000 + w.rng.Int64N(100_000)
			next = es[i].End()
		}
	}
	return es
}

func (w *world) checkpoint(g *modelGroup, base, last uint64) *Checkpoint {
	c := &Checkpoint{Applied: max(base, g.checkpoint.Applied), Confs: []ConfAt{{Index: g.checkpoint.confIndex(), Conf: ConfState{Voters: []record.ReplicaID{1, 2}}}}}
	if last > c.Applied {
		c.Applied += w.rng.Uint64N(last - c.Applied + 1)
	}
	c.State = w.data(c.Applied)
	return c
}

func (c *Checkpoint) confIndex() uint64 {
	if len(c.Confs) == 0 {
		return 0
	}
	return c.Confs[0].Index
}

// update makes one random update that the laws allow, against the model with all that
// this commit has staged before it.
func (w *world) update(m *model) Update {
	id := w.group()
	g := m.groups[id]
	u := Update{Group: id, Class: uint8(id % 3)}
	if w.rng.IntN(50) == 0 {
		u.Class = uint8(w.rng.IntN(NumClasses))
	}
	switch {
	case g == nil || w.rng.IntN(60) == 0:
		w.life++
		u.Replica = record.MakeReplicaID(1, w.life)
		base := Base{Index: w.rng.Uint64N(50), Term: 1, NextOffset: record.Offset(w.rng.IntN(100))}
		base.LogStart = base.NextOffset
		u.Reset = &base
		u.Checkpoint = &Checkpoint{Applied: base.Index, NextOffset: base.NextOffset, State: w.data(base.Index)}
		u.HardState = &HardState{Term: 1}
		if w.rng.IntN(2) == 0 {
			u.Entries = w.entries(base.Index, base.Term, base.NextOffset, w.rng.IntN(10))
		}
		return u
	case w.rng.IntN(60) == 0:
		return Update{Group: id, Remove: true}
	}
	if w.rng.IntN(4) == 0 {
		u.HardState = &HardState{Term: g.hs.Term + 1, Vote: record.ReplicaID(w.rng.IntN(3))}
	}
	last, next := g.last(), g.next()
	if w.rng.IntN(4) > 0 {
		from := last
		if lowest := max(g.base.Index, g.checkpoint.Applied); from > lowest && w.rng.IntN(6) == 0 {
			from -= w.rng.Uint64N(min(from-lowest, 120) + 1)
		}
		u.Entries = w.entries(from, g.term(from), g.nextAt(from), 1+w.rng.IntN(12))
		if w.rng.IntN(10) == 0 {
			u.Entries = w.entries(from, g.term(from), g.nextAt(from), 1+w.rng.IntN(150))
		}
		end := u.Entries[len(u.Entries)-1]
		last, next = end.Index, g.nextAt(from)
		for i := range u.Entries {
			next += record.Offset(u.Entries[i].Count)
		}
	}
	switch w.rng.IntN(8) {
	case 0:
		u.Checkpoint = w.checkpoint(g, g.base.Index, last)
	case 1: // the checkpoint goes on as far as it can, the base behind it
		u.Checkpoint = w.checkpoint(g, g.base.Index, last)
		after := modelGroup{base: g.base, entries: g.entries}
		if len(u.Entries) > 0 {
			after.entries = append(g.entries[:u.Entries[0].Index-g.base.Index-1:u.Entries[0].Index-g.base.Index-1], u.Entries...)
		}
		index := g.base.Index + w.rng.Uint64N(u.Checkpoint.Applied-g.base.Index+1)
		b := Base{Index: index, Term: after.term(index), NextOffset: after.nextAt(index)}
		b.LogStart = max(b.NextOffset, g.base.LogStart)
		if b.LogStart < next && w.rng.IntN(3) == 0 {
			b.LogStart++
		}
		u.Base = &b
	}
	return u
}

// randomCommit makes and applies one to four updates, mostly of one group each.
func (w *world) randomCommit(sync bool) {
	w.t.Helper()
	var us []Update
	for range 1 + w.rng.IntN(4) {
		u := w.update(w.m)
		w.m.apply([]Update{u}) // the next one builds on it
		us = append(us, u)
	}
	if err := w.s.Commit(us, sync); err != nil {
		w.t.Fatal(err)
	}
	if sync {
		w.durable()
	}
}

func (w *world) reopen() {
	w.t.Helper()
	mustClose(w.t, w.s)
	w.durable()
	w.s = mustOpen(w.t, w.hooks, w.opts)
}

// crash goes on with what a power cut would have left, which must be a state that was
// committed durably or one of those after it.
func (w *world) crash() {
	w.t.Helper()
	clone := w.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: w.rng.IntN(101), RNG: rand.New(rand.NewPCG(w.rng.Uint64(), 2))})
	mustClose(w.t, w.s)
	s := mustOpen(w.t, clone, w.opts)
	matchHistory(w.t, s, w.possible())
	mustClose(w.t, s)
	w.adopt(clone)
}

// adopt goes on with a store that another one left, and with a model equal to it.
func (w *world) adopt(fs *vfs.MemFS) {
	w.t.Helper()
	w.fs = fs
	w.hooks = newHookFS(fs)
	w.s = mustOpen(w.t, w.hooks, w.opts)
	w.m = newModel()
	w.rebuild()
	w.record()
}

// matchHistory finds the state that the store is in.
func matchHistory(t testing.TB, s *Store, history []digests) int {
	t.Helper()
	got, err := storeDigests(s)
	if err != nil {
		t.Fatal(err)
	}
	for i := len(history) - 1; i >= 0; i-- {
		if history[i].equal(got) {
			return i
		}
	}
	t.Fatalf("the store is in none of the %d states that were possible: %v, durable %v", len(history), got, history[0])
	return 0
}

// rebuild makes the model equal to the store.
func (w *world) rebuild() {
	w.m.groups = map[record.GroupID]*modelGroup{}
	for _, st := range w.s.Groups() {
		g := &modelGroup{replica: st.Replica, class: st.Class, hs: st.HardState, base: st.Base, checkpoint: st.Checkpoint}
		if st.LastIndex > st.Base.Index {
			var err error
			if g.entries, err = w.s.Entries(st.Group, st.Base.Index+1, st.LastIndex+1, 1<<40); err != nil {
				w.t.Fatal(err)
			}
		}
		g.sum = sumEntries(g.entries)
		w.m.groups[st.Group] = g
		w.m.done(st.Group)
	}
}

func (w *world) compare() {
	w.t.Helper()
	for id := range w.nGroup {
		w.m.compare(w.t, w.s, record.GroupID(id), w.rng)
	}
}

func (w *world) reclaim() {
	w.t.Helper()
	if _, err := w.s.Reclaim(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) verify(fs vfs.FS) {
	w.t.Helper()
	r, err := Verify(fs, "data")
	if err != nil || len(r.Problems) > 0 {
		w.t.Fatalf("verify: %v %q", err, r.Problems)
	}
}

// TestEqualToModel: whatever is committed, and whether the store is closed, loses power or
// gives space back, it answers as slices in memory do.
func TestEqualToModel(t *testing.T) {
	for seed := range seeds(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, seed)
			for i := range 400 {
				w.randomCommit(w.rng.IntN(3) == 0)
				switch w.rng.IntN(25) {
				case 0:
					w.reopen()
				case 1:
					w.crash()
				case 2, 3:
					w.reclaim()
				case 4, 5, 6, 7, 8:
					w.compare()
				}
				if i%100 == 99 {
					mustClose(t, w.s)
					w.durable()
					w.verify(w.fs)
					w.s = mustOpen(t, w.hooks, w.opts)
					w.compare()
				}
			}
			mustClose(t, w.s)
		})
	}
}
