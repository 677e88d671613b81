package node

import (
	"errors"
	"fmt"
	"time"

	"edged/metadata"
	"edged/partition"
	"edged/record"
)

// janitorEvery is how often retention is looked at. It reads memory only unless something has
// to go, so an idle node writes nothing.
const janitorEvery = 5 * time.Second

// Options.Quiet is called when nothing has been stored for quietAfter, and again each quietEvery: the
// garbage of a minute of beats and gossip is half as much as the data of a node with 1,000 partitions.
const (
	quietAfter = 6 * janitorEvery
	quietEvery = 12 * janitorEvery
)

// runJanitor applies retention in the partitions that this node leads, and gives space back.
func (n *Node) runJanitor() {
	ticker := time.NewTicker(janitorEvery)
	defer ticker.Stop()
	for {
		waits := time.Now()
		select {
		case <-ticker.C:
			n.noteStandstill(time.Since(waits))
		case <-n.disk.bell:
		case <-n.ctx.Done():
			return
		}
		n.lookAtClock()
		n.noteLeadership()
		n.tidyNotes()
		if n.host.Load() == nil || n.failure() != nil {
			continue
		}
		n.host.Load().LookForRoom()
		n.lookForLag()
		n.applyRetention(n.opts.Wall())
		n.trimOldest()
		if freed, err := n.store.Reclaim(); err != nil {
			n.log.Warn("space could not be given back; it is tried again", "err", err)
		} else if freed > 0 {
			n.log.Info("space given back", "bytes", freed)
		}
	}
}

// stillLeast is the shortest standstill that is told.
const stillLeast = 2 * time.Second

// noteStandstill tells that the wait for the next turn, which is janitorEvery at most, took far longer: what was slow
// or lost meanwhile has this reason.
func (n *Node) noteStandstill(waited time.Duration) {
	if still := waited - janitorEvery; still >= stillLeast {
		n.note(eventProcess, fmt.Sprintf("this process stood still for %v to %v: it or its machine was stopped or suspended, or had no CPU; what others saw of this node meanwhile has this reason, not the disk or the network",
			still.Round(time.Second), waited.Round(time.Second)))
	}
}

// tidyNotes keeps what should outlive a power cut; it writes only what has changed, and rarely.
func (n *Node) tidyNotes() {
	n.wear.sample(time.Since(n.started))
	var clock error
	stored := n.commits()
	if stored { // an idle node writes nothing
		clock = n.clock.save(false)
	}
	if n.quiet.turn(stored) && n.opts.Quiet != nil {
		n.opts.Quiet()
	}
	if err := errors.Join(clock, n.wear.save(false), n.notes.save(false)); err != nil {
		n.log.Debug("notes were not kept", "err", err)
	}
}

// commits tells whether something was stored since the last look. The janitor's.
func (n *Node) commits() bool {
	now := n.store.Metrics().Commits
	was := n.committed
	n.committed = now
	return now != was
}

// quiet counts the janitor's turns in a row in which nothing was stored.
type quiet int

// turn counts one more and tells whether it is one for Options.Quiet.
func (q *quiet) turn(stored bool) bool {
	if *q++; stored {
		*q = 0
	}
	return *q%quiet(quietEvery/janitorEvery) == quiet(quietAfter/janitorEvery)
}

// applyRetention asks the Core to move the beginning of partitions whose oldest records are past
// their topic's limits. The leader decides, by an entry in the log, so that all replicas agree.
func (n *Node) applyRetention(now time.Time) {
	h, picture, came := n.host.Load(), n.machine.Picture(), &n.came
	if n.caughtUp() {
		came.retain(func(g record.GroupID) bool { _, ok := picture.Group(g); return ok })
	}
	for _, t := range picture.Topics() {
		c := t.Configs
		if c.Cleanup == metadata.CleanupCompact {
			continue // what could go is not looked for yet, and the rest is to stay
		}
		for _, p := range t.Partitions {
			part := h.Lookup(p.Group)
			if part == nil {
				continue
			}
			if c.RetentionMs != metadata.Unlimited {
				came.note(p.Group, time.Since(n.started), part.HighWatermark(), c.RetentionMs)
			}
			if v := part.View(); v.Role != partition.RoleLeader || !v.Serving || part.HighWatermark() == part.LogStart() {
				continue
			}
			keep := record.Offset(-1)
			if c.RetentionBytes != metadata.Unlimited {
				if k, ok := n.store.RetentionPoint(p.Group, 0, c.RetentionBytes, part.HighWatermark()); ok {
					keep = k
				}
			}
			if c.RetentionMs != metadata.Unlimited {
				keep = max(keep, n.keepByTime(p.Group, part, now, c.RetentionMs))
			}
			if keep > part.LogStart() {
				n.moveLogStart(t.Name, p.Group, keep, c.RetentionBytes)
			}
		}
	}
}

// keepByTime is the first offset to keep by the records' age, -1 if nothing is to go by it. Age is what
// the records' timestamps say, unless they cannot be right: nothing is old for a clock that is not
// trusted or has just jumped, nor is a record stamped by one that was never set, until one behind it is; and what came to
// this process less than the retention ago stays, whichever way clocks were set meanwhile.
func (n *Node) keepByTime(g record.GroupID, part *partition.Partition, now time.Time, retention int64) record.Offset {
	if !n.clock.mayDelete() {
		return -1
	}
	high := part.HighWatermark()
	keep, ok := n.store.RetentionPoint(g, max(now.UnixMilli()-retention, 0), -1, high)
	if !ok {
		return -1
	}
	stamped, _, ok, err := n.store.OffsetForTime(g, epochStart.UnixMilli(), high)
	if err != nil || !ok || keep <= stamped {
		return -1
	}
	return min(keep, n.came.before(g, time.Since(n.started), retention))
}

// moveLogStart proposes a new beginning. Live followers that are behind are waited for, unless the
// partition has grown to twice its limit.
func (n *Node) moveLogStart(topic string, g record.GroupID, keep record.Offset, limit int64) {
	base, err := n.store.BaseAt(g, keep)
	if err != nil {
		n.log.Warn("retention", "topic", topic, "group", g, "err", err)
		return
	}
	n.host.Load().MoveLogStart(&partition.LogStartRequest{
		Group: g, Index: base.Index + 1, Base: base.NextOffset, Offset: keep,
		Force: limit > 0 && n.store.Size(g) > 2*limit,
		Done: func(err error) {
			if err != nil && !errors.Is(err, record.ErrBusy) && !record.Retriable(err) {
				n.log.Warn("retention", "topic", topic, "group", g, "err", err)
			}
		},
	})
}
