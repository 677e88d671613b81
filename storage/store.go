package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"

	"edged/record"
)

const (
	storeDirName = "store" // the engine's directory inside the data directory
	logDirName   = "wal"   // the engine's write-ahead log inside that
)

// Store is one node's storage. Commit is for one caller, Reclaim for another one, reads for any number.
//
// Goroutines: the engine's own; one of ours for each bucket that was closed and is not yet
// flushed or is tidied up after (mostly one). Close waits for all.
type Store struct {
	dir  string // of the engine
	opts Options
	disk *disk
	db   *pebble.DB
	lock *pebble.Lock
	// engine are the settings of db, complete.
	engine *pebble.Options
	mark   *mark

	// Lock order: commitMu, entering, exchanging, mu.
	commitMu turn   // held by Commit as a whole
	w        writer // under commitMu
	// entering is held while something enters the engine's queue of writes: a commit, the end of a bucket,
	// the removal or exchange of tables. The engine has a mutex of its own there, in which a commit waits for
	// room on a full disk; who waits for that one cannot be reached by Close.
	entering turn

	mu struct {
		sync.RWMutex // held for moments
		closed       bool
		groups       map[record.GroupID]*group
		rot          map[record.GroupID]error // the first damage that reads have met
		refs         map[slot]int32           // how many groups have a dir in it; 0 is a bucket to give back
		openBucket   uint32                   // buckets from it on are not closed
		unsynced     bool                     // something is dead, but not durably so
		destructions uint64                   // how often unsynced was set
		before       *pebble.Snapshot         // what goes with groups, while a commit that deletes entries is applied
	}
	using   sync.WaitGroup  // readers, Reclaim; added to only under mu while not closed
	life    context.Context // ends when Close begins
	end     context.CancelFunc
	waiters sync.WaitGroup // the goroutines that wait for a flush

	maintaining sync.Mutex // held by maintain as a whole
	gathered    uint32     // the directories up to this bucket are gathered; under maintaining

	flushedBucket atomic.Uint32 // all buckets up to it are in tables

	reclaimMu  sync.Mutex    // held by Reclaim as a whole, guards what follows
	scanned    bool          // it has looked for buckets that no group knows
	rewritten  int           // buckets, in this call
	unreadable map[slot]bool // buckets that cannot be rewritten

	exchanging turn          // held while a bucket's table is exchanged
	exchanges  atomic.Uint64 // begun and ended ones: odd while one is under way

	cursors cursors // of ReadFrom

	commits, syncs, payload, buckets, reclaimed, stalls, corruptions atomic.Int64
}

// Open opens the store in dir, or makes it. The errors that a person can do something about
// are ErrLocked, ErrReadOnly, ErrNewerFormat, ErrNotOurs, ErrLostTail and ErrDamaged; a group
// that is damaged is no error of Open but of its GroupState.
func Open(dir string, fs vfs.FS, o Options) (*Store, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	s := &Store{dir: fs.PathJoin(dir, storeDirName), opts: o, unreadable: map[slot]bool{}, commitMu: newTurn(), entering: newTurn(), exchanging: newTurn()}
	s.life, s.end = context.WithCancel(context.Background())
	s.disk = newDisk(fs, s.event)
	if !o.ReadOnly {
		s.disk.reserve = &reserve{fs: fs, path: fs.PathJoin(dir, reserveName), size: o.Reserve}
		s.disk.reserve.open()
	}
	s.mu.groups = map[record.GroupID]*group{}
	s.mu.rot = map[record.GroupID]error{}
	s.mu.refs = map[slot]int32{}
	if err := s.open(); err != nil {
		s.end()
		s.disk.release()
		if s.db != nil {
			err = join(err, s.db.Close())
		}
		if s.mark != nil {
			err = join(err, s.mark.close())
		}
		if s.lock != nil {
			err = join(err, s.lock.Close())
		}
		return nil, err
	}
	return s, nil
}

