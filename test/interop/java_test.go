//go:build linux

package interop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"edged/test/interop/kafka"
)

// jvm are the options of every JVM here: most of them live for seconds.
var jvm = []string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"}

// jars makes sure that there are a JDK and Maven, and gives the class path of Kafka's jars.
func jars(t *testing.T) string {
	for tool, pkg := range map[string]string{"javac": "default-jdk-headless", "mvn": "maven"} {
		if _, err := exec.LookPath(tool); err != nil {
			apt(t, pkg)
		}
	}
	return filepath.Join(kafka.Jars(t), "*")
}

// inJava runs the driver of Kafka's own client.
func inJava(t *testing.T, j *judge) {
	path := jars(t)
	dir := installed(t, j.name, func(dir string) error {
		return run(dir, "javac", "-cp", path, "Driver.java")
	})
	j.argv = append(append([]string{"java"}, jvm...), "-cp", dir+":"+path, "Driver")
}

const javaTools = "java-tools"

// TestJavaTools lets the command-line tools that come with Kafka judge.
func TestJavaTools(t *testing.T) {
	if names := strings.Fields(os.Getenv("JUDGES")); len(names) > 0 && !slices.Contains(names, javaTools) {
		t.Skip("not chosen")
	}
	t.Parallel()
	row := newRow(t, &judge{name: javaTools, version: "4.3.1"})
	s := &shell{t: t, jars: jars(t), c: startCluster(t)}
	row.run("tools", s.tools)
	row.run("perf", s.perf)
	row.run("verifiable", s.verifiable)
}

// shell runs Kafka's tools against a cluster.
type shell struct {
	t    *testing.T
	jars string
	c    *cluster
	next int
}

// bootstrap is another node each time: all are as good.
func (s *shell) bootstrap() string {
	s.next++
	return s.c.nodes[s.next%len(s.c.nodes)].addr.Kafka
}

// try runs a tool and gives what it says on stdout, and how it ended.
func (s *shell) try(class, stdin string, args ...string) (string, error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*patience)
	defer cancel()
	line := append(append([]string{}, jvm...), "-cp", s.jars, class, "--bootstrap-server", s.bootstrap())
	cmd := exec.CommandContext(ctx, "java", append(line, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %q: %w\n%s%s", class, args, err, tail(out.String()), tail(errs.String()))
	}
	return out.String(), nil
}

// must runs a tool that has to succeed and to say each of the patterns.
func (s *shell) must(says []string, class string, args ...string) string {
	s.t.Helper()
	out, err := s.try(class, "", args...)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, want := range says {
		if !regexp.MustCompile("(?m)" + want).MatchString(out) {
			s.t.Errorf("%s %q does not say %q:\n%s", class, args, want, out)
		}
	}
	return out
}

const (
	tools       = "org.apache.kafka.tools."
	topicTool   = tools + "TopicCommand"
	configTool  = "kafka.admin.ConfigCommand"
	groupTool   = tools + "consumer.group.ConsumerGroupCommand"
	writeTool   = tools + "ConsoleProducer"
	readTool    = tools + "consumer.ConsoleConsumer"
	offsetTool  = tools + "GetOffsetShell"
	deleteTool  = tools + "DeleteRecordsCommand"
	electTool   = tools + "LeaderElectionCommand"
	logDirsTool = tools + "LogDirsCommand"
	moveTool    = tools + "reassign.ReassignPartitionsCommand"
	clusterTool = tools + "ClusterTool"
)

