package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// completionFlag ends the command line when a shell asks for completions.
const completionFlag = "--generate-bash-completion"

// arrange puts a command line into the order that the cli library understands, so that
// flags may stand anywhere before a "--": `edgectl topic create t --partitions 6 --json`.
// The library itself stops to look for flags at the first argument and knows global
// flags only before the command. Unknown flags stay where they are, for its complaint.
func arrange(app *cli.App, args []string) []string {
	if slices.Contains(args, completionFlag) {
		return args
	}
	type level struct {
		flags []cli.Flag
		given []string
	}
	global := app.Flags
	levels := []level{{}}
	commands := app.Commands
	var before, path, rest []string
	for i := 1; i < len(args); i++ {
		arg := args[i]
		last := &levels[len(levels)-1]
		switch {
		case arg == "--":
			rest = append(rest, args[i+1:]...)
			i = len(args)
		case len(arg) > 1 && arg[0] == '-':
			f, attached := findFlag(last.flags, arg)
			target := &last.given
			if f == nil {
				if f, attached = findFlag(global, arg); f != nil {
					target = &before
				}
			}
			*target = append(*target, arg)
			if takesValue(f) && !attached && i+1 < len(args) {
				i++
				*target = append(*target, args[i])
			}
		default:
			cmd := findCommand(commands, arg)
			if len(rest) > 0 || cmd == nil {
				rest = append(rest, arg)
				continue
			}
			path = append(path, arg)
			levels = append(levels, level{flags: cmd.Flags})
			commands = cmd.Subcommands
		}
	}
	out := append([]string{args[0]}, before...)
	out = append(out, levels[0].given...)
	for i, name := range path {
		out = append(out, name)
		out = append(out, levels[i+1].given...)
	}
	if help := slices.ContainsFunc(out, func(a string) bool { return a == "--help" || a == "-h" }); help {
		return out // the library would take the first argument for what to help with
	}
	if len(rest) > 0 {
		out = append(append(out, "--"), rest...)
	}
	return out
}

// findFlag gives the flag that arg names, and whether its value is attached with =.
func findFlag(flags []cli.Flag, arg string) (f cli.Flag, attached bool) {
	name, _, attached := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	for _, f := range flags {
		if slices.Contains(f.Names(), name) {
			return f, attached
		}
	}
	return nil, attached
}

func takesValue(f cli.Flag) bool {
	d, ok := f.(cli.DocGenerationFlag)
	return ok && d.TakesValue()
}

func findCommand(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}
