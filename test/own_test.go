//go:build linux

package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// insideEnv names the test that runs in namespaces of its own.
const insideEnv = "EDGED_TEST_INSIDE"

// inOwnNamespaces runs the calling test a second time in a network and a mount namespace of its
// own, where it may do as it likes: whatever it makes there is gone with its processes. There it
// is true; outside it is false, and the test has run.
func inOwnNamespaces(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideEnv) == t.Name() {
		run(t, "ip", "link", "set", "lo", "up")
		return true
	}
	needRoot(t)
	program(t, "edged")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--net", "--mount", "--", self, "-test.run", "^"+t.Name()+"$", "-test.v", "-test.timeout", "10m")
	cmd.Env = append(os.Environ(), insideEnv+"="+t.Name(), "EDGED_TEST_BIN="+binaries.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	t.Logf("in its own namespaces:\n%s", out)
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("failed in its own namespaces: %v", err)
	}
	return false
}

// run executes a command that has to succeed.
func run(t testing.TB, line ...string) {
	t.Helper()
	if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v: %s", line, err, out)
	}
}

// makeBridge makes a bridge that the test reaches nodes in network namespaces of their own over.
func makeBridge(t *testing.T) {
	run(t, "mount", "-t", "tmpfs", "none", "/run")
	run(t, "mkdir", "/run/netns")
	run(t, "ip", "link", "add", "br0", "type", "bridge")
	run(t, "ip", "addr", "add", "10.77.0.1/24", "dev", "br0")
	run(t, "ip", "link", "set", "br0", "up")
}

// plug gives a node a network namespace of its own, with a cable to the bridge and no address yet.
func (n *node) plug() {
	n.prefix = []string{"ip", "netns", "exec", n.name}
	run(n.t, "ip", "netns", "add", n.name)
	run(n.t, "ip", "link", "add", "v-"+n.name, "type", "veth", "peer", "name", "eth0", "netns", n.name)
	run(n.t, "ip", "link", "set", "v-"+n.name, "master", "br0", "up")
	run(n.t, "ip", "-n", n.name, "link", "set", "eth0", "up")
	run(n.t, "ip", "-n", n.name, "link", "set", "lo", "up")
}

// splitCluster makes three nodes, each in a network namespace of its own, on a bridge that the
// test reaches them over. Cutting them from each other leaves the test connected with all.
func splitCluster(t *testing.T) *cluster {
	makeBridge(t)
	c := &cluster{t: t}
	for i := range 3 {
		n := newNode(t, fmt.Sprintf("n%d", i+1), "--bootstrap-expect", "3")
		n.ip = fmt.Sprintf("10.77.0.%d", 11+i)
		n.addr = addresses{Native: n.ip + ":7400", Gossip: n.ip + ":7946", Kafka: n.ip + ":9092", HTTP: n.ip + ":7480"}
		n.plug()
		run(t, "ip", "-n", n.name, "addr", "add", n.ip+"/24", "dev", "eth0")
		c.nodes = append(c.nodes, n)
	}
	for _, n := range c.nodes {
		for _, other := range c.others(n) {
			n.args = append(n.args, "--join", other.addr.Gossip)
		}
		n.start()
	}
	c.awaitFormed()
	return c
}

// cut makes everything that from sends to to vanish, silently: it goes to a network card that
// nobody has.
func cut(from, to *node) {
	run(from.t, "ip", "-n", from.name, "neigh", "replace", to.ip, "lladdr", "02:00:00:00:00:01", "dev", "eth0", "nud", "permanent")
}

func heal(from, to *node) {
	run(from.t, "ip", "-n", from.name, "neigh", "del", to.ip, "dev", "eth0")
}

// isolate cuts a node from all others, both ways; rejoin is its end.
func (c *cluster) isolate(n *node) {
	for _, other := range c.others(n) {
		cut(n, other)
		cut(other, n)
	}
}

func (c *cluster) rejoin(n *node) {
	for _, other := range c.others(n) {
		heal(n, other)
		heal(other, n)
	}
}

// smallDisk mounts a file system of some megabytes for a node's data.
func smallDisk(t *testing.T, n *node, mb int) {
	t.Helper()
	if err := os.MkdirAll(n.data, 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, "mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%dm", mb), "none", n.data)
	t.Cleanup(func() { run(t, "umount", "--lazy", n.data) })
}

// ballast writes a file that takes up room on the node's disk.
func ballast(t *testing.T, n *node, mb int) (free func()) {
	t.Helper()
	name := filepath.Join(n.data, ".ballast") // hidden: edged takes no directory that holds somebody's files
	if err := os.WriteFile(name, make([]byte, mb<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}
