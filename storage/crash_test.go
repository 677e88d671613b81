package storage

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"edged/record"
)

// crashPoint is a place where power may go, numbered as in README.md. While act runs, a
// copy of what the disk would hold is taken at operations that match; each must open, be in a
// state that was possible at that moment, keep all laws, and be able to go on.
type crashPoint struct {
	number int
	name   string
	tear   bool
	match  func(op fsOp) bool
	act    func(w *world)
}

func logWrite(op fsOp) bool { return op.is(opWrite, "*.log") }

var crashPoints = []crashPoint{
	{1, "before a batch is in the log", false, func(op fsOp) bool { return logWrite(op) && !op.after }, commits},
	{2, "half of a batch is in the log", true, func(op fsOp) bool { return op.is(opTorn, "*.log") }, commits},
	{3, "a batch is written but not synced", false, func(op fsOp) bool { return logWrite(op) && op.after }, commits},
	{4, "a batch is synced, Commit has not returned", false, func(op fsOp) bool { return op.is(opSync, "*.log") && op.after }, commits},
	{5, "between the batches of a large commit", false, logWrite, largeCommits},
	{6, "while a suffix is replaced, in the open bucket and in older ones", true,
		func(op fsOp) bool { return logWrite(op) || op.is(opTorn, "*.log") || op.is(opSync, "*.log") }, truncations},
	{7, "after commits without sync", false, func(op fsOp) bool { return logWrite(op) && op.after }, unsyncedCommits},
	{8, "a bucket is closed, the next log is not made", false,
		func(op fsOp) bool { return (op.is(opCreate, "*.log") || op.is(opReuse, "*.log")) && !op.after }, buckets},
	{9, "the next log is made, its directory entry is not synced", false,
		func(op fsOp) bool { return (op.is(opCreate, "*.log") || op.is(opReuse, "*.log")) && op.after }, buckets},
	{10, "half of a table is written", true, func(op fsOp) bool { return op.is(opTorn, "*.sst") }, buckets},
	{11, "a table is synced, the manifest does not name it", false,
		func(op fsOp) bool {
			return op.is(opSync, "*.sst") && op.after || op.is(opWrite, "MANIFEST-*") && !op.after
		}, buckets},
	{12, "the manifest names a table but is not synced", true,
		func(op fsOp) bool { return op.is(opTorn, "MANIFEST-*") || op.is(opWrite, "MANIFEST-*") && op.after }, buckets},
	{13, "the manifest is synced, the old log is still there", false,
		func(op fsOp) bool { return op.is(opSync, "MANIFEST-*") && op.after }, buckets},
	{14, "an old log is used again or removed", false,
		func(op fsOp) bool { return op.is(opReuse, "*.log") || op.is(opRemove, "*.log") }, buckets},
	{15, "the mark of complete buckets is written", false,
		func(op fsOp) bool { return op.is(opWrite, markName) || op.is(opSync, markName) }, buckets},
	{16, "a base was moved without sync, and Reclaim ran", false, func(op fsOp) bool { return op.kind == opSync && op.after }, unsyncedBases},
	{17, "Reclaim writes the manifest", true,
		func(op fsOp) bool {
			return op.is(opWrite, "MANIFEST-*") || op.is(opTorn, "MANIFEST-*") || op.is(opSync, "MANIFEST-*")
		}, reclaims},
	{18, "Reclaim's tables are removed", false, func(op fsOp) bool { return op.is(opRemove, "*.sst") }, reclaims},
	{19, "while a group is reset", true, func(op fsOp) bool { return logWrite(op) || op.is(opTorn, "*.log") }, resets},
	{20, "while a group is removed", true, func(op fsOp) bool { return logWrite(op) || op.is(opTorn, "*.log") }, removals},
	{21, "during the first start", true, func(op fsOp) bool { return op.kind != opRead }, nil},
	{22, "during a start that replays the log", true, func(op fsOp) bool { return op.kind != opRead && op.kind != opOpen }, restarts},
	{23, "during a compaction of meta keys", true,
		func(op fsOp) bool {
			return op.is(opTorn, "*.sst") || op.is(opSync, "*.sst") || op.is(opWrite, "MANIFEST-*") || op.is(opRemove, "*.sst")
		}, compactions},
	{28, "while Reclaim writes a sparse bucket anew", true,
		func(op fsOp) bool {
			return op.name == rewriteName
		}, sparseReclaims},
	{28, "a sparse bucket's new table takes its place", true,
		func(op fsOp) bool {
			return op.is(opTorn, "MANIFEST-*") || op.is(opSync, "MANIFEST-*") || op.is(opRemove, "*.sst")
		}, sparseReclaims},
	{27, "while a base moves, with its checkpoint", true, func(op fsOp) bool { return logWrite(op) || op.is(opTorn, "*.log") }, bases},
}

