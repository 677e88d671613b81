package storage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"edged/record"
)

// harmed builds a store with a good mixture of everything, and gives the state it must be in, and
// those that its last commit went through. With live the last bucket is only in the log, as
// after a power cut.
func harmed(t *testing.T, seed uint64, live bool) (fs *vfs.MemFS, final digests, last []digests) {
	w := newWorld(t, seed)
	for range 150 {
		w.randomCommit(true)
	}
	w.reopen()
	for range 20 {
		w.randomCommit(true)
	}
	u := w.update(w.m)
	w.m.apply([]Update{u})
	last = w.possible()
	if err := w.s.Commit([]Update{u}, true); err != nil {
		t.Fatal(err)
	}
	w.waitFlushed()
	if live {
		fs = w.fs.CrashClone(vfs.CrashCloneCfg{})
		mustClose(t, w.s)
		return fs, w.m.digests(), last
	}
	w.reopen()
	mustClose(t, w.s)
	return w.fs, w.m.digests(), last
}

// verdict is what became of a store after harm.
type verdict struct {
	refused error
	damaged int // groups that are, or that have entries that are
	whole   int
}

// judge opens a harmed store and asks for everything: an answer must be the right one, an error a named one.
// final is what was there; also allowed are some other states, each as a whole.
func judge(t *testing.T, fs vfs.FS, final digests, others ...digests) (v verdict) {
	t.Helper()
	s, err := Open("data", fs, Options{MemTableSize: minMemTableSize})
	if err != nil {
		if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrLostTail) && !errors.Is(err, ErrNotOurs) && !errors.Is(err, ErrNewerFormat) || strings.Contains(err.Error(), "\n") {
			t.Fatalf("not a named error: %v", err)
		}
		return verdict{refused: err}
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}()
	got := digests{}
	for _, st := range s.Groups() {
		var es []Entry
		err := st.Err
		if err == nil && st.LastIndex > st.Base.Index {
			es, err = s.Entries(st.Group, st.Base.Index+1, st.LastIndex+1, 1<<40)
		}
		if err != nil {
			var c *CorruptError
			if !errors.As(err, &c) || !errors.Is(err, record.ErrDamaged) || !errors.Is(err, record.ErrCorrupt) || c.Group != st.Group || strings.Contains(err.Error(), "\n") {
				t.Fatalf("not a named error: %v", err)
			}
			if st, _ := s.State(st.Group); st.Err == nil {
				t.Fatalf("group %d: the damage was forgotten", st.Group)
			}
			v.damaged++
			got[st.Group] = 0
			continue
		}
		v.whole++
		got[st.Group] = digest(st.Replica, st.Class, st.HardState, st.Base, st.Checkpoint, len(es), sumEntries(es))
	}
	right := func(want digests) bool {
		for id, n := range got {
			if n != 0 && want[id] != n {
				return false
			}
		}
		return len(got) == len(want)
	}
	if !right(final) && !slices.ContainsFunc(others, right) {
		t.Fatalf("wrong answers: %v, want %v", got, final)
	}
	return v
}

// TestFlippedBits: one bit of one file is turned. Whatever the file and the place, nothing that
// is read is wrong.
func TestFlippedBits(t *testing.T) {
	for _, live := range []bool{false, true} {
		t.Run(fmt.Sprintf("live=%v", live), func(t *testing.T) {
			counts := map[string]*struct{ flips, refused, damaged, unnoticed int }{}
			for seed := range seeds(2) {
				fs, final, last := harmed(t, seed, live)
				rng := rand.New(rand.NewPCG(seed, 9))
				for range 30 {
					parts := []string{".sst", ".sst", "MANIFEST-", "marker.", "OPTIONS-", markName, ".log"}
					files := append(listFiles(fs, "data/store", parts[rng.IntN(7)]), listFiles(fs, "data/store/wal", ".log")...)
					path := files[rng.IntN(len(files))]
					data := usedPart(t, fs, path)
					if len(data) == 0 {
						continue
					}
					kind := strings.TrimRight(filepath.Base(path), "0123456789.")
					kind = strings.TrimLeft(kind, "0123456789")
					if counts[kind] == nil {
						counts[kind] = &struct{ flips, refused, damaged, unnoticed int }{}
					}
					c := counts[kind]
					c.flips++
					hurt := fs.CrashClone(vfs.CrashCloneCfg{})
					flip(t, hurt, path, rng.IntN(len(data)))
					var others []digests
					if strings.HasSuffix(path, ".log") {
						others = last // the last record of a log cannot be told from a torn one
					}
					switch v := judge(t, hurt, final, others...); {
					case v.refused != nil:
						c.refused++
					case v.damaged > 0:
						c.damaged++
					default:
						c.unnoticed++
					}
				}
			}
			for kind, c := range counts {
				t.Logf("%-22s %+v", kind, *c)
			}
		})
	}
}

// usedPart is a file without the zeros at its end.
func usedPart(t *testing.T, fs vfs.FS, path string) []byte {
	info, err := fs.Stat(path)
	if err != nil || info.IsDir() {
		return nil
	}
	data := readFile(t, fs, path)
	return data[:len(strings.TrimRight(string(data), "\x00"))]
}

