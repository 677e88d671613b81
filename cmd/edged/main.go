// Command edged runs one node of an edge streaming cluster.
//
// Exit codes: 0 stopped as asked, 1 failed, 2 wrong usage, 78 wrong configuration (a
// restart cannot help, so the systemd unit does not try).
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"edged/node"

	"github.com/urfave/cli/v2"
)

// Set by the build.
var (
	version = "devel"
	commit  = "unknown"
	date    = "unknown" // when the commit was made: the same sources give the same bytes
)

const (
	exitFailed = 1
	exitUsage  = 2
	exitConfig = 78
)

func main() { os.Exit(run(os.Args)) }

// run is main without the end of the process. Whatever failed is one line on stderr
// per fault, nothing else.
func run(args []string) int {
	err := newApp().Run(args)
	if err == nil {
		return 0
	}
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintln(os.Stderr, "edged: "+strings.TrimRight(line, "\n"))
	}
	var ue *usageError
	var ce *node.ConfigError
	switch {
	case errors.As(err, &ue):
		return exitUsage
	case errors.As(err, &ce):
		return exitConfig
	}
	return exitFailed
}

// impatience is how long after the first signal a second one means that the stop takes too long: a shell, a
// supervisor or a group of processes sends the same one twice in a moment.
const impatience = time.Second

// serve runs the node until a signal ends it. The first SIGTERM or SIGINT begins an
// orderly stop, in which leadership is handed over; a second one, a moment later, ends the process.
// SIGHUP takes the settings again from where again finds them.
func serve(cfg node.Config, again func() (node.Config, error)) error {
	calmRuntime() // first: it may begin anew
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	log, level := newLogger(cfg)
	for _, line := range node.StrayVariables(os.Environ()) {
		log.Warn(line)
	}
	cfg.Budget().Apply()
	sd := newNotifier(os.Getenv("NOTIFY_SOCKET"), log)
	defer sd.close()
	var running atomic.Pointer[node.Node]
	go func() {
		var stopping time.Time
		for s := range signals {
			switch n := running.Load(); {
			case s == syscall.SIGHUP && n != nil && ctx.Err() == nil:
				reload(n, sd, log, level, again)
			case s == syscall.SIGHUP: // the settings are fresh, or of no more use
			case ctx.Err() == nil:
				stopping = time.Now()
				log.Info("stopping", "signal", s.String())
				sd.stopping()
				cancel()
			case time.Since(stopping) < impatience:
			default:
				fmt.Fprintf(os.Stderr, "edged: stopped at once by a second signal (%v)\n", s)
				os.Exit(exitFailed)
			}
		}
	}()

	// Ready means that listeners and data are open. Waiting for a quorum here would make
	// systemd give up on a board that boots before its peers.
	alive := func(ctx context.Context) error { return running.Load().Alive(ctx) }
	watch := sync.OnceFunc(func() {
		go sd.watch(ctx, watchdogEvery(os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID")), alive)
	})
	return restarted(ctx, func(ctx context.Context) error {
		n, err := node.New(cfg, node.Options{Logger: log, Version: version, Built: built(), Status: sd.status, Quiet: debug.FreeOSMemory, Reopen: true})
		if err != nil {
			return err
		}
		running.Store(n)
		sd.ready()
		watch()
		return n.Run(ctx)
	})
}

// A node that is made anew for its disk waits for reopenPause first, longer each time, up to reopenPauseMax; one that
// ran for steadyFor counts as well again.
const (
	reopenPause    = time.Second
	reopenPauseMax = 5 * time.Minute
	steadyFor      = 10 * time.Minute
)

// restarted runs one node after the other, as long as each ends because its disk failed and takes writes again.
func restarted(ctx context.Context, life func(context.Context) error) error {
	pause := reopenPause
	for {
		began := time.Now()
		err := life(ctx)
		var again *node.ReopenError
		if !errors.As(err, &again) || ctx.Err() != nil {
			return err
		}
		if time.Since(began) > steadyFor {
			pause = reopenPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
		pause = min(2*pause, reopenPauseMax)
	}
}

// built is when the sources were committed, zero if nobody knows.
func built() time.Time {
	t, _ := time.Parse(time.RFC3339, date) // zero without a date
	return t
}

// reload gives the node its settings anew. If they are wrong, or what has changed needs a restart,
// the node goes on as it was and the log says why.
func reload(n *node.Node, sd *notifier, log *slog.Logger, level *slog.LevelVar, again func() (node.Config, error)) {
	sd.reloading()
	defer sd.ready()
	cfg, err := again()
	if err == nil {
		err = n.Reload(cfg)
	}
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			log.Error("the settings were not taken: " + strings.TrimRight(line, "\n"))
		}
		return
	}
	level.Set(cfg.Level())
	log.Info("the settings were read again")
}

// usageError is a mistake on the command line.
type usageError struct{ msg string }

func (e *usageError) Error() string { return e.msg }

// usage makes the error of a wrong command line, with the next step.
func usage(c *cli.Context, format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...) + "; see " + c.Command.HelpName + " --help"}
}
