//go:build linux

package interop

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// id is the part of a value that names it: "k07-000123." and some padding.
func id(value string) string {
	name, _, _ := strings.Cut(value, ".")
	return name
}

// at is where a record is; -1 if the client does not tell.
type at struct {
	partition int32
	offset    int64
}

// program is a running driver.
type program struct {
	t     *testing.T
	what  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan struct{}
	err   error // how it ended; read after ended

	mu     sync.Mutex
	stderr bytes.Buffer
	acked  map[string]at   // by id
	failed []string        // what the application was told, with the value
	recs   map[string][]at // by id, in the order of arrival
	errors []string        // of a consumer
}

// run starts a driver. It is ended with the test at the latest.
func (j *judge) run(t *testing.T, args ...string) *program {
	t.Helper()
	argv := append(append([]string{}, j.argv...), args...)
	p := &program{t: t, what: j.name + " " + args[0], ended: make(chan struct{}), acked: map[string]at{}, recs: map[string][]at{}}
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Dir = j.dir
	p.cmd.Env = j.env()
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	p.cmd.Stderr = (*lockedStderr)(p)
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.read(stdout)
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // its group: a driver may run the client as a child
		<-p.ended
		if t.Failed() {
			t.Logf("%s %v (ended with %v) says:\n%s", p.what, args, p.err, tail(p.stderr.String()))
		}
	})
	return p
}

type lockedStderr program

func (s *lockedStderr) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(&s.stderr, "[%s] ", time.Now().Format("05.000"))
	return s.stderr.Write(b)
}

func (p *program) read(stdout io.Reader) {
	in := bufio.NewScanner(stdout)
	in.Buffer(nil, 2<<20)
	for in.Scan() {
		p.line(in.Text())
	}
}

func (p *program) line(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	word, rest, _ := strings.Cut(text, " ")
	f := strings.Fields(rest)
	switch {
	case word == "ack" && len(f) == 3:
		p.acked[id(f[0])] = place(f[1], f[2])
	case word == "rec" && len(f) == 3:
		p.recs[id(f[2])] = append(p.recs[id(f[2])], place(f[0], f[1]))
	case word == "fail":
		p.failed = append(p.failed, rest)
	case word == "error":
		p.errors = append(p.errors, time.Now().Format("05.000 ")+rest)
	default:
		fmt.Fprintf(&p.stderr, "[stdout] %s\n", text)
	}
}

func place(partition, offset string) at {
	n, err := strconv.ParseInt(partition, 10, 32)
	o, err2 := strconv.ParseInt(offset, 10, 64)
	if err != nil || err2 != nil {
		return at{-2, -2} // is nowhere, so it is found
	}
	return at{int32(n), o}
}

// finish ends stdin and waits for the program to end by itself, with code 0.
func (p *program) finish() {
	p.t.Helper()
	_ = p.stdin.Close() // fails only if the program has ended, which is judged below
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("%s does not end", p.what)
	}
	if p.err != nil {
		p.t.Fatalf("%s ended with %v:\n%s", p.what, p.err, tail(p.stderr.String()))
	}
}

// alive fails the test if the program has ended.
func (p *program) alive() {
	p.t.Helper()
	select {
	case <-p.ended:
		p.t.Fatalf("%s has ended with %v:\n%s", p.what, p.err, tail(p.stderr.String()))
	default:
	}
}

// consumed adds up how often each record has arrived at any of the consumers.
func consumed(consumers ...*program) map[string]int {
	sum := map[string]int{}
	for _, p := range consumers {
		p.mu.Lock()
		for name, where := range p.recs {
			sum[name] += len(where)
		}
		p.mu.Unlock()
	}
	return sum
}

// keys is how many keys a producer uses.
const keys = 24

// producer writes numbered records: those of a key are in order.
type producer struct {
	*program
	prefix string
	sent   []string // ids
	pad    string
}

func (j *judge) produce(t *testing.T, bootstrap, topic, mode, codec, prefix string) *producer {
	return &producer{program: j.run(t, "produce", bootstrap, topic, mode, codec), prefix: prefix, pad: strings.Repeat("padding-", 20)}
}

// send writes n records.
func (p *producer) send(n int) {
	p.t.Helper()
	for range n {
		key := fmt.Sprintf("%s%02d", p.prefix, len(p.sent)%keys)
		name := fmt.Sprintf("%s-%06d", key, len(p.sent))
		if _, err := fmt.Fprintf(p.stdin, "%s %s.%s\n", key, name, p.pad); err != nil {
			p.alive()
			p.t.Fatal(err)
		}
		p.sent = append(p.sent, name)
	}
}

// allAcked ends the producer; every record has to be kept.
func (p *producer) allAcked() {
	p.t.Helper()
	p.finish()
	if len(p.failed) > 0 {
		p.t.Errorf("%s: %d of %d records failed, the first: %s", p.what, len(p.failed), len(p.sent), p.failed[0])
	}
	if len(p.acked) != len(p.sent) {
		p.t.Fatalf("%s: %d of %d records are acknowledged", p.what, len(p.acked), len(p.sent))
	}
}