// TestHarmedFiles: the ways in which cards spoil more than a bit.
func TestHarmedFiles(t *testing.T) {
	newest := func(fs vfs.FS, part string) string {
		files := listFiles(fs, "data/store", part)
		return files[len(files)-1]
	}
	change := func(f func(b []byte) []byte) func(t *testing.T, fs vfs.FS, path string) {
		return func(t *testing.T, fs vfs.FS, path string) { writeFile(t, fs, path, f(readFile(t, fs, path))) }
	}
	cut := change(func(b []byte) []byte { return b[:len(b)/2] })
	zero := change(func(b []byte) []byte { clear(b[min(len(b)/2, 4096):min(len(b), len(b)/2+4096)]); return b })
	gone := func(t *testing.T, fs vfs.FS, path string) {
		if err := fs.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, part string
		harm       func(t *testing.T, fs vfs.FS, path string)
		refused    bool
	}{
		{"table cut", ".sst", cut, true},
		{"table gone", ".sst", gone, true},
		{"table with a zero page", ".sst", zero, false},
		{"manifest cut", "MANIFEST-", cut, true},
		{"manifest empty", "MANIFEST-", change(func([]byte) []byte { return nil }), true},
		{"manifest gone", "MANIFEST-", gone, true},
		{"mark gone", markName, gone, false},
		{"mark empty", markName, change(func([]byte) []byte { return nil }), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs, final, _ := harmed(t, 3, false)
			c.harm(t, fs, newest(fs, c.part))
			if v := judge(t, fs, final); c.refused != (v.refused != nil) {
				t.Fatalf("%+v", v)
			} else {
				t.Log(v)
			}
		})
	}
}

// TestLostEndOfManifest: the engine opens happily without the newest tables if the end of the
// manifest is gone. Every place where it may end is tried.
func TestLostEndOfManifest(t *testing.T) {
	mem := vfs.NewCrashableMem()
	s := mustOpen(t, mem, Options{MemTableSize: minMemTableSize})
	mustCommit(t, s, create(1))
	for i := range uint64(72) { // few enough buckets that the engine compacts nothing and misses no table
		mustCommit(t, s, Update{Group: 1, Entries: batches(1+10*i, 1, record.Offset(20*i), 10, 500)})
	}
	mustCommit(t, s, Update{Group: 1, HardState: &HardState{Term: 5, Vote: 2}})
	if s.w.flushed != nil {
		<-s.w.flushed
	}
	s.waiters.Wait() // the mark is raised
	fs := mem.CrashClone(vfs.CrashCloneCfg{})
	final, err := storeDigests(s)
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	manifests := listFiles(fs, "data/store", "MANIFEST-")
	path := manifests[len(manifests)-1]
	size := len(readFile(t, fs, path))
	refusedFor := map[error]int{}
	for end := 0; end < size; end += 1 + size/150 {
		hurt := fs.CrashClone(vfs.CrashCloneCfg{})
		writeFile(t, hurt, path, readFile(t, hurt, path)[:end])
		v := judge(t, hurt, final)
		for _, e := range []error{ErrDamaged, ErrLostTail} {
			if errors.Is(v.refused, e) {
				refusedFor[e]++
			}
		}
	}
	t.Log(refusedFor)
	if refusedFor[ErrLostTail] == 0 {
		t.Error("no gap of buckets was ever seen")
	}
	// The logs are gone too: then nothing inside the store shows that there was more.
	for _, log := range listFiles(fs, "data/store/wal", ".log") {
		if err := fs.Remove(log); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, fs, path, readFile(t, fs, path)[:size*2/3])
	if v := judge(t, fs, final); !errors.Is(v.refused, ErrLostTail) || !strings.Contains(v.refused.Error(), "was complete") {
		t.Errorf("the mark did not help: %v", v)
	}
}

// TestMarkSurvivesATornSlot: the mark of the bucket before counts then.
func TestMarkSurvivesATornSlot(t *testing.T) {
	fs := vfs.NewMem()
	m, err := openMark(fs, "", false)
	if err != nil {
		t.Fatal(err)
	}
	for b := uint32(1); b < 6; b++ {
		if err := m.raise(b); err != nil {
			t.Fatal(err)
		}
		if err := m.raise(b - 1); err != nil || m.value() != b {
			t.Fatal("the mark went back")
		}
	}
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
	for slot, want := range map[int]uint32{0: 5, 1: 4} {
		hurt := vfs.NewMem()
		writeFile(t, hurt, markName, readFile(t, fs, markName))
		flip(t, hurt, markName, slot*markSlot+13)
		m, err := openMark(hurt, "", true)
		if err != nil || m.value() != want {
			t.Fatal(m.value(), err)
		}
	}
}

