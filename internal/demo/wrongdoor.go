package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"edged/client"
	"edged/record"
	"edged/transport/wire"
)

// askOnce opens a connection to exactly the node at addr, sends one batch and gives the
// node's own answer. A client library hides what is to be seen here: it would go to the
// leader by itself.
func askOnce(ctx context.Context, addr string, req *wire.ProduceRequest) (wire.ProduceResponse, error) {
	var resp wire.ProduceResponse
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return resp, err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return resp, err
		}
	}
	if err := exchange(conn, wire.APIHello, &wire.HelloRequest{Client: "demo"}, &wire.HelloInfo{}); err != nil {
		return resp, err
	}
	return resp, exchange(conn, wire.APIProduce, req, &resp)
}

// exchange sends one request and reads its answer.
func exchange(conn net.Conn, api wire.API, req, resp wire.Message) error {
	f, err := wire.EncodeRequest(api, uint32(api)+1, req)
	if err != nil {
		return err
	}
	if _, err := f.Pieces.WriteTo(conn); err != nil {
		return err
	}
	frame, err := wire.ReadFrame(conn, wire.DefaultMaxFrame)
	if err != nil {
		return err
	}
	r, err := wire.ParseResponse(frame)
	if err != nil {
		return err
	}
	if r.Err != nil {
		return r.Err
	}
	return r.Decode(resp)
}

// throughWrongDoors sends one record to each partition by way of a node that does not
// lead it, and follows what that node says.
func (d *demo) throughWrongDoors(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	t, err := d.cl.Admin().Topic(ctx, topicName)
	if err != nil {
		return err
	}
	readings := d.machine.sample(time.Now())
	for i, p := range t.Partitions {
		r := readings[i%len(readings)]
		if i >= len(readings) {
			r.Seq, d.machine.seq = d.machine.seq, d.machine.seq+1
		}
		if err := d.throughWrongDoor(ctx, p, r); err != nil {
			return fmt.Errorf("partition %d: %w", p.Partition, err)
		}
	}
	return nil
}

func (d *demo) throughWrongDoor(ctx context.Context, p wire.Partition, r reading) error {
	door := d.processOtherThan(p.Leader)
	b := record.NewBuilder(record.None, 64<<10)
	if !b.Append(time.Now().UnixMilli(), []byte(r.Source), d.ledger.send(r), nil) {
		return errors.New("the reading does not fit a batch")
	}
	req := &wire.ProduceRequest{Topic: topicName, Partition: p.Partition, Acks: wire.AcksAll, Epoch: record.NoEpoch, TimeoutMs: 5000, Batch: b.Build()}
	_, err := askOnce(ctx, door.addr.Native, req)
	var nl *record.NotLeaderError
	if !errors.As(err, &nl) || nl.Addr == "" {
		return fmt.Errorf("%s does not lead it and answered %v instead of naming the leader", door.name, err)
	}
	d.redirects++
	d.say("  partition %d: %s says it does not lead it, %s does, at %s, epoch %d", p.Partition, door.name, d.nameOf(nl.Leader), nl.Addr, nl.Epoch)
	resp, err := askOnce(ctx, nl.Addr, req)
	if err != nil {
		return err
	}
	d.ledger.answered(r.Seq, client.Ack{Partition: p.Partition, Offset: resp.BaseOffset, Epoch: resp.Epoch})
	return nil
}
