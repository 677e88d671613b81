package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"strings"
	"time"

	"edged/client"

	"github.com/urfave/cli/v2"
)

// completionPatience is how long a person who pressed Tab waits for the names of topics.
const completionPatience = 500 * time.Millisecond

//go:embed completion.bash
var bashCompletion string

//go:embed completion.zsh
var zshCompletion string

func completionCommand() *cli.Command {
	cmd := leaf("completion", "SHELL", "print the script that completes edgectl in bash, zsh or fish", nil, completion)
	cmd.Description = `bash: source <(edgectl completion bash)
zsh:  source <(edgectl completion zsh)
fish: edgectl completion fish | source`
	cmd.BashComplete = func(c *cli.Context) {
		if c.NArg() == 0 {
			fmt.Fprintln(c.App.Writer, "bash\nzsh\nfish")
		}
	}
	return cmd
}

func completion(c *cli.Context) error {
	var script string
	switch shell := c.Args().First(); shell {
	case "bash":
		script = bashCompletion
	case "zsh":
		script = zshCompletion
	case "fish":
		var err error
		if script, err = c.App.ToFishCompletion(); err != nil {
			return err
		}
	default:
		return usage(c, "there is a completion for bash, zsh and fish, not for %q", shell)
	}
	_, err := fmt.Fprint(c.App.Writer, script)
	return err
}

// completeTopics offers the topics of the cluster for the first argument, and flags.
func completeTopics(c *cli.Context, cmd *cli.Command) {
	// The library takes a flag that is not whole for a mistake and gives no arguments then; it completes
	// by the process's own as well.
	if n := len(os.Args); n > 1 && strings.HasPrefix(os.Args[n-2], "-") {
		cli.DefaultCompleteWithFlags(cmd)(c)
		return
	}
	if c.NArg() > 0 {
		return
	}
	// A completion that fails offers nothing: there is no place for an error.
	_ = withClient(c, func(cl *client.Client) error {
		ctx, cancel := context.WithTimeout(c.Context, completionPatience)
		defer cancel()
		topics, err := describeTopics(ctx, cl.Admin(), nil)
		for _, t := range topics {
			fmt.Fprintln(c.App.Writer, t.Name)
		}
		return err
	})
}
