//go:build linux

package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// ctl is a run of edgectl.
type ctl struct {
	nodes []*node
	stdin string
}

// run gives stdout, stderr and the exit code.
func (c ctl) run(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	var line []string
	for _, n := range c.nodes {
		line = append(line, "--node", n.addr.Native)
	}
	cmd := exec.CommandContext(ctx, program(t, "edgectl"), append(line, args...)...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(c.stdin), &out, &errOut
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("edgectl %q does not end", args)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// must is run for what has to succeed; it gives stdout.
func (c ctl) must(t testing.TB, args ...string) string {
	t.Helper()
	out, errOut, code := c.run(t, args...)
	if code != 0 {
		t.Fatalf("edgectl %q: exit code %d: %s", args, code, errOut)
	}
	return out
}

// json is must with --json, decoded.
func (c ctl) json(t testing.TB, into any, args ...string) {
	t.Helper()
	out := c.must(t, append([]string{"--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		t.Fatalf("edgectl %q: %v\n%s", args, err, out)
	}
}

// The shapes that scripts rely on.
type (
	statusJSON struct {
		Cluster         string `json:"cluster"`
		ClusterID       string `json:"cluster_id"`
		Nodes           int    `json:"nodes"`
		NodesAlive      int    `json:"nodes_alive"`
		Topics          int    `json:"topics"`
		Partitions      int    `json:"partitions"`
		Leaderless      int    `json:"leaderless"`
		UnderReplicated int    `json:"under_replicated"`
		MetadataLeader  int32  `json:"metadata_leader"`
	}
	partitionJSON struct {
		Topic         string  `json:"topic"`
		Partition     int32   `json:"partition"`
		Leader        int32   `json:"leader"`
		LeaderAddr    string  `json:"leader_addr"`
		Epoch         int32   `json:"epoch"`
		Replicas      []int32 `json:"replicas"`
		Voters        []int32 `json:"voters"`
		LogStart      int64   `json:"log_start"`
		HighWatermark int64   `json:"high_watermark"`
	}
	topicJSON struct {
		Name        string            `json:"name"`
		ID          string            `json:"id"`
		Replication int               `json:"replication"`
		Configs     map[string]string `json:"configs"`
		Partitions  []partitionJSON   `json:"partitions"`
	}
	changeJSON struct {
		Topic     string `json:"topic"`
		Partition int32  `json:"partition"`
		Epoch     int32  `json:"epoch"`
		Leader    int32  `json:"leader"`
		At        string `json:"at"`
		Reason    string `json:"reason"`
	}
	produceJSON struct {
		Records   int64   `json:"records"`
		Acked     int64   `json:"acked"`
		Failed    int64   `json:"failed"`
		Redirects int64   `json:"redirects"`
		Retries   int64   `json:"retries"`
		Seconds   float64 `json:"seconds"`
	}
	messageJSON struct {
		Topic     string          `json:"topic"`
		Partition int32           `json:"partition"`
		Offset    int64           `json:"offset"`
		Epoch     int32           `json:"epoch"`
		Key       json.RawMessage `json:"key"`
		Value     json.RawMessage `json:"value"`
	}
)
