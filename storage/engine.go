package storage

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// engineFormat is pinned: a newer engine must not upgrade files behind our back, since there
// is no way down again.
const engineFormat = pebble.FormatValueSeparation

const (
	minMemTableSize = 64 << 10
	maxMemTableSize = 1 << 30
	// engineFirstMemTable is the size of the engine's first memtable; each next one is twice
	// as large until Options.MemTableSize.
	engineFirstMemTable = 256 << 10
	maxOpenFiles        = 200
	// neverCompact keeps the engine from compacting its top level; see maintain.go.
	neverCompact    = 1 << 20
	baseLevelBytes  = 64 << 20
	tableBlockBytes = 32 << 10 // a catch-up read is one seek and one block per bucket
	tableSyncBytes  = 512 << 10
)

// engineOptions are the settings that storage.md's measurements ask for; what each is good
// for stands in README.md.
func engineOptions(o *Options, fs vfs.FS, s *Store) *pebble.Options {
	p := &pebble.Options{
		FS:                          fs,
		FormatMajorVersion:          engineFormat,
		MemTableSize:                uint64(o.MemTableSize),
		MemTableStopWritesThreshold: 2,
		CacheSize:                   o.CacheSize,
		MaxOpenFiles:                maxOpenFiles,
		L0CompactionThreshold:       neverCompact,
		L0CompactionFileThreshold:   neverCompact,
		L0StopWritesThreshold:       neverCompact,
		LBaseMaxBytes:               baseLevelBytes,
		BytesPerSync:                tableSyncBytes,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 1 },
		DisableTableStats:           true,                                         // would read every table at start; nothing here needs them
		WALDir:                      pebble.MakeStoreRelativePath(fs, logDirName), // stored in the database: a moved directory must open
		ReadOnly:                    o.ReadOnly,
		Logger:                      engineLogger{log: o.Logger, store: s},
		EventListener:               s.listener(),
	}
	p.TargetFileSizes[0] = o.MemTableSize // one table per flush and class
	p.Levels[0].BlockSize = tableBlockBytes
	p.ApplyCompressionSettings(func() pebble.DBCompressionSettings {
		return pebble.UniformDBCompressionSettings(block.SnappyCompression)
	})
	p.Experimental.FileCacheShards = 1
	p.Experimental.ReadSamplingMultiplier = -1 // reading must never cause writing
	p.Experimental.CompactionScheduler = &scheduler{}
	p.Experimental.SpanPolicyFunc = func(k []byte) (pebble.SpanPolicy, []byte, error) {
		return pebble.SpanPolicy{}, cutAfter(k), nil
	}
	return p
}

// listener turns the engine's events into ours. The engine's own default for corruption
// ends the process.
func (s *Store) listener() *pebble.EventListener {
	return &pebble.EventListener{
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			s.corruptions.Add(1)
			s.event(Event{Kind: EventCorruption, Text: "damaged file " + i.Path, Err: oneLine(i.Details)})
		},
		BackgroundError: func(err error) {
			s.event(Event{Kind: EventBackgroundError, Text: "a flush or compaction failed and is tried again", Err: err})
		},
		WriteStallBegin: func(i pebble.WriteStallBeginInfo) {
			s.stalls.Add(1)
			s.event(Event{Kind: EventWriteStall, Text: "writes wait: " + i.Reason})
		},
	}
}

// engineLogger keeps the engine's words at debug level: what matters comes as an event.
type engineLogger struct {
	log   *slog.Logger
	store *Store
}

func (l engineLogger) Infof(format string, args ...any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug(fmt.Sprintf(format, args...))
	}
}

func (l engineLogger) Errorf(format string, args ...any) { l.log.Warn(fmt.Sprintf(format, args...)) }

// Fatalf is called where the engine has found its own state broken; it must not return, and
// it must not end the process without the owner's knowledge. The disk is frozen, the owner
// is told, and this goroutine waits for the end.
func (l engineLogger) Fatalf(format string, args ...any) {
	l.store.disk.freeze(fmt.Errorf("storage engine: "+format, args...))
	select {}
}

// scheduler lets every compaction run at once. The engine's own one wakes ten times a second for
// ever. One that makes a compaction wait is no good either: the engine remembers what
// waits, and panics when its turn comes after the manual compaction it belonged to was
// cancelled, as Close does. There are few: maintain starts one at a time, and the engine by
// itself only those of lower levels.
type scheduler struct{ closed atomic.Bool }

func (s *scheduler) Register(int, pebble.DBForCompaction) {}
func (s *scheduler) Unregister()                          { s.closed.Store(true) }

func (s *scheduler) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	return !s.closed.Load(), s
}

func (s *scheduler) UpdateGetAllowedWithoutPermission()                {}
func (s *scheduler) Started()                                          {}
func (s *scheduler) MeasureCPU(pebble.CompactionGoroutineKind)         {}
func (s *scheduler) CumulativeStats(pebble.CompactionGrantHandleStats) {}
func (s *scheduler) Done()                                             {}
