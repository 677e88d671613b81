package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// Bounds of the look at an address that takes connections and does not say hello.
const (
	portLook = time.Second // for each question
	// portDoubt is how long every connection has to be cut off, whatever is said, until the address is taken
	// for one of another protocol: a node that is being killed does so for a moment.
	portDoubt = 500 * time.Millisecond
)

// whatAnswers finds out which of a node's other ports was taken for the native one, if err says that it may
// have been. It asks what each of them answers. Gossip answers only those who know the name of its
// cluster, and hangs up on others.
func (p *peer) whatAnswers(err error) error {
	cut := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
	if !cut && !errors.Is(err, errSilent) || p.looked && !cut {
		p.cut = time.Time{}
		return err
	}
	p.looked = true
	// Correlation id, what is asked first of a Kafka broker: which versions it speaks.
	kafka := binary.BigEndian.AppendUint32(nil, 10)
	kafka = append(kafka, 0, 18, 0, 0, 'e', 'd', 'g', 'e', 0xff, 0xff)
	http, httpErr := p.ask([]byte("GET /livez HTTP/1.0\r\n\r\n"), 5)
	if string(http) == "HTTP/" {
		return p.wrongPort("it is an HTTP port")
	}
	broker, kafkaErr := p.ask(kafka, 8)
	if len(broker) == 8 && string(broker[4:]) == "edge" {
		return p.wrongPort("it is a port for Kafka clients")
	}
	silent := func(err error) bool { var t net.Error; return errors.As(err, &t) && t.Timeout() }
	if !cut || silent(httpErr) || silent(kafkaErr) {
		p.cut = time.Time{}
		return err
	}
	if p.cut.IsZero() {
		p.cut = time.Now()
	}
	if time.Since(p.cut) < portDoubt {
		return err
	}
	return p.wrongPort("it hangs up on everybody, as a gossip port does")
}

func (p *peer) wrongPort(what string) error {
	return &ConnError{p.addr, fmt.Errorf("%w: %s", ErrNotNative, what)}
}

// ask says something on a connection of its own and reads the beginning of the answer.
func (p *peer) ask(question []byte, n int) (answer []byte, err error) {
	ctx, cancel := context.WithTimeout(p.c.ctx, portLook)
	defer cancel()
	nc, err := p.c.cfg.Dial(ctx, p.addr)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := nc.Write(question); err != nil {
		return nil, err
	}
	answer = make([]byte, n)
	read, err := io.ReadFull(nc, answer)
	return answer[:read], err
}