func (o *Options) complete() error {
	if o.MemTableSize == 0 {
		o.MemTableSize = DefaultMemTableSize
	}
	if o.CacheSize == 0 {
		o.CacheSize = DefaultCacheSize
	}
	if o.MemTableSize < minMemTableSize || o.MemTableSize > maxMemTableSize {
		return fmt.Errorf("storage: the memtable size is %d bytes; take one from %d to %d", o.MemTableSize, minMemTableSize, maxMemTableSize)
	}
	if o.CacheSize < 0 {
		return fmt.Errorf("storage: the cache size is %d bytes; take 0 for the default, or more", o.CacheSize)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.OnEvent == nil {
		o.OnEvent = func(Event) {}
	}
	return nil
}

func (s *Store) event(e Event) {
	s.opts.OnEvent(e)
}

func (s *Store) open() error {
	if err := s.openEngine(); err != nil {
		return err
	}
	s.disk.opening.Store(false)
	newest, err := s.checkFormat()
	if err != nil {
		return err
	}
	s.mark, err = openMark(s.disk.FS, s.dir, s.opts.ReadOnly)
	if err != nil {
		return openError(s.dir, err)
	}
	if m := s.mark.value(); m > newest {
		return fmt.Errorf("%w: %s holds buckets up to %d, but %d was complete; %s", ErrLostTail, s.dir, newest, m, startEmpty)
	}
	if newest >= maxBucket {
		return fmt.Errorf("%w: bucket numbers are used up", ErrDamaged)
	}
	if err := s.load(); err != nil {
		return err
	}
	s.mu.openBucket = newest + 1
	if s.opts.ReadOnly {
		return nil
	}
	if err := removeIfThere(s.disk, s.disk.PathJoin(s.dir, rewriteName)); err != nil {
		return openError(s.dir, err)
	}
	return s.startWriter(newest)
}

// openEngine takes the lock and opens the engine, with errors that say what to do.
func (s *Store) openEngine() error {
	fs := s.disk.FS
	if !s.opts.ReadOnly {
		if err := makeDir(fs, s.dir); err != nil {
			return openError(s.dir, err)
		}
	}
	lock, err := pebble.LockDirectory(s.dir, fs)
	if err != nil {
		return openError(s.dir, lockError(err))
	}
	s.lock = lock
	if err := checkEngineFiles(fs, s.dir); err != nil {
		return err
	}
	if s.opts.Unclean && !s.opts.ReadOnly {
		if err := renewManifest(s.dir, fs); err != nil {
			return openError(s.dir, err)
		}
	}
	s.engine = engineOptions(&s.opts, s.disk, s)
	s.engine.Lock = lock
	s.engine.EnsureDefaults()
	db, err := pebble.Open(s.dir, s.engine)
	if err != nil {
		if frozen := s.disk.frozenErr(); frozen != nil {
			err = frozen
		}
		return engineError(s.dir, err)
	}
	s.db = db
	if err := s.disk.frozenErr(); err != nil {
		return openError(s.dir, err)
	}
	return nil
}

// makeDir makes dir and what is missing above it, and sees to it that they are remembered.
// What stood there before is not touched: its parent may not even be readable for us.
func makeDir(fs vfs.FS, dir string) error {
	parent := fs.PathDir(dir)
	if _, err := fs.Stat(dir); err == nil {
		return nil
	}
	if parent != dir {
		if err := makeDir(fs, parent); err != nil {
			return err
		}
	}
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return syncDir(fs, parent)
}

func syncDir(fs vfs.FS, dir string) error {
	f, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return join(f.Sync(), f.Close())
}

// checkEngineFiles looks at the directory before the engine may change it.
func checkEngineFiles(fs vfs.FS, dir string) error {
	format, err := atomicfs.ReadMarker(fs, dir, "format-version") // Peek gives no error to tell by
	if err != nil {
		return openError(dir, err)
	}
	if n, err := strconv.ParseUint(format, 10, 64); err == nil && n > uint64(engineFormat) {
		return fmt.Errorf("%w: %s has engine format %d, this version reads up to %d; install the newer version again", ErrNewerFormat, dir, n, engineFormat)
	}
	desc, err := pebble.Peek(dir, fs)
	if err != nil {
		return openError(dir, err)
	}
	if desc.Exists {
		return nil
	}
	names, err := fs.List(dir)
	if err != nil {
		return openError(dir, err)
	}
	for _, n := range names {
		if kindOf(n) == kindTable || n == "CURRENT" {
			return fmt.Errorf("%w: %s has tables but no manifest that names them; start this node with an empty data directory", ErrNotOurs, dir)
		}
	}
	return nil
}

// lockError tells a lock that is held from one that cannot be made.
func lockError(err error) error {
	if errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var path *fs.PathError
	if errors.As(err, &path) { // the file itself cannot be made
		return err
	}
	return fmt.Errorf("%w (%w)", ErrLocked, err)
}

// openError makes one clear line of an error that the file system or the engine gave.
func openError(dir string, err error) error { return placeError("cannot open", dir, err) }

// placeError does so for anything that was done to dir.
func placeError(what, dir string, err error) error {
	err = oneLine(err)
	switch {
	case errors.Is(err, ErrLocked):
		return fmt.Errorf("%w: %s; stop the other edged or give this one another data directory", err, dir)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: %s: %w; check the mount and the owner of the directory", ErrReadOnly, dir, err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("storage: %s %s: %w: %w", what, dir, record.ErrDiskFull, err)
	case pebble.IsCorruptionError(err):
		return fmt.Errorf("%w: %s: %w; %s", ErrDamaged, dir, err, startEmpty)
	}
	return fmt.Errorf("storage: %s %s: %w", what, dir, err)
}

// engineError makes one clear line of an error of the engine's opening: what the system did not
// refuse is in the files themselves.
func engineError(dir string, err error) error {
	var number syscall.Errno
	if !errors.As(err, &number) || number == syscall.ENOENT {
		err = fmt.Errorf("%w: %w", pebble.ErrCorruption, err)
	}
	return openError(dir, err)
}

// storeFormat is the version of our own keys and values. A change that an older edged
// would misread raises it.
const storeFormat = 1

var formatMagic = []byte("edged store")

// checkFormat reads our format key, or writes it into an empty store, and gives the newest
// bucket that was begun.
func (s *Store) checkFormat() (newest uint32, err error) {
	v, found, err := s.get(formatKey())
	if err != nil {
		return 0, openError(s.dir, err)
	}
	if !found {
		return 0, s.writeFormat()
	}
	body, err := unseal(formatKey(), v)
	if err != nil {
		return 0, fmt.Errorf("%w: %s: format key: %w", ErrDamaged, s.dir, err)
	}
	if len(body) < len(formatMagic)+1 || string(body[:len(formatMagic)]) != string(formatMagic) {
		return 0, fmt.Errorf("%w: %s", ErrNotOurs, s.dir)
	}
	if f := body[len(formatMagic)]; f > storeFormat {
		return 0, fmt.Errorf("%w: %s has format %d, this version reads up to %d; install the newer version again", ErrNewerFormat, s.dir, f, storeFormat)
	}
	return s.newestBucket()
}

// keptNotes is how many of the newest buckets can be counted: more than the engine keeps old
// logs, so that a gap before those is seen.
const keptNotes = 64

// newestBucket counts the buckets. If the end of the manifest is lost, the engine plays back
// those logs that it still has, and a gap of buckets before them is all that can be seen of it.
func (s *Store) newestBucket() (newest uint32, err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefixDir}, UpperBound: []byte{prefixDir + 1}})
	if err != nil {
		return 0, openError(s.dir, err)
	}
	if it.Last() {
		newest, _, _, _ = parseDirKey(it.Key())
	}
	err = it.Error()
	for bucket := newest; err == nil && bucket > 0 && bucket+keptNotes > newest; bucket-- {
		if err = checkNote(it, bucket); errors.Is(err, errMissing) {
			err = fmt.Errorf("%w: %s lacks bucket %d of %d; %s", ErrLostTail, s.dir, bucket, newest, startEmpty)
			return 0, join(err, it.Close())
		}
	}
	if err := join(err, it.Close()); err != nil {
		return 0, openError(s.dir, err)
	}
	return newest, nil
}

