package main

import (
	"context"
	"fmt"
	"time"

	"edged/client"
	"edged/transport/wire"

	"github.com/urfave/cli/v2"
)

func eventsCommand() *cli.Command {
	return leaf("events", "[NODE]", "what a node noted: starts, leaders, members, disk, clock, settings (default: the one that answers)", []cli.Flag{
		&cli.BoolFlag{Name: "follow", Usage: "go on until interrupted", DisableDefaultText: true},
	}, func(c *cli.Context) error {
		return withClient(c, func(cl *client.Client) error { return printEvents(c, cl.Admin()) })
	})
}

// followWait is how long a node is asked to wait for the next event.
const followWait = 20 * time.Second

// printEvents prints all events of a node, with --json one object per line.
func printEvents(c *cli.Context, cl client.Admin) error {
	ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
	id, err := findNode(ctx, cl, c.Args().First())
	cancel()
	if err != nil {
		return err
	}
	req := wire.EventsRequest{Node: id}
	for {
		ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout")+time.Duration(req.WaitMs)*time.Millisecond)
		events, err := cl.Events(ctx, req)
		cancel()
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := printEvent(c, e); err != nil {
				return err
			}
			req.After = e.Seq
		}
		if len(events) < wire.MaxEvents {
			if !c.Bool("follow") {
				return nil
			}
			req.WaitMs = int32(followWait.Milliseconds())
		}
	}
}

func printEvent(c *cli.Context, e wire.NodeEvent) error {
	if c.Bool("json") {
		return printJSON(c.App.Writer, e)
	}
	text := e.Text
	if e.Count > 1 {
		text += fmt.Sprintf(" (%d times)", e.Count)
	}
	_, err := fmt.Fprintf(c.App.Writer, "%s  %-10s  %s\n", e.At.Local().Format("2006-01-02 15:04:05"), e.Kind, text)
	return err
}
