package main

import (
	"fmt"
	"os"
	"runtime"

	"edged/node"

	"github.com/urfave/cli/v2"
)

// newApp is the command tree. Every command takes every setting, so that a setting may
// stand before or after the subcommand.
func newApp() *cli.App {
	app := &cli.App{
		Name:  "edged",
		Usage: "edge streaming node; runs the node unless a subcommand is given",
		UsageText: `edged [settings]
   edged config validate|show [settings]
   edged version`,
		Description: "Each setting may be a flag, a variable (EDGED_DATA_DIR for --data-dir) or a line of the\n" +
			"TOML file (data-dir = \"...\"); a flag wins over a variable, a variable over the file.",
		HideHelpCommand:      true,
		EnableBashCompletion: true, // the package has the scripts
		HideVersion:          true, // the library's would take -v as well
		Flags:                append(settingFlags(), &cli.BoolFlag{Name: "version", Usage: "print the version", DisableDefaultText: true}),
		Action: func(c *cli.Context) error {
			switch {
			case c.Args().Present():
				return usage(c, "unknown command %q", c.Args().First())
			case c.Bool("version"):
				printVersion(c)
				return nil
			}
			cfg, err := load(c)
			if err != nil {
				return err
			}
			return serve(cfg, func() (node.Config, error) { return load(c) })
		},
		Commands: []*cli.Command{configCommand(), versionCommand()},
		// Errors are printed once, by run.
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError:   onUsageError,
	}
	return app
}

func onUsageError(c *cli.Context, err error, _ bool) error { return usage(c, "%v", err) }

func configCommand() *cli.Command {
	leaf := func(name, what string, action func(*cli.Context, node.Config, error) error) *cli.Command {
		return &cli.Command{
			Name: name, Usage: what, Flags: settingFlags(), HideHelpCommand: true, OnUsageError: onUsageError,
			Action: func(c *cli.Context) error {
				if c.Args().Present() {
					return usage(c, "unexpected argument %q", c.Args().First())
				}
				cfg, err := load(c)
				return action(c, cfg, err)
			},
		}
	}
	return &cli.Command{
		Name: "config", Usage: "check or print the configuration", Flags: settingFlags(),
		HideHelpCommand: true, OnUsageError: onUsageError,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usage(c, "unknown command %q", "config "+c.Args().First())
			}
			return usage(c, "config needs validate or show")
		},
		Subcommands: []*cli.Command{
			leaf("validate", "check everything, list every fault, exit 78 if there is one", validateConfig),
			leaf("show", "print the settings in force as TOML, each with its source", showConfig),
		},
	}
}

func validateConfig(c *cli.Context, cfg node.Config, err error) error {
	for _, line := range node.StrayVariables(os.Environ()) {
		fmt.Fprintln(c.App.ErrWriter, "edged: "+line)
	}
	if err != nil {
		return err
	}
	host, why, err := cfg.AdvertiseHost()
	if err != nil {
		return &node.ConfigError{Faults: []string{"advertise: " + err.Error()}}
	}
	fmt.Fprintf(c.App.Writer, "the configuration is valid; advertising %s (%s)\n", host, why)
	return nil
}

// showConfig prints what is in force even if it has faults, to help to find them.
func showConfig(c *cli.Context, cfg node.Config, err error) error {
	fmt.Fprint(c.App.Writer, cfg.TOML())
	return err
}

func versionCommand() *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "print the version", HideHelpCommand: true, OnUsageError: onUsageError,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usage(c, "unexpected argument %q", c.Args().First())
			}
			printVersion(c)
			return nil
		},
	}
}

func printVersion(c *cli.Context) {
	fmt.Fprintf(c.App.Writer, "edged %s commit %s of %s %s %s/%s\n", version, commit, date, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// settingFlags makes one flag per setting. Numbers are flags of text as well: the loader
// checks them, so that a wrong one is reported with all other faults.
func settingFlags() []cli.Flag {
	flags := []cli.Flag{&cli.StringFlag{Name: "config", Usage: "`FILE`: TOML file with settings [$EDGED_CONFIG]"}}
	for _, s := range node.Settings() {
		usage := "`" + s.Value + "`: " + s.Usage + " [$" + s.Env + "]"
		if s.Repeated {
			flags = append(flags, &cli.StringSliceFlag{Name: s.Name, Usage: usage, DefaultText: s.Default})
		} else {
			flags = append(flags, &cli.StringFlag{Name: s.Name, Usage: usage, DefaultText: s.Default})
		}
	}
	return flags
}

// load gathers the flags of this command and of those before it; the nearest wins.
func load(c *cli.Context) (node.Config, error) {
	given := map[string][]string{}
	for _, s := range append(node.Settings(), node.Setting{Name: "config"}) {
		for _, at := range c.Lineage() {
			if at.Command == nil || !isSet(at, s.Name) {
				continue
			}
			if s.Repeated {
				given[s.Name] = at.StringSlice(s.Name)
			} else {
				given[s.Name] = []string{at.String(s.Name)}
			}
			break
		}
	}
	in := node.Inputs{Flags: given, LookupEnv: os.LookupEnv, File: os.Getenv("EDGED_CONFIG")}
	if f := given["config"]; f != nil {
		in.File = f[0]
	}
	return node.Load(in)
}

// isSet tells that a flag was given to exactly this command.
func isSet(c *cli.Context, name string) bool {
	for _, n := range c.LocalFlagNames() {
		if n == name {
			return true
		}
	}
	return false
}
