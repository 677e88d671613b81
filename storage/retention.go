package storage

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"edged/record"
)

// RetentionPoint finds the first offset that should be kept: nothing at or after it is wholly
// of a time before beforeMs (0 = do not look at time) or more than keepBytes from the end
// (below 0 = do not look at bytes). It is a multiple of the sparse index's points, so up to
// 32 KiB, ten minutes or one bucket are kept too much, never too little. At most limit.
// false if nothing can go.
func (s *Store) RetentionPoint(id record.GroupID, beforeMs int64, keepBytes int64, limit record.Offset) (keep record.Offset, ok bool) {
	err := s.read(id, func(r *reader) (err error) {
		keep, err = r.retentionPoint(beforeMs, keepBytes)
		keep = min(keep, limit)
		ok = keep > r.g.base.LogStart
		return err
	})
	if err != nil {
		return 0, false
	}
	return keep, ok
}

func (r *reader) retentionPoint(beforeMs, keepBytes int64) (record.Offset, error) {
	keep := r.g.base.NextOffset
	after := r.g.size // payload from the start of the segment on
	for i := range r.g.dirs {
		seg := r.g.segment(i)
		head := uint64(0)
		if i == 0 {
			head = r.g.headBytes
		}
		goes := func(maxTs int64, left int64) bool {
			return beforeMs > 0 && maxTs < beforeMs || keepBytes >= 0 && left >= keepBytes
		}
		live := int64(seg.bytes - head)
		if goes(seg.maxTs, after-live) { // all of it
			after -= live
			if i+1 < len(r.g.dirs) {
				keep = r.g.dirs[i+1].offset
			} else {
				keep = r.g.next
			}
			continue
		}
		err := r.points(seg, func(o record.Offset, p point) bool {
			if !goes(p.MaxTsBefore, after-int64(p.BytesBefore-head)) {
				return false
			}
			keep = o
			return true
		})
		return keep, err
	}
	return keep, nil
}

// Reclaim gives back the space of closed buckets in which nothing lives any more, as far as
// that is durable, and says about how many bytes that was. Nothing is rewritten for it, but of
// the buckets in which less than half lives some are, a few in each call. It is for one caller
// at a time, never the one of Commit; call it after bases have moved or groups were removed,
// and every few minutes.
func (s *Store) Reclaim() (int64, error) {
	s.reclaimMu.Lock()
	defer s.reclaimMu.Unlock()
	if err := s.begin(); err != nil {
		return 0, err
	}
	defer s.using.Done()
	if s.opts.ReadOnly {
		return 0, ErrReadOnly
	}
	if err := s.disk.frozenErr(); err != nil {
		return 0, fmt.Errorf("%w: %w", record.ErrStorage, err)
	}
	if !s.scanned {
		if err := s.scanBuckets(); err != nil {
			return 0, err
		}
		s.scanned = true
	}
	var freed int64
	for _, span := range s.deadSpans() {
		n, err := s.excise(span)
		freed += n
		if err != nil {
			return freed, err
		}
	}
	s.rewritten = 0
	n, err := s.rewriteSparse()
	if err != nil {
		return freed + n, err
	}
	return freed + n, s.dropDirs()
}

// scanBuckets makes those buckets known that are on disk without a directory entry.
func (s *Store) scanBuckets() error {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return fmt.Errorf("storage: look for buckets: %w", err)
	}
	var found []slot
	key := []byte{prefixLog}
	for it.SeekGE(key) {
		sl, _, _, ok := parseLogKey(it.Key())
		if !ok {
			break
		}
		found = append(found, sl)
		key = appendSlotKey(key[:0], sl.class(), sl.bucket()+1)
	}
	if err := join(it.Error(), it.Close()); err != nil {
		return fmt.Errorf("storage: look for buckets: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sl := range found {
		s.mu.refs[sl] += 0
	}
	return nil
}

// deadSpan is a run of dead buckets of one class, with no living one between.
type deadSpan struct{ slots []slot }

func (s *Store) deadSpans() []deadSpan {
	s.mu.RLock()
	all := make([]slot, 0, len(s.mu.refs))
	dead := map[slot]bool{}
	flushed := s.flushedBucket.Load()
	for sl, n := range s.mu.refs {
		if sl.bucket() >= s.mu.openBucket || sl.bucket() > flushed {
			continue
		}
		all = append(all, sl)
		dead[sl] = n <= 0
	}
	s.mu.RUnlock()
	slices.Sort(all) // by class, then bucket
	var spans []deadSpan
	for i, sl := range all {
		if !dead[sl] {
			continue
		}
		if i > 0 && dead[all[i-1]] && all[i-1].class() == sl.class() {
			last := &spans[len(spans)-1]
			last.slots = append(last.slots, sl)
			continue
		}
		spans = append(spans, deadSpan{[]slot{sl}})
	}
	return spans
}

// excise drops a span: one write to the manifest, atomic.
func (s *Store) excise(span deadSpan) (int64, error) {
	first, last := span.slots[0], span.slots[len(span.slots)-1]
	start, end := slotSpan(first, last)
	size, err := s.db.EstimateDiskUsage(start, end)
	if err == nil {
		err = s.exciseKeys(start, end)
	}
	if err == nil {
		err = s.disk.frozenErr()
	}
	if err != nil {
		return 0, fmt.Errorf("storage: give back buckets %d to %d of class %d: %w", first.bucket(), last.bucket(), first.class(), err)
	}
	s.mu.Lock()
	for _, sl := range span.slots {
		delete(s.mu.refs, sl)
	}
	s.mu.Unlock()
	s.reclaimed.Add(int64(len(span.slots)))
	return int64(size), nil
}

func (s *Store) exciseKeys(start, end []byte) error {
	s.entering.Lock()
	defer s.entering.Unlock()
	return s.db.Excise(context.Background(), pebble.KeyRange{Start: start, End: end})
}

// LiveBytes is the payload of all logs: what the store would take if all dead space was given back.
func (s *Store) LiveBytes() (n int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, g := range s.mu.groups {
		n += g.size
	}
	return n
}

// Oldest finds what goes first, by the order in which it came, to be rid of about free bytes of the groups
// that mayGo takes: whole buckets. For each group with something in them it gives the first offset to keep.
func (s *Store) Oldest(free int64, mayGo func(record.GroupID) bool) map[record.GroupID]record.Offset {
	s.mu.RLock()
	defer s.mu.RUnlock()
	inBucket := map[uint32]int64{}
	for id, g := range s.mu.groups {
		if g.err != nil || !mayGo(id) {
			continue
		}
		for i := range g.dirs {
			seg := g.segment(i)
			if i == 0 {
				seg.bytes -= g.headBytes
			}
			if b := seg.slot.bucket(); b < s.mu.openBucket {
				inBucket[b] += int64(seg.bytes)
			}
		}
	}
	cut := uint32(0)
	for _, b := range slices.Sorted(maps.Keys(inBucket)) {
		if free <= 0 {
			break
		}
		cut, free = b, free-inBucket[b]
	}
	keep := map[record.GroupID]record.Offset{}
	for id, g := range s.mu.groups {
		if g.err != nil || !mayGo(id) || len(g.dirs) == 0 || g.dirs[0].slot.bucket() > cut {
			continue
		}
		keep[id] = g.next
		for i := range g.dirs {
			if g.dirs[i].slot.bucket() > cut {
				keep[id] = g.dirs[i].offset
				break
			}
		}
	}
	return keep
}
