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
		n, err := writeOne(nc, cut(&pieces, chunk))
		moved(n)
		if err != nil {
			return err
		}
	}
	return nil
}

// writeOne writes what most often is one piece.
func writeOne(nc net.Conn, pieces net.Buffers) (int64, error) {
	if len(pieces) == 1 {
		n, err := nc.Write(pieces[0])
		return int64(n), err
	}
	return pieces.WriteTo(nc)
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
