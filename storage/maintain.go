package storage

import (
	"context"
	"errors"
	"fmt"
	"sync"

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

// maintain gathers directories after a bucket was flushed; it is skipped if the work before still runs.
func (s *Store) maintain(bucket uint32) {
	if !s.maintaining.TryLock() {
		return
	}
	defer s.maintaining.Unlock()
	first := s.gathered + 1
	if bucket < first+gatherDirs-1 {
		return
	}
	if s.compacted(s.db.Compact(s.life, appendNoteKey(nil, first), appendNoteKey(nil, bucket+1), false)) {
		s.gathered = bucket
	}
}

// mergeMeta merges the meta keys of the tables if too many of them overlap. It comes with the end of a bucket, before
// anything else enters the engine, and returns when the engine has seen that its memtable is empty: it would else end
// the bucket that is open by itself, with its mutex held, behind which what makes room would wait.
func (s *Store) mergeMeta() {
	if s.db.Metrics().Levels[0].Sublevels <= metaDepth || !s.maintaining.TryLock() {
		return
	}
	seen := &firstWait{Context: s.life, begun: make(chan struct{})}
	ended := make(chan struct{})
	s.waiters.Go(func() {
		defer s.maintaining.Unlock()
		defer close(ended)
		s.compacted(s.db.Compact(seen, []byte{prefixFormat}, []byte{prefixMeta + 1}, false))
	})
	select {
	case <-seen.begun:
	case <-ended:
	}
}

// compacted tells of what kept a compaction from its end, but for the end of the store.
func (s *Store) compacted(err error) bool {
	if err != nil && !errors.Is(err, context.Canceled) && s.disk.frozenErr() == nil {
		s.event(Event{Kind: EventBackgroundError, Text: "meta tables were not compacted, it is tried again", Err: err})
	}
	return err == nil
}

// firstWait is a context that tells when it is first waited for: the engine's Compact waits when it has looked at the
// memtable.
type firstWait struct {
	context.Context
	once  sync.Once
	begun chan struct{}
}

func (f *firstWait) Done() <-chan struct{} {
	f.once.Do(func() { close(f.begun) })
	return f.Context.Done()
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
