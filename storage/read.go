package storage

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"edged/record"
)

// read calls fn with a view. It calls it again with a newer one if an entry was missing and a
// bucket's table was exchanged meanwhile: a view opened just then has neither table, because
// the engine takes the old one away a moment before the new one can be seen. So fn can be
// begun again from the start. What it finds missing otherwise is damage, and remembered.
func (s *Store) read(id record.GroupID, fn func(r *reader) error) error {
	for {
		exchanges := s.exchanges.Load()
		r, err := s.view(id)
		if err != nil {
			return err
		}
		err = fn(r)
		if !errors.Is(err, errMissing) || !s.exchangedSince(exchanges) {
			return r.close(err)
		}
		if err := r.close(nil); err != nil {
			return err
		}
	}
}

// reader is one read's view: the group and the engine as of one moment. The engine keeps a
// pool of iterators, so making one costs microseconds; it is not kept longer than the call,
// because it keeps tables on disk that could be given back.
type reader struct {
	s   *Store
	g   group
	it  *pebble.Iterator
	key []byte
}

// view opens a reader; its pair is close.
func (s *Store) view(id record.GroupID) (*reader, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.mu.closed {
		return nil, ErrClosed
	}
	p, ok := s.mu.groups[id]
	if !ok {
		return nil, fmt.Errorf("%w: %d", ErrUnknownGroup, id)
	}
	if p.err != nil {
		return nil, p.err
	}
	it, err := s.newIterLocked()
	if err != nil {
		return nil, fmt.Errorf("storage: read group %d: %w", id, err)
	}
	s.using.Add(1)
	return &reader{s: s, g: *p, it: it}, nil
}

// close ends the view. err is what the read found; damage is remembered.
func (r *reader) close(err error) error {
	defer r.s.using.Done()
	if cerr := r.it.Close(); err == nil && cerr != nil {
		err = r.fault(0, "read", cerr)
	}
	var c *CorruptError
	if errors.As(err, &c) {
		r.s.damaged(c)
	}
	return err
}

// damaged remembers the first damage of a group and tells of it.
func (s *Store) damaged(c *CorruptError) {
	s.mu.Lock()
	first := s.mu.rot[c.Group] == nil
	if first {
		s.mu.rot[c.Group] = c
	}
	s.mu.Unlock()
	if first {
		s.corruptions.Add(1)
		s.event(Event{Kind: EventCorruption, Text: fmt.Sprintf("group %d", c.Group), Err: c})
	}
}

// fault makes an error of a read one that names the place. An error of the disk that says
// nothing of the bytes is not damage.
func (r *reader) fault(index uint64, what string, err error) error {
	if errors.Is(err, errChecksum) || errors.Is(err, errTorn) || errors.Is(err, errMissing) || pebble.IsCorruptionError(err) {
		return corrupt(r.g.id, index, what, err)
	}
	return fmt.Errorf("storage: read group %d entry %d: %w", r.g.id, index, oneLine(err))
}

// readStored seeks one entry. Data is good until the iterator moves.
func readStored(it *pebble.Iterator, sl slot, g record.GroupID, index uint64) (stored, error) {
	key := appendLogKey(nil, sl, g, index)
	if !it.SeekGE(key) {
		return stored{}, missing(it)
	}
	return currentStored(it, key)
}

// currentStored decodes the entry under the iterator, which must be the one with the key.
func currentStored(it *pebble.Iterator, key []byte) (stored, error) {
	if !bytes.Equal(it.Key(), key) {
		return stored{}, errMissing
	}
	v, err := it.ValueAndErr()
	if err != nil {
		return stored{}, err
	}
	return decodeStored(key, v)
}

// scan calls fn for the entries from index on, until last or until fn says no. All of them
// must be there. What h holds is good until fn returns.
func (r *reader) scan(index, last uint64, fn func(index uint64, h *stored) (bool, error)) error {
	var h stored // one for all
	for i := r.g.segmentOf(index); index <= last; i++ {
		if i < 0 || i >= len(r.g.dirs) {
			return r.fault(index, "directory", errMissing)
		}
		seg := r.g.segment(i)
		r.key = appendLogKey(r.key[:0], seg.slot, r.g.id, index)
		ok := r.it.SeekGE(r.key)
		for end := min(seg.last, last); index <= end; index++ {
			if !ok {
				return r.fault(index, "entry", missing(r.it))
			}
			r.key = appendLogKey(r.key[:0], seg.slot, r.g.id, index)
			var err error
			if h, err = currentStored(r.it, r.key); err != nil {
				return r.fault(index, "entry", err)
			}
			more, err := fn(index, &h)
			if err != nil || !more {
				return err
			}
			ok = index < end && r.it.Next()
		}
	}
	return nil
}

