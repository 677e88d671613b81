package node

import (
	"fmt"
	"math"

	"edged/metadata"
	"edged/record"
)

// stamp applies a topic's rules for timestamps to a verified batch. appendTime is NoTimestamp where the
// records keep their own.
func (n *Node) stamp(t *metadata.Topic, b record.Batch) (appendTime int64, err error) {
	c := &t.Configs
	now := n.opts.Wall()
	if c.LogAppendTime {
		b.SetLogAppendTime(now.UnixMilli())
		n.clock.stamp(now)
		return now.UnixMilli(), nil
	}
	if c.TimestampBefore == metadata.NoTimestampLimit && c.TimestampAfter == metadata.NoTimestampLimit || !n.clock.believed() {
		return record.NoTimestamp, nil // a clock that is not trusted judges nobody
	}
	for r, err := range b.Records() {
		if err != nil {
			return record.NoTimestamp, err
		}
		if r.Timestamp == record.NoTimestamp {
			continue
		}
		// By subtraction from what is known to be positive: a client's timestamp may be anything.
		ms := now.UnixMilli()
		if r.Timestamp > ms && r.Timestamp-ms > c.TimestampAfter || r.Timestamp < ms && ms-max(r.Timestamp, 0) > c.TimestampBefore {
			return record.NoTimestamp, fmt.Errorf("a record of %d ms, the clock says %d, topic %q takes %d before and %d after that: %w",
				r.Timestamp, ms, t.Name, c.TimestampBefore, c.TimestampAfter, record.ErrInvalidTimestamp)
		}
	}
	return record.NoTimestamp, nil
}

// stampOf is the time of append that a batch in the log has, NoTimestamp if its records have their own.
func (n *Node) stampOf(g record.GroupID, base record.Offset) int64 {
	out, _, err := n.store.ReadFrom(g, base, math.MaxInt64, 1, nil)
	if err != nil || len(out) == 0 {
		return record.NoTimestamp
	}
	b, _, err := record.ParseBatch(out)
	if err != nil || !b.LogAppendTime() {
		return record.NoTimestamp
	}
	return b.MaxTimestamp()
}

// checkKeys keeps records without a key out of a compacted topic: there is nothing to keep the last one of.
func checkKeys(t *metadata.Topic, b record.Batch) error {
	if t.Configs.Cleanup == metadata.CleanupDelete {
		return nil
	}
	i := 0
	for r, err := range b.Records() {
		if err != nil {
			return err
		}
		if i++; r.Key == nil {
			return fmt.Errorf("%w: record %d of the batch has no key, and topic %q is compacted", record.ErrInvalidRequest, i, t.Name)
		}
	}
	return nil
}
