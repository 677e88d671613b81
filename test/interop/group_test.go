//go:build linux

package interop

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"edged/test/interop/driver"
)

const groupPartitions = 6

// groupShares has three consumers share a topic, lets a fourth join and the first leave, and looks
// that every record was read and that the committed offsets are the ends.
func (j *judge) groupShares(t *testing.T, c *cluster) string {
	c.t = t
	c.createTopic("shared", groupPartitions)
	all := c.bootstrap(nil)
	p := j.produce(t, all, "shared", driver.Default, "default", "g")
	var sent []string
	const part = 300
	p.send(part)
	var members []*program
	join := func() { members = append(members, j.run(t, "consume", all, "shared", "sharing")) }
	join()
	join()
	join()
	c.awaitMembers("sharing", "shared", 3)
	p.send(part)
	join()
	c.awaitMembers("sharing", "shared", 4)
	p.send(part)
	if j.leavesIdle {
		p.allAcked()
		sent = p.sent
		if err := awaitConsumed(sent, members...); err != nil {
			t.Fatal(err)
		}
		p = j.produce(t, all, "shared", driver.Default, "default", "h")
	}
	members[0].finish()
	c.awaitMembers("sharing", "shared", 3)
	p.send(part)
	p.allAcked()
	sent = append(sent, p.sent...)
	if err := awaitConsumed(sent, members...); err != nil {
		t.Fatal(err)
	}
	for _, m := range members[1:] {
		m.alive()
		m.finish()
	}
	c.committed("sharing", "shared")
	twice := 0
	for _, times := range consumed(members...) {
		twice += times - 1
	}
	for _, m := range members {
		j.judgeErrors(t, m)
	}
	return fmt.Sprintf("3, 4, 3 members, %d records, %d read twice", len(sent), twice)
}

// judgeErrors fails for what a consumer's application was told and would not have been told by Kafka.
func (j *judge) judgeErrors(t *testing.T, p *program) {
	t.Helper()
	for _, e := range p.errors {
		if !tolerated(e, append(slices.Clone(lostConnection), j.tolerated...)) {
			t.Errorf("%s: the application was told: %s", p.what, e)
		}
	}
}

// awaitMembers waits until the group is stable with so many members, which share all partitions, each
// owned by one.
func (c *cluster) awaitMembers(group, topic string, members int) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("%d members share %s", members, topic), func() error {
		ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
		defer cancel()
		all, err := c.adm.DescribeGroups(ctx, group)
		if err != nil {
			return err
		}
		g := all[group]
		if g.Err != nil {
			return g.Err
		}
		if g.State != "Stable" || len(g.Members) != members {
			return fmt.Errorf("the group is %s with %d members", g.State, len(g.Members))
		}
		var owned []int32
		for _, m := range g.Members {
			own, ok := m.Assigned.AsConsumer()
			if !ok {
				return fmt.Errorf("member %s has no assignment of a consumer", m.MemberID)
			}
			n := 0
			for _, t := range own.Topics {
				if t.Topic == topic {
					owned = append(owned, t.Partitions...)
					n += len(t.Partitions)
				}
			}
			if n == 0 {
				return fmt.Errorf("member %s owns nothing", m.MemberID)
			}
		}
		slices.Sort(owned)
		if len(owned) != groupPartitions || len(slices.Compact(owned)) != groupPartitions {
			return fmt.Errorf("the members own %v", owned)
		}
		return nil
	})
}

// committed looks that a group that has ended committed the end of each partition that has records.
func (c *cluster) committed(group, topic string) {
	c.t.Helper()
	ends := c.ends(topic)
	eventually(c.t, "committed offsets", func() error {
		ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
		defer cancel()
		got, err := c.adm.FetchOffsets(ctx, group)
		if err != nil {
			return err
		}
		for p, end := range ends {
			o, ok := got.Lookup(topic, p)
			if end > 0 && (!ok || o.At != end) {
				return fmt.Errorf("partition %d: committed is %d (%v), the end is %d", p, o.At, ok, end)
			}
		}
		all, err := c.adm.DescribeGroups(ctx, group)
		if err != nil {
			return err
		}
		if g := all[group]; g.State != "Empty" {
			return fmt.Errorf("the group is %s with %d members", g.State, len(g.Members))
		}
		return nil
	})
}

// coordinator is the node that coordinates a group.
func (c *cluster) coordinator(group string) *node {
	c.t.Helper()
	var id int32
	eventually(c.t, "the coordinator of "+group, func() error {
		ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
		defer cancel()
		all := c.adm.FindGroupCoordinators(ctx, group)
		id = all[group].NodeID
		return all[group].Err
	})
	return c.byID(id)
}
