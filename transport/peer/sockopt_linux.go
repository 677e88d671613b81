package peer

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// userTimeout is how long sent bytes may stay unacknowledged before the kernel gives the
// connection up. Without it a vanished peer is noticed after minutes of retransmissions; with less than Limits.Silence
// a radio that saves power would lose connections.
const userTimeout = 5 * time.Second

// tune sets what a connection between nodes needs from TCP besides TCP_NODELAY, which Go sets.
// A failure costs time after a loss and nothing else, so it is not reported.
func tune(nc net.Conn) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout/time.Millisecond))
	})
}
