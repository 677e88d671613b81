//go:build linux

package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything may take that should happen at once, on a machine that is
// busy with other things. Where a claim is about time the test measures it. An emulated CPU is given more.
var patience = func() time.Duration {
	if os.Getenv("EDGED_TEST_EMULATED") != "" {
		return 2 * time.Minute
	}
	return 30 * time.Second
}()

// pollEvery is the pause between looks at what cannot ring: files, /proc, HTTP.
const pollEvery = 10 * time.Millisecond

// eventually waits until ok gives no error, and fails with the last one.
func eventually(t testing.TB, what string, ok func() error) {
	t.Helper()
	if err := await(patience, ok); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func await(limit time.Duration, ok func() error) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := ok()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return fmt.Errorf("not within %v: %w", limit, err)
		}
	}
}

// addresses is what a node writes to DATA_DIR/addresses.json when its listeners are open.
type addresses struct {
	NodeID int32  `json:"node_id"`
	Native string `json:"native"`
	Gossip string `json:"gossip"`
	Kafka  string `json:"kafka"`
	HTTP   string `json:"http"`
	PID    int    `json:"pid"`
}

// node is one edged process, which may end and be started again on the same data.
type node struct {
	t      testing.TB
	name   string
	dir    string // of data and log
	data   string
	ip     string   // a loopback address that no other node has
	args   []string // beyond those that every node gets
	prefix []string // put in front of the command, to run it elsewhere
	addr   addresses
	native atomic.Value // addr.Native of the last life, for goroutines that run beside the test

	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd has ended
	err   error         // how; read after ended
}

// loopback gives an address out of 127.0.0.0/8 that nobody else has, most likely.
func loopback() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(256), 1+rand.IntN(250))
}

// scratch is a directory that goes with the test, unless EDGED_TEST_KEEP asks for it.
func scratch(t testing.TB) string {
	keep := os.Getenv("EDGED_TEST_KEEP")
	if keep == "" {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(keep, strings.ReplaceAll(t.Name(), "/", "-")+"-")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("keeping %s", dir)
	return dir
}

// newNode makes a node without starting it. Whatever runs of it at the end of the test is killed.
func newNode(t testing.TB, name string, args ...string) *node {
	program(t, "edged") // built before anybody looks at a clock
	n := &node{t: t, name: name, dir: filepath.Join(scratch(t), name), ip: loopback(), args: args}
	n.data = filepath.Join(n.dir, "data")
	n.addr = addresses{Native: n.ip + ":0", Gossip: n.ip + ":0", Kafka: n.ip + ":0", HTTP: n.ip + ":0"}
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.signal(syscall.SIGCONT)
		n.kill()
		n.judgeLog()
	})
	return n
}

// command is the node's command line. The addresses are those of its last life.
func (n *node) command() []string {
	args := append([]string{}, n.prefix...)
	args = append(args, program(n.t, "edged"), "--data-dir", n.data, "--node-name", n.name, "--cluster", "test", "--log-level", level())
	for flag, addr := range map[string]string{"native": n.addr.Native, "gossip": n.addr.Gossip, "kafka": n.addr.Kafka, "http": n.addr.HTTP} {
		if addr == "" { // of a protocol that this build does not serve
			addr = n.ip + ":0"
		}
		args = append(args, "--"+flag+"-addr", addr)
	}
	return append(args, n.args...)
}

// launch starts the process and does not wait for anything.
func (n *node) launch() {
	n.t.Helper()
	if n.running() {
		n.t.Fatalf("%s runs already", n.name)
	}
	log, err := os.OpenFile(n.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		n.t.Fatal(err)
	}
	defer log.Close()
	line := n.command()
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = []string{"HOME=" + n.dir, "PATH=" + os.Getenv("PATH")} // no EDGED_ settings of this shell
	// A test run that is killed itself leaves no node behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	ended := make(chan struct{})
	n.cmd, n.ended = cmd, ended
	go func() {
		n.err = cmd.Wait()
		close(ended)
	}()
}

// start launches the node and waits until it has said which ports it has.
func (n *node) start() {
	n.t.Helper()
	n.launch()
	n.awaitPorts()
}

func (n *node) awaitPorts() {
	n.t.Helper()
	eventually(n.t, n.name+" opens its listeners", func() error {
		if !n.running() {
			n.t.Fatalf("%s ended at once (%v):\n%s", n.name, n.err, n.logTail())
		}
		text, err := os.ReadFile(filepath.Join(n.data, "addresses.json"))
		if err != nil {
			return err
		}
		var a addresses
		if err := json.Unmarshal(text, &a); err != nil {
			n.t.Fatalf("addresses.json is not whole: %v\n%s", err, text)
		}
		if a.PID != n.cmd.Process.Pid {
			return fmt.Errorf("addresses.json is of process %d, this life is %d", a.PID, n.cmd.Process.Pid)
		}
		n.addr = a
		n.native.Store(a.Native)
		return nil
	})
}

func (n *node) running() bool {
	if n.cmd == nil {
		return false
	}
	select {
	case <-n.ended:
		return false
	default:
		return true
	}
}

