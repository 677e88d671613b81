package node

import (
	"context"
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// networkChanges leaves a token whenever the kernel tells that an address or a route has come or gone, until
// ctx ends. It sleeps in between, so it costs an idle node nothing. nil if the kernel does not tell.
func networkChanges(ctx context.Context, wg *sync.WaitGroup) <-chan struct{} {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil
	}
	groups := uint32(unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		_ = unix.Close(fd)
		return nil
	}
	f := os.NewFile(uintptr(fd), "netlink")
	token := make(chan struct{}, 1)
	wg.Go(func() { // ends with the file, which ends with ctx
		defer f.Close()
		defer context.AfterFunc(ctx, func() { _ = f.Close() })()
		for buf := make([]byte, 4<<10); ; { // what it says is not looked at, so it may be cut short
			if _, err := f.Read(buf); err != nil && !errors.Is(err, unix.ENOBUFS) { // more than there was room for
				return
			}
			select {
			case token <- struct{}{}:
			default:
			}
		}
	})
	return token
}
