// Package test runs real edged processes on loopback, kills, stops and starves them, and
// checks what the client was promised. Nothing in it knows the insides of a node: it has
// the command line, the files a node writes, HTTP, and the native protocol.
//
// Every node has an address of its own out of 127.0.0.0/8, so runs beside each other, and
// ports that are taken again after a restart, do not meet.
//
//	go test ./test                      what must hold, in about two minutes
//	EDGED_TEST_LONG=1 go test ./test    the same with many more rounds, and figures (make test-long)
//	EDGED_TEST_RACE=1 ...               the nodes are built with the race detector
//	EDGED_TEST_BIN=DIR ...              the commands in DIR are tried, such as scripts that start an emulator
//	EDGED_TEST_EMULATED=1 ...           with more patience
//	EDGED_TEST_KEEP=DIR ...             logs and data stay in DIR
//
// Each test's name is the claim. A node whose log tells of a panic or a data race fails the
// test that ran it, whatever else the test was about.
package test
