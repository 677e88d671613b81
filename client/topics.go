package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"edged/record"
	"edged/transport/wire"
)

// suspicion is how long a leader that could not be reached is not believed in again, when
// others still name it for the same epoch: they may not have noticed yet.
const suspicion = 500 * time.Millisecond

// maxAge is how old what we know of a topic may be before it is asked for again, when the
// topic is used: partitions may have been added.
const maxAge = time.Minute

// topic is what is known of a topic. The client's lock guards it, but for fetching.
type topic struct {
	name       string
	id         string // empty: not known yet
	old        string // an id that the name had before; who still names it is behind
	partitions []partition
	maxBatch   int // bytes of the largest batch that it takes; 0: not known
	fetched    time.Time
	fetching   chan struct{} // capacity 1: whoever fills it asks the cluster
}

// partition is what is known of where a partition is.
type partition struct {
	replicas []string // native addresses, those that are known
	leader   record.NodeID
	addr     string       // of the leader; empty: not known
	epoch    record.Epoch // the newest heard of; it never goes back while the topic id is the same
	suspect  time.Time    // until then addr is not believed in
}

// claim is what somebody said about who leads.
type claim struct {
	leader record.NodeID
	addr   string
	epoch  record.Epoch
}

// believe takes a claim unless it is older than what is known. It tells whether a leader
// is known afterwards that is worth asking.
func (p *partition) believe(cl claim, now time.Time) bool {
	switch {
	case cl.epoch < p.epoch:
	case cl.epoch == p.epoch && cl.leader == record.NoNode:
		// Leadership within an epoch has one holder; who does not know it tells us nothing.
	default:
		if cl.epoch > p.epoch || cl.addr != p.addr {
			p.suspect = time.Time{}
		}
		p.leader, p.addr, p.epoch = cl.leader, cl.addr, cl.epoch
	}
	return p.trusted(now)
}

func (p *partition) trusted(now time.Time) bool {
	return p.addr != "" && p.leader != record.NoNode && !now.Before(p.suspect)
}

// PartitionCount asks the cluster how many partitions a topic has, or remembers.
func (c *Client) PartitionCount(ctx context.Context, name string) (int32, error) {
	t, err := c.topic(ctx, name)
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return int32(len(t.partitions)), nil
}

// topic gives what is known of a topic and asks for it first if that is nothing or old.
func (c *Client) topic(ctx context.Context, name string) (*topic, error) {
	c.mu.Lock()
	t, ok := c.mu.topics[name]
	if !ok {
		t = &topic{name: name, fetching: make(chan struct{}, 1)}
		c.mu.topics[name] = t
	}
	known, old := t.id != "", time.Since(t.fetched) > maxAge
	c.mu.Unlock()
	if known && !old {
		return t, nil
	}
	select {
	case t.fetching <- struct{}{}:
		defer func() { <-t.fetching }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c.mu.Lock()
	known, old = t.id != "", time.Since(t.fetched) > maxAge
	c.mu.Unlock()
	if known && !old { // by somebody else, while we waited
		return t, nil
	}
	if known { // better old than late
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.attemptTimeout())
		defer cancel()
	}
	_, err := c.fetchTopic(ctx, name, "")
	if err != nil && !known {
		c.forgetTopic(t)
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t.fetched = time.Now() // also after a failure: what is known is used on
	return t, nil
}

func (c *Client) forgetTopic(t *topic) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.topics[t.name] == t && t.id == "" {
		delete(c.mu.topics, t.name)
	}
}

// fetchTopic asks for one topic, of this id if that is not empty. A node that does not know it may be
// behind, so the one that leads the metadata has the last word.
func (c *Client) fetchTopic(ctx context.Context, name, id string) (wire.Topic, error) {
	md, err := c.Metadata(ctx, []string{name})
	if err != nil {
		return wire.Topic{}, aboutTopic(name, err)
	}
	t, err := findTopic(md, name)
	if err != nil && !isUnknown(err) || err == nil && (id == "" || id == t.ID) {
		return t, err
	}
	for _, n := range md.Nodes {
		if n.ID != md.MetadataLeader || n.Native == "" {
			continue
		}
		var again wire.Metadata
		if c.attempt(ctx, n.Native, c.attemptTimeout(), wire.APIMetadata, &wire.MetadataRequest{Topics: []string{name}}, &again) == nil {
			t, err := findTopic(again, name)
			if err == nil && id != "" && id != t.ID {
				c.replace(name, id)
			}
			c.learnMetadata(again)
			return t, err
		}
	}
	return t, err
}

// topicID is what is known of a topic's id, empty if nothing.
func (c *Client) topicID(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.mu.topics[name]; t != nil {
		return t.id
	}
	return ""
}

// unlearn forgets what is known of a topic that is gone: what is made under its name is another one.
func (c *Client) unlearn(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.mu.topics[name]; t != nil {
		t.id, t.partitions = "", nil
	}
}

