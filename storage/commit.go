package storage

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"edged/record"
)

// UpdateError says which group's update was refused and why. Nothing of that update was
// applied; of the updates before it in the same commit some may have been, without sync, and
// giving them again is right. It is ErrBadUpdate.
type UpdateError struct {
	Group  record.GroupID
	Reason string
}

func (e *UpdateError) Error() string {
	return fmt.Sprintf("storage: update of group %d refused: %s", e.Group, e.Reason)
}

// Is makes it equal to ErrBadUpdate.
func (e *UpdateError) Is(target error) bool { return target == ErrBadUpdate }

func refuse(g record.GroupID, format string, args ...any) error {
	return &UpdateError{Group: g, Reason: fmt.Sprintf(format, args...)}
}

// Commit applies updates in order: to readers as soon as it can, to the disk before it
// returns if sync is set, else with the next sync, bucket or Close. A nil slice with
// sync makes durable what is not yet.
//
// It is made of batches, each below a quarter of the memtable and each a state that the log
// may be left in; a crash keeps a prefix of them. UpdateErrors leave the store as it was.
// Any other error is final: later commits return it too, reads go on, and what of this commit
// the disk holds is only known after the store is opened again.
func (s *Store) Commit(us []Update, sync bool) error {
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	s.commits.Add(1)
	w := &s.w
	w.begin()
	if err := w.late.give(w.set); err != nil {
		return s.fail(err)
	}
	for i := range us {
		if err := w.update(&us[i]); err != nil {
			if errors.Is(err, ErrBadUpdate) {
				w.drop()
				return err
			}
			return s.fail(err)
		}
	}
	if err := w.finish(sync); err != nil {
		return s.fail(err)
	}
	return nil
}

// Sync makes durable what was committed without sync before it. Commits go on meanwhile: a card that
// takes a tenth of a second for a sync does not hold up who does not wait for it. Its errors are as
// final as Commit's.
func (s *Store) Sync() error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.using.Done()
	batch := s.db.NewBatch()
	dead, destructions, err := s.beginSync(batch)
	if err != nil {
		return err
	}
	err = batch.SyncWait()
	if err == nil {
		err = s.disk.frozenErr()
	}
	if err != nil {
		s.disk.freeze(err)
		return fmt.Errorf("%w: %w", record.ErrStorage, err)
	}
	s.syncs.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sl := range dead {
		s.mu.refs[sl]--
	}
	if s.mu.destructions == destructions {
		s.mu.unsynced = false
	}
	return batch.Close()
}

// beginSync puts the end of what is to be synced into the log. dead is what the sync makes
// durably dead.
func (s *Store) beginSync(batch *pebble.Batch) (dead []slot, destructions uint64, err error) {
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	if err := s.writable(); err != nil {
		return nil, 0, err
	}
	err = batch.LogData(nil, nil)
	if err == nil {
		s.entering.Lock()
		err = s.db.ApplyNoSyncWait(batch, pebble.Sync)
		s.entering.Unlock()
	}
	if err != nil {
		return nil, 0, s.fail(err)
	}
	dead, s.w.dead = s.w.dead, nil
	s.mu.RLock()
	defer s.mu.RUnlock()
	return dead, s.mu.destructions, nil
}

func (s *Store) writable() error {
	s.mu.RLock()
	closed := s.mu.closed
	s.mu.RUnlock()
	switch {
	case closed:
		return ErrClosed
	case s.opts.ReadOnly:
		return ErrReadOnly
	case s.w.failed != nil:
		return s.w.failed
	}
	if err := s.disk.frozenErr(); err != nil {
		return s.fail(err)
	}
	return nil
}

// fail makes an error of the disk final.
func (s *Store) fail(err error) error {
	if errors.Is(err, ErrClosed) {
		return err
	}
	if s.w.failed == nil {
		s.w.failed = fmt.Errorf("%w: %w", record.ErrStorage, err)
		s.disk.freeze(err)
	}
	return s.w.failed
}

