package peer

import (
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edged/transport"
)

func TestTuneSetsUserTimeout(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	tune(&transport.Conn{Conn: nc}) // as the listener hands it over
	raw, err := nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var timeout, delay int
	_ = raw.Control(func(fd uintptr) {
		timeout, _ = unix.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
		delay, _ = unix.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_NODELAY)
	})
	if timeout != int(userTimeout/time.Millisecond) || delay == 0 {
		t.Fatalf("TCP_USER_TIMEOUT %d ms, TCP_NODELAY %d", timeout, delay)
	}
}