// checkNote looks for a bucket's note. Only a store that could be read can be said to lack it.
func checkNote(it *pebble.Iterator, bucket uint32) error {
	key := appendNoteKey(nil, bucket)
	if !it.SeekGE(key) {
		return missing(it)
	}
	if !bytes.Equal(it.Key(), key) {
		return errMissing
	}
	v, err := it.ValueAndErr()
	if err != nil {
		return err
	}
	if _, err := unseal(key, v); err != nil {
		return fmt.Errorf("note of bucket %d: %w (%w)", bucket, err, pebble.ErrCorruption)
	}
	return nil
}

// startEmpty is what to do when a node's memory cannot be trusted.
const startEmpty = "keep the directory for inspection and start this node with an empty one; other nodes, if there are any, have the data"

// writeFormat marks a new store as ours. A crash before it leaves a store without any key,
// which is new again at the next start.
func (s *Store) writeFormat() error {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return openError(s.dir, err)
	}
	foreign := it.First()
	if err := join(it.Error(), it.Close()); err != nil {
		return openError(s.dir, err)
	}
	if foreign || s.opts.ReadOnly {
		return fmt.Errorf("%w: %s has no format key", ErrNotOurs, s.dir)
	}
	v := seal(formatKey(), append(slices.Clone(formatMagic), storeFormat))
	b := s.db.NewBatch()
	if err := b.Set(formatKey(), v, nil); err != nil {
		return openError(s.dir, err)
	}
	if err := s.applySync(b); err != nil {
		return openError(s.dir, err)
	}
	return nil
}