// writer is the state of Commit, under Store.commitMu.
type writer struct {
	s      *Store
	failed error

	// The open bucket and the memtable it fills. The engine would rotate a full memtable by
	// itself, in the middle of a bucket, and the bucket's two tables would overlap and be
	// merged; so the writer counts along and rotates first.
	bucket             uint32
	noted              bool  // the bucket's own key is in it
	used               int64 // of the memtable, estimated
	memTable, nextSize int64
	flushed            <-chan struct{} // of the bucket before this one

	// The batch that is being filled.
	batch       *pebble.Batch
	cost        int64 // what the engine reserves for it
	estimate    int64 // what it is likely to take
	payload     int64
	destructive bool // it takes entries away that readers may know
	staged      map[record.GroupID]*group
	gone        map[record.GroupID]bool // staged removals
	added       []slot                  // directory entries made
	dropped     []slot                  // directory entries deleted by the batch

	healed []record.GroupID // groups whose damaged entries the batch replaces

	dead []slot // deleted in applied batches, not yet durable

	free     []*group
	key, val []byte
	late     late
}

const (
	// A node of the engine's skiplist is reserved at its largest, and is mostly small.
	nodeReserve, nodeEstimate = 200, 80
	// The bucket is closed at 88 % of the memtable.
	fillNum, fillDen = 88, 100
	// A sparse index point is made each indexBytes of payload of a group's log, and each
	// indexMillis of its timestamps if there is at least indexMinBytes between.
	indexBytes    = 32 << 10
	indexMillis   = 10 * 60 * 1000
	indexMinBytes = 1 << 10
)

// startWriter begins a new bucket. The store is flushed if a log was replayed, so that the
// memtable is one of its own and its size is known.
func (s *Store) startWriter(newest uint32) error {
	m := s.db.Metrics()
	if m.MemTable.Count > 1 {
		flushed, err := s.db.AsyncFlush()
		if err != nil {
			return openError(s.dir, err)
		}
		<-flushed
		m = s.db.Metrics()
	}
	if err := s.disk.frozenErr(); err != nil {
		return openError(s.dir, err)
	}
	if err := s.mark.raise(newest); err != nil {
		return openError(s.dir, err)
	}
	s.flushedBucket.Store(newest)
	s.gathered = newest - min(newest, gatherDirs-1) // those of the life before are gathered with the next ones
	s.w = writer{s: s, bucket: newest + 1, batch: s.db.NewBatch(), staged: map[record.GroupID]*group{}, gone: map[record.GroupID]bool{}}
	s.w.memTable = int64(m.MemTable.Size)
	s.w.nextSize = min(2*s.w.memTable, s.opts.MemTableSize)
	return nil
}

func (w *writer) begin() { w.drop() }

// drop forgets what is staged.
func (w *writer) drop() {
	w.batch.Reset()
	w.cost, w.estimate, w.payload, w.destructive = 0, 0, 0, false
	for id, g := range w.staged {
		w.free = append(w.free, g)
		delete(w.staged, id)
	}
	clear(w.gone)
	w.added, w.dropped, w.healed = w.added[:0], w.dropped[:0], w.healed[:0]
}

// group gives the writer's copy of a group, nil if there is no such group.
func (w *writer) group(id record.GroupID) *group {
	if g, ok := w.staged[id]; ok {
		return g
	}
	if w.gone[id] {
		return nil
	}
	w.s.mu.RLock()
	p := w.s.mu.groups[id]
	w.s.mu.RUnlock()
	if p == nil {
		return nil
	}
	g := w.newGroup()
	*g = *p // only the writer changes what is published
	w.staged[id] = g
	return g
}

func (w *writer) newGroup() *group {
	if n := len(w.free); n > 0 {
		g := w.free[n-1]
		w.free = w.free[:n-1]
		return g
	}
	return new(group)
}

func (w *writer) set(key, value []byte) error {
	w.charge(len(key), len(value))
	return w.batch.Set(key, value, nil)
}

func (w *writer) delete(key []byte) error {
	w.charge(len(key), 0)
	return w.batch.Delete(key, nil)
}

