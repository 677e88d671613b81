package storage

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"edged/record"
)

// CorruptError says which stored bytes failed which check. It is record.ErrDamaged to
// clients (another replica has the data) and record.ErrCorrupt to those who ask closer.
type CorruptError struct {
	Group record.GroupID
	Index uint64 // of the entry; 0 if it is not about one
	What  string
	Cause error
}

// Error leaves the group out: who knows how people call it says so.
func (e *CorruptError) Error() string {
	where := ""
	if e.Index != 0 {
		where = fmt.Sprintf("entry %d: ", e.Index)
	}
	return fmt.Sprintf("stored data is damaged: %s%s: %v", where, e.What, e.Cause)
}

// Unwrap gives both meanings and the cause.
func (e *CorruptError) Unwrap() []error {
	return []error{record.ErrDamaged, record.ErrCorrupt, e.Cause}
}

func corrupt(g record.GroupID, index uint64, what string, cause error) *CorruptError {
	return &CorruptError{Group: g, Index: index, What: what, Cause: oneLine(cause)}
}

var errMissing = errors.New("missing")

// load reads what is known of all groups into memory: one pass over the directory and the meta
// keys, then one seek for the end of each log. A group whose keys break a law gets err and
// is kept out of service; the store opens all the same.
func (s *Store) load() error {
	l := loader{s: s, dirs: map[record.GroupID][]storedDir{}}
	if err := s.each(prefixDir, l.dir); err != nil {
		return err
	}
	if err := s.each(prefixMeta, l.meta); err != nil {
		return err
	}
	l.finish()
	return s.loadTails()
}

// each calls fn for all keys with a prefix.
func (s *Store) each(prefix byte, fn func(key, v []byte)) error {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefix}, UpperBound: []byte{prefix + 1}})
	if err != nil {
		return openError(s.dir, err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return join(openError(s.dir, err), it.Close())
		}
		fn(it.Key(), v)
	}
	if err := join(it.Error(), it.Close()); err != nil {
		return openError(s.dir, err)
	}
	return nil
}

// loader collects the keys of one group after the other.
type loader struct {
	s     *Store
	dirs  map[record.GroupID][]storedDir // as stored, by bucket
	group *group
	seen  [256]bool
}

// dir takes a key of the directory. What does not parse is not ours to judge; Verify names it.
func (l *loader) dir(key, v []byte) {
	bucket, g, note, ok := parseDirKey(key)
	if !ok || note {
		return
	}
	d, err := decodeDir(key, v, bucket)
	d.err = err
	l.dirs[g] = append(l.dirs[g], d)
}

// meta takes a key of a group.
func (l *loader) meta(key, v []byte) {
	id, kind, number, ok := parseMetaKey(key)
	if len(key) < metaKeyLen {
		return
	}
	if l.group == nil || l.group.id != id {
		l.finish()
		l.group = &group{id: id}
	}
	if !ok {
		l.fail(fmt.Sprintf("key %x", key), errTorn)
		return
	}
	l.take(kind, number, key, v)
}

func (l *loader) fail(what string, err error) {
	if l.group.err == nil {
		l.group.err = corrupt(l.group.id, 0, what, err)
	}
}

func (l *loader) take(kind byte, number uint64, key, v []byte) {
	g := l.group
	l.seen[kind] = true
	var err error
	var what string
	switch kind {
	case metaGroup:
		what = "replica and class"
		g.replica, g.class, err = decodeGroupInfo(key, v)
	case metaHardState:
		what = "hard state"
		g.hs, err = decodeHardState(key, v)
	case metaBase:
		what = "base"
		var b storedBase
		b, err = decodeBase(key, v)
		g.base, g.headBytes, g.since = b.Base, b.headBytes, b.since
	case metaCheckpoint:
		what = "checkpoint"
		var c Checkpoint
		c, err = decodeCheckpoint(key, v)
		g.applied = c.Applied
	case metaRun:
		what = fmt.Sprintf("term run at entry %d", number)
		var r TermRun
		r, err = decodeRun(key, v, number)
		g.runs = append(g.runs, r)
	}
	if err != nil {
		l.fail(what, err)
	}
}

// finish checks what was collected of a group and makes it known.
func (l *loader) finish() {
	g := l.group
	if g == nil {
		return
	}
	for kind, what := range map[byte]string{metaGroup: "replica and class", metaHardState: "hard state", metaBase: "base", metaCheckpoint: "checkpoint"} {
		if !l.seen[kind] {
			l.fail(what, errMissing)
		}
	}
	if g.err == nil {
		if what, err := g.chain(l.dirs[g.id]); err != nil {
			l.fail(what, err)
		}
	}
	if g.err == nil {
		if what, err := g.checkShape(); err != nil {
			l.fail(what, err)
		}
	}
	if g.err == nil {
		for i := range g.dirs {
			l.s.mu.refs[g.dirs[i].slot]++
		}
	} else {
		for _, d := range l.dirs[g.id] { // until it is known what of it counts, all of it does
			l.s.mu.refs[d.slot]++
			g.dirs = append(g.dirs, d.dirEntry)
		}
	}
	delete(l.dirs, g.id)
	l.s.mu.groups[g.id] = g
	l.group, l.seen = nil, [256]bool{}
}

