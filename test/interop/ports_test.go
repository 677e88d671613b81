//go:build linux

package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// How the ports are compared: both clients have batches of portBatch bytes and portBuffer bytes on their way.
const (
	portRounds     = 3
	portPartitions = 6
	portBatch      = 128 << 10
	portBuffer     = 16 << 20
	portBytes      = 32 << 20 // of records, in each round
)

// rate is what came of one run.
type rate struct {
	records float64 // a second
	cpu     float64 // us of all nodes for a record
}

// TestPorts measures the same records through both ports of the same nodes, in turns, and prints a table. It judges
// nothing: what it finds is for docs/performance.md.
func TestPorts(t *testing.T) {
	if os.Getenv("PORTS") == "" {
		t.Skip("PORTS is not set")
	}
	bin, err := built()
	if err != nil {
		t.Fatal(err)
	}
	if err := goBuild("../..", "-o", bin+"/", "./cmd/edgectl"); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\n| nodes | record | load | kafka, records/s | native, records/s | ratio | CPU of all nodes per record, us, kafka / native |\n|---|---|---|---|---|---|---|\n")
	for _, nodes := range []int{1, 3} {
		c := startNodes(t, nodes, func(int, *node) {})
		for _, size := range []int{100, 1 << 10} {
			p := &ports{c: c, size: size, records: portBytes / size, edgectl: filepath.Join(bin, "edgectl")}
			for load, run := range map[string]func(topic string, native bool) rate{"produce": p.produce, "consume": p.consume} {
				topic := fmt.Sprintf("%s-%d-", load, size)
				var kafka, native []rate
				for round := range portRounds {
					for _, n := range []bool{round%2 == 0, round%2 == 1} { // who is first changes
						name := topic + strconv.Itoa(round) + strconv.FormatBool(n)
						c.createPortTopic(name, int16(nodes))
						if load == "consume" {
							p.produce(name, true)
						}
						r := run(name, n)
						if n {
							native = append(native, r)
						} else {
							kafka = append(kafka, r)
						}
						c.deleteTopic(name)
					}
				}
				k, n := median(kafka), median(native)
				fmt.Printf("| %d | %d B | %s | %.0f | %.0f | %.2f | %.2f / %.2f |\n", nodes, size, load, k.records, n.records, k.records/n.records, k.cpu, n.cpu)
			}
		}
	}
}

func median(rs []rate) rate {
	slices.SortFunc(rs, func(a, b rate) int { return int(a.records - b.records) })
	return rs[len(rs)/2]
}

func (c *cluster) createPortTopic(name string, replicas int16) {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	if _, err := c.adm.CreateTopic(ctx, portPartitions, replicas, nil, name); err != nil {
		c.t.Fatal(err)
	}
	c.awaitLed(name)
}

func (c *cluster) deleteTopic(name string) {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	if _, err := c.adm.DeleteTopic(ctx, name); err != nil {
		c.t.Fatal(err)
	}
}

type ports struct {
	c             *cluster
	size, records int
	edgectl       string
}

// timed measures what fn does.
func (p *ports) timed(fn func() float64) rate {
	before := p.cpu()
	persec := fn()
	return rate{records: persec, cpu: (p.cpu() - before).Seconds() * 1e6 / float64(p.records)}
}

// cpu is what all nodes have used.
func (p *ports) cpu() (all time.Duration) {
	const tick = time.Second / 100
	for _, n := range p.c.nodes {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.cmd.Process.Pid))
		if err != nil {
			p.c.t.Fatal(err)
		}
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+2:])
		for _, f := range fields[11:13] {
			ticks, err := strconv.Atoi(string(f))
			if err != nil {
				p.c.t.Fatal(err)
			}
			all += time.Duration(ticks) * tick
		}
	}
	return all
}

func (p *ports) produce(topic string, native bool) rate {
	return p.timed(func() float64 {
		if native {
			return p.bench("produce", topic, "--size", strconv.Itoa(p.size))
		}
		cl := p.client(kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(0),
			kgo.ProducerBatchMaxBytes(portBatch), kgo.MaxBufferedRecords(portBuffer/(p.size+128)))
		defer cl.Close()
		value := make([]byte, p.size) // as edgectl has it
		for i := range value {
			value[i] = byte(rand.Uint32())
		}
		began := time.Now()
		for range p.records {
			cl.Produce(p.c.t.Context(), kgo.SliceRecord(value), func(_ *kgo.Record, err error) {
				if err != nil {
					p.c.t.Error(err)
				}
			})
		}
		if err := cl.Flush(p.c.t.Context()); err != nil {
			p.c.t.Fatal(err)
		}
		return float64(p.records) / time.Since(began).Seconds()
	})
}

func (p *ports) consume(topic string, native bool) rate {
	return p.timed(func() float64 {
		if native {
			return p.bench("consume", topic)
		}
		cl := p.client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		defer cl.Close()
		began := time.Now()
		for got := 0; got < p.records; {
			fs := cl.PollFetches(p.c.t.Context())
			if err := fs.Err(); err != nil {
				p.c.t.Fatal(err)
			}
			got += fs.NumRecords()
		}
		return float64(p.records) / time.Since(began).Seconds()
	})
}

func (p *ports) client(opts ...kgo.Opt) *kgo.Client {
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(strings.Split(p.c.bootstrap(nil), ",")...))...)
	if err != nil {
		p.c.t.Fatal(err)
	}
	return cl
}

// bench runs edgectl's bench, which speaks the native protocol.
func (p *ports) bench(load, topic string, args ...string) float64 {
	line := append([]string{"--json", "--node", p.c.nodes[0].addr.Native, "bench", load, "--records", strconv.Itoa(p.records)}, append(args, topic)...)
	cmd := exec.Command(p.edgectl, line...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.Output()
	if err != nil {
		p.c.t.Fatalf("edgectl %q: %v", line, err)
	}
	var res struct {
		PerSecond float64 `json:"records_per_second"`
	}
	if err := json.Unmarshal(out, &res); err != nil {
		p.c.t.Fatal(err)
	}
	return res.PerSecond
}
