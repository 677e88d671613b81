// Package wire is edged's native protocol: length-prefixed msgpack frames over TCP.
// README.md beside this file draws every frame; a client in another language can be
// written from it alone. The package holds the messages and their codec, which the Go
// client shares, and the server half, which talks to the node through Broker.
package wire