// checkRange answers raft's two questions about [lo, hi).
func (r *reader) checkRange(lo, hi uint64) error {
	switch {
	case lo <= r.g.base.Index:
		return fmt.Errorf("%w: group %d entry %d, base %d", ErrCompacted, r.g.id, lo, r.g.base.Index)
	case hi > r.g.last+1 || lo > hi:
		return fmt.Errorf("%w: group %d entries %d to %d, last %d", ErrUnavailable, r.g.id, lo, hi, r.g.last)
	}
	return nil
}

// Entries gives the entries from lo up to hi, without hi, as many as fit into maxBytes of
// data, but at least one if lo < hi. The data is the caller's. Errors: ErrCompacted,
// ErrUnavailable, *CorruptError.
func (s *Store) Entries(id record.GroupID, lo, hi uint64, maxBytes int64) ([]Entry, error) {
	var es []Entry
	err := s.read(id, func(r *reader) error {
		es = nil
		if err := r.checkRange(lo, hi); err != nil || lo == hi {
			return err
		}
		var total int64
		return r.scan(lo, hi-1, func(index uint64, h *stored) (bool, error) {
			total += int64(len(h.Data))
			if len(es) > 0 && total > maxBytes {
				return false, nil
			}
			e := h.entry(index)
			e.Data = bytes.Clone(e.Data)
			es = append(es, e)
			return total < maxBytes, nil
		})
	})
	if err != nil {
		return nil, err
	}
	return es, nil
}

// Headers calls fn for each entry from lo up to hi, without hi, in order: with the entry
// but instead of its data only the first 61 bytes of it if it is a batch, and nil else; size
// is the data's. Data is good until fn returns. An error of fn ends it and is returned.
func (s *Store) Headers(id record.GroupID, lo, hi uint64, fn func(e Entry, size int64) error) error {
	return s.read(id, func(r *reader) error {
		if err := r.checkRange(lo, hi); err != nil || lo == hi {
			return err
		}
		return r.scan(lo, hi-1, func(index uint64, h *stored) (bool, error) {
			e := h.entry(index)
			size := int64(len(e.Data))
			if e.Kind == KindBatch {
				e.Data = e.Data[:min(len(e.Data), batchHeaderBytes)]
			} else {
				e.Data = nil
			}
			lo = index + 1 // where to go on with another view
			return true, fn(e, size)
		})
	})
}

// seekOffset finds the entry from which a scan meets the batch that holds offset o soon: the
// last point of the index at or before it. o is from base.NextOffset on and below next.
func (r *reader) seekOffset(o record.Offset) (uint64, error) {
	i := r.g.segmentOfOffset(o)
	if i < 0 {
		return r.g.base.Index + 1, nil
	}
	seg := r.g.segment(i)
	start := max(seg.first, r.g.base.Index+1)
	r.key = appendLogKey(r.key[:0], seg.slot, r.g.id, pointBit|uint64(o)+1)
	if !r.it.SeekLT(r.key) {
		if err := r.it.Error(); err != nil {
			return 0, r.fault(0, "index", err)
		}
		return start, nil
	}
	sl, id, index, parsed := parseLogKey(r.it.Key())
	if !parsed || sl != seg.slot || id != r.g.id || index < pointBit {
		return start, nil
	}
	// Points of a suffix that was replaced are of offsets at or after the segment's end.
	p, err := r.currentPoint()
	if err == nil && p.Index > seg.last {
		err = r.fault(p.Index, "index", errors.New("a point leads out of its bucket"))
	}
	return max(start, p.Index), err
}

func (r *reader) currentPoint() (point, error) {
	v, err := r.it.ValueAndErr()
	if err == nil {
		var p point
		if p, err = decodePoint(r.it.Key(), v); err == nil {
			return p, nil
		}
	}
	return point{}, r.fault(0, "index", err)
}

