//go:build linux

package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// suite is the test suite of a client, run against edged as it stands in the client's module.
type suite struct {
	name, module, pkg string
	tags              string
	run               string // the tests, as for go test -run
	// start runs what the suite needs and gives its environment.
	start func(*testing.T) []string
	// notApplicable are tests, as for go test -skip, and why they are left out.
	notApplicable map[string]string
}

const (
	wantsID   = "wants nodes to have the ids 1 to 5; edged's are random"
	wantsLate = "wants a topic that it asks for to be made later; edged makes it at once"
)

var suites = []suite{
	{name: "kgo", module: "github.com/twmb/franz-go", pkg: "pkg/kgo", run: ".", start: threeNodes, notApplicable: map[string]string{
		"TestTxn.*":        "transactions",
		"TestConsumeRegex": "wants __consumer_offsets in metadata; edged never shows its log of groups",
		"TestIssueFetchLargerThanBrokerMaxReadBytes": "wants a max.message.bytes above 1 MiB",
	}},
	{name: "kafka-go", module: "github.com/segmentio/kafka-go", pkg: ".", run: ".", start: oneNodeOn9092, notApplicable: map[string]string{
		"TestClientAlterClientQuotas":                             "quotas",
		"TestClientAlterPartitionReassignments.*":                 "reassignment",
		"Test(Alter|Describe)UserScramCredentials":                "SCRAM",
		"TestUnsupportedSASLMechanism":                            "SASL",
		"TestWriter/.*SASL.*":                                     "SASL",
		"TestDialerTLS":                                           "TLS, and " + wantsID,
		"TestClient(Create|Delete|Describe)ACLs":                  "ACLs",
		"TestReaderReadCompactedMessage":                          "compaction",
		"TestClientCreate(Partitions|Topics)":                     wantsID,
		"TestConn/test_(list_brokers|retrieve_controller)":        wantsID,
		"TestConn/the_connection_advertises_the_broker.*":         wantsID,
		"TestDialer(Resolver)?":                                   wantsID,
		"TestClientFindCoordinator":                               "wants the node to be called localhost",
		"TestConn/test_delete_topics.*":                           wantsLate,
		"TestReadPartitionsNoTopic":                               wantsLate,
		"TestReaderConsumerGroup/consumer_group_commits_on_close": "calls a nil function of its own",
		"TestReaderConsumerGroup/verify_offset_committed.*":       "calls a nil function of its own",
		"TestReaderConsumerGroup/consumer_group_rebalance":        "wants 12 records out of a partition that has 8, unless the readers join one after the other",
	}},
	{name: "sarama", module: "github.com/IBM/sarama", pkg: ".", tags: "functional", run: "TestFunc", start: fiveNodesBehindToxiproxy, notApplicable: map[string]string{
		"TestFunc.*(Txn|Transaction).*":                                         "transactions",
		"TestFuncInitProducerId3":                                               "transactions",
		"TestFuncDescribeProducers":                                             "DescribeProducers, which is for transactions",
		"TestFuncAdminQuotas":                                                   "quotas",
		"TestFuncAdminAlterPartitionReassignments":                              "reassignment",
		"TestFuncProducing.*/.*v0[.](8|10)[.].*":                                "message formats of before 0.11",
		"TestFuncAdmin(DescribeConfig|IncrementalAlterConfigs|DescribeLogDirs)": wantsID,
		"TestFuncAdminNetworkErrorClosesControllerConnection":                   wantsID,
		"TestFunc.*Java.*":                                                      "runs Java in Docker",
		"TestFuncAdminListConsumerGroupOffsets":                                 "stops a container",
		"TestFuncIdempotentBufferedSequence":                                    "reads a container's log",
	}},
}

// TestSuites runs the suites that SUITES names. They have fixed ports, so all of it happens in a network
// of its own, as a second life of this program.
func TestSuites(t *testing.T) {
	chosen := strings.Fields(os.Getenv("SUITES"))
	if len(chosen) == 0 {
		t.Skip("no SUITES are asked for")
	}
	if os.Getenv("INTEROP_ALONE") == "" {
		for _, s := range suites {
			if slices.Contains(chosen, s.name) {
				s.build(t)
			}
		}
		if slices.Contains(chosen, librdkafka) {
			buildLibrdkafka(t)
		}
		edged(t)
		alone(t)
		return
	}
	loopbackUp(t)
	for _, s := range suites {
		if slices.Contains(chosen, s.name) {
			t.Run(s.name, s.judge)
		}
	}
	if slices.Contains(chosen, librdkafka) {
		t.Run(librdkafka, judgeLibrdkafka)
	}
}

// alone runs TestSuites again in a network namespace.
func alone(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run", "^TestSuites$", "-test.v", "-test.timeout", "0")
	cmd.Env = append(os.Environ(), "INTEROP_ALONE=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		t.Skip("needs root for a network of its own")
	}
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
}

func loopbackUp(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		t.Fatal(err)
	}
}

func (s suite) program(t *testing.T) string {
	base, err := cache()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(base, "suites", s.name+".test")
}

