package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/urfave/cli/v2"
)

// progress shows on stderr how far a command is, when a person sits there to see it.
type progress struct {
	tick   <-chan time.Time // nil without a terminal
	ticker *time.Ticker
	out    io.Writer
	shown  bool
}

func newProgress(c *cli.Context) *progress {
	p := &progress{out: c.App.ErrWriter}
	if f, ok := c.App.ErrWriter.(*os.File); ok && isTerminal(f) {
		p.ticker = time.NewTicker(500 * time.Millisecond)
		p.tick = p.ticker.C
	}
	return p
}

// show writes over the line that it wrote before.
func (p *progress) show(format string, args ...any) {
	p.shown = true
	fmt.Fprintf(p.out, "\r\x1b[K"+format, args...)
}

func (p *progress) stop() {
	if p.ticker != nil {
		p.ticker.Stop()
	}
	if p.shown {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