// ReadFrom appends to buf the batches from the one that holds offset from on, whole ones,
// as long as they end at or before limit and fit into maxBytes; the first one always comes
// whole, and a large one (tableBlockBytes) that would just fit may be left for the next call.
// next is the offset to go on with. Nothing is appended if from is limit or later.
// buf may be used again by the caller; it is the caller's word that limit is no higher than
// the high watermark.
//
// Errors: record.ErrOffsetOutOfRange before the log start or after the end, *CorruptError;
// with an error out is buf as it was.
func (s *Store) ReadFrom(id record.GroupID, from, limit record.Offset, maxBytes int64, buf []byte) (out []byte, next record.Offset, err error) {
	err = s.read(id, func(r *reader) error {
		out, next = buf, from
		if from < r.g.base.LogStart || from > r.g.next {
			return fmt.Errorf("%w: offset %d, log %d to %d", record.ErrOffsetOutOfRange, from, r.g.base.LogStart, r.g.next)
		}
		if from >= min(limit, r.g.next) {
			return nil
		}
		index, hinted := s.cursors.find(id, from)
		hinted = hinted && index > r.g.base.Index && index <= r.g.last
		if !hinted {
			if index, err = r.seekOffset(from); err != nil {
				return err
			}
		}
		took, err := r.readBatches(index, limit, maxBytes, &out, &next)
		if hinted && took == 0 { // the log has changed since
			out, next = buf, from
			if index, err = r.seekOffset(from); err != nil {
				return err
			}
			took, err = r.readBatches(index, limit, maxBytes, &out, &next)
		}
		if err == nil && took > 0 {
			s.cursors.remember(id, next, took+1)
		}
		return err
	})
	if err != nil {
		return buf, from, err
	}
	return out, next, nil
}

// readBatches appends to out what ReadFrom promises, from the entry index on, and sets next. last is
// the entry it took last, 0 for none.
func (r *reader) readBatches(index uint64, limit record.Offset, maxBytes int64, out *[]byte, next *record.Offset) (last uint64, err error) {
	begin := len(*out)
	err = r.scan(index, r.g.last, func(index uint64, h *stored) (bool, error) {
		size := int64(len(*out) - begin)
		switch {
		case h.Pos > *next: // the one that holds next should have come
			return false, r.fault(index, "offsets", fmt.Errorf("%w: offset %d", errMissing, *next))
		case h.Kind != KindBatch || h.end() <= *next:
			return true, nil
		case h.end() > limit, size > 0 && size+int64(len(h.Data)) > maxBytes:
			return false, nil
		}
		if size == 0 && h.end() < limit {
			*out = slices.Grow(*out, int(min(maxBytes, likely(h, min(limit, r.g.next)))))
		}
		*out = append(*out, h.Data...)
		*next, last = h.end(), index
		// A batch as large as a table's block is alone in it, so the next one is not read only to see
		// that it does not fit: it is taken to be about as large.
		size += int64(len(h.Data))
		fits := len(h.Data) < tableBlockBytes || size+int64(len(h.Data))*7/8 <= maxBytes
		return *next < limit && fits, nil
	})
	return last, err
}

// likely is how many bytes the log has from a batch on up to limit, if all records are as large as the
// batch's: room that is made once need not grow, copy by copy.
func likely(h *stored, limit record.Offset) int64 {
	return max(int64(limit-h.Pos)*int64(len(h.Data))/int64(h.end()-h.Pos), int64(len(h.Data)))
}

// OffsetForTime finds the first batch below limit that is not wholly before the log start and
// whose newest record is of time ms or later: its base offset and that newest time. false if
// there is none.
func (s *Store) OffsetForTime(id record.GroupID, ms int64, limit record.Offset) (o record.Offset, ts int64, ok bool, err error) {
	err = s.read(id, func(r *reader) (err error) {
		o, ts, ok, err = r.offsetForTime(ms, limit)
		return err
	})
	if err != nil {
		return 0, 0, false, err
	}
	return o, ts, ok, nil
}

func (r *reader) offsetForTime(ms int64, limit record.Offset) (o record.Offset, ts int64, ok bool, err error) {
	for i := range r.g.dirs {
		seg := r.g.segment(i)
		if seg.offset >= limit {
			break
		}
		if seg.maxTs < ms {
			continue
		}
		start, err := r.seekTime(seg, ms)
		if err != nil {
			return 0, 0, false, err
		}
		err = r.scan(start, seg.last, func(_ uint64, h *stored) (bool, error) {
			if h.Pos >= limit {
				return false, nil
			}
			if h.Kind == KindBatch && h.MaxTs >= ms && h.end() > r.g.base.LogStart {
				o, ts, ok = h.Pos, h.MaxTs, true
			}
			return !ok, nil
		})
		if ok || err != nil {
			return o, ts, ok, err
		}
	}
	return 0, 0, false, nil
}

