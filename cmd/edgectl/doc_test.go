package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"edged/internal/manual"

	"github.com/urfave/cli/v2"
)

// edgectl(1) is made from the commands.
func TestManual(t *testing.T) {
	app := newApp()
	var b bytes.Buffer
	fmt.Fprintf(&b, `.\" Made by a test of cmd/edgectl from its commands; make docs writes it.
.TH EDGECTL 1 "" edged "User commands"
.SH NAME
edgectl \- %s
.SH SYNOPSIS
.B edgectl
.RI [ "global options" ]
.I command
.RI [ options ]
.RI [ arguments ]
.SH DESCRIPTION
Options may stand anywhere before a
.BR \-\- .
Data goes to stdout, everything else to stderr. With
.B \-\-json
data is JSON, and an error is an object of code, message and exit_code.
.SH GLOBAL OPTIONS
`, manual.Quote(app.Usage))
	manualFlags(&b, app.Flags)
	fmt.Fprint(&b, ".SH COMMANDS\n")
	var walk func(path string, cmds []*cli.Command)
	walk = func(path string, cmds []*cli.Command) {
		for _, c := range cmds {
			name := strings.TrimSpace(path + " " + c.Name)
			if c.Hidden {
				continue
			}
			if len(c.Subcommands) > 0 {
				walk(name, c.Subcommands)
				continue
			}
			fmt.Fprintf(&b, ".SS edgectl %s\n%s.\n", manual.Quote(strings.TrimSpace(name+" "+c.ArgsUsage)), manual.Quote(c.Usage))
			if c.Description != "" {
				fmt.Fprintf(&b, ".PP\n.nf\n%s\n.fi\n", manual.Quote(c.Description))
			}
			manualFlags(&b, c.Flags)
		}
	}
	walk("", app.Commands)
	fmt.Fprint(&b, `.SH ENVIRONMENT
.TP
.B EDGECTL_NODES
Addresses of nodes, with commas between them; \-\-node is stronger.
.SH EXIT STATUS
`)
	for code, means := range []string{"Done.", "Failed.", "Wrong usage.", "Not found: no such topic, partition, node, file.", "Not reachable, or not done within \\-\\-timeout.", "Refused: rights or limits."} {
		fmt.Fprintf(&b, ".TP\n.B %d\n%s\n", code, means)
	}
	fmt.Fprint(&b, ".SH SEE ALSO\n.BR edged (8),\n.BR edged.toml (5)\n")
	manual.Golden(t, "edgectl.1", b.Bytes())
}

func manualFlags(b *bytes.Buffer, flags []cli.Flag) {
	for _, f := range flags {
		d, ok := f.(cli.DocGenerationFlag)
		if v, is := f.(cli.VisibleFlag); !ok || is && !v.IsVisible() || f.Names()[0] == "help" {
			continue
		}
		// The kind of value stands in quotes in the text.
		usage, value := d.GetUsage(), ""
		if parts := strings.SplitN(usage, "`", 3); len(parts) == 3 {
			value = " \\fI" + manual.Quote(parts[1]) + "\\fR"
			usage = parts[0] + parts[1] + parts[2]
		}
		if def := d.GetDefaultText(); d.TakesValue() && def != "" {
			usage += " (default " + strings.Trim(def, `"`) + ")"
		}
		fmt.Fprintf(b, ".TP\n\\fB\\-\\-%s\\fR%s\n%s.\n", manual.Quote(f.Names()[0]), value, manual.Quote(usage))
	}
}
