package main

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

// newApp is the command tree: one file beside this one per command.
func newApp() *cli.App {
	app := &cli.App{
		Name:      "edgectl",
		Usage:     "operate a cluster of edged nodes, and move records in and out of it",
		UsageText: "edgectl [global options] command [options] [arguments]",
		Description: "Options may stand anywhere before a --. Data goes to stdout, everything else to stderr.\n" +
			"Exit codes: 0 done, 1 failed, 2 wrong usage or a name or setting that is not valid, 3 not found, 4 not reachable or timed out, 5 refused.",
		HideHelpCommand:      true,
		EnableBashCompletion: true,
		// A setting may hold commas; the list of nodes is taken apart by withClient.
		DisableSliceFlagSeparator: true,
		Flags: []cli.Flag{
			&cli.StringSliceFlag{
				Name: "node", Usage: "`HOST:PORT` of a node's native listener; repeatable, any node will do",
				EnvVars: []string{nodesVariable}, DefaultText: defaultNode,
			},
			&cli.BoolFlag{Name: "json", Usage: "print data and errors as JSON", DisableDefaultText: true},
			&cli.DurationFlag{
				Name: "timeout", Value: 10 * time.Second,
				Usage: "how `LONG` to go on trying: a request; in produce, one record",
			},
			&cli.BoolFlag{Name: "version", Usage: "print the version", DisableDefaultText: true},
		},
		Commands: []*cli.Command{
			statusCommand(),
			doctorCommand(),
			eventsCommand(),
			nodeCommand(),
			topicCommand(),
			partitionCommand(),
			produceCommand(),
			consumeCommand(),
			groupCommand(),
			leaderCommand(),
			benchCommand(),
			dumpCommand(),
			completionCommand(),
			leaf("version", "", "print the version", nil, printVersion),
		},
		Action: func(c *cli.Context) error {
			switch {
			case c.Bool("version"):
				return printVersion(c)
			case c.Args().Present():
				return usage(c, "unknown command %q", c.Args().First())
			}
			return cli.ShowAppHelp(c)
		},
		OnUsageError:   onUsageError,
		ExitErrHandler: func(*cli.Context, error) {}, // run prints errors, once
	}
	return app
}

func printVersion(c *cli.Context) error {
	if c.Bool("json") {
		return printJSON(c.App.Writer, map[string]string{"version": version, "commit": commit, "date": date, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH})
	}
	_, err := fmt.Fprintf(c.App.Writer, "edgectl %s commit %s of %s %s %s/%s\n", version, commit, date, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

func onUsageError(c *cli.Context, err error, _ bool) error { return usage(c, "%v", err) }

// group is a command that only holds others.
func group(name, what string, commands ...*cli.Command) *cli.Command {
	return &cli.Command{
		Name: name, Usage: what, Subcommands: commands, HideHelpCommand: true, OnUsageError: onUsageError,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usage(c, "unknown command %q", name+" "+c.Args().First())
			}
			names := make([]string, len(commands))
			for i, sub := range commands {
				names[i] = sub.Name
			}
			return usage(c, "%s needs one of %s", name, strings.Join(names, ", "))
		},
	}
}

// leaf is a command that does something. args are its arguments as the help shows them:
// NAME is needed, [NAME] may be left out, [NAME…] may be left out or repeated.
func leaf(name, args, what string, flags []cli.Flag, run func(c *cli.Context) error) *cli.Command {
	cmd := &cli.Command{
		Name: name, ArgsUsage: args, Usage: what, Flags: flags, HideHelpCommand: true, OnUsageError: onUsageError,
		Action: func(c *cli.Context) error {
			words := strings.Fields(args)
			for i, w := range words {
				if i >= c.NArg() && !strings.HasPrefix(w, "[") {
					return usage(c, "%s is missing", w)
				}
			}
			if c.NArg() > len(words) && !strings.HasSuffix(args, "…]") {
				return usage(c, "unexpected argument %q", c.Args().Get(len(words)))
			}
			err := run(c)
			if err != nil && c.Context.Err() != nil { // only a signal ends it
				return errInterrupted
			}
			return err
		},
	}
	if strings.HasPrefix(strings.TrimLeft(args, "["), "TOPIC") {
		cmd.BashComplete = func(c *cli.Context) { completeTopics(c, cmd) }
	}
	return cmd
}
