//go:build linux

package test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// rawConn speaks the native protocol as its README draws it and nothing more: it follows
// no redirect, retries nothing, and shares no code with the client or the server.
type rawConn struct {
	net.Conn
	last uint32
}

// The requests that it uses.
const (
	rawHello      = 0
	rawMetadata   = 1
	rawProduce    = 2
	rawFetch      = 3
	rawOffsets    = 4
	rawProducerID = 5
	rawHistory    = 20
	rawStatus     = 21
	rawTimeout    = 5 * time.Second
	rawMaxFrame   = 16 << 20
)

// rawError is an error that a node answered.
type rawError struct {
	code, message, addr string
	leader, epoch       int64
	retriable           bool
}

func (e *rawError) Error() string { return e.code + ": " + e.message }

// dialRaw connects and says hello.
func dialRaw(addr string) (*rawConn, error) {
	nc, err := net.DialTimeout("tcp", addr, rawTimeout)
	if err != nil {
		return nil, err
	}
	c := &rawConn{Conn: nc}
	if _, err := c.call(rawHello, "raw"); err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	return c, nil
}

func (c *rawConn) close() { _ = c.Conn.Close() } // it has only been talked to

// call sends a request and waits for its answer. With an error of the node the body may come too.
func (c *rawConn) call(api int, body ...any) ([]any, error) {
	id, err := c.send(api, body...)
	if err != nil {
		return nil, err
	}
	got, answer, failure, err := c.receive()
	if err == nil && got != id {
		err = fmt.Errorf("answer %d to request %d", got, id)
	}
	if err == nil {
		err = failure
	}
	return answer, err
}

func (c *rawConn) send(api int, body ...any) (id uint32, err error) {
	if body == nil {
		body = []any{}
	}
	c.last++
	frame, err := msgpack.Marshal([]any{api, 1, c.last, body})
	if err != nil {
		return 0, err
	}
	if err := c.SetDeadline(time.Now().Add(rawTimeout)); err != nil {
		return 0, err
	}
	_, err = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
	return c.last, err
}

func (c *rawConn) receive() (id uint32, body []any, failure, err error) {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return 0, nil, nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > rawMaxFrame {
		return 0, nil, nil, fmt.Errorf("a frame of %d bytes", size)
	}
	frame := make([]byte, size)
	if _, err := io.ReadFull(c, frame); err != nil {
		return 0, nil, nil, err
	}
	dec := msgpack.NewDecoder(bytes.NewReader(frame))
	dec.UseLooseInterfaceDecoding(true)
	v, err := dec.DecodeInterface()
	if err != nil {
		return 0, nil, nil, err
	}
	parts, ok := v.([]any)
	if !ok || len(parts) != 3 {
		return 0, nil, nil, fmt.Errorf("not an answer: %v", v)
	}
	body, _ = parts[2].([]any)
	if m, ok := parts[1].(map[string]any); ok {
		failure = toRawError(m)
	}
	return uint32(number(parts[0])), body, failure, nil
}

func toRawError(m map[string]any) *rawError {
	e := &rawError{leader: -1, epoch: -1}
	e.code, _ = m["code"].(string)
	e.message, _ = m["message"].(string)
	e.addr, _ = m["addr"].(string)
	e.retriable, _ = m["retriable"].(bool)
	if l, ok := m["leader"]; ok {
		e.leader = number(l)
	}
	if l, ok := m["epoch"]; ok {
		e.epoch = number(l)
	}
	return e
}

// number reads what msgpack made of an int.
func number(v any) int64 {
	switch n := v.(type) {
	case int64:
		return n
	case uint64:
		return int64(n)
	}
	return -1 << 62
}

type clusterState struct{ nodes, alive, topics, partitions, leaderless, under int }

func (c *rawConn) status() (clusterState, error) {
	b, err := c.call(rawStatus, 5000)
	if err != nil {
		return clusterState{}, err
	}
	n := func(i int) int { return int(number(b[i])) }
	return clusterState{nodes: n(2), alive: n(3), topics: n(4), partitions: n(5), leaderless: n(6), under: n(7)}, nil
}

// partitionState is one partition as a node tells it.
type partitionState struct {
	leader, epoch int32
	addr          string
	start, high   int64
	replicas      int
}

func (c *rawConn) partitions(topic string) ([]partitionState, error) {
	b, err := c.call(rawMetadata, []any{topic})
	if err != nil {
		return nil, err
	}
	t := b[4].([]any)[0].([]any)
	if e, ok := t[1].(map[string]any); ok {
		return nil, toRawError(e)
	}
	var out []partitionState
	for _, p := range t[5].([]any) {
		f := p.([]any)
		out = append(out, partitionState{
			leader: int32(number(f[1])), addr: f[2].(string), epoch: int32(number(f[3])),
			replicas: len(f[4].([]any)), start: number(f[6]), high: number(f[7]),
		})
	}
	return out, nil
}

// partitionsAt asks one node, and only it.
func partitionsAt(n *node, topic string) ([]partitionState, error) {
	c, err := dialRaw(n.addr.Native)
	if err != nil {
		return nil, err
	}
	defer c.close()
	return c.partitions(topic)
}

// produce sends one batch and gives base offset, epoch and what was bought.
func (c *rawConn) produce(topic string, partition int32, acks int, timeout time.Duration, batch []byte) (offset int64, epoch int32, bought string, err error) {
	b, err := c.call(rawProduce, topic, partition, acks, -1, timeout.Milliseconds(), batch)
	if err != nil {
		return -1, -1, "", err
	}
	bought, _ = b[3].(string)
	return number(b[0]), int32(number(b[2])), bought, nil
}

// fetch asks for batches from an offset on.
func (c *rawConn) fetch(topic string, partition int32, from int64, wait time.Duration) (high int64, epoch int32, batches []byte, err error) {
	b, err := c.call(rawFetch, topic, partition, -1, from, 1<<20, 1, wait.Milliseconds())
	if len(b) == 4 {
		high, epoch = number(b[0]), int32(number(b[2]))
		batches, _ = b[3].([]byte)
	}
	return high, epoch, batches, err
}

// processState is the letter that /proc has for a process.
func processState(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name before it may hold spaces
	return rest[:1], nil
}
