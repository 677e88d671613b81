package node

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Bounds of the event log: it is for a person who looks after a power cut, on a board whose journal is in
// memory.
const (
	maxEvents      = 500
	maxEventText   = 600       // bytes
	maxEventsFile  = 256 << 10 // bytes
	eventsEvery    = time.Minute
	eventsFileName = "events.jsonl"
)

// Kinds of events.
const (
	eventStart      = "start" // of the node, and whether the life before ended cleanly
	eventStop       = "stop"
	eventLeader     = "leader"     // leadership came or went, in numbers
	eventMembership = "membership" // nodes came, went, were refused
	eventDisk       = "disk"       // full, slow, damaged, failed
	eventClock      = "clock"      // trusted, stepped
	eventNetwork    = "network"    // where others find this node
	eventConfig     = "config"     // reloaded, or refused to
	eventProcess    = "process"    // stood still
)

// event is something that an operator wants to find again after a restart.
type event struct {
	Seq  int64     `json:"seq"`
	Time time.Time `json:"time"` // of this node's clock, as it was then
	Kind string    `json:"kind"`
	Text string    `json:"text"`
	// Count is how many times in a row; Time is that of the last.
	Count int32 `json:"count"`
}

// eventLog keeps the newest events in memory and, a little later, in a file that is written anew as a whole:
// at most once a minute and only if there is something new, so that it costs the card next to nothing.
type eventLog struct {
	path string // empty: memory only
	now  func() time.Time

	mu     sync.Mutex
	events []event // oldest first
	seq    int64
	saved  int64 // the newest in the file
	wrote  time.Time
	added  chan struct{} // closed and replaced when one is added
}

// openEventLog reads what the life before left. What cannot be read is no loss that keeps a node from starting.
func openEventLog(path string, now func() time.Time) *eventLog {
	l := &eventLog{path: path, now: now, added: make(chan struct{})}
	if path == "" {
		return l
	}
	text, err := readBounded(path, maxEventsFile)
	if err != nil {
		return l
	}
	for line := range bytes.Lines(text) {
		var e event
		if json.Unmarshal(line, &e) == nil && e.Seq > l.seq {
			l.events, l.seq = append(l.events, e), e.Seq
		}
	}
	l.events = l.events[max(0, len(l.events)-maxEvents):]
	l.saved = l.seq
	return l
}

func (l *eventLog) add(kind, text string) {
	if len(text) > maxEventText {
		text = strings.ToValidUTF8(text[:maxEventText-len("…")], "") + "…"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now().UTC().Truncate(time.Millisecond)
	l.seq++
	if k := len(l.events); k > 0 && l.events[k-1].Kind == kind && l.events[k-1].Text == text {
		last := &l.events[k-1]
		last.Seq, last.Time, last.Count = l.seq, now, last.Count+1
		return // nobody is woken for it
	}
	if len(l.events) >= maxEvents {
		l.events = append(l.events[:0], l.events[1:]...)
	}
	l.events = append(l.events, event{l.seq, now, kind, text, 1})
	close(l.added)
	l.added = make(chan struct{})
}

// after gives the events after a number, oldest first, and a channel that is closed when there are more.
func (l *eventLog) after(seq int64) ([]event, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := 0
	for i < len(l.events) && l.events[i].Seq <= seq {
		i++
	}
	return append([]event(nil), l.events[i:]...), l.added
}

// save writes the file if there is something new and the last time is long enough ago, or at once.
func (l *eventLog) save(atOnce bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path == "" || l.saved == l.seq || !atOnce && time.Since(l.wrote) < eventsEvery {
		return nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for i := range l.events {
		if err := enc.Encode(&l.events[i]); err != nil {
			return err
		}
	}
	text := b.Bytes()
	for len(text) > maxEventsFile { // texts full of what JSON escapes
		text = text[bytes.IndexByte(text, '\n')+1:]
	}
	l.wrote = time.Now()
	if err := replaceFile(l.path, text); err != nil {
		return err
	}
	l.saved = l.seq
	return nil
}

// replaceFile writes a small file so that after a power cut it is the old one or the new one.
func replaceFile(path string, b []byte) error {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		_ = os.Remove(path + ".new")
	}
	return err
}

// note is an event that is logged as well, as a warning; noteWell is one that is good news.
func (n *Node) note(kind, text string, args ...any) {
	n.notes.add(kind, text)
	n.log.Warn(text, args...)
}

func (n *Node) noteWell(kind, text string) {
	n.notes.add(kind, text)
	n.log.Info(text)
}

// dataFile is a small file in the data directory, empty where the node lives in a simulator.
func (n *Node) dataFile(name string) string {
	if n.opts.FS != nil {
		return ""
	}
	return filepath.Join(n.cfg.DataDir, name)
}
