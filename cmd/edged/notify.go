package main

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// extend is how much longer systemd waits for the start or the stop after a sign of
// progress, in microseconds: 30 s, more than the slowest single step on an SD card.
const extend = "EXTEND_TIMEOUT_USEC=30000000"

// notifyPatience is how long one word to systemd may take before it is dropped.
const notifyPatience = 100 * time.Millisecond

// notifier tells systemd how the service is doing, by datagrams to $NOTIFY_SOCKET.
// Without a socket it does nothing. Nothing depends on its success.
type notifier struct {
	log  *slog.Logger
	mu   sync.Mutex
	conn *net.UnixConn // nil without systemd
	// running is true between ready and stopping: only outside of it does a status line
	// count as progress of something that systemd waits for.
	running bool
}

// newNotifier connects. A socket name that begins with @ is in the abstract namespace,
// which package net knows by the same sign.
func newNotifier(socket string, log *slog.Logger) *notifier {
	n := &notifier{log: log}
	if socket == "" {
		return n
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		log.Warn("systemd cannot be told how the node is doing", "socket", socket, "err", err)
		return n
	}
	n.conn = conn
	return n
}

func (n *notifier) ready() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.running = true
	n.sendLocked("READY=1")
}

// reloading tells that the settings are read again; ready ends it. systemd compares the time with
// that of its own request, so that it does not take an older READY for the answer.
func (n *notifier) reloading() {
	n.mu.Lock()
	defer n.mu.Unlock()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		n.log.Debug("no monotonic clock", "err", err)
		return
	}
	n.sendLocked("RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", now.Nano()/1000))
}

// watchdogEvery is how often systemd wants to hear that the service is well, 0 if it does not, from
// $WATCHDOG_USEC and $WATCHDOG_PID. It is a third of the time after which systemd acts.
func watchdogEvery(usec, pid string) time.Duration {
	if pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0 // meant for a process that started this one
	}
	n, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64/1000 {
		return 0
	}
	return time.Duration(n) * time.Microsecond / 3
}

// watch tells systemd every so often that the node is well, for as long as alive says so. If it is
// silent for three times that long systemd ends the process with SIGABRT, and its stacks are logged.
func (n *notifier) watch(ctx context.Context, every time.Duration, alive func(context.Context) error) {
	if every == 0 {
		return
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if err := alive(ctx); err == nil {
			n.mu.Lock()
			n.sendLocked("WATCHDOG=1")
			n.mu.Unlock()
		} else if ctx.Err() == nil {
			n.log.Error("the node stands still; if it goes on like this the watchdog ends it", "err", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (n *notifier) stopping() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.running = false
	n.sendLocked("STOPPING=1", extend)
}

// status shows line in `systemctl status`.
func (n *notifier) status(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	line = "STATUS=" + strings.ReplaceAll(line, "\n", " ")
	if n.running {
		n.sendLocked(line)
	} else {
		n.sendLocked(line, extend)
	}
}

func (n *notifier) sendLocked(lines ...string) {
	if n.conn == nil {
		return
	}
	// A reader that does not read, with its queue full, must not hold up the node.
	_ = n.conn.SetWriteDeadline(time.Now().Add(notifyPatience))
	if _, err := n.conn.Write([]byte(strings.Join(lines, "\n"))); err != nil {
		n.log.Debug("systemd was not told", "message", lines[0], "err", err)
	}
}

func (n *notifier) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conn != nil {
		_ = n.conn.Close()
		n.conn = nil
	}
}
