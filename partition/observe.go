package partition

import "edged/record"

// StateOf gives a group's state machine, or a data partition's producer table, as bytes, and the
// index of the last entry that is in it. Replicas of a group have equal bytes at an equal index. It is for
// tests and the simulator, within Inspect.
func (c *Core) StateOf(id record.GroupID) (applied uint64, state []byte, ok bool) {
	g := c.find(id)
	if g == nil || g.damaged != nil {
		return 0, nil, false
	}
	return g.applied, g.stateBytes(), true
}