// seekTime gives the entry of a segment from which a scan meets all batches of time ms or later.
func (r *reader) seekTime(seg segment, ms int64) (uint64, error) {
	start := max(seg.first, r.g.base.Index+1)
	err := r.points(seg, func(_ record.Offset, p point) bool {
		if p.MaxTsBefore >= ms {
			return false
		}
		start = max(start, p.Index)
		return true
	})
	return start, err
}

// points calls fn for the points of a segment in order, until it says no.
func (r *reader) points(seg segment, fn func(o record.Offset, p point) bool) error {
	r.key = appendLogKey(r.key[:0], seg.slot, r.g.id, pointBit)
	for ok := r.it.SeekGE(r.key); ok; ok = r.it.Next() {
		sl, id, index, parsed := parseLogKey(r.it.Key())
		if !parsed || sl != seg.slot || id != r.g.id {
			return nil
		}
		p, err := r.currentPoint()
		if err != nil {
			return err
		}
		if p.Index <= r.g.base.Index {
			continue
		}
		if p.Index > seg.last || !fn(record.Offset(index&^pointBit), p) {
			return nil
		}
	}
	if err := r.it.Error(); err != nil {
		return r.fault(0, "index", err)
	}
	return nil
}

// BaseAt gives the base that keeps the batch which holds offset o, and everything after it:
// what Update.Base wants for a log start of o. o is from the log start on, at most next.
func (s *Store) BaseAt(id record.GroupID, o record.Offset) (b Base, err error) {
	err = s.read(id, func(r *reader) (err error) {
		b, err = r.baseAt(o)
		return err
	})
	return b, err
}

func (r *reader) baseAt(o record.Offset) (b Base, err error) {
	g := &r.g
	switch {
	case o < g.base.LogStart || o > g.next:
		return b, fmt.Errorf("%w: offset %d, log %d to %d", record.ErrOffsetOutOfRange, o, g.base.LogStart, g.next)
	case o == g.next:
		return Base{Index: g.last, Term: g.term(g.last), NextOffset: g.next, LogStart: o}, nil
	}
	index, err := r.seekOffset(o)
	if err != nil {
		return b, err
	}
	found := false
	err = r.scan(index, g.last, func(index uint64, h *stored) (bool, error) {
		if h.Kind == KindBatch && h.end() > o {
			b = Base{Index: index - 1, Term: g.term(index - 1), NextOffset: h.Pos, LogStart: o}
			found = true
		}
		return !found, nil
	})
	if err == nil && !found {
		err = r.fault(0, "offsets", fmt.Errorf("%w: offset %d", errMissing, o))
	}
	return b, err
}

// Term of an entry from the base to the last; false for others. It reads no disk.
func (s *Store) Term(id record.GroupID, index uint64) (uint64, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	g, ok := s.mu.groups[id]
	if !ok || g.err != nil || index < g.base.Index || index > g.last {
		return 0, false
	}
	return g.term(index), true
}

// EpochEnd answers where an epoch ends: the largest epoch that is stored and no newer than e,
// and the offset after its last one, at most limit. If e is older than all that is stored it
// is e itself with the log's first offset; if e is newer, NoEpoch and -1. It reads no disk.
func (s *Store) EpochEnd(id record.GroupID, e record.Epoch, limit record.Offset) (record.Epoch, record.Offset) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	g, ok := s.mu.groups[id]
	if !ok || g.err != nil || len(g.runs) == 0 || e < 0 {
		return record.NoEpoch, -1
	}
	last := len(g.runs) - 1
	if uint64(e) > g.runs[last].Term {
		return record.NoEpoch, -1
	}
	i := last
	for i >= 0 && g.runs[i].Term > uint64(e) {
		i--
	}
	end := g.next
	if i < last {
		end = max(g.runs[i+1].Offset, g.base.NextOffset)
	}
	if i < 0 {
		return e, min(end, limit)
	}
	return record.Epoch(g.runs[i].Term), min(end, limit)
}

// Size is how many bytes of entry data a group's log holds after its base; 0 if there is no such group.
func (s *Store) Size(id record.GroupID) int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if g, ok := s.mu.groups[id]; ok && g.err == nil {
		return g.size
	}
	return 0
}