// chain picks those of the stored directory entries that count: the newest one, and from each
// the one that it names as the one before it.
func (g *group) chain(stored []storedDir) (what string, err error) {
	for at := len(stored) - 1; at >= 0 && stored[at].slot.bucket() >= g.since; {
		d := &stored[at]
		what = fmt.Sprintf("directory of bucket %d", d.slot.bucket())
		if d.err != nil {
			return what, d.err
		}
		g.dirs = append(g.dirs, d.dirEntry)
		if !d.hasPrev || d.prev.bucket() < g.since {
			break
		}
		for at--; at >= 0 && stored[at].slot.bucket() > d.prev.bucket(); at-- {
		}
		if at < 0 || stored[at].err == nil && stored[at].slot != d.prev {
			return fmt.Sprintf("directory of bucket %d", d.prev.bucket()), errMissing
		}
	}
	slices.Reverse(g.dirs)
	return "", nil
}

// checkShape checks the laws that need no entry. The last entry is not known yet.
func (g *group) checkShape() (what string, err error) {
	for i := range g.dirs {
		d := &g.dirs[i]
		what = fmt.Sprintf("directory of bucket %d", d.slot.bucket())
		switch {
		case i == 0 && d.first > g.base.Index+1:
			return what, fmt.Errorf("begins with entry %d, but the base is entry %d", d.first, g.base.Index)
		case i > 0 && (d.first <= g.dirs[i-1].first || d.offset < g.dirs[i-1].offset):
			return what, errors.New("out of order")
		case i > 0 && d.first <= g.base.Index+1:
			return what, errors.New("the bucket before it lies before the base")
		case d.first == 0 || d.first >= pointBit:
			return what, errTorn
		}
	}
	for i, r := range g.runs {
		what = fmt.Sprintf("term run at entry %d", r.Index)
		switch {
		case i == 0 && r.Index > g.base.Index+1:
			return what, fmt.Errorf("the one before it is %w", errMissing)
		case i > 0 && (r.Term <= g.runs[i-1].Term || r.Offset < g.runs[i-1].Offset):
			return what, errors.New("out of order")
		}
	}
	if (len(g.dirs) == 0) != (len(g.runs) == 0) {
		return "directory and term runs", errors.New("only one of them is there")
	}
	return "", nil
}

// loadTails finds the last entry of each log.
func (s *Store) loadTails() error {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return openError(s.dir, err)
	}
	for _, g := range s.mu.groups {
		if g.err == nil {
			loadTail(it, g)
		}
	}
	if err := it.Close(); err != nil && !pebble.IsCorruptionError(err) {
		return openError(s.dir, err)
	}
	return nil
}

// loadTail reads the last entry of g, which says where the log ends in every way.
func loadTail(it *pebble.Iterator, g *group) {
	g.last, g.next = g.base.Index, g.base.NextOffset
	g.tailMaxTs = noTimestamp
	if len(g.dirs) == 0 {
		if g.applied != g.base.Index {
			g.err = corrupt(g.id, 0, "checkpoint", fmt.Errorf("it is of entry %d, the empty log ends with %d", g.applied, g.base.Index))
		}
		return
	}
	d := &g.dirs[len(g.dirs)-1]
	index, h, err := lastStored(it, d.slot, g.id)
	if err != nil {
		g.err = corrupt(g.id, index, "last entry", err)
		return
	}
	run := &g.runs[len(g.runs)-1]
	switch {
	case index < d.first || index <= g.base.Index:
		err = fmt.Errorf("the log begins with entry %d after base %d", d.first, g.base.Index)
	case h.Term != run.Term || index < run.Index:
		err = fmt.Errorf("its term is %d, the newest term run is %d from entry %d on", h.Term, run.Term, run.Index)
	case h.Pos < d.offset || h.Pos < g.base.NextOffset:
		err = fmt.Errorf("its offset %d is before its bucket's or the base's", h.Pos)
	case g.applied < g.base.Index || g.applied > index:
		err = fmt.Errorf("the checkpoint is of entry %d", g.applied)
	}
	if err != nil {
		g.err = corrupt(g.id, index, "last entry", err)
		return
	}
	g.last, g.next = index, h.end()
	g.tailBytes, g.tailMaxTs = h.BucketBytes, h.BucketMaxTs
	g.resize()
}

// missing says why an iterator has nothing to show.
func missing(it *pebble.Iterator) error {
	if err := it.Error(); err != nil {
		return err
	}
	return errMissing
}

// lastStored finds the last entry of a group in a bucket.
func lastStored(it *pebble.Iterator, sl slot, g record.GroupID) (index uint64, h stored, err error) {
	if !it.SeekLT(appendLogKey(nil, sl, g, pointBit)) {
		return 0, h, missing(it)
	}
	at, id, index, ok := parseLogKey(it.Key())
	if !ok || at != sl || id != g {
		return 0, h, errMissing
	}
	v, err := it.ValueAndErr()
	if err != nil {
		return index, h, err
	}
	h, err = decodeStored(it.Key(), v)
	h.Data = nil
	return index, h, err
}
