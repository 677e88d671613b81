package storage

import (
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"edged/record"
)

// Report is what Verify found.
type Report struct {
	Groups  int
	Entries int64 // of all logs
	Batches int64 // those among them with offsets
	Points  int64 // of the sparse index
	Bytes   int64 // of the entries' data
	Buckets int   // of all classes, that hold anything
	// Dead are stored entries that no log leads to any more: before a base, of a group that
	// was removed, or replaced. They are no fault.
	Dead int64
	// Problems are the broken laws, the first maxProblems of them. Empty is good.
	Problems []string
	More     int // problems beyond those
}

const maxProblems = 100

func (r *Report) problem(format string, args ...any) {
	if len(r.Problems) >= maxProblems {
		r.More++
		return
	}
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// Verify reads all that is stored in dir, the directory of a node that does not run, and
// checks every law of it. It changes nothing. The error is for a store that cannot be opened
// at all; broken laws are in the report.
func Verify(fs vfs.FS, dir string) (Report, error) {
	s, err := Open(dir, fs, Options{ReadOnly: true})
	if err != nil {
		return Report{}, err
	}
	var r Report
	for _, st := range s.Groups() {
		r.Groups++
		if st.Err != nil {
			r.problem("%v", st.Err)
			continue
		}
		if err := s.verifyGroup(&r, st); err != nil {
			r.problem("%v", err)
		}
	}
	if err := s.verifyKeys(&r); err != nil {
		r.problem("%v", err)
	}
	r.Dead -= r.Entries + r.Points
	return r, s.Close()
}

func (s *Store) verifyGroup(rep *Report, st GroupState) error {
	return s.read(st.Group, func(r *reader) error { return r.verify(rep, st) })
}

// verify is called once: a store that is verified is open for nobody else.
func (r *reader) verify(rep *Report, st GroupState) error {
	g := &r.g
	c := &st.Checkpoint
	switch {
	case c.Applied < g.base.Index || c.Applied > g.last:
		rep.problem("group %d: the checkpoint is of entry %d, the log goes from base %d to %d", g.id, c.Applied, g.base.Index, g.last)
	case len(c.Confs) > 0 && c.Confs[0].Index > g.base.Index:
		rep.problem("group %d: the first configuration is of entry %d, after base %d", g.id, c.Confs[0].Index, g.base.Index)
	}
	v := verifier{rep: rep, r: r, end: logEnd{g.base.Index, g.base.Term, g.base.NextOffset}}
	for i := range g.dirs {
		if err := v.segment(i); err != nil {
			return err
		}
	}
	if v.end.last != g.last || v.end.next != g.next {
		rep.problem("group %d: the log ends with entry %d and offset %d instead of %d and %d", g.id, v.end.last, v.end.next, g.last, g.next)
	}
	if v.runs != len(g.runs) && g.last > g.base.Index {
		rep.problem("group %d: %d term runs are stored, the log has %d", g.id, len(g.runs), v.runs)
	}
	if v.bytes != g.size {
		rep.problem("group %d: the log has %d bytes, counted were %d", g.id, v.bytes, g.size)
	}
	return nil
}

// verifier walks one log.
type verifier struct {
	rep   *Report
	r     *reader
	end   logEnd
	runs  int // met so far
	bytes int64
}

// segment checks one bucket's part: every entry against the one before it and against what the
// directory, the term runs and the index say of it.
func (v *verifier) segment(i int) error {
	g := &v.r.g
	seg := g.segment(i)
	points := map[uint64]indexed{}
	err := v.r.points(seg, func(o record.Offset, p point) bool {
		points[p.Index] = indexed{o, p}
		return true
	})
	if err != nil {
		return err
	}
	v.rep.Points += int64(len(points))
	start := max(seg.first, g.base.Index+1)
	bytes, maxTs := uint64(0), int64(noTimestamp)
	if i == 0 {
		bytes = g.headBytes
	}
	whole := start == seg.first // else what was before start is not known
	if whole && v.end.next != seg.offset {
		v.rep.problem("group %d: bucket %d begins at offset %d, not %d", g.id, seg.slot.bucket(), v.end.next, seg.offset)
	}
	err = v.r.scan(start, seg.last, func(index uint64, h *stored) (bool, error) {
		v.entry(index, h)
		if p, ok := points[index]; ok {
			delete(points, index)
			if p.offset != h.Pos || p.BytesBefore != bytes || h.Kind != KindBatch || whole && p.MaxTsBefore != maxTs {
				v.rep.problem("group %d entry %d: its point of the index is wrong", g.id, index)
			}
		}
		bytes += uint64(len(h.Data))
		if h.Kind == KindBatch {
			maxTs = max(maxTs, h.MaxTs)
		}
		if h.BucketBytes != bytes || h.BucketMaxTs < maxTs || whole && h.BucketMaxTs != maxTs {
			v.rep.problem("group %d entry %d: it counts %d bytes in its bucket, not %d, or its newest time is wrong", g.id, index, h.BucketBytes, bytes)
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	if seg.bytes != bytes || whole && seg.maxTs != maxTs {
		v.rep.problem("group %d: bucket %d has %d bytes, the directory says %d, or its newest time is wrong", g.id, seg.slot.bucket(), bytes, seg.bytes)
	}
	for index := range points {
		v.rep.problem("group %d: a point of the index leads to entry %d, which is not there", g.id, index)
	}
	return nil
}

type indexed struct {
	offset record.Offset
	point
}

func (v *verifier) entry(index uint64, h *stored) {
	g := &v.r.g
	e := h.entry(index)
	if reason := checkEntry(&e, v.end); reason != "" {
		v.rep.problem("group %d entry %d: %s", g.id, index, reason)
	}
	if h.Pos != v.end.next {
		v.rep.problem("group %d entry %d: it stands at offset %d, not %d", g.id, index, h.Pos, v.end.next)
	}
	if i := slices.IndexFunc(g.runs, func(r TermRun) bool { return r.Index == index }); v.runs == 0 || h.Term != v.end.term {
		v.runs++
		if i < 0 && v.runs > 1 || i >= 0 && (g.runs[i].Term != h.Term || g.runs[i].Offset != h.Pos) {
			v.rep.problem("group %d entry %d: term %d begins, the term runs say otherwise", g.id, index, h.Term)
		}
	}
	if g.term(index) != h.Term {
		v.rep.problem("group %d entry %d: its term is %d, the term runs say %d", g.id, index, h.Term, g.term(index))
	}
	v.end = logEnd{index, h.Term, h.end()}
	v.bytes += int64(len(h.Data))
	v.rep.Entries++
	v.rep.Bytes += int64(len(h.Data))
	if h.Kind == KindBatch {
		v.rep.Batches++
	}
}

// verifyKeys looks at every key there is.
func (s *Store) verifyKeys(rep *Report) error {
	it, err := s.db.NewIter(&pebble.IterOptions{})
	if err != nil {
		return err
	}
	var at slot
	for ok := it.First(); ok; ok = it.Next() {
		k := it.Key()
		switch {
		case k[0] == prefixLog:
			sl, _, _, ok := parseLogKey(k)
			if !ok {
				rep.problem("key %x is none of ours", k)
				continue
			}
			if sl != at || rep.Buckets == 0 {
				at = sl
				rep.Buckets++
			}
			if sl.bucket() >= s.mu.openBucket {
				rep.problem("key %x is of a bucket that was never begun", k)
			}
			rep.Dead++ // what lives is taken off at the end
		case k[0] == prefixMeta:
			if _, _, _, ok := parseMetaKey(k); !ok {
				rep.problem("key %x is none of ours", k)
			}
		case k[0] == prefixDir:
			if bucket, _, _, ok := parseDirKey(k); !ok || bucket >= s.mu.openBucket {
				rep.problem("key %x is none of ours", k)
			}
		case string(k) != string(formatKey()):
			rep.problem("key %x is none of ours", k)
		}
	}
	return join(it.Error(), it.Close())
}
