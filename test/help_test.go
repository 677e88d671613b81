//go:build linux

package test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// slack is how much longer than on a quiet machine things may take where a test is about
// time: the machine runs other tests beside this one.
const slack = 3

// spread sums up durations in a line.
func spread(d []time.Duration) string {
	if len(d) == 0 {
		return "none"
	}
	d = slices.Clone(d)
	slices.Sort(d)
	round := func(v time.Duration) time.Duration { return v.Round(time.Millisecond) }
	return fmt.Sprintf("%d times: median %v, best %v, worst %v", len(d), round(d[len(d)/2]), round(d[0]), round(d[len(d)-1]))
}

// needRoot skips what only root can set up, and says so.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED here: needs root, for namespaces and file systems of its own")
	}
	if out, err := exec.Command("unshare", "--net", "--mount", "true").CombinedOutput(); err != nil {
		t.Skipf("NOT TESTED here: namespaces cannot be made: %v %s", err, out)
	}
}

// tail is the end of a file, for failures.
func tail(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-3000):])
}

func shell(script string) error { return exec.Command("/bin/sh", "-c", script).Run() }
