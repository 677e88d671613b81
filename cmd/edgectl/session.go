package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"edged/client"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
)

// defaultNode is where a node on this machine listens.
const defaultNode = "127.0.0.1:7400"

// nodes are the addresses that --node gives, each of which may be a list with commas, as
// EDGECTL_NODES is.
func nodes(c *cli.Context) []string {
	var all []string
	for _, given := range c.StringSlice("node") {
		for _, n := range strings.Split(given, ",") {
			if n = strings.TrimSpace(n); n != "" {
				all = append(all, n)
			}
		}
	}
	if all == nil {
		all = []string{defaultNode}
	}
	return all
}

// withClient runs fn with a client of the cluster and closes it.
func withClient(c *cli.Context, fn func(cl *client.Client) error) error {
	if c.Duration("timeout") <= 0 {
		return usage(c, "--timeout is %v; it is above 0", c.Duration("timeout"))
	}
	cl, err := client.New(client.Config{Nodes: nodes(c), Name: "edgectl", StopAtWrongNodes: true})
	if err != nil {
		return usage(c, "%v", err)
	}
	return errors.Join(fn(cl), cl.Close())
}

// withAdmin is withClient for a command that asks and prints within --timeout.
func withAdmin(c *cli.Context, fn func(ctx context.Context, cl client.Admin) error) error {
	return withClient(c, func(cl *client.Client) error {
		ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
		defer cancel()
		return fn(ctx, cl.Admin())
	})
}

// confirmed asks a person at a terminal; without one nobody is asked.
func confirmed(c *cli.Context, question string) bool {
	in, ok := c.App.Reader.(*os.File)
	if !ok || !isTerminal(in) {
		return true
	}
	fmt.Fprint(c.App.ErrWriter, question+" [y/N] ")
	answer, _ := bufio.NewReader(in).ReadString('\n')
	a := strings.ToLower(strings.TrimSpace(answer))
	return a == "y" || a == "yes"
}

// isTerminal tells that a person sits at f. /dev/null is a character device as well, so it is asked
// for what only a terminal has.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
