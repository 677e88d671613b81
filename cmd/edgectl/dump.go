package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"edged/record"
	"edged/storage"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/urfave/cli/v2"
)

func dumpCommand() *cli.Command {
	return leaf("dump", "DATA_DIR", "check all that a stopped node has stored, and show its logs; changes nothing", []cli.Flag{
		&cli.Uint64Flag{Name: "group", Usage: "list the entries of group `N`; 0 is the cluster's metadata", DefaultText: "none"},
		&cli.Uint64Flag{Name: "from", Usage: "begin with entry `INDEX`", DefaultText: "the oldest"},
		&cli.Uint64Flag{Name: "count", Usage: "list at most `N` entries", DefaultText: "all"},
	}, dump)
}

func dump(c *cli.Context) (err error) {
	dir := c.Args().First()
	if !c.IsSet("group") && (c.IsSet("from") || c.IsSet("count")) {
		return usage(c, "--from and --count belong to --group")
	}
	if err := checkDataDir(dir); err != nil {
		return err
	}
	if c.IsSet("group") {
		return dumpEntries(c, dir)
	}
	rep, err := storage.Verify(vfs.Default, dir)
	if err != nil {
		return openStopped(dir, err)
	}
	s, err := storage.Open(dir, vfs.Default, storage.Options{ReadOnly: true})
	if err != nil {
		return openStopped(dir, err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if c.Bool("json") {
		err = dumpJSON(c, rep, s)
	} else {
		err = dumpTable(c, rep, s)
	}
	if n := len(rep.Problems) + rep.More; n > 0 && err == nil {
		err = fmt.Errorf("%s: the stored data breaks %s", dir, countText(n, "law"))
	}
	return err
}

// checkDataDir makes sure that a node has worked in a directory.
func checkDataDir(dir string) error {
	const next = "name the directory that edged has as --data-dir"
	st, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &notFoundError{fmt.Sprintf("there is no %s; %s", dir, next)}
	case err != nil:
		return err
	case !st.IsDir():
		return &notFoundError{fmt.Sprintf("%s is a file; %s", dir, next)}
	}
	if _, err := os.Stat(filepath.Join(dir, "store")); errors.Is(err, fs.ErrNotExist) {
		return &notFoundError{fmt.Sprintf("%s holds nothing that edged has stored; %s", dir, next)}
	}
	return nil
}

// openStopped says of a directory that is in use what is to be done here.
func openStopped(dir string, err error) error {
	if errors.Is(err, storage.ErrLocked) {
		return fmt.Errorf("%s is in use by a running edged; stop that first: %w", dir, record.ErrRefused)
	}
	return err
}

// groupJSON is one group of `dump --json`.
type groupJSON struct {
	Group      record.GroupID `json:"group"`
	Replica    string         `json:"replica"`
	Term       uint64         `json:"term"`
	BaseIndex  uint64         `json:"base_index"`
	LastIndex  uint64         `json:"last_index"`
	Applied    uint64         `json:"applied"`
	LogStart   record.Offset  `json:"log_start"`
	NextOffset record.Offset  `json:"next_offset"`
	Bytes      int64          `json:"bytes"`
	Damage     string         `json:"damage,omitempty"`
}

func dumpJSON(c *cli.Context, rep storage.Report, s *storage.Store) error {
	groups := []groupJSON{}
	for _, g := range s.Groups() {
		j := groupJSON{
			Group: g.Group, Replica: g.Replica.String(), Term: g.HardState.Term, BaseIndex: g.Base.Index, LastIndex: g.LastIndex,
			Applied: g.Checkpoint.Applied, LogStart: g.Base.LogStart, NextOffset: g.NextOffset, Bytes: s.Size(g.Group),
		}
		if g.Err != nil {
			j.Damage = g.Err.Error()
		}
		groups = append(groups, j)
	}
	problems := rep.Problems
	if problems == nil {
		problems = []string{}
	}
	return printJSON(c.App.Writer, map[string]any{
		"entries": rep.Entries, "batches": rep.Batches, "bytes": rep.Bytes, "dead": rep.Dead,
		"problems": problems, "more_problems": rep.More, "groups": groups,
	})
}

func dumpTable(c *cli.Context, rep storage.Report, s *storage.Store) error {
	fmt.Fprintf(c.App.Writer, "%s, %s, %d of them with records, %s; %s to be reclaimed\n",
		countText(rep.Groups, "group"), countText(rep.Entries, "entry"), rep.Batches, bytesText(rep.Bytes), countText(rep.Dead, "dead entry"))
	t := newTable("GROUP", "REPLICA", "TERM", "BASE", "LAST", "APPLIED", "LOG START", "NEXT OFFSET", "SIZE", "STATE")
	for _, g := range s.Groups() {
		state := "good"
		if g.Err != nil {
			state = "damaged: " + g.Err.Error()
		}
		t.row(g.Group, g.Replica, g.HardState.Term, g.Base.Index, g.LastIndex, g.Checkpoint.Applied,
			g.Base.LogStart, g.NextOffset, bytesText(s.Size(g.Group)), state)
	}
	if err := t.print(c.App.Writer); err != nil {
		return err
	}
	for _, p := range rep.Problems {
		fmt.Fprintln(c.App.Writer, "broken:", p)
	}
	if rep.More > 0 {
		fmt.Fprintf(c.App.Writer, "broken: and %d more\n", rep.More)
	}
	return nil
}

// entryJSON is one line of `dump --group N --json`.
type entryJSON struct {
	Index      uint64        `json:"index"`
	Term       uint64        `json:"term"`
	Kind       string        `json:"kind"`
	BaseOffset record.Offset `json:"base_offset"` // -1 if it takes no offsets
	Count      int32         `json:"count"`
	Bytes      int64         `json:"bytes"`
}

var kindNames = map[storage.Kind]string{
	storage.KindEmpty: "empty", storage.KindBatch: "batch", storage.KindControl: "control", storage.KindCommand: "command",
	storage.KindConfChange: "conf-change", storage.KindConfChangeV2: "conf-change-v2",
}

func dumpEntries(c *cli.Context, dir string) (err error) {
	s, err := storage.Open(dir, vfs.Default, storage.Options{ReadOnly: true})
	if err != nil {
		return openStopped(dir, err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	id := record.GroupID(c.Uint64("group"))
	g, ok := s.State(id)
	switch {
	case !ok:
		return &notFoundError{fmt.Sprintf("%s holds no group %d", dir, id)}
	case g.Err != nil:
		return g.Err
	}
	lo, hi := max(g.Base.Index+1, c.Uint64("from")), g.LastIndex+1
	if n := c.Uint64("count"); n > 0 && lo < hi && n < hi-lo {
		hi = lo + n
	}
	// A log may be long: lines go out as they come, in columns of a fixed width.
	out := bufio.NewWriter(c.App.Writer)
	defer func() { err = errors.Join(err, out.Flush()) }()
	if !c.Bool("json") {
		fmt.Fprintf(out, "%12s %8s %-14s %14s %8s %10s\n", "INDEX", "TERM", "KIND", "BASE OFFSET", "COUNT", "BYTES")
	}
	if lo < hi {
		err = s.Headers(id, lo, hi, func(e storage.Entry, size int64) error {
			j := entryJSON{Index: e.Index, Term: e.Term, Kind: kindNames[e.Kind], BaseOffset: -1, Count: e.Count, Bytes: size}
			if e.Kind == storage.KindBatch {
				j.BaseOffset = e.BaseOffset
			}
			if c.Bool("json") {
				return printJSON(out, j)
			}
			_, err := fmt.Fprintf(out, "%12d %8d %-14s %14d %8d %10d\n", j.Index, j.Term, j.Kind, j.BaseOffset, j.Count, j.Bytes)
			return err
		})
	}
	return err
}

// notFoundError is for what a person named and is not there.
type notFoundError struct{ msg string }

func (e *notFoundError) Error() string { return e.msg }
func (e *notFoundError) Unwrap() error { return os.ErrNotExist }
