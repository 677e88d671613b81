package storage

import (
	"slices"

	"edged/record"
)

// check says why an update would break a law of the log, before anything of it is staged.
func (w *writer) check(g *group, u *Update) error {
	if err := checkReset(u); err != nil {
		return err
	}
	end, err := w.checkEntries(g, u)
	if err != nil {
		return err
	}
	if hs := u.HardState; hs != nil && g != nil && (u.Reset == nil || u.Replica == 0 || u.Replica == g.replica) {
		switch {
		case hs.Term < g.hs.Term:
			return refuse(u.Group, "term %d goes back from %d", hs.Term, g.hs.Term)
		case hs.Term == g.hs.Term && g.hs.Vote != 0 && hs.Vote != g.hs.Vote:
			return refuse(u.Group, "second vote in term %d: for %v after %v", hs.Term, hs.Vote, g.hs.Vote)
		}
	}
	base, applied := Base{}, uint64(0)
	if u.Reset == nil {
		base, applied = g.base, g.applied
	} else {
		base = *u.Reset
	}
	if u.Base != nil {
		if err := w.checkBase(g, u, end); err != nil {
			return err
		}
		base = *u.Base
	}
	if u.Checkpoint != nil {
		applied = u.Checkpoint.Applied
		if err := checkCheckpoint(u, base); err != nil {
			return err
		}
	}
	if applied < base.Index || applied > end.last {
		return refuse(u.Group, "the checkpoint is of entry %d, the log goes from base %d to %d", applied, base.Index, end.last)
	}
	return nil
}

func checkReset(u *Update) error {
	r := u.Reset
	switch {
	case r == nil:
		return nil
	case r.Index >= pointBit || r.NextOffset < 0 || r.LogStart < r.NextOffset:
		return refuse(u.Group, "reset to base %d, next offset %d, log start %d", r.Index, r.NextOffset, r.LogStart)
	case u.Checkpoint == nil || u.Checkpoint.Applied != r.Index:
		return refuse(u.Group, "a reset to base %d needs the checkpoint of that entry", r.Index)
	case u.Base != nil:
		return refuse(u.Group, "a reset and a base in one update")
	}
	return nil
}

// logEnd is where a log ends.
type logEnd struct {
	last, term uint64
	next       record.Offset
}

// checkEntries says where the log will end.
func (w *writer) checkEntries(g *group, u *Update) (end logEnd, err error) {
	if u.Reset != nil {
		end = logEnd{u.Reset.Index, u.Reset.Term, u.Reset.NextOffset}
	} else {
		end = logEnd{g.last, g.term(g.last), g.next}
	}
	if len(u.Entries) == 0 {
		return end, nil
	}
	if first := u.Entries[0].Index; first <= end.last {
		if u.Reset != nil || first <= g.base.Index || first <= g.applied {
			return end, refuse(u.Group, "entry %d is before what is applied", first)
		}
		end = logEnd{last: first - 1, term: g.term(first - 1), next: g.base.NextOffset}
		if end.last > g.base.Index {
			h, err := w.stored(g, end.last)
			if err != nil {
				return end, err
			}
			end.next = h.end()
		}
	}
	for i := range u.Entries {
		e := &u.Entries[i]
		if reason := checkEntry(e, end); reason != "" {
			return end, refuse(u.Group, "entry %d: %s (after entry %d of term %d, next offset %d)", e.Index, reason, end.last, end.term, end.next)
		}
		end = logEnd{e.Index, e.Term, end.next + record.Offset(e.Count)}
	}
	return end, nil
}

func checkEntry(e *Entry, end logEnd) string {
	switch {
	case e.Index != end.last+1 || e.Index >= pointBit:
		return "its index does not follow"
	case e.Term < end.term || e.Term == 0:
		return "its term goes back"
	case e.Kind >= kindEnd:
		return "its kind is not known"
	case len(e.Data) > MaxEntryBytes:
		return "it is too large"
	case e.Kind == KindBatch && e.BaseOffset != end.next:
		return "its base offset is not the next offset"
	case e.Kind == KindBatch && (e.Count <= 0 || e.End() < e.BaseOffset):
		return "it spans no offsets"
	case e.Kind != KindBatch && (e.Count != 0 || e.BaseOffset != 0 || e.MaxTimestamp != 0):
		return "it has offsets but is no batch"
	}
	return ""
}

