package leak

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// asChild tells the test binary to be the run that is looked at.
const asChild = "EDGED_LEAK_TEST_CHILD"

func TestMain(m *testing.M) { Main(m) }

// TestChild checks nothing in an ordinary run: it leaves a goroutine if the environment says so.
func TestChild(t *testing.T) {
	if os.Getenv(asChild) != "leaks" {
		return
	}
	started := make(chan struct{})
	go func() {
		close(started)
		select {}
	}()
	<-started
}

func TestMain_failsOnALeftGoroutineAndOnlyThen(t *testing.T) {
	run := func(mode string) (string, error) {
		cmd := exec.Command(os.Args[0], "-test.run=^TestChild$")
		cmd.Env = append(os.Environ(), asChild+"="+mode)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run("leaks")
	if err == nil || !strings.Contains(out, "TestChild.func") {
		t.Fatalf("a left goroutine gave error %v and did not name it:\n%s", err, out)
	}
	if out, err := run("clean"); err != nil {
		t.Fatalf("a clean run failed: %v\n%s", err, out)
	}
}
