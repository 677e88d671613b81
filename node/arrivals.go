package node

import (
	"time"

	"edged/record"
	"edged/storage"
)

// arrivalPoints bounds what is remembered per partition; retention by time is late by a 32nd at most.
const arrivalPoints = 32

// arrivals remembers how far each partition's log went at some moments of this process, by its
// monotonic clock. What is behind such a point came later: the one thing that is known of the age of
// a record whatever the clocks of clients and of this node were set to. The janitor owns it.
type arrivals struct{ of map[record.GroupID]*arrived }

type arrived struct {
	before record.Offset // what the disk held when this process started: of unknown age
	points []arrival     // oldest first
}

type arrival struct {
	at  time.Duration // since the process started
	end record.Offset
}

// newArrivals is for a store that was just opened.
func newArrivals(groups []storage.GroupState) arrivals {
	a := arrivals{of: make(map[record.GroupID]*arrived, len(groups))}
	for _, g := range groups {
		a.of[g.Group] = &arrived{before: g.NextOffset}
	}
	return a
}

// note looks at a partition. retention is in ms.
func (a *arrivals) note(g record.GroupID, now time.Duration, end record.Offset, retention int64) {
	p := a.of[g]
	if p == nil { // its replica was made in this life
		p = &arrived{}
		a.of[g] = p
	}
	// No more of them than have room before the oldest but one is old enough to be the oldest.
	if k := len(p.points); k > 0 && (now-p.points[k-1].at).Milliseconds() < retention/(arrivalPoints-2) {
		return
	}
	for len(p.points) > 1 && ((now-p.points[1].at).Milliseconds() >= retention || len(p.points) >= arrivalPoints) {
		p.points = append(p.points[:0], p.points[1:]...)
	}
	p.points = append(p.points, arrival{now, end})
}

// before is the offset before which nothing came to this process less than retention (ms) ago.
func (a *arrivals) before(g record.GroupID, now time.Duration, retention int64) record.Offset {
	p := a.of[g]
	if p == nil {
		return 0
	}
	end := p.before
	for _, q := range p.points {
		if (now - q.at).Milliseconds() >= retention {
			end = q.end
		}
	}
	return end
}

// retain forgets the partitions that keep does not want.
func (a *arrivals) retain(keep func(record.GroupID) bool) {
	for g := range a.of {
		if !keep(g) {
			delete(a.of, g)
		}
	}
}
