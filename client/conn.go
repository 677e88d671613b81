package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"edged/transport/wire"
)

// Bounds of a connection.
const (
	// writeChunk is what has to leave within the silence limit, in bytes.
	writeChunk = 32 << 10
	// readBuffer is how much one read takes at most, in bytes, while frames are small.
	readBuffer = 32 << 10
)

// ConnError tells that a connection could not be made or was lost. Whether the node did
// what it was asked for is not known then.
type ConnError struct {
	Addr string
	Err  error
}

// Error leaves out what package net says of the address a second time.
func (e *ConnError) Error() string {
	cause := e.Err
	var op *net.OpError
	if errors.As(cause, &op) {
		cause = op.Err
	}
	var call *os.SyscallError
	if errors.As(cause, &call) {
		cause = call.Err
	}
	return fmt.Sprintf("connection to %s: %v", e.Addr, cause)
}

// Unwrap gives the cause.
func (e *ConnError) Unwrap() error { return e.Err }

// ErrNotNative is why a connection was given up on which something else than edged answered.
var ErrNotNative = errors.New("what answers there does not speak edged's native protocol")

// wrongAddress tells of an error that no repetition will help with, as far as can be known.
func wrongAddress(err error) bool {
	var lookup *net.DNSError
	return errors.Is(err, ErrNotNative) || errors.As(err, &lookup) && lookup.IsNotFound && !lookup.IsTemporary
}

var errSilent = errors.New("the node does not answer")

// reply takes the answer of a request, or the error with which its connection ended. It
// is called once and must not block.
type reply func(*wire.Response, error)

// conn is a connection to a node on which any number of requests are under way.
//
// Goroutines: a reader, which calls the replies, and a writer. While requests wait and
// nothing moves in either direction for half the silence limit, it asks for a sign of
// life; after the whole limit it counts as lost. So a node that is stopped or cut off is
// noticed within about a second, while one whose disk is slow is waited for.
type conn struct {
	peer    *peer
	nc      net.Conn
	info    wire.HelloInfo
	born    time.Time
	moved   atomic.Int64 // when bytes last moved, in ns since born
	wake    chan struct{}
	done    chan struct{}
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		err     error // set once, by fail
		last    uint32
		pending map[uint32]reply
		queue   []outgoing
		watch   *time.Timer // runs check; nil while nothing is pending
		pinged  bool
	}
}

// outgoing is a frame to be written. A sign of life that leaves is none that came.
type outgoing struct {
	frame wire.Frame
	ping  bool
}

// openConn dials and says hello, within the peer's silence limit.
func openConn(ctx context.Context, p *peer, cfg *Config) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, p.silenceLimit())
	defer cancel()
	nc, err := cfg.Dial(ctx, p.addr)
	if err != nil {
		return nil, &ConnError{p.addr, err}
	}
	cn := &conn{peer: p, nc: nc, born: time.Now(), wake: make(chan struct{}, 1), done: make(chan struct{})}
	cn.mu.pending = map[uint32]reply{}
	r := bufio.NewReaderSize(movingReader{cn}, readBuffer)
	err = cn.hello(ctx, r, cfg.Name)
	if err == nil {
		err = p.c.belongs(cn.info.ClusterID)
	}
	if err != nil {
		_ = nc.Close() // the hello's error is the one that tells something
		return nil, &ConnError{p.addr, err}
	}
	cn.running.Go(func() { cn.readLoop(r) })
	cn.running.Go(cn.writeLoop)
	return cn, nil
}

func (cn *conn) hello(ctx context.Context, r *bufio.Reader, name string) error {
	stop := context.AfterFunc(ctx, func() { _ = cn.nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	cn.mu.last = 1
	f, err := wire.EncodeRequest(wire.APIHello, cn.mu.last, &wire.HelloRequest{Client: name})
	if err != nil {
		return err
	}
	if _, err := f.Pieces.WriteTo(cn.nc); err != nil {
		return helloError(ctx, err)
	}
	frame, err := wire.ReadFrame(r, wire.DefaultMaxFrame)
	var size *wire.FrameSizeError
	if errors.As(err, &size) {
		return ErrNotNative
	}
	if err != nil {
		return helloError(ctx, err)
	}
	resp, err := wire.ParseResponse(frame)
	if err == nil {
		err = resp.Err
	}
	if err == nil && resp.Correlation != cn.mu.last {
		err = fmt.Errorf("hello was answered as request %d", resp.Correlation)
	}
	if err == nil {
		err = resp.Decode(&cn.info)
	}
	if err == nil && (cn.info.MaxFrame <= 0 || cn.info.MaxFrame > wire.MaxFrameLimit) {
		err = fmt.Errorf("the node claims frames of %d bytes, the most is %d", cn.info.MaxFrame, wire.MaxFrameLimit)
	}
	return err
}

func helloError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errSilent
	}
	return err
}

// send queues a request. If it returns an error the reply is not called.
func (cn *conn) send(api wire.API, body wire.Message, done reply) (id uint32, err error) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	return cn.sendLocked(api, body, done)
}

