package peer

import "sync"

// queue is what waits to be written to one connection, bounded in bytes. What the writer has
// taken counts until it is written, so the bound holds for all that a slow peer makes us keep.
type queue struct {
	limit int64
	ready chan struct{} // holds a token when there may be something to take

	mu struct {
		sync.Mutex
		frames  []frame
		bytes   int64 // of frames and of what was taken and is not done; <= limit, or one frame
		closed  bool
		dropped uint64
	}
}

func newQueue(limit int64) *queue {
	return &queue{limit: limit, ready: make(chan struct{}, 1)}
}

// push adds f, or drops it if the queue is closed or full. It never blocks.
func (q *queue) push(f frame) bool {
	q.mu.Lock()
	if q.mu.closed || q.mu.bytes > 0 && q.mu.bytes+f.size > q.limit {
		q.mu.dropped++
		q.mu.Unlock()
		return false
	}
	q.mu.frames = append(q.mu.frames, f)
	q.mu.bytes += f.size
	q.mu.Unlock()
	q.signal()
	return true
}

func (q *queue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// take gives the oldest frames, at least one if there is any, of about max bytes, and leaves a
// token if there are more. The caller owes done for their bytes.
func (q *queue) take(max int64) (frames []frame, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for n < len(q.mu.frames) && bytes < max {
		bytes += q.mu.frames[n].size
		n++
	}
	frames = q.mu.frames[:n:n]
	if n == len(q.mu.frames) {
		q.mu.frames = nil
		return frames, bytes
	}
	q.mu.frames = q.mu.frames[n:]
	q.signal()
	return frames, bytes
}

func (q *queue) done(bytes int64) {
	q.mu.Lock()
	q.mu.bytes -= bytes
	q.mu.Unlock()
}

// close drops everything queued and refuses the rest.
func (q *queue) close() {
	q.mu.Lock()
	q.mu.closed, q.mu.frames = true, nil
	q.mu.Unlock()
}

func (q *queue) stats() (bytes int64, dropped uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.bytes, q.mu.dropped
}
