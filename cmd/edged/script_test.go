package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"edged/node"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/urfave/cli/v2"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	testscript.Main(noLeaks{m}, map[string]func(){"edged": main, "calm": calm})
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

// TestScript runs the binary as a person or systemd would: command lines, exit codes,
// what is on stdout and what on stderr, and what systemd is told.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", "atexit_sleep_ms=0") // else each process ends a second later
			s := &scene{}
			e.Values["scene"] = s
			socket := filepath.Join(e.WorkDir, "notify")
			var err error
			if s.systemd, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"}); err != nil {
				return err
			}
			e.Defer(func() { _ = s.systemd.Close() })
			e.Setenv("NOTIFY_SOCKET", socket)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "listening": listening, "signal": sendSignal, "notified": notified, "damage-manifest": damageManifest,
		},
	})
}

// scene is what one script knows beside its files.
type scene struct {
	systemd *net.UnixConn
	node    node.Addrs // of the last node that listened
}

// scriptPatience is how long a script waits for something that is on its way.
const scriptPatience = 20 * time.Second

// listening DIR waits until a new process has opened its listeners on the data in DIR, and
// demands that it is the same node as before, if there was one. $NATIVE is its address.
func listening(ts *testscript.TestScript, _ bool, args []string) {
	s := ts.Value("scene").(*scene)
	file := ts.MkAbs(filepath.Join(args[0], "addresses.json"))
	for deadline := time.After(scriptPatience); ; {
		var a node.Addrs
		text, err := os.ReadFile(file)
		if err == nil && json.Unmarshal(text, &a) == nil && a.PID != s.node.PID {
			if s.node.PID != 0 && a.NodeID != s.node.NodeID {
				ts.Fatalf("it is node %d now, it was %d", a.NodeID, s.node.NodeID)
			}
			s.node = a
			ts.Setenv("NATIVE", a.Native)
			return
		}
		select {
		case <-deadline:
			ts.Fatalf("no node listens: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// signal terminate|interrupt|hangup|kill… sends them to the node that listened last, at once.
func sendSignal(ts *testscript.TestScript, _ bool, args []string) {
	for i, arg := range args {
		sig := map[string]syscall.Signal{"terminate": syscall.SIGTERM, "interrupt": syscall.SIGINT, "hangup": syscall.SIGHUP, "kill": syscall.SIGKILL}[arg]
		if err := syscall.Kill(ts.Value("scene").(*scene).node.PID, sig); i == 0 {
			ts.Check(err) // the first may have ended it
		}
	}
}

// damage-manifest DIR turns a byte in the middle of the store's manifest.
func damageManifest(ts *testscript.TestScript, _ bool, args []string) {
	files, err := filepath.Glob(ts.MkAbs(filepath.Join(args[0], "store", "MANIFEST-*")))
	if err != nil || len(files) == 0 {
		ts.Fatalf("no manifest: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		ts.Check(err)
		text[len(text)/2] ^= 0xff
		ts.Check(os.WriteFile(file, text, 0o600))
	}
}

// notified LINE waits until systemd is told the line.
func notified(ts *testscript.TestScript, _ bool, args []string) {
	conn := ts.Value("scene").(*scene).systemd
	ts.Check(conn.SetReadDeadline(time.Now().Add(scriptPatience)))
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			ts.Fatalf("systemd was not told %s: %v", args[0], err)
		}
		if slices.Contains(strings.Split(string(buf[:n]), "\n"), args[0]) {
			return
		}
	}
}

// exits N CMD… runs a command and demands exactly the exit code N and, unless it is 0,
// a stderr that begins each line with the name of the program.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND…")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s\n%s", got, args[0], ts.ReadFile("stderr"))
	}
	if got != "0" {
		for line := range strings.Lines(ts.ReadFile("stderr")) {
			if !strings.HasPrefix(line, args[1]+": ") {
				ts.Fatalf("stderr has a line that does not say where it comes from: %q", line)
			}
		}
	}
}

// Every command says what it is for, how it is called, and takes no stray flags.
func TestCommands_areDocumented(t *testing.T) {
	app := newApp()
	app.Setup()
	var walk func(path string, cmds []*cli.Command)
	walk = func(path string, cmds []*cli.Command) {
		for _, c := range cmds {
			name := path + " " + c.Name
			if c.Usage == "" {
				t.Errorf("%s has no usage text", name)
			}
			if c.OnUsageError == nil {
				t.Errorf("%s would print the library's own usage error", name)
			}
			if c.Action == nil {
				t.Errorf("%s does nothing", name)
			}
			walk(name, c.Subcommands)
		}
	}
	walk("edged", app.Commands)
	for _, s := range node.Settings() {
		if !regexp.MustCompile(`\b` + s.Env + `\b`).MatchString(flagHelp(app, s.Name)) {
			t.Errorf("the help of --%s does not name %s", s.Name, s.Env)
		}
	}
}

func flagHelp(app *cli.App, name string) string {
	for _, f := range app.Flags {
		if f.Names()[0] == name {
			return f.String()
		}
	}
	return ""
}

func TestJournalHandler_priorityBeforeEachLine(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log := slog.New(newJournalHandler(&out, node.Config{LogFormat: format}, slog.LevelDebug)).With("node", 7).WithGroup("g")
		log.Debug("d", "time", "mine")
		log.Info("i")
		log.Warn("w")
		log.Error("e")
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		for i, want := range []string{"<7>", "<6>", "<4>", "<3>"} {
			if !strings.HasPrefix(lines[i], want) || !strings.Contains(lines[i], "node") {
				t.Errorf("%s: line %q, want it to begin with %s and to have the node", format, lines[i], want)
			}
		}
		if !strings.Contains(lines[0], "mine") || strings.Contains(lines[1], "time") {
			t.Errorf("%s: the record's own time must go and an attribute of that name stay: %q", format, lines[:2])
		}
	}
}

