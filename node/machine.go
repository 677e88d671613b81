package node

import (
	"sync/atomic"

	"edged/metadata"
)

// machine is the metadata as the Core runs it, with a bell: reconcile hears that it has changed.
type machine struct {
	*metadata.Cluster
	applied  atomic.Int64 // the last command's entry; 0 while that is not known: none came since a base record
	onChange func()       // set before the Core starts
}

func newMachine() *machine { return &machine{Cluster: metadata.New(), onChange: func() {}} }

// Apply takes one committed command.
func (m *machine) Apply(index uint64, data []byte) any {
	before := m.Picture()
	result := m.Cluster.Apply(index, data)
	m.applied.Store(int64(index))
	if m.Picture() != before {
		m.onChange()
	}
	return result
}

// Restore replaces the state by one that another node sent or this one had stored.
func (m *machine) Restore(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	if err := m.Cluster.Restore(data); err != nil {
		return err
	}
	m.applied.Store(0)
	m.onChange()
	return nil
}
