package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"edged/node"

	"github.com/rogpeppe/go-internal/testscript"
)

// realNode is a node of one in this process, on free ports of loopback.
type realNode struct {
	dir    string
	cancel context.CancelFunc
	ended  chan error
}

func (r *realNode) start() (addr string, err error) {
	cfg := node.DefaultConfig()
	cfg.DataDir, cfg.NodeName = r.dir, "pi1"
	cfg.NativeAddr, cfg.GossipAddr, cfg.KafkaAddr, cfg.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	n, err := node.New(cfg, node.Options{Version: "test"})
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel, r.ended = cancel, make(chan error, 1)
	go func() { r.ended <- n.Run(ctx) }()
	return n.Addrs().Native, nil
}

func (r *realNode) stop() error {
	if r.cancel == nil {
		return nil
	}
	r.cancel()
	r.cancel = nil
	return <-r.ended
}

// TestNode runs scripts against a real node, which `node stop` and `node start` stop and
// start again; its data is in data.
func TestNode(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/node",
		Setup: func(e *testscript.Env) error {
			r := &realNode{dir: filepath.Join(e.WorkDir, "data")}
			e.Values["node"] = r
			e.Defer(func() {
				if err := r.stop(); err != nil {
					t.Error(err)
				}
			})
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			addr, err := r.start()
			e.Setenv("EDGECTL_NODES", addr)
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "node": control, "readme": readme},
	})
}

func control(ts *testscript.TestScript, _ bool, args []string) {
	r := ts.Value("node").(*realNode)
	switch strings.Join(args, " ") {
	case "stop":
		ts.Check(r.stop())
	case "start":
		addr, err := r.start()
		ts.Check(err)
		ts.Setenv("EDGECTL_NODES", addr)
	default:
		ts.Fatalf("usage: node stop|start")
	}
}

// readme HEADING runs the lines with edgectl that stand in the README under the heading.
func readme(ts *testscript.TestScript, _ bool, args []string) {
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	ts.Check(err)
	_, section, found := strings.Cut(string(text), "\n## "+strings.Join(args, " ")+"\n")
	if !found {
		ts.Fatalf("the README has no heading %q", args)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	ran := 0
	for line := range strings.Lines(section) {
		if command := strings.TrimSpace(line); strings.Contains(command, "bin/edgectl ") {
			ts.Check(ts.Exec("sh", "-c", strings.ReplaceAll(command, "bin/edgectl", "edgectl")))
			ran++
		}
	}
	if ran == 0 {
		ts.Fatalf("nothing to run under %q", args)
	}
}
