package kafka

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// startEdged runs one node of edged on loopback until the end of the test and gives its address.
func startEdged(t testing.TB) (addr string) {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "edged")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", bin, "./cmd/edged")
	build.Dir = "../../.." // the module of edged
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	cmd := exec.Command(bin, "--data-dir", data, "--cluster", "interop", "--advertise", "127.0.0.1", "--bootstrap-expect", "1",
		"--native-addr", "127.0.0.1:0", "--gossip-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--kafka-addr", "127.0.0.1:0",
		"--kafka-group-delay", "0", "--clock-trust", "always")
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, []string{"HOME=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed at the end
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails only if it has ended
		<-ended
		_ = log.Close()
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("the end of edged's log:\n%s", text[max(0, len(text)-4000):])
		}
	})
	for limit := time.After(startLimit); ; {
		var a struct{ Kafka string }
		if text, err := os.ReadFile(filepath.Join(data, "addresses.json")); err == nil && json.Unmarshal(text, &a) == nil {
			return a.Kafka
		}
		select {
		case <-ended:
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("edged ended at once:\n%s", text)
		case <-limit:
			t.Fatalf("edged is not up within %v", startLimit)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
