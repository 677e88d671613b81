// Package client is the Go client of edged's native protocol: it finds leaders, follows
// them when they move, and retries until the caller's deadline.
//
// A Client knows the cluster and holds one connection per node that it talks to. Producer
// and Consumer work through it; Admin is what edgectl calls.
//
//	c, err := client.New(client.Config{Nodes: []string{"edge1:7400"}})
//	p := c.NewProducer(client.ProducerConfig{})
//	ack, err := p.ProduceSync(ctx, client.Record{Topic: "t", Value: []byte("v")})
//
// What an answer of Produce means: with AcksAll an Ack without error is kept by a majority
// and stands in the log exactly once. An Ack with an error that errors.Is record.ErrTimeout
// or record.ErrInterrupted may or may not be in the log; any other error means that it is not.
package client
