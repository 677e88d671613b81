package wire

import (
	"context"
	"fmt"

	"edged/record"
)

// fetch waits for records in a goroutine of its own. While it waits it holds next to
// nothing; before batches are read, the connection's fetch memory must have room for
// them, and it is taken until they are written.
func (q *request) fetch(b Broker) {
	var req FetchRequest
	if !q.decode(&req) {
		return
	}
	c := q.c
	if c.fetches.Add(1) > int32(c.s.cfg.MaxFetches) {
		c.fetches.Add(-1)
		q.answer(fmt.Errorf("%w: %d fetches wait on this connection already", record.ErrBusy, c.s.cfg.MaxFetches), nil)
		return
	}
	q.boundFetch(&req)
	c.handlers.Go(func() {
		defer c.fetches.Add(-1)
		held := int64(0)
		req.Reserve = func(ctx context.Context, bytes int64) (err error) {
			if held > 0 || bytes <= 0 {
				return nil
			}
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			stop := context.AfterFunc(c.ctx, cancel) // whatever ctx the broker takes
			defer stop()
			held, err = c.fetchMem.Acquire(ctx, bytes)
			return err
		}
		resp := b.Fetch(c.ctx, req)
		used, err := c.holdOnly(held, int64(len(resp.Batches)))
		if err != nil {
			resp = FetchResponse{Err: err}
		}
		a := q.toAnswer(resp.Err, &resp)
		a.fetchMem = used
		c.send(a)
	})
}

// holdOnly changes what a fetch holds from what it reserved to what it read.
func (c *conn) holdOnly(held, used int64) (int64, error) {
	used = min(used, c.s.cfg.ConnBytes)
	switch {
	case used < held:
		c.fetchMem.Release(held - used)
	case used > held:
		// A first batch larger than MaxBytes. Waiting for the rest while holding a part
		// could wait for others that do the same.
		if held > 0 {
			c.fetchMem.Release(held)
		}
		return c.fetchMem.Acquire(c.ctx, used)
	}
	return used, nil
}

// boundFetch keeps the answer within a frame and the wait within reason.
func (q *request) boundFetch(req *FetchRequest) {
	room := q.c.s.cfg.MaxFrame - FrameSlack
	if req.MaxBytes <= 0 || req.MaxBytes > room {
		req.MaxBytes = room
	}
	req.MinBytes = min(max(req.MinBytes, 0), req.MaxBytes)
	req.MaxWaitMs = min(max(req.MaxWaitMs, 0), int32(MaxTimeout.Milliseconds()))
}
