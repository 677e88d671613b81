package storage

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// The engine compacts its top level by how deep tables overlap there, and takes neighbours
// along. Ours overlap only among the meta keys, and the neighbours are the log: left alone, the
// engine rewrote most of the log once for the sake of some meta keys. So its own compaction of
// the top level is off (engineOptions), and this is what is done instead.
const (
	// gatherDirs is how many buckets' directories are made one table.
	gatherDirs = 32
	// metaDepth is how many tables of meta keys may overlap.
	metaDepth = 16
)

// maintain tidies up after a bucket was flushed; it is skipped if the one before still runs.
func (s *Store) maintain(bucket uint32) {
	if !s.maintaining.TryLock() {
		return
	}
	defer s.maintaining.Unlock()
	var err error
	if first := s.gathered + 1; bucket >= first+gatherDirs-1 {
		if err = s.compact(appendNoteKey(nil, first), appendNoteKey(nil, bucket+1)); err == nil {
			s.gathered = bucket
		}
	}
	if m := s.db.Metrics(); err == nil && m.Levels[0].Sublevels > metaDepth {
		err = s.compact([]byte{prefixFormat}, []byte{prefixMeta + 1})
	}
	if err != nil && !errors.Is(err, context.Canceled) && s.disk.frozenErr() == nil {
		s.event(Event{Kind: EventBackgroundError, Text: "meta tables were not compacted, it is tried again", Err: err})
	}
}

// compact merges the tables of a range of directory or meta keys. It ends when the store closes.
func (s *Store) compact(start, end []byte) error {
	return s.db.Compact(s.life, start, end, false)
}

// dropDirs gives back the directories of the oldest buckets, up to the first one in which
// something lives. The newest notes stay: they are counted at start.
func (s *Store) dropDirs() error {
	s.mu.RLock()
	floor := min(s.mu.openBucket, s.flushedBucket.Load()+1)
	for sl, n := range s.mu.refs {
		if n > 0 {
			floor = min(floor, sl.bucket())
		}
	}
	s.mu.RUnlock()
	if floor <= keptNotes {
		return nil
	}
	floor -= keptNotes
	start, end := appendNoteKey(nil, 0), appendNoteKey(nil, floor)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: start, UpperBound: end})
	if err != nil {
		return fmt.Errorf("storage: look for old directories: %w", err)
	}
	some := it.First()
	if err := join(it.Error(), it.Close()); err != nil || !some {
		return err
	}
	if err := s.exciseKeys(start, end); err != nil {
		return fmt.Errorf("storage: give back old directories: %w", err)
	}
	return s.disk.frozenErr()
}