// snapshot is a disk after a crash with the states that it may be in.
type snapshot struct {
	fs       *vfs.MemFS
	possible []digests
	at       fsOp
}

// camera takes snapshots.
type camera struct {
	w     *world
	match func(fsOp) bool

	mu    sync.Mutex
	rng   *rand.Rand
	every int
	shots []snapshot
}

const maxShots = 3 // per run

func (c *camera) hook(op fsOp) error {
	if c.w.quiet.Load() || !c.match(op) {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.shots) >= maxShots || c.rng.IntN(c.every) > 0 {
		return nil
	}
	percent := []int{0, 100, c.rng.IntN(101)}[c.rng.IntN(3)]
	if op.kind == opTorn && c.rng.IntN(4) > 0 {
		percent = 100 // else the half would hardly ever be there
	}
	possible := c.w.possible()
	clone := c.w.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(c.rng.Uint64(), 3))})
	c.shots = append(c.shots, snapshot{clone, possible, op})
	return nil
}

func (c *camera) done() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.shots) >= maxShots
}

// moreSeeds multiplies what the random tests do.
var moreSeeds = flag.Uint64("seeds", 1, "how many times the usual number of seeds to run")

func seeds(usual uint64) uint64 {
	if underRace || testing.Short() { // -short is for an emulated board, which is many times slower
		usual = (usual + 3) / 4
	}
	return usual * *moreSeeds
}

func TestCrashPoints(t *testing.T) {
	for _, p := range crashPoints {
		t.Run(fmt.Sprintf("%02d %s", p.number, p.name), func(t *testing.T) {
			t.Parallel()
			shots := 0
			for seed := range seeds(3) {
				if p.act == nil {
					shots += crashFirstStart(t, p, seed)
					continue
				}
				shots += crashAt(t, p, seed)
			}
			if shots == 0 {
				t.Fatal("the point was never reached")
			}
		})
	}
}

// crashAt runs one crash point with one seed and says how often it was met.
func crashAt(t *testing.T, p crashPoint, seed uint64) int {
	w := newWorld(t, seed)
	w.opts.Unclean = seed%2 == 0 // of the starts to come
	for range 5 + w.rng.IntN(40) {
		w.randomCommit(true)
	}
	c := &camera{w: w, match: p.match, rng: rand.New(rand.NewPCG(seed, 4)), every: 1 + w.rng.IntN(4)}
	w.hooks.tear.Store(p.tear)
	w.hooks.set(c.hook)
	for i := 0; i < 12 && !c.done(); i++ {
		p.act(w)
	}
	w.hooks.set(nil)
	mustClose(t, w.s)
	for _, shot := range c.shots {
		recoverFrom(t, p, seed, shot)
	}
	return len(c.shots)
}

func recoverFrom(t *testing.T, p crashPoint, seed uint64, shot snapshot) {
	t.Helper()
	at := fmt.Sprintf("seed %d, at %+v", seed, shot.at)
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 5)), nGroup: 5, opts: Options{MemTableSize: minMemTableSize, Unclean: seed%2 == 0}, life: 1000}
	w.fs, w.hooks = shot.fs, newHookFS(shot.fs)
	s, err := Open("data", w.hooks, w.opts)
	if err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	got, err := storeDigests(s)
	if err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	if !equalToOne(got, shot.possible) {
		t.Fatalf("%s: the store is in none of the %d states that were possible", at, len(shot.possible))
	}
	w.s, w.m = s, newModel()
	w.rebuild()
	w.record()
	for range 5 {
		w.randomCommit(true)
	}
	w.reclaim()
	mustClose(t, w.s)
	if r, err := Verify(shot.fs, "data"); err != nil || len(r.Problems) > 0 {
		t.Fatalf("%s: %v %q", at, err, r.Problems)
	}
	w.s = mustOpen(t, w.hooks, w.opts)
	w.compare()
	mustClose(t, w.s)
}

