// Package kafka runs Apache Kafka itself: the server in KRaft mode, so that edged's answers can be
// compared with it, and its Java clients and command-line tools. All of it comes from Maven, in the
// version that pom.xml names; a Java of 17 or more and mvn are needed.
package kafka

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

//go:embed pom.xml
var pom []byte

// fetchLimit bounds the fetching of jars, startLimit the start of a server.
const (
	fetchLimit = 8 * time.Minute
	startLimit = time.Minute
)

// Jars gives the directory with the jars, which it fetches once for each pom.xml and keeps in the
// user's cache. The test is skipped where there is no Java or no Maven, unless CI says that there must be.
func Jars(t testing.TB) string {
	t.Helper()
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("%s is needed: %v", tool, err)
			}
			t.Skipf("%s is needed: %v", tool, err)
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(pom)
	dir := filepath.Join(cache, "edged-interop", "kafka-"+hex.EncodeToString(sum[:6]))
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), "fetching-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(work)
	if err := os.WriteFile(filepath.Join(work, "pom.xml"), pom, 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), fetchLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory="+filepath.Join(work, "jars"))
	cmd.Dir = work
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("mvn: %v\n%s", err, out)
	}
	// Two tests may fetch at the same time: the first one's directory stays.
	if err := os.Rename(filepath.Join(work, "jars"), dir); err != nil {
		if _, there := os.Stat(dir); there != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Java gives the command that runs a class of the jars. The JVM is made to start quickly: what is
// run here is short.
func Java(ctx context.Context, jars, class string, args ...string) *exec.Cmd {
	line := append([]string{"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", filepath.Join(jars, "*"), class}, args...)
	cmd := exec.CommandContext(ctx, "java", line...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Start runs one broker on loopback until the end of the test and gives its address. It is its own
// controller. Topics are not made by asking for them.
func Start(t testing.TB) (addr string) {
	t.Helper()
	jars, dir := Jars(t), t.TempDir()
	ports := freePorts(t, 2)
	addr = fmt.Sprintf("127.0.0.1:%d", ports[0])
	settings := filepath.Join(dir, "server.properties")
	if err := os.WriteFile(settings, []byte(strings.Join([]string{
		"process.roles=broker,controller",
		"node.id=1",
		fmt.Sprintf("controller.quorum.voters=1@127.0.0.1:%d", ports[1]),
		fmt.Sprintf("listeners=PLAINTEXT://%s,CONTROLLER://127.0.0.1:%d", addr, ports[1]),
		"advertised.listeners=PLAINTEXT://" + addr,
		"controller.listener.names=CONTROLLER",
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"log.dirs=" + filepath.Join(dir, "data"),
		"offsets.topic.num.partitions=1",
		"offsets.topic.replication.factor=1",
		"transaction.state.log.num.partitions=1",
		"transaction.state.log.replication.factor=1",
		"transaction.state.log.min.isr=1",
		"auto.create.topics.enable=false",
		"group.initial.rebalance.delay.ms=0",
	}, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	format := Java(t.Context(), jars, "kafka.tools.StorageTool", "format", "-t", "Dy5djUueT12WnmlDR6-ZTg", "-c", settings)
	if out, err := format.CombinedOutput(); err != nil {
		t.Fatalf("formatting the storage: %v\n%s", err, out)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := Java(context.WithoutCancel(t.Context()), jars, "kafka.Kafka", settings)
	cmd.Stdout, cmd.Stderr = log, log
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
	})
	limit := time.After(startLimit)
	for {
		nc, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			_ = nc.Close()
			return addr
		}
		select {
		case <-ended:
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("Kafka ended at once:\n%s", text)
		case <-limit:
			t.Fatalf("Kafka does not open %s within %v", addr, startLimit)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// freePorts gives ports of 127.0.0.1 that were free a moment ago; Kafka must know its own in advance.
func freePorts(t testing.TB, n int) (ports []int) {
	t.Helper()
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		ports = append(ports, ln.Addr().(*net.TCPAddr).Port)
	}
	return ports
}