// checkBase compares a new base with the entry that it names.
func (w *writer) checkBase(g *group, u *Update, end logEnd) error {
	b := u.Base
	if b.Index < g.base.Index || b.LogStart < g.base.LogStart || b.Index > end.last {
		return refuse(u.Group, "base %d, log start %d: the log goes from base %d, log start %d, to entry %d",
			b.Index, b.LogStart, g.base.Index, g.base.LogStart, end.last)
	}
	term, next := end.term, end.next
	switch {
	case b.Index == end.last:
	case len(u.Entries) > 0 && b.Index >= u.Entries[0].Index:
		term, next = logAt(u.Entries, b.Index, end.next)
	case b.Index == g.base.Index:
		term, next = g.base.Term, g.base.NextOffset
	default:
		h, err := w.stored(g, b.Index)
		if err != nil {
			return err
		}
		term, next = h.Term, h.end()
	}
	if b.Term != term || b.NextOffset != next {
		return refuse(u.Group, "base %d has term %d and next offset %d, but the log has %d and %d there", b.Index, b.Term, b.NextOffset, term, next)
	}
	if b.LogStart < b.NextOffset || b.LogStart > end.next {
		return refuse(u.Group, "log start %d is not between %d and %d", b.LogStart, b.NextOffset, end.next)
	}
	return nil
}

// logAt is the term of the entry with the index, and the next offset after it. The entries
// end with offset end.
func logAt(es []Entry, index uint64, end record.Offset) (term uint64, next record.Offset) {
	next = end
	for i := len(es) - 1; es[i].Index > index; i-- {
		next -= record.Offset(es[i].Count)
		term = es[i-1].Term
	}
	return term, next
}

func checkCheckpoint(u *Update, base Base) error {
	c := u.Checkpoint
	switch {
	case len(c.Confs) > 0 && c.Confs[0].Index > base.Index:
		return refuse(u.Group, "the checkpoint's first configuration is of entry %d, after base %d", c.Confs[0].Index, base.Index)
	case len(c.Confs) > maxConfs:
		return refuse(u.Group, "the checkpoint has %d configurations; at most %d are kept", len(c.Confs), maxConfs)
	case len(c.State) > MaxCheckpointBytes:
		return refuse(u.Group, "the checkpoint has %d bytes; at most %d are kept", len(c.State), MaxCheckpointBytes)
	case c.NextOffset < 0:
		return refuse(u.Group, "the checkpoint's next offset is %d", c.NextOffset)
	}
	for i := range c.Confs {
		conf := &c.Confs[i].Conf
		if i > 0 && c.Confs[i].Index <= c.Confs[i-1].Index {
			return refuse(u.Group, "the checkpoint's configurations are out of order")
		}
		if max(len(conf.Voters), len(conf.Learners), len(conf.VotersOutgoing), len(conf.LearnersNext)) > maxConfMembers {
			return refuse(u.Group, "a configuration has more than %d members", maxConfMembers)
		}
	}
	return nil
}

// entryCost bounds what one entry stages, with the keys that may go with it.
func entryCost(e *Entry) int64 { return int64(len(e.Data)) + 6*(nodeReserve+128) }

// appendEntries stages entries that were checked.
func (w *writer) appendEntries(g *group, es []Entry) error {
	if len(es) == 0 {
		return nil
	}
	cut := es[0].Index <= g.last
	if cut {
		if err := w.truncate(g, &es[0]); err != nil {
			return err
		}
	}
	for i := range es {
		if i > 0 || !cut { // the first new entry stands in the batch that deletes the old ones
			if err := w.room(entryCost(&es[i])); err != nil {
				return err
			}
		}
		if err := w.appendEntry(g, &es[i]); err != nil {
			return err
		}
	}
	return nil
}

// truncate stages the end of all entries from first's index on. Those in the open bucket are
// deleted; those in closed ones are shadowed: the new directory entry names the last one before
// it that counts, and those between are not looked at again.
//
// The same batch must hold a new entry. Without it the last directory entry would be one of a
// closed bucket, and the bucket's own last entry would be taken for the log's.
func (w *writer) truncate(g *group, first *Entry) error {
	index := first.Index
	tail := stored{Pos: g.base.NextOffset, BucketMaxTs: noTimestamp}
	if index-1 > g.base.Index {
		var err error
		if tail, err = w.stored(g, index-1); err != nil {
			return err
		}
	}
	cost := entryCost(first) + int64(len(g.dirs)+len(g.runs))*(nodeReserve+64)
	if err := w.room(cost); err != nil {
		return err
	}
	w.destructive = true
	all := index == g.base.Index+1 // what stays of the buckets is dead
	keep := len(g.dirs)
	for keep > 0 && (all || g.dirs[keep-1].first >= index) {
		keep--
		sl := g.dirs[keep].slot
		w.dropped = append(w.dropped, sl)
		if sl.bucket() == w.bucket {
			if err := w.deleteFrom(sl, g.id, 0, 0); err != nil {
				return err
			}
		}
	}
	if keep > 0 && g.dirs[keep-1].slot.bucket() == w.bucket {
		if err := w.deleteFrom(g.dirs[keep-1].slot, g.id, index, tail.end()); err != nil {
			return err
		}
	}
	runs := len(g.runs)
	for runs > 0 && (all || g.runs[runs-1].Index >= index) {
		runs--
		w.key = appendRunKey(w.key[:0], g.id, g.runs[runs].Index)
		if err := w.delete(w.key); err != nil {
			return err
		}
	}
	g.dirs, g.runs = slices.Clone(g.dirs[:keep]), slices.Clone(g.runs[:runs])
	g.last, g.next = index-1, tail.end()
	g.tailBytes, g.tailMaxTs = tail.BucketBytes, tail.BucketMaxTs
	g.pointBytes, g.pointTs = 0, noTimestamp
	if all {
		g.headBytes = 0
	}
	g.resize()
	if all {
		return w.setMeta(g, metaBase) // for headBytes
	}
	return nil
}

