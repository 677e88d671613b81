package main

import (
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"
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
