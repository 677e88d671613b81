// Command init is the only program of a virtual machine beside edged and edgectl: it starts a node, produces,
// kills it, starts it again, and reads what was acknowledged. See the test of deploy/vm.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const records = 50

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "init is for a virtual machine of its own")
		os.Exit(2)
	}
	if err := try(); err != nil {
		fmt.Println("VM FAILED:", err)
	}
	syscall.Sync()
	_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF) // a machine that cannot is ended from outside
	select {}
}

func try() error {
	for _, m := range []struct{ kind, at string }{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := syscall.Mount(m.kind, m.at, m.kind, 0, ""); err != nil && err != syscall.EBUSY {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	var u unix.Utsname
	_ = unix.Uname(&u) // only told
	fmt.Printf("VM %s, %s, pages of %d bytes, %d CPU, %s\n", unix.ByteSliceToString(u.Machine[:]), unix.ByteSliceToString(u.Release[:]), os.Getpagesize(), runtime.NumCPU(), time.Now().Format(time.DateOnly))
	node, err := start()
	if err != nil {
		return err
	}
	if _, err := edgectl("", "topic", "create", "t"); err != nil {
		return err
	}
	var lines strings.Builder
	for i := range records {
		fmt.Fprintln(&lines, "record", i)
	}
	if _, err := edgectl(lines.String(), "produce", "t"); err != nil {
		return err
	}
	if err := node.Kill(); err != nil {
		return err
	}
	<-node.ended
	if err := os.Remove("/data/addresses.json"); err != nil {
		return err
	}
	if _, err = start(); err != nil {
		return err
	}
	got, err := edgectl("", "consume", "t")
	if err != nil {
		return err
	}
	if got != lines.String() {
		return fmt.Errorf("%d lines were read, %d acknowledged, or they differ", strings.Count(got, "\n"), records)
	}
	fmt.Println("VM ok:", strconv.Itoa(records), "records after a kill")
	return nil
}

func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo)
}

type node struct {
	*os.Process
	ended chan error
}

func start() (*node, error) {
	cmd := exec.Command("/edged", "--data-dir", "/data", "--native-addr", "127.0.0.1:7400", "--gossip-addr", "127.0.0.1:7946", "--kafka-addr", "127.0.0.1:9092")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for range 1200 {
		if _, err := os.Stat("/data/addresses.json"); err == nil {
			return &node{cmd.Process, ended}, nil
		}
		select {
		case err := <-ended:
			return nil, fmt.Errorf("the node ended: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil, fmt.Errorf("the node does not listen after two minutes")
}

func edgectl(stdin string, args ...string) (string, error) {
	cmd := exec.Command("/edgectl", append([]string{"--timeout", "60s"}, args...)...)
	cmd.Stdin, cmd.Stderr = strings.NewReader(stdin), os.Stdout
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("edgectl %s: %w", args[0], err)
	}
	return string(out), nil
}