func TestOnJournal_onlyForTheVeryStream(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	dev, ino := uint64(st.Dev), uint64(st.Ino)
	for stream, want := range map[string]bool{
		"": false, "1:2": false, slog.Uint64Value(dev).String() + ":" + slog.Uint64Value(ino).String(): true,
	} {
		if onJournal(f, stream) != want {
			t.Errorf("JOURNAL_STREAM=%q: got %v", stream, !want)
		}
	}
}

// The datagrams that systemd gets over a life: progress may extend a start and a stop,
// never the time between.
func TestNotifier(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	n := newNotifier(path, slog.New(slog.DiscardHandler))
	n.status("opening log 1 of 2")
	n.ready()
	n.reloading()
	n.ready()
	n.status("leads 3 of\n12 partitions")
	n.stopping()
	n.status("handing over")
	n.close()
	n.status("after the end")
	for _, want := range []string{
		"STATUS=opening log 1 of 2\n" + extend, "READY=1", "RELOADING=1\nMONOTONIC_USEC=#", "READY=1", "STATUS=leads 3 of 12 partitions",
		"STOPPING=1\n" + extend, "STATUS=handing over\n" + extend,
	} {
		if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 1024)
		k, err := conn.Read(buf)
		got := string(buf[:k])
		if before, usec, ok := strings.Cut(got, "MONOTONIC_USEC="); ok {
			now, up := 0, 0.0
			uptime, _ := os.ReadFile("/proc/uptime")
			_, _ = fmt.Sscan(usec, &now)
			_, _ = fmt.Sscan(string(uptime), &up)
			if since := up - float64(now)/1e6; since < -60 || since > 60 {
				t.Errorf("the reload began %v s ago by the monotonic clock", since)
			}
			got = before + "MONOTONIC_USEC=#"
		}
		if err != nil || got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
}

func TestNotifier_withoutSystemdOrWithABrokenSocket(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	for _, socket := range []string{"", filepath.Join(t.TempDir(), "none")} {
		n := newNotifier(socket, log)
		n.ready()
		n.status("x")
		n.stopping()
		n.close()
	}
	if got := strings.Count(out.String(), "systemd cannot be told"); got != 1 {
		t.Errorf("%d warnings, want one for the broken socket:\n%s", got, &out)
	}
}

func TestWatchdogEvery(t *testing.T) {
	self := fmt.Sprint(os.Getpid())
	for _, c := range []struct {
		usec, pid string
		want      time.Duration
	}{
		{"", "", 0}, {"60000000", "", 20 * time.Second}, {"60000000", self, 20 * time.Second},
		{"60000000", "1", 0}, {"many", "", 0}, {"0", "", 0}, {"-5", "", 0}, {"9223372036854775807", "", 0},
	} {
		if got := watchdogEvery(c.usec, c.pid); got != c.want {
			t.Errorf("WATCHDOG_USEC=%q WATCHDOG_PID=%q: every %v, want %v", c.usec, c.pid, got, c.want)
		}
	}
}

// What stands still is not said to be well, however often systemd would like to hear it.
func TestNotifier_watchIsSilentWhileNothingMoves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var out bytes.Buffer
	n := newNotifier(path, slog.New(slog.NewTextHandler(&out, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	n.watch(ctx, time.Millisecond, func(context.Context) error {
		switch asked++; asked {
		case 1, 5:
			return nil
		case 6:
			cancel()
		}
		return errors.New("the core took no turn")
	})
	n.close()
	if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	got, buf := 0, make([]byte, 64)
	for {
		k, err := conn.Read(buf)
		if err != nil {
			break
		}
		if string(buf[:k]) != "WATCHDOG=1" {
			t.Errorf("systemd was told %q", buf[:k])
		}
		got++
	}
	if got != 2 || strings.Count(out.String(), "stands still") != 3 {
		t.Errorf("told %d times that the node is well, want 2; the log:\n%s", got, &out)
	}
}
