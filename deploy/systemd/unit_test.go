// Package systemd holds the unit; its tests ask systemd what it thinks of it.
package systemd

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// systemd runs systemd-analyze on a tree in which edged is installed, with nothing else in it.
func systemd(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze on this machine: the unit is not checked")
	}
	root := t.TempDir()
	put := func(to string, content []byte, mode os.FileMode) {
		to = filepath.Join(root, to)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, content, mode); err != nil {
			t.Fatal(err)
		}
	}
	unit, err := os.ReadFile("edged.service")
	if err != nil {
		t.Fatal(err)
	}
	put("usr/lib/systemd/system/edged.service", unit, 0o644)
	put("usr/bin/edged", nil, 0o755)
	put("bin/sh", nil, 0o755)
	for _, other := range []string{"network.target", "multi-user.target", "sysinit.target", "basic.target", "shutdown.target", "-.mount", "system.slice", "-.slice"} {
		if text, err := os.ReadFile("/usr/lib/systemd/system/" + other); err == nil {
			put("usr/lib/systemd/system/"+other, text, 0o644)
		}
	}
	var out, errOut bytes.Buffer
	cmd := exec.Command(tool, append(args, "--root="+root, "edged.service")...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	return out.String(), errOut.String(), err
}

// An unknown key or a wrong value gives a warning and exit code 0, hence the look at stderr.
func TestUnit_systemdHasNothingToSay(t *testing.T) {
	out, errOut, err := systemd(t, "verify", "--man=no")
	if err != nil || out != "" || errOut != "" {
		t.Errorf("%v\n%s%s", err, out, errOut)
	}
}

// 2.0 of 10 is what the unit may expose.
func TestUnit_isExposedByNoMoreThanTwo(t *testing.T) {
	out, errOut, err := systemd(t, "security", "--offline=true", "--no-pager", "--threshold=20")
	m := regexp.MustCompile(`Overall exposure level[^\n]*: ([0-9.]+)`).FindStringSubmatch(out)
	if err != nil || m == nil {
		t.Fatalf("%v\n%s%s", err, out, errOut)
	}
	if level, err := strconv.ParseFloat(m[1], 64); err != nil || level > 2.0 {
		t.Errorf("the exposure is %s", m[1])
	}
	t.Logf("exposure %s", m[1])
}
