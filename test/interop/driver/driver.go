// Package driver is the command line that every client of the interop test is given, so that the
// test asks all of them the same and judges them alike. Those in Go use this package; the others
// speak the same lines.
//
//	PROGRAM version                                    prints "NAME VERSION"
//	PROGRAM produce BOOTSTRAP TOPIC MODE CODEC         reads "KEY VALUE" lines until the end of stdin
//	    prints "ack VALUE PARTITION OFFSET" for each kept record (partition and offset -1 if the
//	    client does not tell), "fail VALUE WHY" for each that the client gave up
//	PROGRAM consume BOOTSTRAP TOPIC GROUP              until the end of stdin; then leaves and ends with 0
//	    prints "rec PARTITION OFFSET VALUE" for each record, "error WHY" for what reaches the
//	    application; the group "-" is none: all partitions from their start
//
// MODE is default (all settings as they come), all (the same with acks=all and no idempotence) or idempotent. What is
// said on stderr is only shown if the test fails.
package driver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync"
)

// Modes of producing.
const (
	Default    = "default"
	All        = "all"
	Idempotent = "idempotent"
)

// NoGroup is the group of a consumer without one.
const NoGroup = "-"

// Target is what the client is pointed at.
type Target struct {
	Bootstrap []string
	Topic     string
}

// Line is one record to produce.
type Line struct{ Key, Value string }

// Client is one client.
type Client struct {
	Version func() string
	// Produce sends all lines and returns when each has been told of by Ack or Fail.
	Produce func(to Target, mode, codec string, lines <-chan Line) error
	// Consume calls Rec for each record until ctx ends, then leaves the group.
	Consume func(ctx context.Context, to Target, group string) error
}

// Main runs the command line.
func Main(c Client) {
	if err := run(c, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(c Client, args []string) error {
	switch {
	case len(args) == 1 && args[0] == "version":
		fmt.Println(c.Version())
		return nil
	case len(args) == 5 && args[0] == "produce":
		return c.Produce(target(args), args[3], args[4], readLines())
	case len(args) == 4 && args[0] == "consume":
		ctx, cancel := context.WithCancel(context.Background())
		go func() { // ends with stdin
			_, _ = io.Copy(io.Discard, os.Stdin) // its end is all that matters, however it ends
			cancel()
		}()
		return c.Consume(ctx, target(args), args[3])
	}
	return fmt.Errorf("usage: version | produce BOOTSTRAP TOPIC MODE CODEC | consume BOOTSTRAP TOPIC GROUP; got %q", args)
}

func target(args []string) Target {
	return Target{Bootstrap: strings.Split(args[1], ","), Topic: args[2]}
}

func readLines() <-chan Line {
	lines := make(chan Line, 1000)
	go func() { // ends with stdin
		defer close(lines)
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			if key, value, ok := strings.Cut(in.Text(), " "); ok {
				lines <- Line{key, value}
			}
		}
	}()
	return lines
}

// Gather gives a line and all that have come meanwhile, for clients that send whole lists; none at the end.
func Gather(lines <-chan Line) []Line {
	l, ok := <-lines
	if !ok {
		return nil
	}
	all := []Line{l}
	for {
		select {
		case l, ok := <-lines:
			if !ok {
				return all
			}
			all = append(all, l)
		default:
			return all
		}
	}
}

var stdout sync.Mutex

func say(format string, args ...any) {
	stdout.Lock()
	defer stdout.Unlock()
	fmt.Printf(format+"\n", args...)
}

// Ack tells of a record that is kept.
func Ack(value string, partition int32, offset int64) { say("ack %s %d %d", value, partition, offset) }

// Fail tells of a record that the client gave up.
func Fail(value string, err error) { say("fail %s %s", value, oneLine(err)) }

// Rec tells of a record that was consumed.
func Rec(partition int32, offset int64, value string) { say("rec %d %d %s", partition, offset, value) }

// Error tells of an error that reached the application.
func Error(err error) { say("error %s", oneLine(err)) }

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// ModuleVersion is the version of a module that the program was built with.
func ModuleVersion(name, path string) func() string {
	return func() string {
		if info, ok := debug.ReadBuildInfo(); ok {
			for _, m := range info.Deps {
				if m.Path == path {
					return name + " " + m.Version
				}
			}
		}
		return name + " unknown"
	}
}