// applySync applies b and returns when it is durable.
func (s *Store) applySync(b *pebble.Batch) error {
	err := s.db.ApplyNoSyncWait(b, pebble.Sync)
	if err == nil {
		err = b.SyncWait()
	}
	return join(err, s.disk.frozenErr(), b.Close())
}

func (s *Store) get(key []byte) (v []byte, found bool, err error) {
	v, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	v = slices.Clone(v)
	return v, true, closer.Close()
}

// begin keeps the store open until end. Its pair is s.using.Done.
func (s *Store) begin() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.mu.closed {
		return ErrClosed
	}
	s.using.Add(1)
	return nil
}

// Groups are all groups that the store knows, by number. Damaged ones are among them, with Err.
func (s *Store) Groups() []GroupState {
	s.mu.RLock()
	ids := make([]record.GroupID, 0, len(s.mu.groups))
	for id := range s.mu.groups {
		ids = append(ids, id)
	}
	s.mu.RUnlock()
	sort.Slice(ids, func(i, j int) bool { return ids[i] < ids[j] })
	states := make([]GroupState, 0, len(ids))
	for _, id := range ids {
		if st, ok := s.State(id); ok {
			states = append(states, st)
		}
	}
	return states
}

// State of a group as of the last Commit; false if there is no such group. It reads the
// checkpoint from disk: see Bounds for what is asked often.
func (s *Store) State(id record.GroupID) (GroupState, bool) {
	if s.begin() != nil {
		return GroupState{}, false
	}
	defer s.using.Done()
	s.mu.RLock()
	p, ok := s.mu.groups[id]
	if !ok {
		s.mu.RUnlock()
		return GroupState{}, false
	}
	g := *p
	rot := s.mu.rot[id]
	it, err := s.newIterLocked()
	s.mu.RUnlock()
	st := GroupState{Group: id, Replica: g.replica, Class: g.class, HardState: g.hs, Base: g.base,
		LastIndex: g.last, NextOffset: g.next, TermRuns: g.liveRuns(), Err: g.err}
	if st.Err == nil {
		st.Err = rot
	}
	if err == nil {
		st.Checkpoint, err = readCheckpoint(it, id)
	}
	if err != nil && st.Err == nil {
		st.Err = corrupt(id, 0, "checkpoint", err)
	}
	return st, true
}

