package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// addresses is what a node writes to DATA_DIR/addresses.json when its listeners are open.
type addresses struct {
	NodeID int32  `json:"node_id"`
	Native string `json:"native"`
	Gossip string `json:"gossip"`
	PID    int    `json:"pid"`
}

// process is one edged process, which may die and be started again on the same data.
type process struct {
	name   string
	binary string
	dir    string   // holds data and log; removed at the end
	join   []string // gossip addresses of others
	addr   addresses

	mu   sync.Mutex
	cmd  *exec.Cmd  // nil while it does not run
	done chan error // gets how cmd ended, once
}

// start runs the node on free ports of loopback and waits until it has said which.
func (p *process) start(ctx context.Context) error {
	data := filepath.Join(p.dir, "data")
	logFile, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()
	addrFile := filepath.Join(data, "addresses.json")
	if err := os.Remove(addrFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	args := []string{
		"--data-dir", data, "--node-name", p.name, "--cluster", "demo", "--bootstrap-expect", "3",
		"--native-addr", "127.0.0.1:0", "--gossip-addr", "127.0.0.1:0",
		"--kafka-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0",
	}
	for _, j := range p.join {
		args = append(args, "--join", j)
	}
	cmd := exec.Command(p.binary, args...)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.Env = []string{"HOME=" + p.dir, "PATH=" + os.Getenv("PATH")} // no EDGED_ settings of this shell
	// A demo that is killed itself leaves no node behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	p.mu.Lock()
	p.cmd, p.done = cmd, done
	p.mu.Unlock()
	go func() { done <- cmd.Wait() }()
	for {
		text, err := os.ReadFile(addrFile)
		if err == nil && json.Unmarshal(text, &p.addr) == nil && p.addr.PID == cmd.Process.Pid {
			return nil
		}
		select {
		case err := <-done:
			done <- err // for end
			return fmt.Errorf("%s ended at once: %w; its log says:\n%s", p.name, err, p.logTail())
		case <-ctx.Done():
			return fmt.Errorf("%s did not open its listeners: %w\n%s", p.name, ctx.Err(), p.logTail())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// end sends the signal and waits until the process is gone; after 10 s it is killed. The
// error says that it did not exit with 0.
func (p *process) end(sig os.Signal) error {
	p.mu.Lock()
	cmd, done := p.cmd, p.done
	p.cmd = nil
	p.mu.Unlock()
	if cmd == nil {
		return nil
	}
	_ = cmd.Process.Signal(sig) // fails only if it has ended
	select {
	case err := <-done:
		return err
	case <-time.After(10 * time.Second):
		_ = cmd.Process.Kill()
		return errors.Join(errors.New("it had to be killed after 10 s"), <-done)
	}
}

// logTail is the end of what the node has logged.
func (p *process) logTail() string {
	const most = 2000
	f, err := os.Open(filepath.Join(p.dir, "log"))
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > most {
		_, _ = f.Seek(-most, io.SeekEnd)
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
