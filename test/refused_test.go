//go:build linux

package test

import (
	"encoding/binary"
	"hash/crc32"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// refusedWith starts edged with what cannot work. It has to end by itself with the code, and its
// last words are one line that says why.
func refusedWith(t *testing.T, code int, args []string, words ...string) {
	t.Helper()
	got, text := runEdged(t, args...)
	if got != code {
		t.Errorf("edged %q: exit code %d, want %d\n%s", args, got, code, text)
	}
	for _, bad := range []string{"panic", "goroutine "} {
		if strings.Contains(text, bad) {
			t.Errorf("edged %q: says %q\n%s", args, bad, text)
		}
	}
	var said []string
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "edged: "); ok {
			said = append(said, strings.TrimSpace(rest))
		}
	}
	if len(said) != 1 || len(said[0]) > 600 {
		t.Errorf("edged %q: the cause is not one line: %q\n%s", args, said, text)
		return
	}
	for _, w := range words {
		if !strings.Contains(said[0], w) {
			t.Errorf("edged %q: %q does not say %q", args, said[0], w)
		}
	}
}

// onLoopback are the arguments of a node that gets in nobody's way.
func onLoopback(dir string, more ...string) []string {
	ip := loopback()
	return append([]string{"--data-dir", dir, "--native-addr", ip + ":0", "--gossip-addr", ip + ":0", "--kafka-addr", ip + ":0", "--http-addr", ip + ":0"}, more...)
}

func TestRefused_wrongSettings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	toml := filepath.Join(dir, "edged.toml")
	write(t, toml, "cluster = \"x\"\ndata-dri = \"/x\"\n")
	refusedWith(t, 2, []string{"--no-such-flag"}, "no-such-flag", "--help")
	refusedWith(t, 2, []string{"run"}, `unknown command "run"`)
	refusedWith(t, 78, []string{"--config", toml}, toml+":2", "data-dri")
	refusedWith(t, 78, []string{"--config", filepath.Join(dir, "none.toml")}, "none.toml")
	refusedWith(t, 78, []string{"--bootstrap-expect", "-1"}, "bootstrap-expect")
	refusedWith(t, 78, []string{"--native-addr", "7400"}, "native-addr", "HOST:PORT")
	refusedWith(t, 78, []string{"--advertise", "0.0.0.0"}, "advertise")
	write(t, toml, "cluster = \n")
	refusedWith(t, 78, []string{"--config", toml}, toml+":1")
	write(t, toml, "\x00\xff")
	refusedWith(t, 78, []string{"--config", toml}, toml)
}

func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Each port that is taken is named, with the setting that chooses another.
func TestRefused_portInUse(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", loopback()+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	taken := ln.Addr().String()
	host, _, _ := net.SplitHostPort(taken)
	for _, which := range []string{"native", "gossip", "http"} {
		args := onLoopback(t.TempDir(), "--advertise", host, "--"+which+"-addr", taken)
		refusedWith(t, 1, args, taken, which, "in use")
	}
}

// A data directory that another process has is not touched, and that process does not notice.
func TestRefused_dataDirectoryInUse(t *testing.T) {
	t.Parallel()
	n := newNode(t, "first")
	n.start()
	eventually(t, "ready", n.ready)
	before, err := os.ReadFile(filepath.Join(n.data, "identity"))
	if err != nil {
		t.Fatal(err)
	}
	refusedWith(t, 1, onLoopback(n.data), "in use", n.data)
	after, err := os.ReadFile(filepath.Join(n.data, "identity"))
	if err != nil || string(after) != string(before) {
		t.Errorf("the identity has changed, %v", err)
	}
	var again addresses
	n.awaitPorts()
	again = n.addr
	if again.PID != n.cmd.Process.Pid {
		t.Error("addresses.json is of another process")
	}
	ctl{nodes: []*node{n}}.must(t, "topic", "create", "t")
}

// What cannot be a data directory, or is one that this program must not touch.
func TestRefused_dataDirectoryOfNoUse(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "not a directory")
	refusedWith(t, 78, onLoopback(file), file)

	n := newNode(t, "n")
	n.start()
	eventually(t, "ready", n.ready)
	n.stop()
	identity := filepath.Join(n.data, "identity")
	whole, err := os.ReadFile(identity)
	if err != nil {
		t.Fatal(err)
	}

	// One copy of the identity cut short: the other one serves, and it is mended.
	write(t, identity, string(whole[:20]))
	n.start()
	eventually(t, "ready with one good copy of the identity", n.ready)
	n.stop()

	// A format that this program does not know.
	whole, err = os.ReadFile(identity)
	if err != nil {
		t.Fatal(err)
	}
	newer := append([]byte{}, whole...)
	newer[len("edged identity\n")] = 99
	body := newer[:len(newer)-4]
	binary.BigEndian.PutUint32(newer[len(body):], crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	write(t, identity, string(newer))
	refusedWith(t, 78, onLoopback(n.data), "format 99", "newer")
	write(t, identity, string(whole))
	marker, err := filepath.Glob(filepath.Join(n.data, "store", "marker.format-version.*"))
	if err != nil || len(marker) != 1 {
		t.Fatalf("markers %q, %v", marker, err)
	}
	future := marker[0][:strings.LastIndex(marker[0], ".")] + ".099"
	rename(t, marker[0], future)
	refusedWith(t, 78, onLoopback(n.data), "99", "newer")
	rename(t, future, marker[0])

	// Both copies cut short.
	n.truncateIdentity()
	refusedWith(t, 78, onLoopback(n.data), "identity", n.data)
	for _, name := range []string{"identity", "identity.copy"} {
		write(t, filepath.Join(n.data, name), string(whole))
	}
	n.start() // nothing of all this has done harm
	eventually(t, "ready at last", n.ready)
}

func rename(t testing.TB, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// A data directory on a file system that was mounted read-only.
func TestRefused_readOnlyDataDirectory(t *testing.T) {
	t.Parallel()
	if !inOwnNamespaces(t) {
		return
	}
	n := newNode(t, "n")
	smallDisk(t, n, 64)
	n.start()
	eventually(t, "ready", n.ready)
	n.stop()
	run(t, "mount", "-o", "remount,ro", n.data)
	refusedWith(t, 1, onLoopback(n.data), "read-only", n.data)
	empty := filepath.Join(n.data, "empty")
	refusedWith(t, 1, onLoopback(empty), "read-only", empty)
	run(t, "mount", "-o", "remount,rw", n.data)
	n.start()
	eventually(t, "ready again", n.ready)
}
