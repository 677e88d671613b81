package main

import (
	"fmt"
	"os"
	"runtime"

	"edged/node"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newApp is the command tree. Every command takes every setting, so that a setting may
// stand before or after the subcommand.
//
// This is cobra and not the library of edgectl because that one prints its help with text/template,
// which makes the linker keep every method of every type: 5 MB of the node.
func newApp() *cobra.Command {
	app := &cobra.Command{
		Use:   "edged [settings]",
		Short: "edge streaming node; runs the node unless a subcommand is given",
		Long: `edged runs an edge streaming node, unless a subcommand is given.

Each setting may be a flag, a variable (EDGED_DATA_DIR for --data-dir) or a line of the
TOML file (data-dir = "..."); a flag wins over a variable, a variable over the file.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage(cmd, "unknown command %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(cmd.Flags())
			if err != nil {
				return err
			}
			return serve(cfg, func() (node.Config, error) { return load(cmd.Flags()) })
		},
		// Errors are printed once, by run.
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	app.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(cmd, "%v", err) })
	app.SetHelpCommand(&cobra.Command{Hidden: true})
	addSettings(app.PersistentFlags())
	app.AddCommand(configCommand(), versionCommand())
	return app
}

func configCommand() *cobra.Command {
	leaf := func(name, what string, action func(*cobra.Command, node.Config, error) error) *cobra.Command {
		return &cobra.Command{
			Use: name, Short: what, Args: noArguments,
			RunE: func(cmd *cobra.Command, _ []string) error {
				cfg, err := load(cmd.Flags())
				return action(cmd, cfg, err)
			},
		}
	}
	config := &cobra.Command{
		Use: "config", Short: "check or print the configuration",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage(cmd, "unknown command %q", "config "+args[0])
			}
			return usage(cmd, "config needs validate or show")
		},
	}
	config.AddCommand(
		leaf("validate", "check everything, list every fault, exit 78 if there is one", validateConfig),
		leaf("show", "print the settings in force as TOML, each with its source", showConfig),
	)
	return config
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(cmd, "unexpected argument %q", args[0])
	}
	return nil
}

func validateConfig(cmd *cobra.Command, cfg node.Config, err error) error {
	if err != nil {
		return err
	}
	host, why, err := cfg.AdvertiseHost()
	if err != nil {
		return &node.ConfigError{Faults: []string{"advertise: " + err.Error()}}
	}
	fmt.Fprintf(cmd.OutOrStdout(), "the configuration is valid; advertising %s (%s)\n", host, why)
	return nil
}

// showConfig prints what is in force even if it has faults, to help to find them.
func showConfig(cmd *cobra.Command, cfg node.Config, err error) error {
	fmt.Fprint(cmd.OutOrStdout(), cfg.TOML())
	return err
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "print the version", Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintf(cmd.OutOrStdout(), "edged %s commit %s of %s %s %s/%s\n", version, commit, date, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
}

// addSettings makes one flag per setting. Numbers are flags of text as well: the loader
// checks them, so that a wrong one is reported with all other faults.
func addSettings(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.String("config", "", "`FILE`: TOML file with settings [$EDGED_CONFIG]")
	for _, s := range node.Settings() {
		help := "`" + s.Value + "`: " + s.Usage
		if s.Default != "" {
			help += " (default " + s.Default + ")"
		}
		help += " [$" + s.Env + "]"
		if s.Repeated {
			flags.StringSlice(s.Name, nil, help)
		} else {
			flags.String(s.Name, "", help)
		}
	}
}

// load takes the settings from the flags that were given, the environment and the file.
func load(flags *pflag.FlagSet) (node.Config, error) {
	given := map[string][]string{}
	flags.Visit(func(f *pflag.Flag) {
		if list, ok := f.Value.(pflag.SliceValue); ok {
			given[f.Name] = list.GetSlice()
		} else {
			given[f.Name] = []string{f.Value.String()}
		}
	})
	in := node.Inputs{Flags: given, LookupEnv: os.LookupEnv, File: os.Getenv("EDGED_CONFIG")}
	if f := given["config"]; f != nil {
		in.File = f[0]
	}
	return node.Load(in)
}