// tools goes through the life of a topic and of a group.
func (s *shell) tools(t *testing.T) string {
	s.t, s.c.t = t, t
	s.must([]string{"Created topic life"}, topicTool, "--create", "--topic", "life", "--partitions", "3", "--config", "retention.ms=3600000")
	if out, err := s.try(topicTool, "", "--create", "--topic", "life"); err == nil {
		t.Errorf("a topic was made twice: %s", out)
	} else if !strings.Contains(err.Error(), "TopicExistsException") {
		t.Error(err)
	}
	s.must([]string{"^life$"}, topicTool, "--list")
	s.must([]string{`PartitionCount: 3\s+ReplicationFactor: 3\s+Configs:.*retention.ms=3600000`}, topicTool, "--describe", "--topic", "life")
	s.must(nil, topicTool, "--alter", "--topic", "life", "--partitions", "5")
	s.must([]string{"PartitionCount: 5"}, topicTool, "--describe", "--topic", "life")
	if out := s.must(nil, topicTool, "--describe", "--under-replicated-partitions"); strings.TrimSpace(out) != "" {
		t.Errorf("partitions that lack replicas: %s", out)
	}
	s.must([]string{"Completed updating config"}, configTool, "--alter", "--entity-type", "topics", "--entity-name", "life", "--add-config", "max.message.bytes=200000,retention.ms=7200000")
	s.must([]string{"max.message.bytes=200000", "retention.ms=7200000"}, configTool, "--describe", "--entity-type", "topics", "--entity-name", "life")
	s.must([]string{"Completed updating config"}, configTool, "--alter", "--entity-type", "topics", "--entity-name", "life", "--delete-config", "retention.ms")
	if out := s.must([]string{"max.message.bytes=200000"}, configTool, "--describe", "--entity-type", "topics", "--entity-name", "life"); strings.Contains(out, "retention.ms=7200000") {
		t.Errorf("a setting that was taken away: %s", out)
	}
	s.must([]string{"log.retention.ms="}, configTool, "--describe", "--all", "--entity-type", "brokers", "--entity-name", strconv.Itoa(int(s.c.nodes[(s.next+1)%3].addr.NodeID)))

	var sent []string
	for _, codec := range allCodecs {
		var lines []string
		for i := range 20 {
			lines = append(lines, fmt.Sprintf("%s-%d-%s", codec, i, strings.Repeat("x", 100)))
		}
		if _, err := s.try(writeTool, strings.Join(lines, "\n")+"\n", "--topic", "life", "--compression-codec", codec); err != nil {
			t.Fatal(err)
		}
		sent = append(sent, lines...)
	}
	got := strings.Fields(s.must(nil, readTool, "--topic", "life", "--group", "readers", "--from-beginning", "--max-messages", strconv.Itoa(len(sent))))
	slices.Sort(got)
	slices.Sort(sent)
	if !slices.Equal(got, sent) {
		t.Errorf("%d lines were written, %d others read", len(sent), len(got))
	}

	lag := func(want int) {
		t.Helper()
		out, sum := s.must(nil, groupTool, "--describe", "--group", "readers"), 0
		for _, m := range regexp.MustCompile(`(?m)^readers\s+life\s+\d+\s+\d+\s+\d+\s+(\d+)\s`).FindAllStringSubmatch(out, -1) {
			n, _ := strconv.Atoi(m[1])
			sum += n
		}
		if sum != want {
			t.Errorf("the lag is %d, want %d:\n%s", sum, want, out)
		}
	}
	s.must([]string{"^readers$"}, groupTool, "--list")
	lag(0)
	s.must([]string{`^readers\s.*Empty`}, groupTool, "--describe", "--group", "readers", "--state")
	s.must(nil, groupTool, "--describe", "--group", "readers", "--members")
	s.must(nil, groupTool, "--reset-offsets", "--group", "readers", "--topic", "life", "--to-earliest", "--execute")
	lag(len(sent))
	s.must(nil, groupTool, "--delete-offsets", "--group", "readers", "--topic", "life")
	s.must(nil, groupTool, "--reset-offsets", "--group", "readers", "--topic", "life", "--to-latest", "--execute")
	lag(0)
	s.must([]string{"Deletion of requested consumer groups .* was successful"}, groupTool, "--delete", "--group", "readers")
	if out := s.must(nil, groupTool, "--list"); strings.Contains(out, "readers") {
		t.Errorf("a group that was deleted: %s", out)
	}

	sum := 0
	for _, m := range regexp.MustCompile(`(?m)^life:\d:(\d+)$`).FindAllStringSubmatch(s.must(nil, offsetTool, "--topic", "life"), -1) {
		n, _ := strconv.Atoi(m[1])
		sum += n
	}
	if sum != len(sent) {
		t.Errorf("the partitions end at %d, want %d", sum, len(sent))
	}
	upTo := filepath.Join(t.TempDir(), "delete.json")
	if err := os.WriteFile(upTo, []byte(`{"partitions":[{"topic":"life","partition":0,"offset":-1}],"version":1}`), 0o644); err != nil {
		t.Fatal(err)
	}
	s.must([]string{`partition: life-0\s+low_watermark: \d+`}, deleteTool, "--offset-json-file", upTo)
	s.must([]string{`"life-0"`}, logDirsTool, "--describe", "--topic-list", "life")
	s.must(nil, electTool, "--election-type", "preferred", "--all-topic-partitions")
	s.must([]string{"No partition reassignments found"}, moveTool, "--list")
	s.must(nil, topicTool, "--delete", "--topic", "life")
	if out := s.must(nil, topicTool, "--list"); regexp.MustCompile("(?m)^life$").MatchString(out) {
		t.Errorf("a topic that was deleted: %s", out)
	}
	return fmt.Sprintf("topics, configs, consumer-groups, console-producer and -consumer (%s), get-offsets, delete-records, log-dirs, leader-election, reassign-partitions --list", strings.Join(allCodecs, " "))
}

// perf is a run of kafka-producer-perf-test. Its figure is of a busy machine with all nodes on it.
func (s *shell) perf(t *testing.T) string {
	s.t, s.c.t = t, t
	s.c.createTopic("perf", 3)
	const records = 50000
	out := s.must(nil, tools+"ProducerPerformance", "--topic", "perf", "--num-records", strconv.Itoa(records), "--record-size", "100", "--throughput", "-1")
	sum := int64(0)
	for _, end := range s.c.ends("perf") {
		sum += end
	}
	if sum != records {
		t.Errorf("%d records are kept, want %d", sum, records)
	}
	all := regexp.MustCompile(`(?m)^50000 records sent, [0-9.]+ records/sec`).FindAllString(out, -1)
	if len(all) == 0 {
		t.Fatalf("no figure: %s", out)
	}
	return strings.ReplaceAll(all[len(all)-1], "50000 records sent", fmt.Sprintf("%d records of 100 bytes", records))
}

