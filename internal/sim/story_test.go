package sim

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// storyLines is how many of the last lines are kept per teller.
const storyLines = 60

// attrLength is how much of a value is told; what is cut off most often is a stack.
const attrLength = 240

// repeats is within how many lines one that is told again is only counted.
const repeats = 12

// story keeps the last things that each node, the clients and the script did.
type story struct {
	mu    sync.Mutex
	began time.Time
	next  int
	lines map[string][]line
}

type line struct {
	number int
	again  int // how often it was told again since
	at     time.Duration
	teller string
	text   string
	attrs  []slog.Attr
}

func newStory() *story { return &story{began: time.Now(), lines: map[string][]line{}} }

func (s *story) tell(teller, format string, args ...any) {
	s.add(teller, fmt.Sprintf(format, args...), nil)
}

func (s *story) add(teller, text string, attrs []slog.Attr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	kept := s.lines[teller]
	for i := len(kept) - 1; i >= max(0, len(kept)-repeats); i-- {
		if kept[i].text == text && slices.EqualFunc(kept[i].attrs, attrs, sameAttr) {
			kept[i].again++
			return
		}
	}
	if len(kept) >= 2*storyLines {
		kept = slices.Clone(kept[storyLines:])
	}
	s.lines[teller] = append(kept, line{number: s.next, at: time.Since(s.began), teller: teller, text: text, attrs: attrs})
}

func sameAttr(a, b slog.Attr) bool { return a.Key == b.Key && a.Value.String() == b.Value.String() }

// String is the story's end, all tellers together in the order it happened.
func (s *story) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []line
	for _, ls := range s.lines {
		all = append(all, ls[max(0, len(ls)-storyLines):]...)
	}
	slices.SortFunc(all, func(a, b line) int { return a.number - b.number })
	var b strings.Builder
	for _, l := range all {
		fmt.Fprintf(&b, "%12.6fs %-8s %s", l.at.Seconds(), l.teller, l.text)
		for _, a := range l.attrs {
			fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		}
		if l.again > 0 {
			fmt.Fprintf(&b, " (and %d times more)", l.again)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// teller is a node's log as part of the story.
type teller struct {
	s     *story
	name  string
	dead  *atomic.Bool // what a dead process still does is of no interest
	attrs []slog.Attr
}

func (t teller) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

func (t teller) Handle(_ context.Context, r slog.Record) error {
	if t.dead.Load() || strings.HasPrefix(r.Message, "memberlist: ") {
		return nil // that complains of every lost packet
	}
	attrs := slices.Clone(t.attrs)
	r.Attrs(func(a slog.Attr) bool {
		v, _, cut := strings.Cut(fmt.Sprint(a.Value.Any()), "\n")
		if cut || len(v) > attrLength {
			v = v[:min(len(v), attrLength)] + "..."
		}
		a.Value = slog.StringValue(v)
		attrs = append(attrs, a)
		return true
	})
	t.s.add(t.name, r.Message, attrs)
	return nil
}

func (t teller) WithAttrs(as []slog.Attr) slog.Handler {
	t.attrs = append(slices.Clone(t.attrs), as...)
	return t
}

func (t teller) WithGroup(string) slog.Handler { return t }
