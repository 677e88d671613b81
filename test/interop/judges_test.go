//go:build linux

package interop

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"edged/test/interop/driver"
)

// judge is one client and what it promises.
type judge struct {
	name    string
	install func(*testing.T, *judge) // sets argv, or fails
	codecs  []string
	modes   []mode // of the producers that meet a failure
	// alone tells that it can consume without a group.
	alone bool
	// leavesIdle tells that it loses records of its own if it ends while there are any.
	leavesIdle bool
	// tolerated are errors that the application gets from Kafka in the same place, beside lostConnection.
	tolerated []string

	argv    []string
	dir     string
	version string
}

// mode is a way of producing and what the client promises in it.
type mode struct {
	name    string
	ordered bool // the records of a key stay in order, come what may
	once    bool // and none is there twice
}

var (
	allCodecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}
	exactly   = func(name string) mode { return mode{name: name, ordered: true, once: true} }
)

var judges = []*judge{
	// librdkafka has any number of requests in flight by default and says that it may reorder.
	// On its end kcat drops what it has just polled and commits it.
	{name: "kcat", install: withKcat, codecs: allCodecs, alone: true, leavesIdle: true,
		modes: []mode{{name: driver.Default}, exactly(driver.Idempotent)}},
	{name: "kgo", install: inGo, codecs: allCodecs, alone: true,
		modes: []mode{exactly(driver.Default), {name: driver.All}}},
	// acks=1 is sarama's default and may lose, so where a leader dies it asks for all. It has five
	// requests in flight and says that it may reorder.
	{name: "sarama", install: inGo, codecs: allCodecs, alone: true,
		modes: []mode{{name: driver.All}, exactly(driver.Idempotent)}},
	{name: "kafka-go", install: inGo, codecs: allCodecs,
		modes: []mode{{name: driver.All, ordered: true}}},
	{name: "kafkajs", install: inNode, codecs: allCodecs,
		modes: []mode{{name: driver.Default, ordered: true}, exactly(driver.Idempotent)}},
	// acks=1 is the default of the next one and of aiokafka.
	{name: "platformatic", install: inNode, codecs: allCodecs, tolerated: []string{"fetch failed 4 times", "Cannot find broker with node id"},
		modes: []mode{{name: driver.All, ordered: true}, exactly(driver.Idempotent)}},
	{name: "confluent", install: inPython, codecs: allCodecs,
		modes: []mode{{name: driver.Default}, exactly(driver.Idempotent)}},
	{name: "aiokafka", install: inPython, codecs: allCodecs, alone: true,
		modes: []mode{{name: driver.All, ordered: true}, exactly(driver.Idempotent)}},
	{name: "kafka-python", install: inPython, codecs: allCodecs, alone: true,
		modes: []mode{exactly(driver.Default), {name: driver.All}}},
	{name: "java", install: inJava, codecs: allCodecs, alone: true,
		modes: []mode{exactly(driver.Default)}},
}

// lostConnection is what consumers tell their application of a connection that ended with its node.
var lostConnection = []string{
	"EOF", "connection refused", "connection reset by peer", "broken pipe", "use of closed network connection", "broker not connected", "Closed connection", "ECONNREFUSED",
}

func TestJudges(t *testing.T) {
	chosen := strings.Fields(os.Getenv("JUDGES"))
	for _, name := range chosen {
		if name != javaTools && !slices.ContainsFunc(judges, func(j *judge) bool { return j.name == name }) {
			t.Errorf("no judge has the name %q", name)
		}
	}
	for _, j := range judges {
		if len(chosen) > 0 && !slices.Contains(chosen, j.name) {
			continue
		}
		t.Run(j.name, func(t *testing.T) {
			t.Parallel()
			row := newRow(t, j)
			j.install(t, j)
			j.version = j.ask(t)
			c := startCluster(t)
			row.run("codecs", func(t *testing.T) string { return j.codecsPass(t, c) })
			row.run("group", func(t *testing.T) string { return j.groupShares(t, c) })
			row.run("kill", func(t *testing.T) string { return j.leaderDies(t, c) })
		})
	}
}

func (j *judge) env() []string {
	env := []string{}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "EDGED_") {
			env = append(env, v)
		}
	}
	return env
}

// ask asks the driver for the client's version.
func (j *judge) ask(t *testing.T) string {
	cmd := exec.Command(j.argv[0], append(slices.Clone(j.argv[1:]), "version")...)
	cmd.Dir, cmd.Env = j.dir, j.env()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v version: %v", j.argv, err)
	}
	return strings.TrimSpace(string(out))
}
