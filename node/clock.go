package node

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// What the clock is judged by.
const (
	stepLeast     = 2 * time.Second // between two looks: no clock that is slewed gets that far
	stepGrace     = time.Hour       // after a larger step nothing is deleted by age for so long
	stepLarge     = time.Minute
	clockSave     = 10 * time.Minute
	clockFileName = "clock.json"
)

// epochStart is the earliest time that a clock of a running edged can show: 2025. Before that it
// was never set, and nothing is old.
var epochStart = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// Words of clock-trust.
const (
	clockAuto   = "auto"
	clockAlways = "always"
)

// clock judges the wall clock. Boards without a battery start in 1970, or where the last run ended, and
// jump when the network tells the time, or never. No timer and no promise rests on it (law 9); what is
// deleted by age, and judged by its timestamp, waits until the clock can be believed.
type clock struct {
	wall   func() time.Time
	synced func() (bool, string) // what the kernel says
	always bool                  // somebody vouches for the clock
	path   string                // where the last time that was believed is kept; empty: nowhere

	mu       sync.Mutex
	floor    time.Time // it was at least this late: when the program was made, or was last believed
	age      time.Duration
	offset   time.Duration // of the wall clock to the age of this life, at the last look
	looked   bool
	calmFrom time.Duration // nothing is deleted by age before this age
	trusted  bool
	why      string
	steps    int64
	saved    time.Duration
	stamped  stampedRange
}

// stampedRange is what was stamped by a clock that was not believed.
type stampedRange struct {
	batches     int64
	first, last time.Time
}

func newClock(wall func() time.Time, synced func() (bool, string), always bool, built time.Time, path string) *clock {
	c := &clock{wall: wall, synced: synced, always: always, path: path, floor: epochStart}
	if built.After(c.floor) {
		c.floor = built
	}
	var kept struct{ Trusted time.Time }
	if path != "" {
		if b, err := readBounded(path, 4<<10); err == nil && json.Unmarshal(b, &kept) == nil && kept.Trusted.After(c.floor) {
			c.floor = kept.Trusted
		}
	}
	return c
}

// look compares the wall clock with the age of this life, and gives what an operator should know.
func (c *clock) look(age time.Duration) (news []string) {
	synced, why := c.synced()
	now := c.wall().Round(0)
	c.mu.Lock()
	defer c.mu.Unlock()
	offset := time.Duration(now.UnixNano()) - age
	if step := offset - c.offset; c.looked && step.Abs() >= stepLeast {
		c.steps++
		if step.Abs() >= stepLarge {
			c.calmFrom = age + stepGrace
		}
		why := ""
		if step > 0 {
			why = ", or the machine was suspended for that long"
		}
		news = append(news, fmt.Sprintf("the clock stepped %s by %v%s, it says %s now", direction(step), step.Abs().Round(time.Millisecond), why, now.UTC().Format(time.RFC3339)))
	}
	was, first := c.trusted, !c.looked
	c.looked, c.offset, c.age = true, offset, age
	c.trusted, c.why = synced || c.always, why
	if c.always {
		c.why = "clock-trust says so"
	}
	if now.Before(c.floor) {
		c.trusted, c.why = false, fmt.Sprintf("it says %s, and it has been %s", now.UTC().Format(time.DateOnly), c.floor.UTC().Format(time.DateOnly))
	}
	switch {
	case c.trusted && !was:
		text := "the clock is trusted: " + c.why
		if s := c.stamped; s.batches > 0 {
			text += fmt.Sprintf("; before that %s of topics with message.timestamp.type=LogAppendTime got times between %s and %s",
				countText(s.batches, "batch"), s.first.UTC().Format(time.RFC3339), s.last.UTC().Format(time.RFC3339))
		}
		c.stamped = stampedRange{}
		news = append(news, text)
	case !c.trusted && (was || first):
		news = append(news, "the clock is not trusted: "+c.why+"; nothing is deleted by age until it is")
	}
	return news
}

func direction(d time.Duration) string {
	if d < 0 {
		return "back"
	}
	return "forwards"
}

// believed tells whether the clock may judge timestamps.
func (c *clock) believed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trusted
}

// vouch changes whether somebody vouches for the clock; the next look goes by it.
func (c *clock) vouch(always bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.always = always
}

// mayDelete tells whether something may be deleted because it is old: the clock is trusted, and has not jumped
// within the last hour of this life.
func (c *clock) mayDelete() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trusted && c.age >= c.calmFrom
}

// stamp notes a batch that got its time from this clock.
func (c *clock) stamp(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trusted {
		return
	}
	if c.stamped.batches == 0 {
		c.stamped.first = now
	}
	c.stamped.batches++
	c.stamped.last = now
}

// status is the clock in words.
func (c *clock) status() (trusted bool, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.trusted:
		return false, "not trusted: " + c.why
	case c.age < c.calmFrom:
		return true, fmt.Sprintf("trusted: %s; it jumped, nothing is deleted by age for %v more", c.why, (c.calmFrom - c.age).Round(time.Minute))
	}
	return true, "trusted: " + c.why
}

// save keeps the time as the floor of the next life, if it is trusted.
func (c *clock) save(atOnce bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.path == "" || !c.trusted || !atOnce && c.age-c.saved < clockSave {
		return nil
	}
	c.saved = c.age
	b, err := json.Marshal(struct{ Trusted time.Time }{c.wall().UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	return replaceFile(c.path, append(b, '\n'))
}

// timesyncFile is there when systemd-timesyncd has set the clock in this boot.
const timesyncFile = "/run/systemd/timesync/synchronized"

// kernelClock asks the kernel whether anybody keeps its clock right.
func kernelClock() (bool, string) {
	synced, err := kernelSynced()
	switch {
	case synced:
		return true, "the kernel says that it is synchronised"
	case fileThere(timesyncFile):
		return true, "systemd-timesyncd has set it"
	case err != nil:
		return false, "the kernel does not tell whether it is synchronised: " + strings.TrimSpace(err.Error())
	}
	return false, "the kernel says that it is not synchronised"
}

func fileThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// lookAtClock makes events of what has changed.
func (n *Node) lookAtClock() {
	for _, text := range n.clock.look(time.Since(n.started)) {
		if n.clock.believed() {
			n.noteWell(eventClock, text)
		} else {
			n.note(eventClock, text)
		}
	}
}
