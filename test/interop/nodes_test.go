//go:build linux

package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// patience is how long anything may take on a busy machine.
	patience  = 60 * time.Second
	pollEvery = 50 * time.Millisecond
)

// await waits until ok gives no error and gives its last one if it does not come to that.
func await(limit time.Duration, ok func() error) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := ok()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return fmt.Errorf("not within %v: %w", limit, err)
		}
	}
}

func eventually(t *testing.T, what string, ok func() error) {
	t.Helper()
	if err := await(patience, ok); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// node is one edged process, which may be killed and started again on the same data.
type node struct {
	name, dir, ip, gossip, kafka string
	args                         []string
	addr                         struct {
		NodeID int32  `json:"node_id"`
		Kafka  string `json:"kafka"`
		Native string `json:"native"`
		HTTP   string `json:"http"`
		PID    int    `json:"pid"`
	}
	cmd   *exec.Cmd
	ended chan struct{}
}

// cluster is three nodes, and a client that looks on.
type cluster struct {
	t     *testing.T
	nodes []*node
	cl    *kgo.Client
	adm   *kadm.Client
}

// startCluster runs three nodes until the end of the test.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	return startNodes(t, 3, func(int, *node) {})
}

// startNodes runs a cluster of size nodes until the end of the test; change may give them other addresses
// and arguments.
func startNodes(t *testing.T, size int, change func(i int, n *node)) *cluster {
	t.Helper()
	c := &cluster{t: t}
	var join []string
	for i := range size {
		// An address that nobody else has, most likely: ports are taken again after a restart.
		ip := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(256), 1+rand.IntN(250))
		n := &node{name: fmt.Sprintf("n%d", i+1), ip: ip, gossip: freePort(t, ip), kafka: ip + ":0"}
		n.dir = filepath.Join(scratch(t), n.name)
		if err := os.MkdirAll(n.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		change(i, n)
		c.nodes = append(c.nodes, n)
		join = append(join, "--join", n.gossip)
	}
	t.Cleanup(func() {
		for _, n := range c.nodes {
			n.kill()
			n.judgeLog(t)
		}
	})
	var seeds []string
	for _, n := range c.nodes {
		n.args = append(append(n.args, "--bootstrap-expect", strconv.Itoa(size)), join...)
		n.launch(t)
	}
	for _, n := range c.nodes {
		n.awaitReady(t)
		seeds = append(seeds, n.addr.Kafka)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	c.cl, c.adm = cl, kadm.NewClient(cl)
	return c
}

func scratch(t *testing.T) string {
	keep := os.Getenv("EDGED_TEST_KEEP")
	if keep == "" {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(keep, strings.ReplaceAll(t.Name(), "/", "-")+"-")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// freePort gives a port that the kernel does not give out by itself.
func freePort(t *testing.T, ip string) string {
	for {
		addr := net.JoinHostPort(ip, strconv.Itoa(10_000+rand.IntN(20_000)))
		if ln, err := net.Listen("tcp", addr); err == nil {
			_ = ln.Close() // nobody has used it
			return addr
		}
	}
}

func (n *node) launch(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(n.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	args := append([]string{"--data-dir", filepath.Join(n.dir, "data"), "--node-name", n.name, "--cluster", "interop",
		"--gossip-addr", n.gossip, "--kafka-addr", n.kafka, "--native-addr", n.ip + ":0", "--http-addr", n.ip + ":0"}, n.args...)
	cmd := exec.Command(edged(t), args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = []string{"HOME=" + n.dir, "PATH=" + os.Getenv("PATH")} // no EDGED_ settings of this shell
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	n.cmd, n.ended = cmd, ended
	go func() {
		_ = cmd.Wait() // how it ended is told by who waits for it
		close(ended)
	}()
}

func (n *node) running() bool {
	if n.cmd == nil {
		return false
	}
	select {
	case <-n.ended:
		return false
	default:
		return true
	}
}

// kill ends the process with SIGKILL and waits.
func (n *node) kill() {
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Kill() // fails only if it has ended
	<-n.ended
}

var plainHTTP = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// awaitReady waits until the node says that clients should come. Its Kafka address stays for its next lives.
func (n *node) awaitReady(t *testing.T) {
	t.Helper()
	eventually(t, n.name+" is ready", func() error {
		if !n.running() {
			t.Fatalf("%s has ended:\n%s", n.name, n.logTail())
		}
		text, err := os.ReadFile(filepath.Join(n.dir, "data", "addresses.json"))
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, &n.addr); err != nil {
			return err
		}
		if n.addr.PID != n.cmd.Process.Pid {
			return errors.New("addresses.json is of the last life")
		}
		n.kafka = n.addr.Kafka
		resp, err := plainHTTP.Get("http://" + n.addr.HTTP + "/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
}

func (n *node) log() string { return filepath.Join(n.dir, "log") }

func (n *node) logTail() string {
	text, err := os.ReadFile(n.log())
	if err != nil {
		return err.Error()
	}
	return tail(string(text))
}

func tail(s string) string {
	const most = 6000
	if len(s) > most {
		return "..." + s[len(s)-most:]
	}
	return s
}

// judgeLog fails the test for what no node may ever say, and shows the log if the test failed.
func (n *node) judgeLog(t *testing.T) {
	text, err := os.ReadFile(n.log())
	if err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"panic:", "fatal error:", "goroutine 1 ["} {
		if strings.Contains(string(text), bad) {
			t.Errorf("the log of %s says %q", n.name, bad)
		}
	}
	if t.Failed() {
		t.Logf("log of %s (node %d):\n%s", n.name, n.addr.NodeID, n.logTail())
	}
}

// all are the Kafka addresses of all nodes but one, which may be nil.
func (c *cluster) bootstrap(but *node) string {
	var addrs []string
	for _, n := range c.nodes {
		if n != but {
			addrs = append(addrs, n.addr.Kafka)
		}
	}
	return strings.Join(addrs, ",")
}

// createTopic makes a topic with three replicas and waits until all nodes name the same leaders.
func (c *cluster) createTopic(name string, partitions int32) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	if _, err := c.adm.CreateTopic(ctx, partitions, 3, nil, name); err != nil {
		c.t.Fatal(err)
	}
	c.awaitLed(name)
}

// awaitLed waits until every node that runs names a leader for each partition, the same as the others.
func (c *cluster) awaitLed(topic string) {
	c.t.Helper()
	eventually(c.t, topic+" is led", func() error {
		var want map[int32]int32
		for _, n := range c.nodes {
			if !n.running() {
				continue
			}
			got, err := c.leadersAt(n, topic)
			if err != nil {
				return err
			}
			for p, l := range got {
				if l < 0 || want != nil && want[p] != l {
					return fmt.Errorf("partition %d: %s names %d, another %d", p, n.name, l, want[p])
				}
			}
			want = got
		}
		return nil
	})
}

func (c *cluster) leadersAt(n *node, topic string) (map[int32]int32, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.addr.Kafka), kgo.RequestRetries(0))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
	defer cancel()
	m, err := kadm.NewClient(cl).Metadata(ctx, topic)
	if err != nil {
		return nil, err
	}
	if err := m.Topics.Error(); err != nil && !errors.Is(err, kerr.LeaderNotAvailable) {
		return nil, err
	}
	leaders := map[int32]int32{}
	for _, p := range m.Topics[topic].Partitions {
		leaders[p.Partition] = p.Leader
	}
	return leaders, nil
}

// leader is the node that leads a partition.
func (c *cluster) leader(topic string, partition int32) *node {
	c.t.Helper()
	c.awaitLed(topic)
	leaders, err := c.leadersAt(c.nodes[0], topic)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.byID(leaders[partition])
}

func (c *cluster) byID(id int32) *node {
	c.t.Helper()
	for _, n := range c.nodes {
		if n.addr.NodeID == id {
			return n
		}
	}
	c.t.Fatalf("no node has the id %d", id)
	return nil
}

// ends are the high watermarks of a topic.
func (c *cluster) ends(topic string) map[int32]int64 {
	c.t.Helper()
	ends := map[int32]int64{}
	eventually(c.t, "the ends of "+topic, func() error {
		ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
		defer cancel()
		listed, err := c.adm.ListEndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		if err := listed.Error(); err != nil {
			return err
		}
		listed.Each(func(o kadm.ListedOffset) { ends[o.Partition] = o.Offset })
		return nil
	})
	return ends
}