// appendEntry stages one entry behind the last, in the open bucket, with the keys that it is the first to need.
func (w *writer) appendEntry(g *group, e *Entry) error {
	n := len(g.dirs)
	firstHere := n == 0 || g.dirs[n-1].slot.bucket() != w.bucket
	if firstHere {
		if err := w.appendDir(g, e.Index); err != nil {
			return err
		}
	}
	if r := len(g.runs); r == 0 || g.runs[r-1].Term != e.Term {
		run := TermRun{Index: e.Index, Term: e.Term, Offset: g.next}
		w.key = appendRunKey(w.key[:0], g.id, e.Index)
		if err := w.set(w.key, encodeRun(w.key, run)); err != nil {
			return err
		}
		g.runs = append(g.runs, run)
	}
	sl := g.dirs[len(g.dirs)-1].slot
	if e.Kind == KindBatch {
		if err := w.maybePoint(g, e, sl, firstHere); err != nil {
			return err
		}
		g.tailMaxTs = max(g.tailMaxTs, e.MaxTimestamp)
	}
	size := uint64(len(e.Data))
	g.tailBytes += size
	h := stored{Kind: e.Kind, Term: e.Term, Pos: g.next, Count: e.Count, MaxTs: e.MaxTimestamp,
		BucketBytes: g.tailBytes, BucketMaxTs: g.tailMaxTs, Data: e.Data}
	w.key = appendLogKey(w.key[:0], sl, g.id, e.Index)
	w.val = appendStored(w.val[:0], w.key, &h)
	if err := w.set(w.key, w.val); err != nil {
		return err
	}
	g.last, g.next = e.Index, h.end()
	g.size += int64(size)
	w.payload += int64(size)
	return nil
}

// appendDir stages that the open bucket holds g from index on.
func (w *writer) appendDir(g *group, index uint64) error {
	d := dirEntry{first: index, offset: g.next, prevMaxTs: noTimestamp, slot: makeSlot(g.class, w.bucket)}
	n := len(g.dirs)
	var prev slot
	if n > 0 {
		prev = g.dirs[n-1].slot
		d.prevBytes, d.prevMaxTs = uint32(g.tailBytes), g.tailMaxTs
	}
	w.key = appendDirKey(w.key[:0], w.bucket, g.id)
	val := encodeDir(w.key, &d, prev, n > 0)
	if faultLateDirectory {
		w.late.keep(w.key, val)
	} else if err := w.set(w.key, val); err != nil {
		return err
	}
	g.dirs = append(g.dirs, d)
	w.added = append(w.added, d.slot)
	g.tailBytes, g.tailMaxTs = 0, noTimestamp
	g.pointBytes, g.pointTs = 0, noTimestamp
	return nil
}

// maybePoint stages a point of the sparse index before a batch, if it is time for one. The
// directory entry is the point before the first batch of a bucket.
func (w *writer) maybePoint(g *group, e *Entry, sl slot, firstHere bool) error {
	since := g.tailBytes - g.pointBytes
	due := since >= indexBytes || since >= indexMinBytes && g.pointTs != noTimestamp && e.MaxTimestamp-g.pointTs >= indexMillis
	if firstHere || g.pointTs == noTimestamp {
		g.pointTs = e.MaxTimestamp
	}
	if firstHere || !due {
		return nil
	}
	w.key = appendLogKey(w.key[:0], sl, g.id, pointBit|uint64(e.BaseOffset))
	w.val = appendPoint(w.val[:0], w.key, point{Index: e.Index, BytesBefore: g.tailBytes, MaxTsBefore: g.tailMaxTs})
	g.pointBytes, g.pointTs = g.tailBytes, e.MaxTimestamp
	return w.set(w.key, w.val)
}