// source is a copy of the client's module: some have to be tidied before they can be built.
func (s suite) source(t *testing.T) string { return strings.TrimSuffix(s.program(t), ".test") }

func (s suite) build(t *testing.T) {
	out, err := exec.Command("go", "mod", "download", "-json", s.module+"@"+moduleVersion(t, s.module)).Output()
	if err != nil {
		t.Fatal(err)
	}
	var at struct{ Dir string }
	if err := json.Unmarshal(out, &at); err != nil {
		t.Fatal(err)
	}
	dir := s.source(t)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(at.Dir)); err != nil {
		t.Fatal(err)
	}
	if err := run("", "chmod", "-R", "u+w", dir); err != nil { // modules are kept read-only
		t.Fatal(err)
	}
	if err := run(filepath.Join(dir, s.pkg), "go", "test", "-mod=mod", "-c", "-tags", s.tags, "-o", s.program(t), "."); err != nil {
		t.Fatal(err)
	}
}

func moduleVersion(t *testing.T, module string) string {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

var resultLine = regexp.MustCompile(`^--- (PASS|FAIL|SKIP): (\S+)`)

// judge runs the suite and counts.
func (s suite) judge(t *testing.T) {
	env := s.start(t)
	cmd := exec.Command(s.program(t), "-test.v", "-test.run", s.run, "-test.skip", s.skip(), "-test.timeout", "20m")
	cmd.Dir = filepath.Join(s.source(t), s.pkg)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	if keep := os.Getenv("EDGED_TEST_KEEP"); keep != "" {
		if err := os.WriteFile(filepath.Join(keep, s.name+".log"), said.Bytes(), 0o644); err != nil {
			t.Error(err)
		}
	}
	results := map[string][]string{}
	in := bufio.NewScanner(&said)
	in.Buffer(nil, 16<<20)
	last := ""
	for in.Scan() {
		if m := resultLine.FindStringSubmatch(in.Text()); m != nil {
			results[m[1]] = append(results[m[1]], m[2])
		}
		last = tail(last + in.Text() + "\n")
	}
	if len(results["FAIL"]) > 0 || err != nil {
		t.Errorf("%v failed (%v):\n%s", results["FAIL"], err, last)
	}
	fmt.Printf("\nsuite %s %s: %d passed, %d failed, %d skipped by themselves\n", s.name, moduleVersion(t, s.module),
		len(results["PASS"]), len(results["FAIL"]), len(results["SKIP"]))
	for _, name := range slices.Sorted(maps.Keys(s.notApplicable)) {
		fmt.Printf("  not run: %s: %s\n", name, s.notApplicable[name])
	}
}

func (s suite) skip() string {
	var all []string
	for name := range s.notApplicable {
		top, sub, ok := strings.Cut(name, "/")
		if ok {
			all = append(all, "^"+top+"$/^"+sub+"$")
		} else {
			all = append(all, "^"+top+"$")
		}
	}
	return strings.Join(all, "|")
}

func threeNodes(t *testing.T) []string {
	c := startCluster(t)
	return []string{"KGO_SEEDS=" + c.bootstrap(nil), "KGO_TEST_RECORDS=20000", "KGO_LOG_LEVEL=none"}
}

func oneNodeOn9092(t *testing.T) []string {
	startNodes(t, 1, func(_ int, n *node) {
		n.ip, n.kafka = "127.0.0.1", "127.0.0.1:9092"
		n.gossip = freePort(t, n.ip)
		n.args = []string{"--kafka-auto-create", "1", "--kafka-group-delay", "0"} // as the suite's own brokers have it
	})
	return []string{"KAFKA_VERSION=3.7.0"} // what the answers look like
}

// fiveNodesBehindToxiproxy has the nodes tell clients of the proxy's ports, which the suite counts on.
func fiveNodesBehindToxiproxy(t *testing.T) []string {
	type proxy struct {
		Name     string `json:"name"`
		Listen   string `json:"listen"`
		Upstream string `json:"upstream"`
		Enabled  bool   `json:"enabled"`
	}
	var proxies []proxy
	startNodes(t, 5, func(i int, n *node) {
		port := 29091 + i
		n.kafka = n.ip + ":29190"
		n.args = []string{"--kafka-advertise", fmt.Sprintf("127.0.0.1:%d", port)}
		proxies = append(proxies, proxy{fmt.Sprintf("kafka%d", i+1), fmt.Sprintf("0.0.0.0:%d", port), n.kafka, true})
	})
	text, err := json.Marshal(proxies)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "proxies.json")
	if err := os.WriteFile(config, text, 0o644); err != nil {
		t.Fatal(err)
	}
	bin, err := built()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(bin, "server"), "-config", config, "-port", "8474")
	cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	eventually(t, "toxiproxy answers", func() error {
		resp, err := plainHTTP.Get("http://127.0.0.1:8474/proxies")
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
	return []string{"KAFKA_VERSION=3.7.0", "TOXIPROXY_ADDR=http://127.0.0.1:8474"}
}
