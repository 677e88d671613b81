//go:build !linux

package peer

import "net"

// tune does nothing here: Go sets TCP_NODELAY itself, and without TCP_USER_TIMEOUT a vanished
// peer is noticed by Limits.Silence.
func tune(net.Conn) {}
