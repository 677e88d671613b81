package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"edged/record"
)

// A bucket is given back when nothing in it lives. One group that keeps a little in every bucket
// would so keep the whole space of all others of its class: of deleted topics, and of those
// with a limit in bytes. So a bucket of which little lives is rewritten: its living entries are
// written to a new table, which takes the bucket's place in one write to the manifest.
const (
	// sparseShare: a bucket is rewritten if less than 1/sparseShare of its bytes live. Each
	// rewriting so frees at least as much as it writes.
	sparseShare = 2
	// sparseMinPart: a bucket is left alone below 1/sparseMinPart of a memtable.
	sparseMinPart = 16
	// rewritesPerReclaim bounds the work of one Reclaim, and so the time a reader's sync may wait.
	rewritesPerReclaim = 8
	rewriteName        = "rewrite.sst"
)

// liveSlot is what lives in a bucket of a class.
type liveSlot struct {
	bytes  int64
	ranges map[record.GroupID]segment
}

// rewriteSparse rewrites some of the buckets of which little lives, the oldest first.
func (s *Store) rewriteSparse() (freed int64, err error) {
	live := s.liveSlots()
	slots := make([]slot, 0, len(live))
	for sl := range live {
		slots = append(slots, sl)
	}
	slices.Sort(slots)
	for _, sl := range slots {
		if s.rewritten >= rewritesPerReclaim {
			break
		}
		size, err := s.db.EstimateDiskUsage(slotSpan(sl, sl))
		if err != nil {
			return freed, fmt.Errorf("storage: size of bucket %d: %w", sl.bucket(), err)
		}
		if int64(size) < s.opts.MemTableSize/sparseMinPart || live[sl].bytes > int64(size)/sparseShare || s.unreadable[sl] {
			continue
		}
		n, err := s.rewrite(sl, live[sl])
		if pebble.IsCorruptionError(err) { // it stays as it is; whoever reads there is told
			s.unreadable[sl] = true
			continue
		}
		if err != nil {
			return freed, fmt.Errorf("storage: rewrite bucket %d of class %d: %w", sl.bucket(), sl.class(), err)
		}
		freed += int64(size) - n
		s.rewritten++
	}
	return freed, nil
}

// slotSpan is the range of keys of the buckets from first to last, of one class.
func slotSpan(first, last slot) (start, end []byte) {
	return appendSlotKey(nil, first.class(), first.bucket()), appendSlotKey(nil, last.class(), last.bucket()+1)
}

// liveSlots says what lives in each closed, flushed bucket. It is empty while something is dead
// that a crash could bring back to life.
func (s *Store) liveSlots() map[slot]*liveSlot {
	live := map[slot]*liveSlot{}
	flushed := s.flushedBucket.Load()
	s.mu.RLock()
	if s.mu.unsynced {
		s.mu.RUnlock()
		return nil
	}
	open := s.mu.openBucket
	groups := make([]group, 0, len(s.mu.groups))
	for _, g := range s.mu.groups {
		groups = append(groups, *g)
	}
	s.mu.RUnlock()
	var untouchable []slot
	for n := range groups {
		g := &groups[n]
		for i := range g.dirs {
			sl := g.dirs[i].slot
			if g.err != nil {
				untouchable = append(untouchable, sl)
				continue
			}
			if sl.bucket() >= open || sl.bucket() > flushed {
				continue
			}
			l := live[sl]
			if l == nil {
				l = &liveSlot{ranges: map[record.GroupID]segment{}}
				live[sl] = l
			}
			seg := g.segment(i)
			l.ranges[g.id] = seg // with what is dead at its beginning: the base there may not be durable
			l.bytes += int64(seg.bytes)
		}
	}
	for _, sl := range untouchable {
		delete(live, sl)
	}
	return live
}

// rewrite puts a table with what lives in the place of a bucket and says how large it is.
func (s *Store) rewrite(sl slot, live *liveSlot) (size int64, err error) {
	path := s.disk.PathJoin(s.dir, rewriteName)
	if size, err = s.writeLive(path, sl, live); err != nil {
		return 0, err
	}
	err = s.exchange(sl, path)
	if err == nil {
		err = s.disk.frozenErr()
	}
	return size, join(err, removeIfThere(s.disk, path))
}

// exchange puts the table at path in the place of a bucket.
func (s *Store) exchange(sl slot, path string) error {
	s.entering.Lock()
	defer s.entering.Unlock()
	s.exchanging.Lock()
	defer s.exchanging.Unlock()
	s.exchanges.Add(1)
	defer s.exchanges.Add(1)
	start, end := slotSpan(sl, sl)
	_, err := s.db.IngestAndExcise(s.life, []string{path}, nil, nil, pebble.KeyRange{Start: start, End: end})
	return err
}

// exchangedSince waits for the end of an exchange that is under way, and tells whether one was
// under way or ended since exchanges had the value before.
func (s *Store) exchangedSince(before uint64) bool {
	s.exchanging.Lock()
	defer s.exchanging.Unlock()
	return s.exchanges.Load() != before
}

// removeIfThere removes a file that the engine, or a crash, may have removed or left.
func removeIfThere(fsys vfs.FS, path string) error {
	if err := fsys.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// writeLive writes the table.
func (s *Store) writeLive(path string, sl slot, live *liveSlot) (size int64, err error) {
	start, end := slotSpan(sl, sl)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: start, UpperBound: end})
	if err != nil {
		return 0, err
	}
	defer func() { err = join(err, it.Close()) }()
	f, err := s.disk.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return 0, err
	}
	w := sstable.NewWriter(objstorageprovider.NewFileWritable(f), s.engine.MakeWriterOptions(0, s.db.TableFormat()))
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		var v []byte
		if v, err = it.ValueAndErr(); err == nil && live.holds(it.Key(), v) {
			err = w.Set(it.Key(), v)
		}
	}
	if err = join(err, it.Error(), w.Close()); err != nil {
		return 0, err
	}
	m, err := w.Raw().Metadata()
	if err != nil {
		return 0, err
	}
	return int64(m.Size), nil
}

// holds tells whether a key is of an entry or a point that lives.
func (l *liveSlot) holds(key, v []byte) bool {
	_, g, index, ok := parseLogKey(key)
	seg, some := l.ranges[g]
	if !ok || !some {
		return false
	}
	if index >= pointBit {
		p, err := decodePoint(key, v)
		return err == nil && p.Index >= seg.first && p.Index <= seg.last
	}
	return index >= seg.first && index <= seg.last
}
