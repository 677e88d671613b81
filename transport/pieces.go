package transport

import (
	"net"
	"time"
)

// WritePieces writes all pieces, chunk bytes at a time, each chunk within timeout: a slow
// link is not a dead one. It tells moved after each chunk how many bytes have gone.
func WritePieces(nc net.Conn, pieces net.Buffers, chunk int, timeout time.Duration, moved func(n int64)) error {
	for len(pieces) > 0 {
		if err := nc.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
			return err
		}
		head := cut(&pieces, chunk)
		n, err := head.WriteTo(nc)
		moved(n)
		if err != nil {
			return err
		}
	}
	return nil
}

// cut takes up to limit bytes off the front of pieces.
func cut(pieces *net.Buffers, limit int) net.Buffers {
	var chunk net.Buffers
	for len(*pieces) > 0 && limit > 0 {
		head := (*pieces)[0]
		if len(head) <= limit {
			*pieces = (*pieces)[1:]
		} else {
			(*pieces)[0] = head[limit:]
			head = head[:limit]
		}
		chunk = append(chunk, head)
		limit -= len(head)
	}
	return chunk
}
