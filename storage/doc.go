// Package storage keeps everything a node must not forget: one Pebble for the logs of
// all Raft groups, and a small identity file beside it. README.md is the crash contract.
package storage
