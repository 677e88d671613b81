//go:build linux

package test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// edged alone is a working cluster of one: ready in under two seconds, three commands move a
// record, and a restart keeps it.
func TestOneNode_threeCommandsAndARestart(t *testing.T) {
	n := newNode(t, "alone")
	began := time.Now()
	n.start()
	eventually(t, "the node is ready", n.ready)
	took := time.Since(began)
	t.Logf("ready after %v", took)
	if took > 2*time.Second*slack {
		t.Errorf("ready after %v, it should be under 2 s", took)
	}
	c := ctl{nodes: []*node{n}}
	c.must(t, "topic", "create", "t")
	ctl{nodes: c.nodes, stdin: "hi\n"}.must(t, "produce", "t")
	if out := c.must(t, "consume", "t", "--count", "1"); out != "hi\n" {
		t.Fatalf("consume prints %q", out)
	}
	n.stop()
	n.start()
	eventually(t, "the node is ready again", n.ready)
	if out := c.must(t, "consume", "t", "--count", "1"); out != "hi\n" {
		t.Fatalf("after a restart consume prints %q", out)
	}
	n.kill()
	n.start()
	if out := c.must(t, "consume", "t", "--count", "1"); out != "hi\n" {
		t.Fatalf("after a kill consume prints %q", out)
	}
}

// edged without any flag works where its default ports are free: run in a network namespace of
// its own, which has nothing but loopback.
func TestOneNode_needsNoFlag(t *testing.T) {
	needRoot(t)
	dir := scratch(t)
	cmd := exec.Command("unshare", "--net", "--", "/bin/sh", "-c",
		`ip link set lo up && cd "$1" && "$2" 2>log & pid=$!
		until "$3" --node 127.0.0.1:7400 topic create t >/dev/null 2>&1; do kill -0 $pid || exit 9; done
		echo hi | "$3" --node 127.0.0.1:7400 produce t 2>/dev/null && "$3" consume t --count 1; kill $pid; wait $pid`,
		"sh", dir, program(t, "edged"), program(t, "edgectl"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	timer := time.AfterFunc(patience, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer timer.Stop()
	out, err := cmd.Output()
	if err != nil || strings.TrimSpace(string(out)) != "hi" {
		t.Fatalf("%q, %v\n%s", out, err, tail(filepath.Join(dir, "log")))
	}
}
