package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"syscall"

	"edged/node"
)

// newLogger writes to stderr. When that is the journal, each line begins with its
// priority, which the journal takes off, and carries no time, which the journal adds.
// What repeats is limited. The level may change while the node runs.
func newLogger(cfg node.Config) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	level.Set(cfg.Level())
	if onJournal(os.Stderr, os.Getenv("JOURNAL_STREAM")) {
		return slog.New(newLimiter(newJournalHandler(os.Stderr, cfg, level))), level
	}
	return slog.New(newLimiter(newHandler(os.Stderr, cfg, level, nil))), level
}

func newHandler(w io.Writer, cfg node.Config, level slog.Leveler, replace func([]string, slog.Attr) slog.Attr) slog.Handler {
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: replace}
	if cfg.LogFormat == "json" {
		return slog.NewJSONHandler(w, o)
	}
	return slog.NewTextHandler(w, o)
}

// onJournal tells that f is the stream that systemd connected to the journal:
// JOURNAL_STREAM is its device and inode. A process whose stderr was redirected
// inherits the variable and must not write priorities into a file.
func onJournal(f *os.File, stream string) bool {
	st, err := f.Stat()
	if err != nil || stream == "" {
		return false
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && stream == strconv.FormatUint(uint64(sys.Dev), 10)+":"+strconv.FormatUint(uint64(sys.Ino), 10)
}

// journalHandler puts the priority of each record before what the inner handler writes.
// The inner handler calls Write once per record and does not pass the level on, so the
// level waits in the writer, under its lock.
type journalHandler struct {
	inner slog.Handler
	out   *priorityWriter
}

type priorityWriter struct {
	mu    sync.Mutex
	level slog.Level
	w     io.Writer
}

func newJournalHandler(w io.Writer, cfg node.Config, level slog.Leveler) slog.Handler {
	out := &priorityWriter{w: w}
	dropTime := func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	return &journalHandler{newHandler(out, cfg, level, dropTime), out}
}

func (h *journalHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.inner.Enabled(ctx, l)
}

func (h *journalHandler) Handle(ctx context.Context, r slog.Record) error {
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	h.out.level = r.Level
	return h.inner.Handle(ctx, r)
}

func (h *journalHandler) WithAttrs(as []slog.Attr) slog.Handler {
	return &journalHandler{h.inner.WithAttrs(as), h.out}
}

func (h *journalHandler) WithGroup(name string) slog.Handler {
	return &journalHandler{h.inner.WithGroup(name), h.out}
}

func (p *priorityWriter) Write(line []byte) (int, error) {
	priority := 7
	switch {
	case p.level >= slog.LevelError:
		priority = 3
	case p.level >= slog.LevelWarn:
		priority = 4
	case p.level >= slog.LevelInfo:
		priority = 6
	}
	if _, err := p.w.Write(fmt.Appendf(nil, "<%d>%s", priority, line)); err != nil {
		return 0, err
	}
	return len(line), nil
}
