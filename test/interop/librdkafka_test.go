//go:build linux

package interop

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

const librdkafka = "librdkafka"

// Why tests of librdkafka's runner are left out.
const (
	noTransactions = "transactions"
	noACLs         = "ACLs"
	oldFormats     = "message formats of before 0.11"
)

// rdkafkaNotApplicable are its tests that are not run.
var rdkafkaNotApplicable = map[string]string{
	"0052_msg_timestamps":     oldFormats,
	"0077_compaction":         "compaction",
	"0092_mixed_msgver":       oldFormats + ", by a request that Kafka 4.3 refuses too",
	"0098_consumer_txn":       noTransactions,
	"0103_transactions":       noTransactions,
	"0115_producer_auth":      noACLs,
	"0119_consumer_auth":      noACLs,
	"0129_fetch_aborted_msgs": noTransactions,
}

// rdkafkaParts are the parts of tests of which others are left out.
var rdkafkaParts = map[string][]string{
	// Not the parts about ACLs, not AlterConfigs, which changes a node's settings, and not CreatePartitions,
	// which wants replicas to stay in the order that it gave: which one leads is for the cluster to level.
	"0081_admin": {
		"do_test_unclean_destroy", "do_test_options", "do_test_configs", "do_test_CreateTopics", "do_test_DeleteTopics", "do_test_DescribeConfigs",
		"do_test_DeleteRecords", "do_test_ListConsumerGroups", "do_test_DescribeConsumerGroups", "do_test_DeleteGroups",
		"do_test_DeleteConsumerGroupOffsets", "do_test_AlterConsumerGroupOffsets", "do_test_ListConsumerGroupOffsets",
	},
}

// rdkafkaVersion is what a test is told of the cluster. The second is without ACLs.
func rdkafkaVersion(test string) string {
	if test == "0109_auto_create_topics" {
		return "2.0.0"
	}
	return "3.9.0"
}

// rdkafkaTest finds the runner's tests in its table, with their flags.
var rdkafkaTest = regexp.MustCompile(`(?m)^    _TEST\(([0-9]{4}_\w+),\s*(\w+)`)

// rdkafkaTests are those that talk to a cluster, and are not for people only.
func rdkafkaTests(t *testing.T, source string) (names []string) {
	text, err := os.ReadFile(filepath.Join(source, "tests", "test.c"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range rdkafkaTest.FindAllStringSubmatch(string(text), -1) {
		if m[2] != "TEST_F_LOCAL" && m[2] != "TEST_F_MANUAL" {
			names = append(names, m[1])
		}
	}
	if len(names) < 80 {
		t.Fatalf("only %d tests in %s", len(names), source)
	}
	return names
}

// buildLibrdkafka gives the source with the built runner in it.
func buildLibrdkafka(t *testing.T) string {
	dir := installed(t, librdkafka, func(dir string) error {
		apt(t, "gcc", "g++", "make", "zlib1g-dev", "libssl-dev", "libzstd-dev", "rapidjson-dev")
		return run(dir, "sh", "build.sh")
	})
	return filepath.Join(dir, "source")
}

// judgeLibrdkafka runs each of the tests in a process of its own, because one that fails ends the runner.
func judgeLibrdkafka(t *testing.T) {
	source := buildLibrdkafka(t)
	c := startNodes(t, 3, func(_ int, n *node) {
		n.args = []string{"--kafka-auto-create", "4", "--kafka-group-delay", "0"} // as the suite's own brokers have it
	})
	conf := filepath.Join(scratch(t), "test.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, "bootstrap.servers=%s\ntest.topic.random=true\n", c.bootstrap(nil)), 0o644); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	states := map[string][]string{}
	t.Run("tests", func(t *testing.T) {
		for _, name := range rdkafkaTests(t, source) {
			if rdkafkaNotApplicable[name] != "" {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel() // most of them wait for most of their time
				state := rdkafkaJudge(t, source, conf, name)
				mu.Lock()
				defer mu.Unlock()
				states[state] = append(states[state], name)
			})
		}
	})
	fmt.Printf("\nsuite %s: %d passed, %d failed, %d skipped by themselves %v\n", librdkafka,
		len(states["PASSED"]), len(states["FAILED"]), len(states["SKIPPED"]), states["SKIPPED"])
	for _, name := range slices.Sorted(maps.Keys(rdkafkaNotApplicable)) {
		fmt.Printf("  not run: %s: %s\n", name, rdkafkaNotApplicable[name])
	}
	for name, parts := range rdkafkaParts {
		fmt.Printf("  only parts of %s: %v\n", name, parts)
	}
}

// rdkafkaJudge runs a test, or the parts of it that apply.
func rdkafkaJudge(t *testing.T, source, conf, name string) (state string) {
	parts := rdkafkaParts[name]
	if len(parts) == 0 {
		parts = []string{""}
	}
	for _, part := range parts {
		var said string
		var err error
		if state, said, err = rdkafkaRun(source, conf, name, part); state != "PASSED" && state != "SKIPPED" {
			t.Errorf("%s %s is %s (%v):\n%s", name, part, state, err, tail(said))
			return state
		}
	}
	return state
}

// rdkafkaRun runs one test, or a part of it, and tells what the runner makes of it.
func rdkafkaRun(source, conf, name, part string) (state, said string, err error) {
	report := filepath.Join(filepath.Dir(conf), name+part+".json")
	cmd := exec.Command("./test-runner", "-p1", "-Q", "-L")
	cmd.Dir = filepath.Join(source, "tests")
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH=../src:../src-cpp", "RDKAFKA_TEST_CONF="+conf, "TEST_KAFKA_VERSION="+rdkafkaVersion(name),
		"TESTS="+name, "TEST_REPORT="+report)
	if part != "" {
		cmd.Env = append(cmd.Env, "SUBTESTS="+part)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	text, readErr := os.ReadFile(report)
	if readErr != nil {
		return "FAILED", string(out), errors.Join(err, readErr)
	}
	var results struct {
		Tests map[string]struct{ State string }
	}
	if readErr := json.Unmarshal(text, &results); readErr != nil {
		return "FAILED", string(out), errors.Join(err, readErr)
	}
	state = results.Tests[name].State
	if part != "" && state == "PASSED" && !strings.Contains(string(out), part) {
		return "FAILED", string(out), fmt.Errorf("there is no part %s", part)
	}
	if err != nil {
		state = "FAILED"
	}
	return state, string(out), err
}
