//go:build linux

package test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// long asks for the slow variants: many rounds, large backlogs, and figures.
var long = os.Getenv("EDGED_TEST_LONG") != ""

// raced asks for nodes that are built with the race detector. Their size tells nothing.
var raced = os.Getenv("EDGED_TEST_RACE") != ""

// pick gives the size of a test for the normal and the long run.
func pick(normal, inLong int) int {
	if long {
		return inLong
	}
	return normal
}

func TestMain(m *testing.M) {
	flag.Parse()
	// Most tests wait for a timeout, a disk or an election most of the time.
	if err := flag.Set("test.parallel", strconv.Itoa(max(4, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if binaries.dir != binaries.given {
			_ = os.RemoveAll(binaries.dir) // a leftover in the temporary directory harms nobody
		}
		os.Exit(code)
	}))
}

var binaries struct {
	once  sync.Once
	dir   string
	given string // built by somebody else, who removes it too
	err   error
}

// program builds both commands once and gives the path of one.
func program(t testing.TB, name string) string {
	t.Helper()
	b := &binaries
	b.once.Do(func() {
		if b.given = os.Getenv("EDGED_TEST_BIN"); b.given != "" {
			b.dir = b.given
			return
		}
		if b.dir, b.err = os.MkdirTemp("", "edged-test-bin"); b.err != nil {
			return
		}
		args := []string{"build", "-trimpath", "-buildvcs=false", "-o", b.dir + "/"}
		env := append(os.Environ(), "CGO_ENABLED=0")
		if raced {
			args, env = append(args, "-race"), os.Environ()
		}
		cmd := exec.Command("go", append(args, "../cmd/edged", "../cmd/edgectl")...)
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil {
			b.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if b.err != nil {
		t.Fatal(b.err)
	}
	return filepath.Join(b.dir, name)
}