func (w *writer) deleteRange(start, end []byte) error {
	w.charge(len(start), len(end))
	return w.batch.DeleteRange(start, end, nil)
}

func (w *writer) charge(key, value int) {
	n := int64(key) + int64(value) + 8
	w.cost += n + nodeReserve
	w.estimate += n + nodeEstimate
}

// room sees to it that bytes more fit into the batch, and the batch into the open bucket, by
// applying what is staged and by closing the bucket.
func (w *writer) room(bytes int64) error {
	if w.cost > 0 && w.cost+bytes > w.s.opts.MemTableSize/4 {
		if err := w.apply(false); err != nil {
			return err
		}
	}
	if w.used > 0 && w.used+w.cost+bytes > w.memTable*95/100 {
		if err := w.apply(false); err != nil {
			return err
		}
		return w.rotate()
	}
	return nil
}

// apply gives the batch to the engine and makes the staged groups known to readers.
func (w *writer) apply(sync bool) error {
	s := w.s
	if w.batch.Empty() && !sync {
		return nil
	}
	if w.batch.Empty() {
		if err := w.batch.LogData(nil, nil); err != nil { // something to sync
			return err
		}
	} else if err := w.noteBucket(); err != nil {
		return err
	}
	if err := w.enter(sync); err != nil {
		return err
	}
	if sync {
		if err := w.batch.SyncWait(); err != nil {
			return err
		}
	}
	if err := s.disk.frozenErr(); err != nil {
		return err
	}
	s.payload.Add(w.payload)
	w.account()
	w.batch.Reset()
	w.cost, w.estimate, w.payload, w.destructive = 0, 0, 0, false
	w.added = w.added[:0]
	w.dead = append(w.dead, w.dropped...)
	w.dropped = w.dropped[:0]
	if sync {
		s.syncs.Add(1)
		w.release()
	}
	return nil
}

// enter puts the batch into the engine, and the staged groups before readers.
func (w *writer) enter(sync bool) error {
	s := w.s
	s.entering.Lock()
	defer s.entering.Unlock()
	if w.destructive { // readers must not see the deletions without the groups that go with them
		s.mu.Lock()
		s.mu.before = s.db.NewSnapshot()
		s.mu.Unlock()
	}
	err := w.applyBatch(sync) // may wait for room: nobody must wait behind it
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.before != nil {
		err = join(err, s.mu.before.Close())
		s.mu.before = nil
	}
	if err != nil && !w.destructive {
		return err
	}
	w.publishLocked()
	return err
}

// noteBucket makes the first batch of a bucket say which bucket it is.
func (w *writer) noteBucket() error {
	if w.noted {
		return nil
	}
	w.noted = true // a batch that fails from here on is the last one
	w.key = appendNoteKey(w.key[:0], w.bucket)
	return w.set(w.key, seal(w.key, nil))
}

func (w *writer) applyBatch(sync bool) error {
	if sync {
		return w.s.db.ApplyNoSyncWait(w.batch, pebble.Sync)
	}
	return w.s.db.Apply(w.batch, pebble.NoSync)
}

func (w *writer) publishLocked() {
	s := w.s
	for id := range w.gone {
		delete(s.mu.groups, id)
		delete(s.mu.rot, id)
	}
	clear(w.gone)
	for _, id := range w.healed {
		delete(s.mu.rot, id)
	}
	w.healed = w.healed[:0]
	for id, g := range w.staged {
		p := s.mu.groups[id]
		if p == nil {
			p = new(group)
			s.mu.groups[id] = p
		}
		*p = *g
	}
	for _, sl := range w.added {
		s.mu.refs[sl]++
	}
	if w.destructive || len(w.dropped) > 0 {
		s.mu.unsynced = true
		s.mu.destructions++
	}
}

