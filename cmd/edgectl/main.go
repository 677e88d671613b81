// Command edgectl operates a cluster of edged nodes and moves records in and out of it.
//
// Exit codes: 0 done, 1 failed, 2 wrong usage or invalid input, 3 not found, 4 not reachable or timed
// out, 5 refused (rights, limits). Data goes to stdout, everything else to stderr. An
// error is one line there, with --json an object {code, message, exit_code}.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"edged/client"
	"edged/record"

	"github.com/urfave/cli/v2"
)

// Set by the build.
var (
	version = "devel"
	commit  = "unknown"
	date    = "unknown" // when the commit was made
)

const (
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitUnreachable = 4
	exitRefused     = 5
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the next one ends the process as if nobody listened.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// run is main without the end of the process.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	app := newApp()
	app.Reader, app.Writer, app.ErrWriter = in, out, errOut
	if !asksJSON(args) && !slices.Contains(args, completionFlag) {
		for _, line := range strayVariables(os.Environ()) {
			fmt.Fprintln(errOut, "edgectl: "+line)
		}
	}
	err := app.RunContext(ctx, arrange(app, args))
	if err == nil {
		return 0
	}
	code := exitCode(err)
	if asksJSON(args) {
		_ = json.NewEncoder(errOut).Encode(map[string]any{"code": errorName(err), "message": oneLine(err), "exit_code": code})
	} else {
		fmt.Fprintln(errOut, "edgectl: "+oneLine(err))
	}
	return code
}

// nodesVariable is the one variable that edgectl goes by.
const nodesVariable = "EDGECTL_NODES"

// strayVariables gives a line for each variable that was meant for edgectl and is not known.
func strayVariables(environ []string) []string {
	var out []string
	for _, e := range environ {
		if name, value, _ := strings.Cut(e, "="); strings.HasPrefix(name, "EDGECTL_") && name != nodesVariable && value != "" {
			out = append(out, "the variable "+name+" is not known and is ignored; did you mean "+nodesVariable+"?")
		}
	}
	slices.Sort(out)
	return out
}

// asksJSON looks at the raw command line, because the error may be that it is wrong.
func asksJSON(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.ContainsFunc(args, func(a string) bool {
		return a == "--json" || a == "-json" || a == "--json=true"
	})
}

// oneLine is the text of an error for a person, with the next step.
func oneLine(err error) string {
	text := strings.ReplaceAll(err.Error(), context.DeadlineExceeded.Error(), "not done in time")
	return strings.Join(strings.Fields(text), " ") + nextStep(err)
}

// nextStep is what to do about errors that do not say so themselves.
func nextStep(err error) string {
	var lost *client.ConnError
	var lookup *net.DNSError
	switch is := func(target error) bool { return errors.Is(err, target) }; {
	case is(record.ErrUnknownTopic):
		return "; `edgectl topic list` shows all"
	case is(record.ErrUnknownNode):
		return "; `edgectl node list` shows all"
	case is(record.ErrUnknownGroup):
		return "; `edgectl group list` shows all"
	case is(record.ErrTooLarge):
		return "; send smaller records, or let the topic take larger ones: `edgectl topic alter TOPIC --config max.message.bytes=N`, at most 1048588"
	case is(record.ErrTopicExists):
		return "; `edgectl topic alter` changes it"
	case is(client.ErrNotNative), errors.As(err, &lost) && (is(io.EOF) || is(io.ErrUnexpectedEOF)):
		return "; --node is the native listener of a node, port 7400 unless native-addr says otherwise, not its Kafka, HTTP or gossip port"
	case errors.As(err, &lookup):
		return "; --node names another node"
	case errors.As(err, &lost) && !is(record.ErrNoLeader):
		return "; is edged running there? --node names another node"
	}
	return ""
}

// about says what an error is about, unless it does so itself.
func about(kind, name string, err error) error {
	if strings.HasPrefix(err.Error(), kind+" ") {
		return err
	}
	return fmt.Errorf("%s %s: %w", kind, name, err)
}

// usageError is a mistake on the command line.
type usageError struct{ msg string }

func (e *usageError) Error() string { return e.msg }

// usage makes the error of a wrong command line, with the next step.
func usage(c *cli.Context, format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...) + "; see " + c.Command.HelpName + " --help"}
}

// errInterrupted ends a command that a signal stopped before it was done.
var errInterrupted = errors.New("interrupted")

// exitCode tells scripts what kind of failure it was.
func exitCode(err error) int {
	var lost *client.ConnError
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) })
	}
	var ue *usageError
	switch {
	case errors.As(err, &ue):
		return exitUsage
	case is(record.ErrInvalidTopic, record.ErrInvalidConfig, record.ErrInvalidRequest, record.ErrInvalidGroup):
		return exitUsage
	case is(record.ErrUnknownTopic, record.ErrUnknownTopicID, record.ErrUnknownPartition, record.ErrUnknownNode, record.ErrUnknownGroup, fs.ErrNotExist):
		return exitNotFound
	case is(record.ErrRefused, record.ErrGroupNotEmpty, record.ErrLimit, record.ErrTooLarge, record.ErrNoNodes, record.ErrDiskFull):
		return exitRefused
	case record.Retriable(err) || is(context.DeadlineExceeded) || errors.As(err, &lost):
		// The client went on trying until its time was over.
		return exitUnreachable
	}
	return exitFailed
}

// errorName is the code of an error for scripts: the one from the protocol if it has one.
func errorName(err error) string {
	var ue *usageError
	var lost *client.ConnError
	switch {
	case errors.As(err, &ue):
		return "usage"
	case errors.As(err, &lost):
		return "unreachable"
	case errors.Is(err, fs.ErrNotExist):
		return "not_found"
	case errors.Is(err, errInterrupted):
		return "interrupted_by_signal"
	}
	if code := record.Code(err); code != record.ErrInternal.Code || errors.Is(err, record.ErrInternal) {
		return code
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return record.ErrTimeout.Code
	}
	return "failed"
}