func equalToOne(got digests, possible []digests) bool {
	for _, d := range possible {
		if d.equal(got) {
			return true
		}
	}
	return false
}

func crashFirstStart(t *testing.T, p crashPoint, seed uint64) int {
	w := &world{t: t, fs: vfs.NewCrashableMem(), m: newModel()}
	w.record()
	w.hooks = newHookFS(w.fs)
	w.hooks.tear.Store(p.tear)
	c := &camera{w: w, match: p.match, rng: rand.New(rand.NewPCG(seed, 4)), every: 12}
	w.hooks.set(c.hook)
	mustClose(t, mustOpen(t, w.hooks, Options{MemTableSize: minMemTableSize}))
	for _, shot := range c.shots {
		recoverFrom(t, p, seed, shot)
	}
	return len(c.shots)
}

func commits(w *world) { w.randomCommit(true) }

func unsyncedCommits(w *world) {
	for range 3 {
		w.randomCommit(false)
	}
}

// someGroup is a group that exists.
func (w *world) someGroup() (record.GroupID, *modelGroup) {
	for range 100 {
		id := w.group()
		if g := w.m.groups[id]; g != nil {
			return id, g
		}
	}
	id := w.group()
	w.commit(true, Update{Group: id, Replica: 1, Reset: &Base{}, Checkpoint: &Checkpoint{}, HardState: &HardState{Term: 1}})
	return id, w.m.groups[id]
}

func (w *world) appendTo(id record.GroupID, n int) Update {
	g := w.m.groups[id]
	return Update{Group: id, Class: g.class, Entries: w.entries(g.last(), max(1, g.term(g.last())), g.next(), n)}
}

// largeCommits are well above a quarter of the memtable, and above the memtable.
func largeCommits(w *world) {
	id, _ := w.someGroup()
	w.commit(true, w.appendTo(id, 150+w.rng.IntN(400)))
}

// buckets fills several.
func buckets(w *world) {
	for range 2 {
		largeCommits(w)
	}
}

// truncations replace suffixes that reach over several buckets, and some of only the last entries.
func truncations(w *world) {
	w.quiet.Store(true)
	id, g := w.someGroup()
	if w.rng.IntN(2) == 0 {
		w.commit(true, w.appendTo(id, 1+w.rng.IntN(500)))
	}
	low := max(g.base.Index, g.checkpoint.Applied)
	if g.last() == low {
		w.commit(true, w.appendTo(id, 30))
	}
	from := low + w.rng.Uint64N(g.last()-low)
	w.quiet.Store(false)
	w.commit(w.rng.IntN(3) > 0, Update{Group: id, Class: g.class, Entries: w.entries(from, max(1, g.term(from)), g.nextAt(from), 1+w.rng.IntN(60))})
}

// bases move each group's base to somewhere in its log, and the checkpoint with it.
func bases(w *world) {
	w.quiet.Store(true)
	id, g := w.someGroup()
	w.commit(true, w.appendTo(id, 1+w.rng.IntN(200)))
	to := g.checkpoint.Applied + w.rng.Uint64N(g.last()-g.checkpoint.Applied+1)
	b := Base{Index: to, Term: g.term(to), NextOffset: g.nextAt(to), LogStart: max(g.nextAt(to), g.base.LogStart)}
	if b.LogStart > g.next() {
		return
	}
	w.quiet.Store(false)
	w.commit(true, Update{Group: id, Class: g.class, Base: &b, Checkpoint: &Checkpoint{Applied: to, State: w.data(to)}})
}

// dieOff moves the base of every group to its end, but those to keep.
func (w *world) dieOff(sync bool, keep ...record.GroupID) {
	var us []Update
	for id, g := range w.m.groups {
		if slices.Contains(keep, id) {
			continue
		}
		b := Base{Index: g.last(), Term: g.term(g.last()), NextOffset: g.next(), LogStart: max(g.next(), g.base.LogStart)}
		if b.LogStart > g.next() {
			continue
		}
		us = append(us, Update{Group: id, Class: g.class, Base: &b, Checkpoint: &Checkpoint{Applied: b.Index, NextOffset: b.NextOffset, Confs: g.checkpoint.Confs}})
	}
	w.commit(sync, us...)
}