func (cn *conn) sendLocked(api wire.API, body wire.Message, done reply) (uint32, error) {
	if cn.mu.err != nil {
		return 0, cn.mu.err
	}
	cn.mu.last++
	if cn.mu.last == 0 { // stands for the connection
		cn.mu.last++
	}
	id := cn.mu.last
	f, err := wire.EncodeRequest(api, id, body)
	if err != nil {
		return 0, err
	}
	if len(cn.mu.pending) == 0 {
		cn.progress()
	}
	cn.mu.pending[id] = done
	cn.mu.queue = append(cn.mu.queue, outgoing{f, api == wire.APIHello})
	if cn.mu.watch == nil {
		cn.mu.watch = time.AfterFunc(cn.peer.silenceLimit()/2, cn.check)
	}
	select {
	case cn.wake <- struct{}{}:
	default:
	}
	return id, nil
}

// call sends a request and waits for its answer. Errors of the node come as they are,
// those of the connection as *ConnError, ctx's as ctx.Err.
func (cn *conn) call(ctx context.Context, api wire.API, req, resp wire.Message) error {
	type result struct {
		resp *wire.Response
		err  error
	}
	got := make(chan result, 1)
	id, err := cn.send(api, req, func(r *wire.Response, err error) { got <- result{r, err} })
	if err != nil {
		return err
	}
	select {
	case r := <-got:
		if r.err != nil {
			return r.err
		}
		if err := r.resp.Decode(resp); err != nil {
			return &ConnError{cn.peer.addr, err}
		}
		return r.resp.Err
	case <-ctx.Done():
		cn.forget(id)
		return ctx.Err()
	}
}

// forget drops a request that nobody waits for any more.
func (cn *conn) forget(id uint32) {
	cn.mu.Lock()
	delete(cn.mu.pending, id)
	cn.mu.Unlock()
}

// fail ends the connection; every request under way gets err.
func (cn *conn) fail(err error) {
	cn.mu.Lock()
	if cn.mu.err != nil {
		cn.mu.Unlock()
		return
	}
	cn.mu.err = err
	pending := cn.mu.pending
	cn.mu.pending, cn.mu.queue = nil, nil
	if cn.mu.watch != nil {
		cn.mu.watch.Stop()
	}
	cn.mu.Unlock()
	_ = cn.nc.Close() // nothing that it could report is still wanted
	close(cn.done)
	cn.peer.lost(cn)
	for _, done := range pending {
		done(nil, err)
	}
}

func (cn *conn) ended() bool {
	select {
	case <-cn.done:
		return true
	default:
		return false
	}
}

func (cn *conn) readLoop(r *bufio.Reader) {
	for {
		frame, err := wire.ReadFrame(r, cn.info.MaxFrame)
		if err != nil {
			cn.fail(&ConnError{cn.peer.addr, err})
			return
		}
		resp, err := wire.ParseResponse(frame)
		if err == nil && resp.Correlation == 0 {
			err = fmt.Errorf("the node closes it: %w", resp.Err)
		}
		if err != nil {
			cn.fail(&ConnError{cn.peer.addr, err})
			return
		}
		cn.mu.Lock()
		done, ok := cn.mu.pending[resp.Correlation]
		delete(cn.mu.pending, resp.Correlation)
		cn.mu.Unlock()
		if ok {
			cn.peer.answered()
			done(resp, nil)
		}
	}
}

func (cn *conn) writeLoop() {
	for {
		select {
		case <-cn.wake:
		case <-cn.done:
			return
		}
		cn.mu.Lock()
		queue := cn.mu.queue
		cn.mu.queue = nil
		cn.mu.Unlock()
		var pieces net.Buffers
		moved := func(int64) {}
		for _, o := range queue {
			pieces = append(pieces, o.frame.Pieces...)
			if !o.ping {
				moved = func(int64) { cn.progress() }
			}
		}
		err := wire.WritePieces(cn.nc, pieces, writeChunk, cn.peer.silenceLimit(), moved)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			cn.peer.wasSilent()
			err = errSilent
		}
		if err != nil {
			cn.fail(&ConnError{cn.peer.addr, err})
			return
		}
	}
}

// check looks whether the node still lives. It runs while requests are pending.
func (cn *conn) check() {
	limit := cn.peer.silenceLimit()
	cn.mu.Lock()
	if cn.mu.err != nil || len(cn.mu.pending) == 0 {
		cn.mu.watch, cn.mu.pinged = nil, false
		cn.mu.Unlock()
		return
	}
	quiet := time.Since(cn.born) - time.Duration(cn.moved.Load())
	if quiet >= limit {
		cn.mu.Unlock()
		cn.peer.wasSilent()
		cn.fail(&ConnError{cn.peer.addr, errSilent})
		return
	}
	next := limit - quiet
	if quiet >= limit/2 {
		if !cn.mu.pinged {
			cn.mu.pinged = true
			_, _ = cn.sendLocked(wire.APIHello, &wire.HelloRequest{}, cn.pong) // fails only if the connection has
		}
	} else {
		next = limit/2 - quiet
	}
	cn.mu.watch.Reset(next)
	cn.mu.Unlock()
}

func (cn *conn) pong(*wire.Response, error) {
	cn.mu.Lock()
	cn.mu.pinged = false
	cn.mu.Unlock()
}

// progress notes that bytes moved.
func (cn *conn) progress() { cn.moved.Store(int64(time.Since(cn.born))) }

// movingReader notes that bytes moved.
type movingReader struct{ cn *conn }

func (m movingReader) Read(b []byte) (int, error) {
	n, err := m.cn.nc.Read(b)
	if n > 0 {
		m.cn.progress()
	}
	return n, err
}