// account follows what the engine did with its memtable.
func (w *writer) account() {
	if w.cost > w.memTable-w.used { // it took a new one, large enough
		for w.nextSize < w.cost+w.cost/8 && w.nextSize < w.s.opts.MemTableSize {
			w.nextSize = min(2*w.nextSize, w.s.opts.MemTableSize)
		}
		w.memTable, w.used = w.nextSize, 0
		w.nextSize = min(2*w.nextSize, w.s.opts.MemTableSize)
	}
	w.used += w.estimate
	if w.cost >= w.s.opts.MemTableSize/2-engineFirstMemTable/16 { // it went round the memtable
		w.used = w.memTable
	}
}

// release counts off what is now durably dead.
func (w *writer) release() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	for _, sl := range w.dead {
		w.s.mu.refs[sl]--
	}
	w.s.mu.unsynced = false
	w.dead = w.dead[:0]
}

// finish ends a commit.
func (w *writer) finish(sync bool) error {
	if err := w.apply(sync); err != nil {
		return err
	}
	if w.used >= w.memTable*fillNum/fillDen {
		return w.rotate()
	}
	return nil
}

// rotate closes the open bucket and lets the engine flush it. It waits for the flush of the
// bucket before: the engine would else stall where Close cannot reach it.
func (w *writer) rotate() error {
	s := w.s
	if w.flushed != nil {
		select {
		case <-w.flushed:
		case <-s.disk.froze: // it will never be flushed
			return s.disk.frozenErr()
		case <-s.life.Done():
			return ErrClosed
		}
	}
	if w.bucket >= maxBucket {
		return errors.New("bucket numbers are used up")
	}
	if err := w.settle(); err != nil {
		return err
	}
	flushed, err := w.closeBucket()
	if err != nil {
		return err
	}
	if err := s.disk.frozenErr(); err != nil {
		return err
	}
	w.flushed = flushed
	closed := w.bucket
	s.waiters.Go(func() { s.bucketFlushed(closed, flushed) })
	s.buckets.Add(1)
	if w.used < w.memTable/2 { // the engine does not grow after a memtable that was mostly empty
		w.nextSize = w.memTable
	}
	w.bucket++
	w.noted = false
	w.memTable, w.used = w.nextSize, 0
	w.nextSize = min(2*w.nextSize, s.opts.MemTableSize)
	s.mu.Lock()
	s.mu.openBucket = w.bucket
	s.mu.Unlock()
	return nil
}

// settle sees to it that a log that is to be closed is on the disk already, where room is short: closing one waits
// for room inside the engine, and what could make room, Reclaim, does not come by there.
func (w *writer) settle() error {
	if w.s.disk.reserve.whole() {
		return nil
	}
	return w.apply(true)
}

// closeBucket makes the engine flush what it has of the open bucket.
func (w *writer) closeBucket() (flushed <-chan struct{}, err error) {
	s := w.s
	s.entering.Lock()
	defer s.entering.Unlock()
	if flushed, err = s.db.AsyncFlush(); err == nil {
		s.mergeMeta()
	}
	return flushed, err
}

// bucketFlushed notes that a bucket is complete in tables.
func (s *Store) bucketFlushed(bucket uint32, flushed <-chan struct{}) {
	select {
	case <-flushed:
	case <-s.life.Done():
		return
	}
	if s.disk.frozenErr() != nil {
		return
	}
	s.flushedBucket.Store(bucket)
	if err := s.mark.raise(bucket); err != nil {
		s.event(Event{Kind: EventBackgroundError, Text: "the mark of complete buckets was not written", Err: err})
	}
	s.maintain(bucket)
}