// TestDamagedGroupIsContained: it takes no updates and answers no reads, the others do; it can
// be removed, or healed by a base from elsewhere.
func TestDamagedGroupIsContained(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, fs, Options{})
	for g := record.GroupID(1); g <= 3; g++ {
		mustCommit(t, s, create(g), Update{Group: g, Entries: batches(1, 1, 0, 10, 100)})
	}
	for _, g := range []record.GroupID{1, 2} {
		key := appendMetaKey(nil, g, metaHardState)
		if err := s.db.Set(key, []byte("not what was written"), nil); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, s)
	s = mustOpen(t, fs, Options{})
	for _, g := range []record.GroupID{1, 2} {
		st, ok := s.State(g)
		var c *CorruptError
		if !ok || !errors.As(st.Err, &c) || c.Group != g || !strings.Contains(st.Err.Error(), "hard state") {
			t.Fatal(st.Err)
		}
		if _, err := s.Entries(g, 1, 2, 1); !errors.As(err, &c) {
			t.Fatal(err)
		}
		if err := s.Commit([]Update{{Group: g, Entries: batches(11, 1, 20, 1, 10)}}, true); !errors.Is(err, ErrBadUpdate) {
			t.Fatal(err)
		}
	}
	mustCommit(t, s, Update{Group: 3, Entries: batches(11, 1, 20, 1, 10)})
	mustCommit(t, s, Update{Group: 1, Remove: true}, create(2), Update{Group: 2, Entries: batches(1, 1, 0, 5, 10)})
	for range 2 {
		if _, ok := s.State(1); ok {
			t.Fatal("group 1 is there")
		}
		if st, ok := s.State(2); !ok || st.Err != nil || st.LastIndex != 5 {
			t.Fatalf("%+v", st)
		}
		mustClose(t, s)
		if r, err := Verify(fs, "data"); err != nil || len(r.Problems) > 0 {
			t.Fatal(err, r.Problems)
		}
		s = mustOpen(t, fs, Options{})
	}
	mustClose(t, s)
}

// TestHardStateGoneIsDamage: a log whose vote is forgotten must not vote again.
func TestHardStateGoneIsDamage(t *testing.T) {
	for _, kind := range []byte{metaGroup, metaHardState, metaBase, metaCheckpoint} {
		fs := vfs.NewMem()
		s := mustOpen(t, fs, Options{})
		mustCommit(t, s, create(1), Update{Group: 1, Entries: batches(1, 1, 0, 10, 100)})
		if err := s.db.Delete(appendMetaKey(nil, 1, kind), nil); err != nil {
			t.Fatal(err)
		}
		mustClose(t, s)
		s = mustOpen(t, fs, Options{})
		if st, ok := s.State(1); !ok || !errors.Is(st.Err, errMissing) {
			t.Fatalf("%c: %+v", kind, st)
		}
		mustClose(t, s)
	}
}

// TestLostDirectoryKeysAreDamage: any one key that is gone from a group's directory, runs or
// entries is noticed, at open, by Verify or by the read.
func TestLostKeysAreDamage(t *testing.T) {
	fs := vfs.NewCrashableMem()
	w := &world{t: t, rng: rand.New(rand.NewPCG(1, 1)), fs: fs, hooks: newHookFS(fs), m: newModel(), nGroup: 2, opts: Options{MemTableSize: minMemTableSize}}
	w.s = mustOpen(t, w.hooks, w.opts)
	w.record()
	for range 60 {
		w.randomCommit(true)
	}
	mustClose(t, w.s)
	var keys [][]byte
	s := mustOpen(t, fs, w.opts)
	it, err := s.db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		sl, g, index, isLog := parseLogKey(it.Key())
		p := s.mu.groups[g]
		live := isLog && p != nil && index > p.base.Index && index < p.last && p.segment(p.segmentOf(index)).slot == sl
		// Without the newest of its directory or its runs the log is a shorter one. The engine loses
		// blocks and tables, and notices; it does not lose single keys.
		if g, kind, n, ok := parseMetaKey(it.Key()); ok {
			runs := s.mu.groups[g].runs
			live = kind != metaRun || n != runs[len(runs)-1].Index
		}
		if bucket, g, note, ok := parseDirKey(it.Key()); ok {
			live = note
			if p := s.mu.groups[g]; p != nil && !note {
				for i := range p.dirs[:max(1, len(p.dirs))-1] {
					live = live || p.dirs[i].slot.bucket() == bucket
				}
			}
		}
		if live {
			keys = append(keys, append([]byte(nil), it.Key()...))
		}
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	for i, key := range keys {
		if i%7 > 0 && key[0] == prefixLog {
			continue
		}
		hurt := fs.CrashClone(vfs.CrashCloneCfg{})
		s := mustOpen(t, hurt, w.opts)
		if err := s.db.Delete(key, nil); err != nil {
			t.Fatal(err)
		}
		mustClose(t, s)
		if r, err := Verify(hurt, "data"); err == nil && len(r.Problems) == 0 || err != nil && !errors.Is(err, ErrLostTail) && !errors.Is(err, ErrNotOurs) {
			t.Fatalf("key %x is gone and nobody notices: %v", key, err)
		}
	}
}
