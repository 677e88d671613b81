package node

import (
	"context"
	"errors"
	"log/slog"
)

// Options is what the process around a node gives it.
type Options struct {
	// Logger takes everything the node has to say; nil drops it.
	Logger *slog.Logger
	// Version of the program, for other nodes and for people; at most 32 bytes.
	Version string
	// Status, if set, is told in one line what the node is doing, once per change and for
	// each step of progress while it starts and stops. It must not block.
	Status func(line string)
}

// Node is one running node.
type Node struct{}

// New opens everything that can fail: data, listeners. It serves nothing yet.
func New(Config, Options) (*Node, error) {
	return nil, errors.New("the node is not part of this build yet")
}

// Run serves until ctx ends, then hands over and closes.
func (*Node) Run(context.Context) error { return nil }