// ready tells whether /readyz says that clients should come.
func (n *node) ready() error { return n.get("/readyz", nil) }

var plainHTTP = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// get reads a page of the node's HTTP address. Anything but 200 is an error.
func (n *node) get(path string, into *string) error {
	resp, err := plainHTTP.Get("http://" + n.addr.HTTP + path)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", n.name, resp.Status, bytes.TrimSpace(text))
	}
	if into != nil {
		*into = string(text)
	}
	return nil
}

// metric reads one figure of /metrics.
func (n *node) metric(name string) float64 {
	n.t.Helper()
	var page string
	if err := n.get("/metrics", &page); err != nil {
		n.t.Fatal(err)
	}
	for line := range strings.Lines(page) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				n.t.Fatal(err)
			}
			return v
		}
	}
	n.t.Fatalf("%s has no metric %s", n.name, name)
	return 0
}

// rss is the resident memory of the node in bytes, peakRSS the most that it ever was.
func (n *node) rss() int64     { return n.memory("VmRSS:") }
func (n *node) peakRSS() int64 { return n.memory("VmHWM:") }

func (n *node) memory(word string) int64 {
	n.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.addr.PID))
	if err != nil {
		n.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, word); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				n.t.Fatal(err)
			}
			return kb << 10
		}
	}
	n.t.Fatal("/proc tells no " + word)
	return 0
}

// cpu is the processor time that the node has taken since its start.
func (n *node) cpu() time.Duration {
	n.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.addr.PID))
	if err != nil {
		n.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name before it may hold spaces
	fields := strings.Fields(rest)
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		n.t.Fatal(err)
	}
	return time.Duration(user+system) * (time.Second / 100) // Linux counts hundredths
}

// truncateIdentity does to the identity what a bad card does: both copies are cut short.
func (n *node) truncateIdentity() {
	n.t.Helper()
	for _, name := range []string{"identity", "identity.copy"} {
		if err := os.Truncate(filepath.Join(n.data, name), 10); err != nil {
			n.t.Fatal(err)
		}
	}
}

// signal sends a signal to the process, if it runs.
func (n *node) signal(s os.Signal) {
	if n.running() {
		_ = n.cmd.Process.Signal(s) // fails only if it has ended meanwhile
	}
}

// kill ends the process with SIGKILL and waits.
func (n *node) kill() {
	if n.cmd == nil {
		return
	}
	n.signal(syscall.SIGKILL)
	<-n.ended
}

// stop ends the process with SIGTERM; it has to end by itself, with code 0.
func (n *node) stop() time.Duration {
	n.t.Helper()
	began := time.Now()
	n.signal(syscall.SIGTERM)
	select {
	case <-n.ended:
	case <-time.After(patience):
		n.t.Fatalf("%s does not stop within %v of SIGTERM:\n%s", n.name, patience, n.logTail())
	}
	if n.err != nil {
		n.t.Errorf("%s did not stop cleanly: %v\n%s", n.name, n.err, n.logTail())
	}
	return time.Since(began)
}

func (n *node) logFile() string { return filepath.Join(n.dir, "log") }

func (n *node) logText() string {
	text, err := os.ReadFile(n.logFile())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err.Error()
	}
	return string(text)
}

func (n *node) logTail() string {
	const most = 4000
	text := n.logText()
	if len(text) > most {
		text = "..." + text[len(text)-most:]
	}
	return text
}

// judgeLog fails the test for what no node may ever say, and shows the logs of one that failed.
func (n *node) judgeLog() {
	text := n.logText()
	for _, bad := range []string{"panic:", "fatal error:", "DATA RACE", "goroutine 1 ["} {
		if at := strings.Index(text, bad); at >= 0 {
			n.t.Errorf("the log of %s says %q:\n%s", n.name, bad, text[at:min(len(text), at+3000)])
			break
		}
	}
	if n.t.Failed() {
		n.t.Logf("log of %s (node %d, %s):\n%s", n.name, n.addr.NodeID, n.addr.Native, n.logTail())
	}
}

// runEdged runs edged to its end, for starts that are refused, and gives what it says.
func runEdged(t testing.TB, args ...string) (code int, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(t, "edged"), args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"HOME=" + cmd.Dir, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("edged %q does not end:\n%s", args, out.String())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

// freePort gives a port of ip for nodes that must know each other before they start. It is not one
// of those that the kernel gives out: the node's own listeners could get it before gossip does.
func freePort(t testing.TB, ip string) string {
	t.Helper()
	for {
		addr := net.JoinHostPort(ip, strconv.Itoa(10_000+rand.IntN(20_000)))
		if ln, err := net.Listen("tcp", addr); err == nil {
			_ = ln.Close() // nobody has used it
			return addr
		}
	}
}

// level is how much nodes log; EDGED_TEST_LOG_LEVEL=debug for a closer look at one test.
func level() string {
	if l := os.Getenv("EDGED_TEST_LOG_LEVEL"); l != "" {
		return l
	}
	return "info"
}