// event is a line of a verifiable client.
type event struct {
	Name      string `json:"name"`
	Key       string `json:"key"`
	Value     string `json:"value"`
	Message   string `json:"message"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Success   *bool  `json:"success"`
}

// verified is a running verifiable client.
type verified struct {
	cmd   *exec.Cmd
	ended chan struct{}

	mu     sync.Mutex
	events []event
	errs   bytes.Buffer
}

func (s *shell) start(class string, args ...string) *verified {
	t := s.t
	t.Helper()
	line := append(append([]string{}, jvm...), "-cp", s.jars, tools+class, "--bootstrap-server", s.bootstrap())
	v := &verified{cmd: exec.Command("java", append(line, args...)...), ended: make(chan struct{})}
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	v.cmd.Stderr = &v.errs
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for in := bufio.NewScanner(out); in.Scan(); {
			var e event
			if json.Unmarshal(in.Bytes(), &e) == nil {
				v.mu.Lock()
				v.events = append(v.events, e)
				v.mu.Unlock()
			}
		}
		_ = v.cmd.Wait() // ended by a signal
		close(v.ended)
	}()
	t.Cleanup(func() {
		_ = v.cmd.Process.Kill() // fails only if it has ended
		<-v.ended
		if t.Failed() {
			t.Logf("%s says:\n%s", class, tail(v.errs.String()))
		}
	})
	return v
}

// stop ends the client in good order.
func (v *verified) stop(t *testing.T) {
	t.Helper()
	_ = v.cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended
	select {
	case <-v.ended:
	case <-time.After(patience):
		t.Fatalf("%v does not end", v.cmd.Args)
	}
}

// of gives the events of a name.
func (v *verified) of(name string) (out []event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, e := range v.events {
		if e.Name == name {
			out = append(out, e)
		}
	}
	return out
}

// verifiedKeys is how many keys the verifiable producer goes around.
const verifiedKeys = 24

// verifiable has the verifiable producer write while the coordinator, which leads too, is killed, and three
// verifiable consumers read, of which one leaves and another one joins.
func (s *shell) verifiable(t *testing.T) string {
	c := s.c
	s.t, c.t = t, t
	const topic, group = "verified", "verifying"
	c.createTopic(topic, groupPartitions)
	// It wants no retries by default, unlike every other producer.
	retries := filepath.Join(t.TempDir(), "producer.properties")
	if err := os.WriteFile(retries, []byte("retries=2147483647\nenable.idempotence=true\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var consumers []*verified
	join := func() {
		consumers = append(consumers, s.start("VerifiableConsumer", "--topic", topic, "--group-id", group, "--verbose"))
	}
	join()
	join()
	join()
	c.awaitMembers(group, topic, 3)
	producer := s.start("VerifiableProducer", "--topic", topic, "--throughput", "200", "--value-prefix", "1", "--repeating-keys", strconv.Itoa(verifiedKeys), "--command-config", retries)
	written := func(n int) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d records are acknowledged", n), func() error {
			if got := len(producer.of("producer_send_success")); got < n {
				return fmt.Errorf("%d records", got)
			}
			return nil
		})
	}
	written(400)
	consumers[0].stop(t)
	join()
	c.awaitMembers(group, topic, 3)
	victim := c.coordinator(group)
	victim.kill()
	written(len(producer.of("producer_send_success")) + 600)
	victim.launch(t)
	victim.awaitReady(t)
	written(len(producer.of("producer_send_success")) + 400)
	producer.stop(t)

	acked := producer.of("producer_send_success")
	if failed := producer.of("producer_send_error"); len(failed) > 0 {
		t.Errorf("%d records failed, the first: %+v", len(failed), failed[0])
	}
	k := c.readNamed(topic, func(value string) string { return value })
	lost, twice := 0, 0
	for _, e := range acked {
		if !slices.Contains(k.places[e.Value], at{e.Partition, e.Offset}) {
			lost++
		}
	}
	last := map[int]int{}
	for _, name := range k.order {
		twice += len(k.places[name]) - 1
		n, err := strconv.Atoi(strings.TrimPrefix(name, "1."))
		if err != nil {
			t.Fatal(err)
		}
		if before, ok := last[n%verifiedKeys]; ok && n < before {
			t.Errorf("record %d comes after %d", n, before)
		}
		last[n%verifiedKeys] = n
	}
	if lost > 0 || twice > 0 {
		t.Errorf("%d of %d acknowledged records are lost, %d are there twice", lost, len(acked), twice)
	}
	eventually(t, "all records are read", func() error {
		got := map[string]bool{}
		for _, v := range consumers {
			for _, e := range v.of("record_data") {
				got[e.Value] = true
			}
		}
		for _, e := range acked {
			if !got[e.Value] {
				return fmt.Errorf("%s is not", e.Value)
			}
		}
		return nil
	})
	for _, v := range consumers[1:] {
		v.stop(t)
	}
	return fmt.Sprintf("3 members, one left, one joined; 1 killed, %d acknowledged, %d lost", len(acked), lost)
}