// batchBytes is how large a batch for the topic may grow: want, or what the topic takes if that is less.
func (c *Client) batchBytes(name string, want int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.mu.topics[name]; t != nil && t.maxBatch > 0 {
		return min(want, t.maxBatch)
	}
	return want
}

// replace notes that the name has another topic now than the one of this id.
func (c *Client) replace(name, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.mu.topics[name]; t != nil {
		t.old = id
	}
}

// replaced is an error if the topic of this id is known to be gone.
func (c *Client) replaced(name, id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.mu.topics[name]; t != nil && id != "" && t.old == id {
		return fmt.Errorf("topic %q: %w", name, record.ErrUnknownTopicID)
	}
	return nil
}

// findTopic gives a topic that was asked for, or what is wrong with it.
func findTopic(md wire.Metadata, name string) (wire.Topic, error) {
	err := error(record.ErrUnknownTopic)
	for _, t := range md.Topics {
		if t.Name != name {
			continue
		}
		if t.Err == nil && len(t.Partitions) > 0 {
			return t, nil
		}
		if t.Err != nil {
			err = t.Err
		}
	}
	return wire.Topic{}, aboutTopic(name, err)
}

// aboutTopic says which topic an error is about, unless it does so itself.
func aboutTopic(name string, err error) error {
	if strings.HasPrefix(err.Error(), "topic ") {
		return err
	}
	return fmt.Errorf("topic %q: %w", name, err)
}

func isUnknown(err error) bool {
	return errors.Is(err, record.ErrUnknownTopic) || errors.Is(err, record.ErrUnknownTopicID) || errors.Is(err, record.ErrUnknownPartition)
}

// learnMetadata takes over addresses and leaders. Of topics only those are kept that
// somebody uses.
func (c *Client) learnMetadata(md wire.Metadata) {
	addrs := make(map[record.NodeID]string, len(md.Nodes))
	for _, n := range md.Nodes {
		addrs[n.ID] = n.Native
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resetLocked(md.Nodes)
	for _, mt := range md.Topics {
		if t := c.mu.topics[mt.Name]; t != nil && mt.Err == nil && len(mt.Partitions) > 0 {
			t.learn(mt, addrs)
		}
	}
}

// learn takes over what a node knows of the topic.
func (t *topic) learn(mt wire.Topic, addrs map[record.NodeID]string) {
	if mt.ID == t.old && t.old != "" {
		return
	}
	if t.id != mt.ID { // another topic under an old name: its epochs begin anew
		t.id, t.partitions = mt.ID, nil
	}
	t.fetched = time.Now()
	t.maxBatch, _ = strconv.Atoi(mt.Configs["max.message.bytes"])
	slices.SortFunc(mt.Partitions, func(a, b wire.Partition) int { return cmp.Compare(a.Partition, b.Partition) })
	for _, mp := range mt.Partitions {
		if mp.Partition < 0 || int(mp.Partition) > len(t.partitions) {
			return // they are numbered from 0 without gaps; what is not is not understood
		}
		if int(mp.Partition) == len(t.partitions) {
			t.partitions = append(t.partitions, partition{leader: record.NoNode, epoch: record.NoEpoch})
		}
		p := &t.partitions[mp.Partition]
		p.replicas = p.replicas[:0]
		for _, id := range mp.Replicas {
			if addr := addrs[id]; addr != "" {
				p.replicas = append(p.replicas, addr)
			}
		}
		addr := mp.LeaderAddr
		if addr == "" {
			addr = addrs[mp.Leader]
		}
		p.believe(claim{mp.Leader, addr, mp.Epoch}, t.fetched)
	}
}

// withPartition runs f on what is known of the partition, if it is.
func (c *Client) withPartition(tp record.TopicPartition, f func(p *partition)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.mu.topics[tp.Topic]
	if t == nil || tp.Partition < 0 || int(tp.Partition) >= len(t.partitions) {
		return false
	}
	f(&t.partitions[tp.Partition])
	return true
}

// believe takes a claim about who leads the partition.
func (c *Client) believe(tp record.TopicPartition, cl claim) (trusted bool) {
	c.withPartition(tp, func(p *partition) {
		trusted = p.believe(cl, time.Now())
	})
	if trusted && cl.addr != "" {
		c.mu.Lock()
		c.rememberLocked(cl.addr)
		c.mu.Unlock()
	}
	return trusted
}

// newest is the newest epoch of the partition that was heard of: by the caller, or from the cluster.
func (c *Client) newest(tp record.TopicPartition, heard record.Epoch) record.Epoch {
	c.withPartition(tp, func(p *partition) { heard = max(heard, p.epoch) })
	return heard
}

// distrust notes that the node at addr was of no use as the leader.
func (c *Client) distrust(tp record.TopicPartition, addr string) {
	c.withPartition(tp, func(p *partition) {
		if p.addr == addr {
			p.suspect = time.Now().Add(suspicion)
		}
	})
}