// update stages one update.
func (w *writer) update(u *Update) error {
	if u.Class >= NumClasses {
		return refuse(u.Group, "class %d; there are %d", u.Class, NumClasses)
	}
	g := w.group(u.Group)
	if u.Remove {
		return w.remove(g, u)
	}
	if u.Reset == nil {
		switch {
		case g == nil:
			return refuse(u.Group, "there is no such group; create it with Reset")
		case g.err != nil:
			return refuse(u.Group, "it is damaged: %v", g.err)
		case u.Replica != 0 && u.Replica != g.replica:
			return refuse(u.Group, "it is for replica %v, but replica %v is here", u.Replica, g.replica)
		}
	}
	if err := w.check(g, u); err != nil {
		return err
	}
	if err := w.room(w.metaCost(u)); err != nil {
		return err
	}
	if u.Reset != nil {
		var err error
		if g, err = w.reset(g, u); err != nil {
			return err
		}
	}
	if g.class != u.Class || u.Reset != nil {
		g.class = u.Class
		if err := w.setMeta(g, metaGroup); err != nil {
			return err
		}
	}
	if hs := u.HardState; hs != nil && (*hs != g.hs || u.Reset != nil) {
		g.hs = *hs
		if err := w.setMeta(g, metaHardState); err != nil {
			return err
		}
	}
	if err := w.appendEntries(g, u.Entries); err != nil {
		return err
	}
	return w.baseAndCheckpoint(g, u)
}

// metaCost bounds what an update stages beside its entries.
func (w *writer) metaCost(u *Update) int64 {
	n := int64(8 * (nodeReserve + 128))
	if u.Checkpoint != nil {
		n += int64(len(u.Checkpoint.State)) + 64*int64(len(u.Checkpoint.Confs)+1)
	}
	return n
}

// setMeta stages one of the small keys of g as it is now.
func (w *writer) setMeta(g *group, kind byte) error {
	w.key = appendMetaKey(w.key[:0], g.id, kind)
	switch kind {
	case metaGroup:
		return w.set(w.key, encodeGroupInfo(w.key, g.replica, g.class))
	case metaHardState:
		return w.set(w.key, encodeHardState(w.key, g.hs))
	}
	return w.set(w.key, encodeBase(w.key, storedBase{g.base, g.headBytes, g.since}))
}

// remove stages the end of a group: of its keys, and of its entries in the open bucket. Those
// in closed buckets are nobody's and go with the bucket.
func (w *writer) remove(g *group, u *Update) error {
	if g == nil {
		return nil
	}
	if u.Replica != 0 && u.Replica != g.replica && g.err == nil {
		return refuse(u.Group, "remove is for replica %v, but replica %v is here", u.Replica, g.replica)
	}
	if err := w.room(4 * (nodeReserve + 128)); err != nil {
		return err
	}
	if err := w.deleteLog(g); err != nil {
		return err
	}
	if err := w.deleteRange(appendMetaKey(nil, g.id, metaGroup), appendMetaKey(nil, g.id, metaEnd)); err != nil {
		return err
	}
	delete(w.staged, g.id)
	w.free = append(w.free, g)
	w.gone[u.Group] = true
	return nil
}

// deleteLog stages the end of all entries of g. In closed buckets nothing is deleted: what
// stands there is not looked at again, and goes with the bucket.
func (w *writer) deleteLog(g *group) error {
	w.destructive = true
	for i := range g.dirs {
		sl := g.dirs[i].slot
		w.dropped = append(w.dropped, sl)
		if sl.bucket() != w.bucket {
			continue
		}
		if err := w.deleteFrom(sl, g.id, 0, 0); err != nil {
			return err
		}
		if err := w.deleteDir(g.id); err != nil {
			return err
		}
	}
	return nil
}

// deleteDir stages the end of a group's directory entry for the open bucket.
func (w *writer) deleteDir(g record.GroupID) error {
	w.key = appendDirKey(w.key[:0], w.bucket, g)
	return w.delete(w.key)
}

// deleteFrom stages the end of a group's entries from index on, and of its points from
// offset on, in the open bucket.
func (w *writer) deleteFrom(sl slot, g record.GroupID, index uint64, offset record.Offset) error {
	if err := w.deleteRange(appendLogKey(nil, sl, g, index), appendLogKey(nil, sl, g, pointBit)); err != nil {
		return err
	}
	return w.deleteRange(appendLogKey(nil, sl, g, pointBit|uint64(offset)), appendLogKey(nil, sl, g, 1<<64-1))
}