// newIterLocked opens the engine as of the commit that mu.groups are of.
func (s *Store) newIterLocked() (*pebble.Iterator, error) {
	if s.mu.before != nil {
		return s.mu.before.NewIter(nil)
	}
	return s.db.NewIter(nil)
}

// readCheckpoint reads a group's checkpoint and closes it.
func readCheckpoint(it *pebble.Iterator, id record.GroupID) (c Checkpoint, err error) {
	key := appendMetaKey(nil, id, metaCheckpoint)
	if !it.SeekGE(key) || !bytes.Equal(it.Key(), key) {
		return c, join(missing(it), it.Close())
	}
	v, err := it.ValueAndErr()
	if err == nil {
		c, err = decodeCheckpoint(key, v)
	}
	return c, join(err, it.Close())
}

// Bounds of a group's log, without any disk access; false if there is no such group or it is damaged.
func (s *Store) Bounds(id record.GroupID) (base Base, last uint64, next record.Offset, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	g, ok := s.mu.groups[id]
	if !ok || g.err != nil {
		return Base{}, 0, 0, false
	}
	return g.base, g.last, g.next, true
}

// Metrics since Open.
func (s *Store) Metrics() Metrics {
	m := Metrics{Commits: s.commits.Load(), Syncs: s.syncs.Load(), PayloadBytes: s.payload.Load(), Buckets: s.buckets.Load(),
		ReclaimedBuckets: s.reclaimed.Load(), WriteStalls: s.stalls.Load(), Corruptions: s.corruptions.Load()}
	if s.begin() != nil {
		return m
	}
	defer s.using.Done()
	s.mu.RLock()
	m.Groups = len(s.mu.groups)
	for id, g := range s.mu.groups {
		m.DirectoryEntries += int64(len(g.dirs))
		if g.err != nil || s.mu.rot[id] != nil {
			m.DamagedGroups++
		}
	}
	s.mu.RUnlock()
	p := s.db.Metrics()
	m.DiskBytes = int64(p.DiskSpaceUsage())
	m.MemTableBytes = int64(p.MemTable.Size)
	m.CacheBytes = p.BlockCache.Size
	m.WALBytesWritten = int64(p.WAL.BytesWritten)
	for i := range p.Levels {
		m.Tables += p.Levels[i].TablesCount
		m.FlushBytesWritten += int64(p.Levels[i].TableBytesFlushed)
		m.CompactBytesWritten += int64(p.Levels[i].TableBytesCompacted)
	}
	return m
}

// FreeSpace of the file system the store is on, in bytes: for this user, and as a whole.
func (s *Store) FreeSpace() (avail, total int64, err error) {
	u, err := s.disk.FS.GetDiskUsage(s.dir)
	if err != nil {
		return 0, 0, fmt.Errorf("storage: free space of %s: %w", s.dir, err)
	}
	return int64(u.AvailBytes), int64(u.TotalBytes), nil
}

// EndWaits comes before Close, for who has to see those end first that call Commit: from here on nothing waits for
// room on a full disk or for a disk that fails. What is not written by then is an error that ends all writing.
func (s *Store) EndWaits() { s.disk.release() }

// Close waits for the calls in flight, keeps what Commit took without sync, and reports what
// went wrong. A second Close returns ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.mu.closed = true
	s.mu.Unlock()
	s.end()
	s.disk.release()
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	s.using.Wait()
	s.waiters.Wait()
	err := s.db.Close()
	return join(s.disk.frozenErr(), err, s.mark.close(), s.lock.Close())
}

// Damage is what is known to be broken of a group's log, nil if nothing is. It costs no read.
func (s *Store) Damage(id record.GroupID) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if g := s.mu.groups[id]; g != nil && g.err != nil {
		return g.err
	}
	return s.mu.rot[id]
}