func unsyncedBases(w *world) {
	w.quiet.Store(true)
	buckets(w)
	w.dieOff(false)
	w.waitFlushed()
	w.quiet.Store(false)
	w.reclaim()
}

func reclaims(w *world) {
	w.quiet.Store(true)
	buckets(w)
	w.dieOff(true)
	w.waitFlushed()
	w.quiet.Store(false)
	w.reclaim()
	w.s.db.TestOnlyWaitForCleaning()
}

// waitFlushed returns when all closed buckets are in tables.
func (w *world) waitFlushed() {
	if w.s.w.flushed != nil {
		<-w.s.w.flushed
	}
	w.s.flushedBucket.Store(w.s.w.bucket - 1) // its goroutine may be a moment late
}

// sparseReclaims let all groups die but one, which has little in every bucket.
func sparseReclaims(w *world) {
	w.quiet.Store(true)
	buckets(w)
	w.waitFlushed()
	keep, _ := w.someGroup()
	w.dieOff(true, keep)
	w.quiet.Store(false)
	for range 3 {
		w.reclaim()
	}
	w.s.db.TestOnlyWaitForCleaning()
}

func resets(w *world) {
	id, g := w.someGroup()
	w.commit(w.rng.IntN(2) == 0, w.appendTo(id, 200))
	base := Base{Index: g.last() + 10, Term: g.term(g.last()) + 1, NextOffset: g.next() + 7, LogStart: g.next() + 7}
	w.commit(w.rng.IntN(2) == 0, Update{Group: id, Replica: g.replica, Class: g.class, Reset: &base,
		Checkpoint: &Checkpoint{Applied: base.Index, NextOffset: base.NextOffset, State: w.data(base.Index)},
		HardState:  &HardState{Term: max(g.hs.Term, base.Term)}, Entries: w.entries(base.Index, base.Term, base.NextOffset, 20)})
}

func removals(w *world) {
	id, g := w.someGroup()
	w.commit(w.rng.IntN(2) == 0, w.appendTo(id, 100))
	again := Update{Group: id, Replica: g.replica + 1, Reset: &Base{}, Checkpoint: &Checkpoint{}, HardState: &HardState{Term: 1}, Entries: w.entries(0, 1, 0, 3)}
	if w.rng.IntN(2) == 0 {
		w.commit(true, Update{Group: id, Remove: true}, again)
		return
	}
	w.commit(true, Update{Group: id, Remove: true})
	w.commit(true, again)
}

// restarts cut power, and cut it again while the store opens.
func restarts(w *world) {
	w.hooks.mu.Lock()
	hook := w.hooks.hook
	w.hooks.mu.Unlock()
	for range 10 {
		w.randomCommit(true)
	}
	clone := w.fs.CrashClone(vfs.CrashCloneCfg{})
	mustClose(w.t, w.s)
	w.fs = clone
	w.hooks = newHookFS(clone)
	w.hooks.tear.Store(true)
	w.durable()
	w.hooks.set(hook)
	w.s = mustOpen(w.t, w.hooks, w.opts)
}

func compactions(w *world) {
	buckets(w)
	if err := w.s.db.Compact(w.t.Context(), []byte{prefixDir}, []byte{prefixMeta + 1}, false); err != nil {
		w.t.Fatal(err)
	}
}

// TestEveryCrashPointHasItsTest: README.md and the tests number the same points.
func TestEveryCrashPointHasItsTest(t *testing.T) {
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	inText := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(string(b), -1) {
		inText[m[1]] = true
	}
	tested := map[string]bool{}
	for _, p := range crashPoints {
		tested[fmt.Sprint(p.number)] = true
	}
	for _, p := range identityCrashPoints {
		tested[fmt.Sprint(p.number)] = true
	}
	for n := range inText {
		if !tested[n] {
			t.Errorf("crash point %s of README.md has no test", n)
		}
	}
	for n := range tested {
		if !inText[n] {
			t.Errorf("crash point %s is tested but not in README.md", n)
		}
	}
}