// reset stages a group's new, empty log.
func (w *writer) reset(g *group, u *Update) (*group, error) {
	if g == nil {
		g = w.newGroup()
		*g = group{id: u.Group}
		w.staged[u.Group] = g
	}
	if err := w.deleteLog(g); err != nil {
		return nil, err
	}
	if err := w.deleteRange(appendMetaKey(nil, g.id, metaRun), appendMetaKey(nil, g.id, metaEnd)); err != nil {
		return nil, err
	}
	if u.Replica != 0 {
		g.replica = u.Replica
	}
	g.clear(*u.Reset)
	g.since = w.bucket
	w.healed = append(w.healed, g.id)
	if err := w.setMeta(g, metaBase); err != nil {
		return nil, err
	}
	// Written even if it is zero: a log without a hard state is damage.
	if err := w.setMeta(g, metaHardState); err != nil {
		return nil, err
	}
	return g, w.setCheckpoint(g, u.Checkpoint) // not later: entries may be split from here
}

func (w *writer) setCheckpoint(g *group, c *Checkpoint) error {
	g.applied = c.Applied
	w.key = appendMetaKey(w.key[:0], g.id, metaCheckpoint)
	return w.set(w.key, encodeCheckpoint(w.key, c))
}

// baseAndCheckpoint stages the last two parts of an update, in one batch.
func (w *writer) baseAndCheckpoint(g *group, u *Update) error {
	if u.Reset != nil {
		return nil
	}
	if err := w.room(w.metaCost(u)); err != nil {
		return err
	}
	if u.Base != nil && *u.Base != g.base {
		if err := w.moveBase(g, *u.Base); err != nil {
			return err
		}
	}
	if u.Checkpoint == nil {
		return nil
	}
	return w.setCheckpoint(g, u.Checkpoint)
}

// moveBase stages the end of all entries up to base.Index. What is left of its bucket
// stays, and headBytes says how much of it is dead.
func (w *writer) moveBase(g *group, base Base) error {
	drop := 0
	for drop < len(g.dirs) && g.segment(drop).last <= base.Index {
		drop++
	}
	headBytes := uint64(0)
	if drop < len(g.dirs) && base.Index >= g.dirs[drop].first {
		h, err := w.stored(g, base.Index)
		if err != nil {
			return err
		}
		headBytes = h.BucketBytes
	}
	for i := range drop {
		sl := g.dirs[i].slot
		w.dropped = append(w.dropped, sl)
		if sl.bucket() == w.bucket {
			if err := w.deleteDir(g.id); err != nil {
				return err
			}
		}
	}
	g.since = w.bucket
	if drop < len(g.dirs) {
		g.since = g.dirs[drop].slot.bucket()
	}
	dead := 0
	for dead < len(g.runs) && (dead+1 < len(g.runs) && g.runs[dead+1].Index <= base.Index+1 || base.Index == g.last) {
		w.key = appendRunKey(w.key[:0], g.id, g.runs[dead].Index)
		if err := w.delete(w.key); err != nil {
			return err
		}
		dead++
	}
	g.dirs, g.runs = slices.Clone(g.dirs[drop:]), slices.Clone(g.runs[dead:])
	g.base, g.headBytes = base, headBytes
	if len(g.dirs) == 0 {
		g.tailBytes, g.tailMaxTs = 0, noTimestamp
	}
	g.resize()
	return w.setMeta(g, metaBase)
}

// stored reads an entry back, first applying what is staged.
func (w *writer) stored(g *group, index uint64) (stored, error) {
	if err := w.apply(false); err != nil {
		return stored{}, err
	}
	for { // again for the reason that read gives
		exchanges := w.s.exchanges.Load()
		it, err := w.s.db.NewIter(nil)
		if err != nil {
			return stored{}, err
		}
		h, err := readStored(it, g.segment(g.segmentOf(index)).slot, g.id, index)
		h.Data = nil
		if err = join(err, it.Close()); !errors.Is(err, errMissing) || !w.s.exchangedSince(exchanges) {
			return h, err
		}
	}
}
