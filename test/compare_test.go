//go:build linux

package test

import (
	"bytes"
	"testing"

	"edged/record"
	"edged/storage"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// stopAndVerify stops all nodes and looks at their disks: every law of what is stored holds.
func (c *cluster) stopAndVerify() {
	c.t.Helper()
	for _, n := range c.nodes {
		n.stop()
	}
	for _, n := range c.nodes {
		rep, err := storage.Verify(vfs.Default, n.data)
		if err != nil {
			c.t.Fatalf("%s: %v", n.name, err)
		}
		for _, p := range rep.Problems {
			c.t.Errorf("%s: %s", n.name, p)
		}
	}
}

// stopAndCompare is stopAndVerify, and all replicas of a group hold the same bytes as far as
// they are committed.
func (c *cluster) stopAndCompare() {
	c.t.Helper()
	c.stopAndVerify()
	var stores []*storage.Store
	for _, n := range c.nodes {
		s, err := storage.Open(n.data, vfs.Default, storage.Options{ReadOnly: true})
		if err != nil {
			c.t.Fatalf("%s: %v", n.name, err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				c.t.Error(err)
			}
		}()
		stores = append(stores, s)
	}
	compared := 0
	for _, g := range stores[0].Groups() {
		compared += compareGroup(c.t, g.Group, stores)
	}
	if compared == 0 {
		c.t.Error("there was nothing to compare")
	}
}

// compareGroup compares the replicas of a group, between the latest beginning and the earliest end
// of what each knows to be committed. It gives the number of bytes that were compared.
func compareGroup(t testing.TB, id record.GroupID, stores []*storage.Store) (compared int) {
	t.Helper()
	var held []*storage.Store
	from, end := record.Offset(0), record.Offset(1<<62)
	for _, s := range stores {
		if st, ok := s.State(id); ok {
			held = append(held, s)
			from, end = max(from, st.Base.LogStart), min(end, st.Checkpoint.NextOffset)
		}
	}
	if len(held) < 2 {
		return 0
	}
	want := contents(t, held[0], id, from, end)
	for _, s := range held[1:] {
		if got := contents(t, s, id, from, end); !bytes.Equal(got, want) {
			t.Errorf("group %d: the replicas differ between the offsets %d and %d: %d and %d bytes", id, from, end, len(want), len(got))
		}
	}
	return len(want)
}

func contents(t testing.TB, s *storage.Store, id record.GroupID, from, end record.Offset) (all []byte) {
	t.Helper()
	for from < end {
		var err error
		if all, from, err = s.ReadFrom(id, from, end, 1<<20, all); err != nil {
			t.Fatalf("group %d: %v", id, err)
		}
	}
	return all
}
