package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/urfave/cli/v2"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	testscript.Main(noLeaks{m}, map[string]func(){"edgectl": main})
}

// noLeaks fails the run if goroutines are left.
type noLeaks struct{ m *testing.M }

func (n noLeaks) Run() int {
	code := n.m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// TestScript runs the binary as scripts and people do. EDGECTL_NODES is a fake node of
// its own for each script; $NOBODY is an address where nobody listens.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			addr, stop := serveFake(t)
			e.Defer(stop)
			_, stopped := serveFake(t)
			stopped()
			e.Setenv("EDGECTL_NODES", addr)
			e.Setenv("NOBODY", "127.0.0.1:1")
			// The race detector makes each process wait a second at its end, for races
			// that show late; here that would be a minute for nothing.
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "await": await},
	})
}

// await FILE TEXT waits until the file holds the text.
func await(ts *testscript.TestScript, _ bool, args []string) {
	for deadline := time.After(20 * time.Second); ; {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil && strings.Contains(string(text), args[1]) {
			return
		}
		select {
		case <-deadline:
			ts.Fatalf("%s does not hold %q but %q, %v", args[0], args[1], text, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// exits N CMD… runs a command and demands exactly the exit code N and, unless it is 0,
// that the last line of stderr is the error: "edgectl: …", or an object with --json.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND…")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	stderr := ts.ReadFile("stderr")
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s\n%s", got, args[0], stderr)
	}
	if got == "0" {
		return
	}
	lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
	want := `^edgectl: .+$`
	if slices.Contains(args, "--json") {
		want = fmt.Sprintf(`^\{"code":"[a-z_]+","exit_code":%s,"message":".+"\}$`, got)
	}
	if last := lines[len(lines)-1]; !regexp.MustCompile(want).MatchString(last) {
		ts.Fatalf("the last line of stderr is %q, want %s", last, want)
	}
}

// walk calls fn with every command of the tree and the words that name it.
func walk(fn func(path []string, c *cli.Command)) {
	app := newApp()
	app.Setup()
	var visit func(path []string, cmds []*cli.Command)
	visit = func(path []string, cmds []*cli.Command) {
		for _, c := range cmds {
			at := append(slices.Clone(path), c.Name)
			fn(at, c)
			visit(at, c.Subcommands)
		}
	}
	visit(nil, app.Commands)
}

// The command tree is what the design fixes, and each command tells how it is called.
func TestCommands_areThoseOfTheContract(t *testing.T) {
	var got []string
	walk(func(path []string, c *cli.Command) {
		name := strings.Join(path, " ")
		if c.Usage == "" || strings.HasSuffix(c.Usage, ".") {
			t.Errorf("%s: usage text %q", name, c.Usage)
		}
		if c.OnUsageError == nil || !c.HideHelpCommand {
			t.Errorf("%s is not made by leaf or group", name)
		}
		for _, f := range c.Flags {
			d, ok := f.(cli.DocGenerationFlag)
			if !ok || d.GetUsage() == "" {
				t.Errorf("%s: --%s has no usage text", name, f.Names()[0])
			} else if d.TakesValue() && strings.Count(d.GetUsage(), "`") != 2 {
				t.Errorf("%s: the usage of --%s does not name its value: %q", name, f.Names()[0], d.GetUsage())
			}
		}
		if len(c.Subcommands) == 0 {
			got = append(got, strings.TrimSpace(name+" "+c.ArgsUsage))
		}
	})
	want := []string{
		"status", "doctor", "events [NODE]", "node list", "node describe [NODE]", "node remove NODE",
		"topic create TOPIC", "topic list", "topic describe TOPIC", "topic alter TOPIC", "topic delete TOPIC",
		"partition list [TOPIC…]", "partition describe TOPIC PARTITION", "partition transfer TOPIC PARTITION",
		"produce TOPIC", "consume TOPIC", "group list", "group describe GROUP", "group reset GROUP TOPIC", "group delete GROUP",
		"leader history [TOPIC] [PARTITION]",
		"bench produce TOPIC", "bench consume TOPIC", "dump DATA_DIR", "completion SHELL", "version",
	}
	if !slices.Equal(got, want) {
		t.Errorf("commands are\n%q, want\n%q", got, want)
	}
}

// Every command: help works and shows the usage line; a flag that nobody knows, a missing
// and a surplus argument end with code 2 and the command's own name.
func TestCommands_refuseWrongUsage(t *testing.T) {
	call := func(args ...string) (code int, out, errOut string) {
		var o, e strings.Builder
		code = run(t.Context(), append([]string{"edgectl"}, args...), strings.NewReader(""), &o, &e)
		return code, o.String(), e.String()
	}
	wrong := func(name string, args ...string) {
		t.Helper()
		code, out, errOut := call(args...)
		if code != exitUsage || out != "" || strings.Count(errOut, "\n") != 1 || !strings.Contains(errOut, "; see edgectl "+name+" --help\n") {
			t.Errorf("%q: code %d, stdout %q, stderr %q", args, code, out, errOut)
		}
	}
	walk(func(path []string, c *cli.Command) {
		name := strings.Join(path, " ")
		if code, out, errOut := call(append(path, "--help")...); code != 0 || errOut != "" || !strings.Contains(out, "edgectl "+name) || !strings.Contains(out, c.ArgsUsage) {
			t.Errorf("%s --help: code %d, stderr %q\n%s", name, code, errOut, out)
		}
		wrong(name, append(slices.Clone(path), "--no-such-flag")...)
		if len(c.Subcommands) > 0 {
			wrong(name, path...)
			wrong(name, append(slices.Clone(path), "nonsense")...)
			return
		}
		words := strings.Fields(c.ArgsUsage)
		if len(words) > 0 && !strings.HasPrefix(words[0], "[") {
			wrong(name, path...)
		}
		if !strings.HasSuffix(c.ArgsUsage, "…]") {
			wrong(name, append(slices.Clone(path), append(slices.Clone(words), "surplus")...)...)
		}
	})
}

// Flags may stand anywhere before a --; arguments that look like flags or commands may
// stand behind it.
func TestArrange(t *testing.T) {
	for in, want := range map[string]string{
		"status":                                      "status",
		"status --json":                               "--json status",
		"--json status":                               "--json status",
		"topic create t --partitions 6 --json":        "--json topic create --partitions 6 -- t",
		"topic create --partitions=6 t":               "topic create --partitions=6 -- t",
		"topic --node a:1 create --node b:2 t":        "--node a:1 --node b:2 topic create -- t",
		"topic create t --bad x":                      "topic create --bad -- t x",
		"topic create -- --partitions":                "topic create -- --partitions",
		"topic describe json":                         "topic describe -- json",
		"topic describe create":                       "topic describe -- create",
		"consume t --from -1h --follow":               "consume --from -1h --follow -- t",
		"consume t --format - -":                      "consume --format - -- t -",
		"topic create t --help":                       "topic create --help",
		"topic delete t --yes more":                   "topic delete --yes -- t more",
		"nonsense --json":                             "--json -- nonsense",
		"produce t --key":                             "produce --key -- t",
		"":                                            "",
		"topic describe t --generate-bash-completion": "topic describe t --generate-bash-completion",
	} {
		got := arrange(newApp(), append([]string{"edgectl"}, strings.Fields(in)...))
		if strings.Join(got[1:], " ") != want {
			t.Errorf("%q becomes %q, want %q", in, got[1:], want)
		}
	}
}
