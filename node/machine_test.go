package node

import (
	"testing"
)

// A base record brings the metadata of a later entry than the last one applied here, and does not say of which:
// state and entry must not be told together then, or two nodes would seem to differ.
func TestMachine_afterABaseRecordItsEntryIsNotKnown(t *testing.T) {
	m := newMachine()
	m.Apply(7, nil)
	if got := m.applied.Load(); got != 7 {
		t.Fatalf("the last entry is %d", got)
	}
	if err := m.Restore(newMachine().Snapshot()); err != nil {
		t.Fatal(err)
	}
	if got := m.applied.Load(); got != 0 {
		t.Errorf("after a base record the last entry is %d", got)
	}
}
