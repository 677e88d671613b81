package metadata

import (
	"fmt"

	"edged/record"
)

// GroupsTopic is the topic whose partitions are the logs of the coordinators of consumer groups. It is
// the cluster's own: no client reads or writes it, and it is made when the first group is looked for.
const GroupsTopic = "__groups"

// GroupsPartitions is how many coordinators a new cluster has. A group is found by a hash over this
// count, so it does not change in the life of a cluster.
const GroupsPartitions = 8

// groupsClass is the retention class of what the cluster keeps for itself beside the metadata. Its
// logs are cut short by snapshots, which has nothing to do with the retention of records.
const groupsClass = 6

// Internal tells that the topic is the cluster's own.
func (t *Topic) Internal() bool { return t.Name == GroupsTopic }

// class is the retention class of a new topic.
func (t *Topic) class() uint8 {
	if t.Internal() {
		return groupsClass
	}
	return t.Configs.retentionClass()
}

// notInternal keeps the cluster's own topics from being deleted or made longer.
func (t *Topic) notInternal() error {
	if t.Internal() {
		return fmt.Errorf("topic %s is the cluster's own, it keeps the consumer groups: %w", t.Name, record.ErrRefused)
	}
	return nil
}
