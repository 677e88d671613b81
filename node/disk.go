package node

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"edged/metadata"
	"edged/partition"
	"edged/record"
	"edged/storage"
	"edged/transport/peer"
)

// keepFree is how much of the disk, in bytes, is left free: for what is under way when it is
// noticed, for tables that are written before their logs go, and for what makes room again.
const keepFree = 16 << 20

// keepTight is what is left free of that by records that leaders elsewhere had on their way when it was noticed.
const keepTight = 4 << 20

// reserveSize is what a reserve file keeps beside that, for a disk that others fill at once: a 16th of a
// small disk.
func reserveSize(total int64) int64 { return min(8<<20, total/16) }

// startRoom is what a start may have to write before the store is open.
const startRoom = 1 << 20

// diskHealth is what the store has told of its disk.
type diskHealth struct {
	bell      chan struct{} // capacity 1: the janitor should look for room now
	full      atomic.Bool   // as it was told last
	slowSince atomic.Int64  // of this life in ns: a sync of the log has taken long, and goes on; 0 if none
	slow      atomic.Int64  // syncs of the log that took long
}

// stalledAfter is how long one sync of the log may take before the node says that it is not ready.
const stalledAfter = 3 * time.Second

// stalled tells for how long the disk has not answered.
func (n *Node) stalled() time.Duration {
	since := n.disk.slowSince.Load()
	if since == 0 {
		return 0
	}
	return time.Since(n.started) - time.Duration(since)
}

// onStorage hears of trouble with the disk. It must not block or call the store.
func (n *Node) onStorage(e storage.Event) {
	text := e.Text
	if e.Err != nil {
		text += ": " + inLine(e.Err)
	}
	switch e.Kind {
	case storage.EventFatal:
		n.note(eventDisk, text)
		n.fail(e.Err)
		n.freezeOnce.Do(func() { close(n.froze) })
	case storage.EventSlowDisk:
		if e.Took == 0 {
			n.disk.slowSince.Store(int64(time.Since(n.started)))
			n.disk.slow.Add(1)
		} else {
			n.disk.slowSince.Store(0)
		}
		n.note(eventDisk, text)
	case storage.EventDiskFull:
		if !n.disk.full.Swap(true) {
			n.note(eventDisk, text)
		}
		select {
		case n.disk.bell <- struct{}{}:
		default:
		}
	case storage.EventCorruption:
		n.noteCorruption(e)
		n.wake() // what is damaged is fetched anew
	default:
		n.log.Warn("storage: " + text)
	}
}

// room tells whether the disk has room for more records.
func (n *Node) room() bool {
	ok := n.store.Room(keepFree)
	if was := n.disk.full.Swap(!ok); was != !ok {
		if ok {
			n.noteWell(eventDisk, "the disk has room again: records are taken")
		} else {
			n.note(eventDisk, fmt.Sprintf("the disk has less than %d MiB free: no records are taken, leadership goes to others that have room", keepFree>>20))
		}
	}
	return ok
}

// trimOldest keeps the records of this node within retention-percent of its disk: what came first goes first,
// over all topics. Only whole buckets go, of about a memtable each.
func (n *Node) trimOldest() {
	percent := int64(n.live.Load().RetentionPercent)
	if percent == 0 {
		return
	}
	_, total, err := n.store.FreeSpace()
	if err != nil {
		return
	}
	over := n.store.LiveBytes() - total/100*percent
	if over <= 0 {
		return
	}
	picture := n.machine.Picture()
	oldest := n.store.Oldest(over, func(g record.GroupID) bool { return mayTrim(picture, g) })
	for g, keep := range oldest {
		part := n.host.Load().Lookup(g)
		if part == nil || part.LogStart() >= keep {
			continue
		}
		leader, _ := n.leaderOf(g, part)
		switch {
		case leader == n.ident.Get().Node:
			n.trim(g, keep)
		case leader != record.NoNode:
			ctx, cancel := context.WithTimeout(n.ctx, askTimeout)
			var none struct{}
			if err := n.call(ctx, leader, opTrim, trimCall{g, keep}, &none); err != nil {
				n.log.Debug("the leader of a partition did not trim it", "group", g, "leader", leader, "err", err)
			}
			cancel()
		}
	}
}

// mayTrim tells whether a group holds records that a limit of the node may delete: those of topics that are
// to be kept for ever by key are not.
func mayTrim(p *metadata.Picture, g record.GroupID) bool {
	at, ok := p.Group(g)
	return ok && !at.Topic.Internal() && at.Topic.Configs.Cleanup != metadata.CleanupCompact
}

// trim moves the beginning of a partition that is led here, at most to what is committed.
func (n *Node) trim(g record.GroupID, keep record.Offset) {
	at, ok := n.machine.Picture().Group(g)
	part := n.host.Load().Lookup(g)
	if !ok || part == nil || part.View().Role != partition.RoleLeader || !part.View().Serving {
		return
	}
	if keep = min(keep, part.HighWatermark()); keep > part.LogStart() {
		n.moveLogStart(at.Topic.Name, g, keep, 0)
	}
}

// trimCall asks the leader of a partition to move its beginning: a node with a small disk needs the room.
type trimCall struct {
	Group record.GroupID
	Keep  record.Offset
}

func (n *Node) trimFor(_ peer.Identity, body []byte) (struct{}, error) {
	var call trimCall
	if err := decodeBody(body, &call); err != nil {
		return struct{}{}, err
	}
	if n.host.Load() == nil || !mayTrim(n.machine.Picture(), call.Group) {
		return struct{}{}, fmt.Errorf("%s is not trimmed: %w", n.groupText(call.Group), record.ErrRefused)
	}
	n.trim(call.Group, call.Keep)
	return struct{}{}, nil
}
