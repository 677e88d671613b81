package node

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"edged/partition"
)

const (
	// stuckAfter is how long the Core may take for one turn, or a listener for one connection, before
	// the node says that it is not alive.
	stuckAfter = 10 * time.Second
	// writerStuckAfter is how long a save may wait for the disk before the log writer counts as dead.
	// Cards have been seen to take 7 s for one fsync; a restart would only read the log from that card again.
	writerStuckAfter = 2 * time.Minute
)

// Alive tells what of the node stands still, nil if nothing does: the Core takes turns, the log writer
// comes to an end with what it was given, every listener takes the next connection. How fast the disk
// is does not matter. It answers within stuckAfter or when ctx ends.
func (n *Node) Alive(ctx context.Context) error {
	for _, l := range n.listeners {
		if busy := l.busy(); busy > stuckAfter {
			return fmt.Errorf("the listener at %v (%s) took no connection for %v", l.Addr(), l.setting, busy.Round(time.Second))
		}
	}
	h := n.host.Load()
	if h == nil {
		return nil // not in a cluster yet
	}
	if wait := h.OldestSave(); wait > writerStuckAfter {
		return fmt.Errorf("the log writer has been at one commit for %v", wait.Round(time.Second))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, stuckAfter, fmt.Errorf("the core took no turn for %v", stuckAfter))
	defer cancel()
	turn := make(chan struct{})
	go func() { h.Inspect(func(*partition.Core) {}); close(turn) }()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// watched is a listener that knows whether somebody waits for its next connection.
type watched struct {
	net.Listener
	setting string
	left    atomic.Int64 // when the last Accept returned, since epoch in nanoseconds; 0 while one waits
	epoch   time.Time
}

// Accept waits for the next connection.
func (w *watched) Accept() (net.Conn, error) {
	w.left.Store(0)
	conn, err := w.Listener.Accept()
	w.left.Store(max(1, int64(time.Since(w.epoch))))
	return conn, err
}

// busy is how long nobody has waited for a connection.
func (w *watched) busy() time.Duration {
	left := w.left.Load()
	if left == 0 {
		return 0
	}
	return time.Since(w.epoch) - time.Duration(left)
}
