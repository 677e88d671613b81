// Command demo runs a cluster of three real edged processes on this machine, feeds it
// with readings of the machine itself, kills the leader of a partition in the middle, and
// checks that everything acknowledged is there exactly once and in order. It prints what
// happens as it happens, ends by itself within a minute and leaves nothing behind.
//
// Exit code 0: every check passed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"edged/client"
	"edged/record"
)

const (
	topicName      = "readings"
	partitionCount = 6
	patience       = 55 * time.Second // for the whole story; cleaning up comes after it
)

func main() {
	bin := flag.String("bin", "bin", "directory of the binaries edged and edgectl")
	total := flag.Int("records", 24_000, "records to send, at least 20000")
	rate := flag.Int("rate", 2_000, "records a second")
	flag.Parse()
	if *total < 20_000 || *rate < 1 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	d := &demo{bin: *bin, total: *total, rate: *rate, began: time.Now(), ledger: newLedger()}
	if err := d.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo: FAILED:", err)
		os.Exit(1)
	}
}

// demo is one run.
type demo struct {
	bin         string
	total, rate int
	began       time.Time
	dir         string
	nodes       []*process
	machine     *machine
	ledger      *ledger
	cl          *client.Client
	redirects   int64 // followed by hand; the client counts its own
	fall        fall
}

// say prints a line with the time since the start.
func (d *demo) say(format string, args ...any) {
	fmt.Printf("%6.2fs  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

// run tells the story. Whatever happens, and also when it panics, the processes and
// directories are gone afterwards.
func (d *demo) run(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if d.machine, err = thisMachine(); err != nil {
		return err
	}
	if d.dir, err = os.MkdirTemp("", "edged-demo-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	defer func() { d.stopAll(err != nil && ctx.Err() != context.Canceled) }()
	for _, step := range []func(context.Context) error{
		d.startCluster, d.createTopic, d.throughWrongDoors, d.stream, d.readBack, d.stopPolitely,
	} {
		if err := step(ctx); err != nil {
			if ctx.Err() == context.Canceled {
				return errors.New("interrupted")
			}
			return err
		}
	}
	return nil
}

// startCluster starts three nodes that know of each other only where the first one gossips.
func (d *demo) startCluster(ctx context.Context) error {
	d.say("starting three nodes on loopback; nodes 2 and 3 are told where node 1 gossips, no more")
	for i := range 3 {
		p := &process{name: fmt.Sprintf("node-%d", i+1), binary: filepath.Join(d.bin, "edged")}
		p.dir = filepath.Join(d.dir, p.name)
		if err := os.Mkdir(p.dir, 0o700); err != nil {
			return err
		}
		if i > 0 {
			p.join = []string{d.nodes[0].addr.Gossip}
		}
		d.nodes = append(d.nodes, p)
		if err := p.start(ctx); err != nil {
			return err
		}
		d.say("  %s: id %d, pid %d, native %s, gossip %s", p.name, p.addr.NodeID, p.addr.PID, p.addr.Native, p.addr.Gossip)
	}
	var err error
	if d.cl, err = client.New(client.Config{Nodes: d.addrs(), Name: "demo"}); err != nil {
		return err
	}
	err = d.until(ctx, 20*time.Second, "three nodes in one cluster", func(ctx context.Context) (bool, error) {
		st, err := d.cl.Admin().Status(ctx)
		return err == nil && st.Nodes == 3 && st.NodesAlive == 3 && st.MetadataLeader != record.NoNode, err
	})
	if err != nil {
		return err
	}
	d.say("they have found each other and formed one cluster")
	return d.edgectl(ctx, "node", "list")
}

func (d *demo) createTopic(ctx context.Context) error {
	err := d.edgectl(ctx, "topic", "create", topicName, "--partitions", fmt.Sprint(partitionCount), "--replication", "3")
	if err != nil {
		return err
	}
	err = d.until(ctx, 20*time.Second, "a leader and three voters for each partition", func(ctx context.Context) (bool, error) {
		t, err := d.cl.Admin().Topic(ctx, topicName)
		ready := err == nil && len(t.Partitions) == partitionCount
		for _, p := range t.Partitions {
			ready = ready && p.Leader != record.NoNode && len(p.Voters) == 3
		}
		return ready, err
	})
	if err != nil {
		return err
	}
	return d.edgectl(ctx, "topic", "describe", topicName)
}

// until asks every 25 ms until the answer is yes.
func (d *demo) until(ctx context.Context, limit time.Duration, what string, ask func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		ok, err := ask(ctx)
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain for %s; last: %w", what, errors.Join(err, ctx.Err()))
		case <-time.After(25 * time.Millisecond):
		}
	}
}

// edgectl shows a command as a person would type it, and what it prints.
func (d *demo) edgectl(ctx context.Context, args ...string) error {
	d.say("$ edgectl %s", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, filepath.Join(d.bin, "edgectl"), args...)
	cmd.Env = append(os.Environ(), "EDGECTL_NODES="+strings.Join(d.addrs(), ","))
	out, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		fmt.Print("         ", line)
	}
	if err != nil {
		return fmt.Errorf("edgectl %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// addrs are the native addresses of all nodes.
func (d *demo) addrs() []string {
	var all []string
	for _, p := range d.nodes {
		all = append(all, p.addr.Native)
	}
	return all
}

func (d *demo) processOf(id record.NodeID) *process {
	for _, p := range d.nodes {
		if p.addr.NodeID == int32(id) {
			return p
		}
	}
	return nil
}

func (d *demo) processOtherThan(id record.NodeID) *process {
	for _, p := range d.nodes {
		if p.addr.NodeID != int32(id) {
			return p
		}
	}
	return nil
}

func (d *demo) nameOf(id record.NodeID) string {
	if p := d.processOf(id); p != nil {
		return p.name
	}
	return fmt.Sprintf("node id %d", id)
}

// stopPolitely ends the nodes as an operator would, and wants them to end well.
func (d *demo) stopPolitely(context.Context) error {
	for _, p := range d.nodes {
		start := time.Now()
		if err := p.end(syscall.SIGTERM); err != nil {
			return fmt.Errorf("%s did not stop in good order: %w; its log says:\n%s", p.name, err, p.logTail())
		}
		d.say("%s stopped in good order within %v", p.name, time.Since(start).Round(time.Millisecond))
	}
	return nil
}

// stopAll ends whatever still runs. After a failure the ends of the logs are shown.
func (d *demo) stopAll(failed bool) {
	if d.cl != nil {
		_ = d.cl.Close() // only waits
	}
	for _, p := range d.nodes {
		_ = p.end(syscall.SIGKILL) // nothing to lose: the data goes too
		if failed {
			fmt.Fprintf(os.Stderr, "the end of the log of %s:\n%s\n", p.name, p.logTail())
		}
	}
}
