package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"edged/partition"
	"edged/record"
	"edged/storage"
	"edged/transport/wire"
)

// Bounds of what may take how long after the last fault, in virtual time.
const (
	formWithin   = 30 * time.Second
	liveWithin   = 20 * time.Second
	settleWithin = 60 * time.Second
)

// await looks every 20 ms until ok, and says whether that came within the limit.
func (w *world) await(limit time.Duration, ok func() bool) bool {
	for end := time.Now().Add(limit); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) || w.over() {
			return false
		}
	}
	return true
}

// alive checks that every partition takes a record soon.
func (w *world) alive() {
	began := time.Now()
	for i, p := range w.hist.parts() {
		pr := &producer{router: newRouter(w, 9000+i), name: "last", part: p, acks: wire.AcksAll, pid: -1}
		for !pr.identify() {
			if time.Since(began) > w.liveWithin {
				w.fail(lawLive, "nobody gives a producer id %v after the last fault", w.liveWithin)
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		s := w.hist.begin(p, pr.name, pr.pid, 0, 1, 0, wire.AcksAll)
		for {
			err := errGone
			if l := pr.pick(); l != nil {
				res := <-pr.send(l, s)
				if err = res.Err; err == nil {
					w.hist.ack(s, res)
					break
				}
				pr.learn(err)
			}
			if time.Since(began) > w.liveWithin {
				w.fail(lawLive, "%s takes no record %v after the last fault: %v", p, w.liveWithin, err)
				return
			}
			if w.over() {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// replica is one copy of a partition on a running node.
type replica struct {
	l *life
	v *partition.View
	p *partition.Partition
}

// replicas are the copies of a partition, and its group, as the newest picture of the metadata has them.
func (w *world) replicas(p *part) (g record.GroupID, rs []replica) {
	for _, l := range w.lives() {
		t := l.n.Picture().Topic(p.topic.name)
		if t == nil || int(p.number) >= len(t.Partitions) {
			continue
		}
		g = t.Partitions[p.number].Group
	}
	for _, l := range w.lives() {
		h := l.n.Host()
		if g == 0 || h == nil || l.fake {
			continue
		}
		if pp := h.Lookup(g); pp != nil && pp.View().Role != partition.RoleNone {
			rs = append(rs, replica{l, pp.View(), pp})
		}
	}
	return g, rs
}

// committed checks that a high watermark that somebody was shown is held by a majority. Nodes that are
// off count as holding it: their disks cannot be asked.
func (w *world) committed(p *part, who string, high record.Offset) {
	g, rs := w.replicas(p)
	behind := map[record.ReplicaID]record.Offset{}
	var voters []record.ReplicaID
	var newest record.Epoch
	for _, r := range rs {
		if r.v.Serving && r.v.Epoch >= newest {
			newest, voters = r.v.Epoch, r.v.Voters
		}
		if _, _, next, ok := r.l.n.Store().Bounds(g); ok && next < high {
			behind[r.v.Replica] = next
		}
	}
	lacking := 0
	for _, v := range voters {
		if _, lacks := behind[v]; lacks {
			lacking++
		}
	}
	if w.hist.steady(p, fmt.Sprint(voters)) && len(voters) > 0 && lacking > len(voters)-len(voters)/2-1 {
		w.fail(lawCommitted, "%s was shown the high watermark %d of %s, which ends at %v on the disks of %d of %d voters", who, high, p, behind, lacking, len(voters))
	}
}

// settled tells whether all copies of a partition agree on where they are.
func (w *world) settled(p *part) bool {
	g, rs := w.replicas(p)
	if len(rs) == 0 {
		return false
	}
	rs = slices.DeleteFunc(rs, func(r replica) bool { return r.v.Role == partition.RoleDamaged })
	for _, r := range rs {
		if _, _, next, ok := r.l.n.Store().Bounds(g); !ok || next < r.p.HighWatermark() {
			return false // its disk is not as far yet
		}
		if r.v.Leader == record.NoNode || r.v.Epoch != rs[0].v.Epoch || r.p.HighWatermark() != rs[0].p.HighWatermark() || r.p.LogStart() != rs[0].p.LogStart() {
			return false
		}
	}
	return true
}

// checkReplicas compares all copies of all partitions, with each other and with what was promised.
func (w *world) checkReplicas() {
	for _, p := range w.hist.parts() {
		if !w.await(settleWithin, func() bool { return w.settled(p) }) {
			g, rs := w.replicas(p)
			for _, r := range rs {
				w.story.tell(r.l.m.name, "group %d (%s): %v, epoch %d, leader %s, log start %d, high watermark %d, voters %v", g, p, r.v.Role, r.v.Epoch, w.name(r.v.Leader), r.p.LogStart(), r.p.HighWatermark(), r.v.Voters)
			}
			w.fail(lawEqualLogs, "the copies of %s do not agree %v after the last fault", p, settleWithin)
			return
		}
		g, rs := w.replicas(p)
		w.checkStates(p, g, rs)
		for _, r := range rs {
			if r.v.Role == partition.RoleDamaged && p.topic.relaxed {
				continue // it holds what the others have lost, as the topic's setting allows
			}
			if r.v.Role == partition.RoleDamaged {
				w.fail(lawHealthy, "%s: its replica of %s: %v", r.l.m.name, p, r.v.Err)
				return
			}
			w.checkCopy(p, g, r)
		}
	}
}

// checkStates compares what the copies know of producers. It waits until all have applied as much.
func (w *world) checkStates(p *part, g record.GroupID, rs []replica) {
	type state struct {
		index uint64
		bytes string
	}
	var states map[string]state
	equal := func() bool {
		states = map[string]state{}
		var first *state
		same := true
		for _, r := range rs {
			var s state
			taken := false
			r.l.n.Host().Inspect(func(c *partition.Core) {
				index, b, ok := c.StateOf(g)
				s, taken = state{index, string(b)}, ok
			})
			if !taken {
				continue // damaged, which others judge
			}
			states[r.l.m.name] = s
			if first == nil {
				first = &s
			}
			same = same && s.index == first.index
		}
		return same
	}
	if !w.await(settleWithin, equal) {
		w.fail(lawEqualLogs, "the copies of %s have not applied as much %v after the last fault: %v", p, settleWithin, states)
		return
	}
	byIndex := map[uint64]string{}
	for name, s := range states {
		if other, seen := byIndex[s.index]; seen && other != s.bytes {
			w.fail(lawEqualStates, "%s knows other producers of %s at entry %d than others do", name, p, s.index)
			return
		}
		byIndex[s.index] = s.bytes
	}
}

// checkCopy reads one copy from its disk, offset by offset.
func (w *world) checkCopy(p *part, g record.GroupID, r replica) {
	who := "the disk of " + r.l.m.name
	start, high := r.p.LogStart(), r.p.HighWatermark()
	if start > 0 && !p.topic.retention {
		w.fail(lawStart, "%s: the log of %s starts at %d", who, p, start)
		return
	}
	at := map[string]record.Offset{}
	last := map[int64]int32{}
	var bytes int64
	for next := start; next < high; {
		out, _, err := r.l.n.Store().ReadFrom(g, next, high, 64<<10, nil)
		if err != nil || len(out) == 0 {
			w.fail(lawEqualLogs, "%s: %s cannot be read at offset %d of %d: %v", who, p, next, high, err)
			return
		}
		for b, err := range record.SplitBatches(out) {
			if err != nil {
				w.fail(lawHealthy, "%s: %s at offset %d: %v", who, p, next, err)
				return
			}
			if next > start && b.BaseOffset() != next {
				w.fail(lawDense, "%s: %s has offset %d where %d should follow", who, p, b.BaseOffset(), next)
				return
			}
			next = b.BaseOffset() + record.Offset(b.Span())
			bytes += int64(b.Length())
			if pid := b.ProducerID(); pid >= 0 {
				if seq, ok := last[pid]; ok && b.BaseSequence() != seq {
					w.fail(lawOrder, "%s: %s at offset %d: producer %d has sequence %d where %d should follow", who, p, b.BaseOffset(), pid, b.BaseSequence(), seq)
				}
				last[pid] = b.BaseSequence() + b.Span()
			}
			for rec, err := range b.Records() {
				if err != nil {
					w.fail(lawHealthy, "%s: %s at offset %d: %v", who, p, next, err)
					return
				}
				v := string(rec.Value)
				if o, twice := at[v]; twice {
					w.fail(lawNoDuplicate, "%s: %s has %s at offsets %d and %d", who, p, short(v), o, rec.Offset)
					return
				}
				at[v] = rec.Offset
				w.hist.got(p, who, rec.Offset, v)
			}
		}
	}
	w.checkPromises(p, who, start, at)
	if p.topic.keepBytes > 0 && start > 0 && bytes < p.topic.keepBytes {
		w.fail(lawStart, "%s: %s keeps %d bytes, %d were to be kept", who, p, bytes, p.topic.keepBytes)
	}
}

// checkPromises looks for every acknowledged batch in a copy.
func (w *world) checkPromises(p *part, who string, start record.Offset, at map[string]record.Offset) {
	w.hist.mu.Lock()
	defer w.hist.mu.Unlock()
	for _, s := range p.ops {
		if !s.strong {
			continue
		}
		for i, v := range s.values {
			o, there := at[v]
			if want := s.offset + record.Offset(i); want >= start && (!there || o != want) {
				w.fail(lawAckedKept, "%s has %s not at offset %d (there: %v, at %d): %v", who, short(v), want, there, o, s)
				return
			}
		}
	}
}

// checkMetadata compares the cluster's state machine on all nodes.
func (w *world) checkMetadata() {
	if w.await(settleWithin, func() bool {
		var first []byte
		for i, l := range w.lives() {
			_, state, ok := l.n.MetadataState()
			if i == 0 {
				first = state
			}
			if !ok || !bytes.Equal(state, first) {
				return false
			}
		}
		return true
	}) {
		return
	}
	for _, l := range w.lives() {
		index, state, member := l.n.MetadataState()
		w.story.tell(l.m.name, "metadata at entry %d, %d bytes, member %v", index, len(state), member)
	}
	w.fail(lawEqualStates, "the metadata did not become the same on all nodes within %v", settleWithin)
}

// sameMetadata compares what nodes have applied up to the same entry, while the run goes on.
func (w *world) sameMetadata() {
	for _, l := range w.lives() {
		if l.still.Load() != nil {
			continue
		}
		index, state, ok := l.n.MetadataState()
		if !ok || index == 0 { // 0 also after a base record
			continue
		}
		if other, seen := w.states[index]; seen && other != string(state) {
			w.fail(lawEqualStates, "the metadata at entry %d of %s is not what others had there", index, l.m.name)
		}
		w.states[index] = string(state)
	}
}

// undamaged looks for replicas out of service: no disk of a run forgets or changes what it has confirmed, but for those
// that the script takes away again before anybody looks (flipBit), calls rotten, or gives to a node that has to end. A relaxed topic's
// replica may hold what the others have lost.
func (w *world) undamaged() {
	for _, l := range w.lives() {
		h := l.n.Host()
		if h == nil || l.fake || l.m.rotten {
			continue
		}
		if v := h.Partition(record.MetadataGroup).View(); v.Role == partition.RoleDamaged {
			w.fail(lawHealthy, "%s: its copy of the metadata: %v", l.m.name, v.Err)
		}
		for _, p := range w.hist.parts() {
			t := l.n.Picture().Topic(p.topic.name)
			if t == nil || int(p.number) >= len(t.Partitions) || p.topic.relaxed {
				continue
			}
			if pp := h.Lookup(t.Partitions[p.number].Group); pp != nil && pp.View().Role == partition.RoleDamaged {
				w.fail(lawHealthy, "%s: its replica of %s: %v", l.m.name, p, pp.View().Err)
			}
		}
	}
}

// checkDisks stops every node and checks what is stored.
func (w *world) checkDisks() {
	for _, m := range w.machines {
		if m.life == nil {
			continue
		}
		if err := m.shutDown(); err != nil {
			w.fail(lawRuns, "%s stopped with: %v", m.name, err)
			return
		}
		report, err := storage.Verify(m.mem, dataDir)
		if err == nil {
			err = reportError(report)
		}
		if err != nil {
			w.fail(lawHealthy, "the stored data of %s: %v", m.name, err)
			return
		}
	}
}

// createTopic makes a topic that the run cannot do without.
func (w *world) createTopic(t *topic, partitions int, replication int16, configs map[string]string) {
	if !w.tryCreateWith(t, partitions, replication, configs, 8000, formWithin) && !w.over() {
		w.fail(lawLive, "topic %s cannot be made", t.name)
	}
}

func (w *world) tryCreate(t *topic, partitions, client int, within time.Duration) bool {
	return w.tryCreateWith(t, partitions, 0, nil, client, within)
}

// tryCreateWith makes a topic through any node, until one says that it is there.
func (w *world) tryCreateWith(t *topic, partitions int, replication int16, configs map[string]string, client int, within time.Duration) bool {
	r := newRouter(w, client)
	for end := time.Now().Add(within); time.Now().Before(end) && !w.over(); time.Sleep(50 * time.Millisecond) {
		l := r.pick()
		if l == nil {
			continue
		}
		err, ok := ask(l, 5*time.Second, func(ctx context.Context, b wire.Broker) error {
			_, err := b.CreateTopic(ctx, wire.CreateTopicRequest{Name: t.name, Partitions: int32(partitions), Replication: replication, Configs: configs})
			return err
		})
		if ok && (err == nil || errors.Is(err, record.ErrTopicExists)) {
			w.story.tell("script", "topic %s is made", t.name)
			w.hist.addTopic(t, partitions)
			return true
		}
		w.story.tell("script", "topic %s: %v", t.name, err)
		r.leader = record.NoNode
	}
	return false
}

// observe looks at what every node says of itself, between two steps.
func (w *world) observe() {
	clusters := w.clusters
	for _, l := range w.lives() {
		if id := l.n.Identity().Cluster; !id.IsZero() {
			clusters[id] = l.m.name
		}
		if ended(l) && !l.m.clone && l.n.Failure() == nil {
			w.fail(lawRuns, "%s ended: %v", l.m.name, l.err)
		}
		for _, c := range l.n.LeaderChanges() {
			w.hist.led(l.m.name, c.Group, c.Epoch, c.Leader)
		}
	}
	w.sameMetadata()
	w.undamaged()
	if len(clusters) > 1 {
		w.fail(lawOneCluster, "the nodes are, or were, of %d clusters: %v", len(clusters), clusters)
	}
}

func reportError(r storage.Report) error {
	if len(r.Problems) == 0 {
		return nil
	}
	return errors.New(r.Problems[0])
}
