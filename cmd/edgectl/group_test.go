package main

import (
	"errors"
	"strings"
	"testing"

	"edged/client"
	"edged/record"
	"edged/transport/wire"
)

// A list of groups that some coordinators are missing from is an error, not a short list.
func TestCoordinatorsMissing(t *testing.T) {
	addr, stop := serveFake(t)
	defer stop()
	c, err := client.New(client.Config{Nodes: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	cl := c.Admin()
	if err := coordinatorsMissing(t.Context(), cl); err != nil {
		t.Errorf("before the first group: %v", err)
	}
	if _, err := cl.CreateTopic(t.Context(), wire.CreateTopicRequest{Name: groupsTopic, Partitions: 4}); err != nil {
		t.Fatal(err)
	}
	err = coordinatorsMissing(t.Context(), cl)
	if !errors.Is(err, record.ErrNoCoordinator) || !strings.Contains(err.Error(), "1 of the 4 partitions") || exitCode(err) != exitUnreachable {
		t.Errorf("%v, exit code %d", err, exitCode(err))
	}
}
