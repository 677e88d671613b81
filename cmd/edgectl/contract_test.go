package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// tries are command lines that succeed with the fake cluster, at least one for each command; they may build on
// each other, in this order. An empty one is tried elsewhere, as the comment says.
var tries = []struct{ command, args, stdin string }{
	{command: "status"},
	{command: "doctor", args: "--local"},
	{command: "events"},
	{command: "node list"},
	{command: "node describe"},
	{command: "node remove", args: "--cancel 8"},
	{command: "topic create", args: "t --partitions 2"},
	{command: "topic list"},
	{command: "topic describe", args: "t"},
	{command: "topic alter", args: "t --config retention.ms=1000"},
	{command: "partition list"},
	{command: "partition describe", args: "t 0"},
	{command: "partition transfer", args: "t 0"},
	{command: "produce", args: "t", stdin: "one\ntwo\n"},
	{command: "consume", args: "t"},
	{command: "leader history", args: "t/0"},
	{command: "bench produce", args: "t --records 10"},
	{command: "bench consume", args: "t --records 10"},
	{command: "completion", args: "bash"},
	{command: "topic delete", args: "t"},
	{command: "group list"}, // the fake has no groups: TestGroup_* of package node and test do
	{command: "group describe"},
	{command: "group reset"},
	{command: "group delete"},
	{command: "version"},
	{command: "dump"}, // needs a store: its own test
}

// leaves calls f for each command that does something.
func leaves(f func(path string, c *cli.Command)) {
	var walk func(path string, cmds []*cli.Command)
	walk = func(path string, cmds []*cli.Command) {
		for _, c := range cmds {
			if name := strings.TrimSpace(path + " " + c.Name); len(c.Subcommands) > 0 {
				walk(name, c.Subcommands)
			} else {
				f(name, c)
			}
		}
	}
	walk("", newApp().Commands)
}

func edgectl(t *testing.T, stdin, line string) (out, errOut string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), append([]string{"edgectl"}, strings.Fields(line)...), strings.NewReader(stdin), &o, &e)
	return o.String(), e.String(), code
}

// isJSON tells whether a text is JSON values and nothing else.
func isJSON(text string) bool {
	for dec := json.NewDecoder(strings.NewReader(text)); ; {
		var v any
		if err := dec.Decode(&v); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

// What is promised of every command, whatever it does: it is tried here; with --json its data is JSON; neither
// data nor errors have colours or other control sequences where nobody sits at a terminal, with and without
// NO_COLOR; an error is one line, or one object with its exit code; a wrong option is 2, nobody there is 4.
func TestContract_ofEveryCommand(t *testing.T) {
	tried := map[string]bool{}
	for _, c := range tries {
		tried[c.command] = true
	}
	plain := func(what, text string) {
		t.Helper()
		if i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7f }); i >= 0 {
			t.Errorf("%s: a control character at %d: %q", what, i, text)
		}
	}
	fails := func(line string, want int) {
		t.Helper()
		out, errOut, code := edgectl(t, "", line)
		plain(line, out+errOut)
		if code != want || strings.Count(errOut, "\n") != 1 || !strings.HasPrefix(errOut, "edgectl: ") {
			t.Errorf("%s: exit code %d, want %d: %q", line, code, want, errOut)
		}
		_, errOut, code = edgectl(t, "", "--json "+line)
		var e struct {
			Code, Message string
			ExitCode      int `json:"exit_code"`
		}
		if err := json.Unmarshal([]byte(errOut), &e); err != nil || code != want || e.ExitCode != want || e.Code == "" || e.Message == "" {
			t.Errorf("--json %s: exit code %d, want %d: %q, %v", line, code, want, errOut, err)
		}
	}
	leaves(func(path string, _ *cli.Command) {
		if !tried[path] {
			t.Errorf("%s is not in the table", path)
		}
		fails(path+" --nonsense", exitUsage)
	})
	for _, color := range []string{"", "1"} {
		t.Setenv("NO_COLOR", color)
		for _, asJSON := range []string{"", " --json"} {
			addr, stop := serveFake(t)
			t.Setenv("EDGECTL_NODES", addr)
			for _, c := range tries {
				line := c.command + " " + c.args + asJSON
				if strings.HasPrefix(c.command, "group") || c.command == "dump" {
					continue
				}
				out, errOut, code := edgectl(t, c.stdin, line)
				plain(line, out+errOut)
				if code != 0 && c.command != "doctor" { // which may find something to say about this machine
					t.Errorf("%s: exit code %d: %s", line, code, errOut)
				}
				if asJSON != "" && c.command != "completion" && !isJSON(out) {
					t.Errorf("%s: not JSON: %q", line, out)
				}
			}
			stop()
		}
	}
	t.Setenv("EDGECTL_NODES", "127.0.0.1:1")
	for _, c := range tries {
		switch {
		case c.command == "doctor" || c.command == "completion" || c.command == "dump" || c.command == "version":
		case strings.HasPrefix(c.command, "group") && c.command != "group list":
		case c.command == "produce": // its error comes after what became of each record
		default:
			fails(c.command+" --timeout 50ms "+c.args, exitUnreachable)
		}
	}
	fails("dump "+filepath.Join(t.TempDir(), "nowhere"), exitNotFound)
	fails("nonsense", exitUsage)
}

// An interrupted command does not hang.
func TestContract_anEndedContextEndsACommand(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errOut bytes.Buffer
	if code := run(ctx, []string{"edgectl", "--node", "127.0.0.1:1", "--timeout", "1h", "status"}, strings.NewReader(""), &out, &errOut); code == 0 {
		t.Errorf("%s%s", out.String(), errOut.String())
	}
}
