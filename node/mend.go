package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"edged/metadata"
	"edged/partition"
	"edged/record"
	"edged/storage"
)

// A damaged replica is given up by its own node and fetched anew from the others: its partition's target
// loses it, the leader takes it out of the Raft configuration, a tombstone removes it here, and the plan gives
// the partition another one, under a new id. So nobody votes with what it has forgotten.
//
// mendPause is the time between two tries for one partition; it doubles up to mendPauseMax, because a
// card that spoils one copy may spoil the next. mendPatience is how long a step may take before the next damaged
// replica has its turn: the plan may have given the partition to nobody.
const (
	mendPause    = time.Minute
	mendPauseMax = time.Hour
	mendPatience = time.Minute
)

// mender gives up a node's damaged replicas, one at a time. It is the reconciler's.
type mender struct {
	turn  *mending
	tried map[record.GroupID]mendTries // at most one for each replica that was ever damaged in this life
}

// mending is the replica that is being replaced.
type mending struct {
	group record.GroupID
	old   record.ReplicaID
	name  string
	want  int // replicas that the partition had
	until time.Time
}

type mendTries struct {
	count int
	last  time.Time
}

// wait is how long the next try has to wait.
func (t mendTries) wait() time.Duration {
	if t.count == 0 {
		return 0
	}
	return min(mendPause<<min(t.count-1, 10), mendPauseMax) - time.Since(t.last)
}

// onDamaged hears from the Core that a replica of this node is out of service.
func (n *Node) onDamaged(g record.GroupID, _ record.ReplicaID, err error) {
	n.unnamed.tell(n, g, func(name string) {
		n.note(eventDisk, fmt.Sprintf("the replica of %s here is damaged and out of service: %v", name, inLine(err)))
	})
	if errors.Is(err, partition.ErrLostWrites) { // stays true of the card when the replica is whole again
		n.problems.add(partition.ErrLostWrites.Error() + ": after a power cut it had less than before; replace it")
	}
	n.wake()
}

// groupText is a group for people.
func (n *Node) groupText(g record.GroupID) string {
	if g == record.MetadataGroup {
		return "the metadata"
	}
	if at, ok := n.machine.Picture().Group(g); ok {
		return fmt.Sprintf("%s/%d", at.Topic.Name, at.Number)
	}
	return fmt.Sprintf("a partition that the metadata here does not name (%d)", g)
}

// noteCorruption makes an event of damage that the store has met.
func (n *Node) noteCorruption(e storage.Event) {
	var c *storage.CorruptError
	if !errors.As(e.Err, &c) {
		n.note(eventDisk, e.Text+": "+inLine(e.Err))
		return
	}
	n.unnamed.tell(n, c.Group, func(name string) { n.note(eventDisk, name+": "+inLine(c)) })
}

// unnamed is what is to be told of partitions whose names are not known yet: damage is met when the store is
// opened, and the metadata is read from it after that.
type unnamed struct {
	mu   sync.Mutex
	list []unnamedNote // at most maxUnnamed
}

type unnamedNote struct {
	group record.GroupID
	since time.Time
	tell  func(name string)
}

// Of a partition that stays without a name for unnamedFor is told without it.
const (
	maxUnnamed = 256
	unnamedFor = 10 * time.Second
)

// tell calls f with what people call the group, now or when that is known.
func (u *unnamed) tell(n *Node, g record.GroupID, f func(name string)) {
	u.mu.Lock()
	later := !n.named(g) && len(u.list) < maxUnnamed
	if later {
		u.list = append(u.list, unnamedNote{g, time.Now(), f})
	}
	u.mu.Unlock()
	if !later {
		f(n.groupText(g))
	}
}

// flush tells what has a name by now, or all; more is true if something is left.
func (u *unnamed) flush(n *Node, all bool) (more bool) {
	u.mu.Lock()
	var due []unnamedNote
	u.list = slices.DeleteFunc(u.list, func(l unnamedNote) bool {
		now := all || n.named(l.group) || time.Since(l.since) > unnamedFor
		if now {
			due = append(due, l)
		}
		return now
	})
	more = len(u.list) > 0
	u.mu.Unlock()
	for _, l := range due {
		l.tell(n.groupText(l.group))
	}
	return more
}

func (n *Node) named(g record.GroupID) bool {
	_, ok := n.machine.Picture().Group(g)
	return ok || g == record.MetadataGroup
}

// damage is what is wrong with the replica of a group here, nil if nothing is known to be. served tells that
// it still votes: reads have met damage that Raft did not need.
func (n *Node) damage(g record.GroupID) (err error, served bool) {
	part := n.host.Load().Lookup(g)
	if part == nil {
		return nil, false
	}
	if v := part.View(); v.Role == partition.RoleDamaged {
		return v.Err, false
	}
	return n.store.Damage(g), true
}

// mendAll brings back what is damaged here, the copy of the metadata first: what else is to be done is read from it.
func (r *reconciler) mendAll(p *metadata.Picture) (more bool) {
	if damaged, more := r.mendMetadata(); damaged {
		return more
	}
	return r.mend(p)
}

// mend takes the next step towards a node without damaged replicas; more is true while one is under way.
func (r *reconciler) mend(p *metadata.Picture) (more bool) {
	if r.mending(p) {
		return true
	}
	self := r.n.ident.Get().Node
	for _, held := range p.ReplicasOn(self) {
		err, served := r.n.damage(held.Partition.Group)
		if err == nil || held.Removing {
			continue
		}
		if r.n.whyNotMended(held, err, served) != "" || r.tried[held.Partition.Group].wait() > 0 {
			continue
		}
		return r.giveUp(held, err)
	}
	return false
}

// mending tells whether the replica whose turn it is has not been replaced yet.
func (r *reconciler) mending(p *metadata.Picture) bool {
	m := r.turn
	if m == nil {
		return false
	}
	at, ok := p.Group(m.group)
	if ok {
		on := slices.IndexFunc(at.Partition.Replicas, func(o record.ReplicaID) bool { return o.Node() == m.old.Node() })
		moving := len(at.Partition.Adding)+len(at.Partition.Removing) > 0
		switch {
		case on >= 0 && at.Partition.Replicas[on] == m.old: // our copy of the metadata has not heard of it
			if time.Now().Before(m.until) {
				return true
			}
		case moving:
			m.until = time.Now().Add(mendPatience)
			return true
		case on >= 0:
			r.n.noteWell(eventDisk, fmt.Sprintf("%s was fetched anew from the other replicas", m.name))
		case len(at.Partition.Replicas) >= m.want:
			r.n.noteWell(eventDisk, fmt.Sprintf("%s was given to another node", m.name))
		case time.Now().Before(m.until):
			return true
		}
	}
	r.turn = nil
	return false
}

// whyNotMended says why a damaged replica is not given up, "" if it is.
func (n *Node) whyNotMended(held metadata.Held, damage error, served bool) string {
	self := n.ident.Get().Node
	rest := slices.DeleteFunc(nodesOf(held.Partition.Replicas), func(id record.NodeID) bool { return id == self })
	up := n.up()
	live := 0
	for _, id := range rest {
		if up[id] {
			live++
		}
	}
	voters := len(rest) + 1
	if served { // it votes for its own end
		live++
	}
	leader, _ := n.leaderOf(held.Partition.Group, n.host.Load().Lookup(held.Partition.Group))
	switch {
	case len(rest) == 0:
		return "it is the only replica; copy what can be read with edgectl dump, then delete the topic and make it anew, or restore a backup; replication 3 keeps this from happening"
	case errors.Is(damage, partition.ErrDiverged):
		return "it may be the only copy of acknowledged records; compare it with edgectl dump before the data directory of this node is moved away"
	case len(rest) == 1 && !served:
		return "of two replicas both are needed to replace one; move the data directory of this node away and remove the node from the cluster, the other replica has all that was acknowledged"
	case live <= voters/2 || leader == record.NoNode:
		return "the other replicas have no majority without it; it is fetched anew by itself when they have"
	}
	return ""
}

// giveUp asks the metadata for a target without the replica.
func (r *reconciler) giveUp(held metadata.Held, damage error) (more bool) {
	n := r.n
	if len(held.Partition.Adding)+len(held.Partition.Removing) > 0 || n.metadataLeader() == record.NoNode {
		return true
	}
	g, self := held.Partition.Group, n.ident.Get().Node
	ctx, cancel := context.WithTimeout(n.ctx, askTimeout)
	defer cancel()
	nodes := slices.DeleteFunc(nodesOf(held.Partition.Replicas), func(id record.NodeID) bool { return id == self })
	if _, err := n.propose(ctx, &metadata.SetReplicas{Group: g, Nodes: nodes, Was: held.Partition.Replicas}); err != nil {
		n.log.Debug("a damaged replica is not given up yet", "group", g, "err", err)
		return true
	}
	if r.tried == nil {
		r.tried = map[record.GroupID]mendTries{}
	}
	r.tried[g] = mendTries{r.tried[g].count + 1, time.Now()}
	r.turn = &mending{group: g, old: held.Replica, name: n.groupText(g), want: len(held.Partition.Replicas), until: time.Now().Add(mendPatience)}
	n.note(eventDisk, fmt.Sprintf("the damaged replica of %s here is given up, to be fetched anew from the others: %v", r.turn.name, inLine(damage)))
	return true
}

// damagedText says of a damaged replica what is wrong and what becomes of it, "" if it is well.
func (n *Node) damagedText(held metadata.Held) string {
	err, served := n.damage(held.Partition.Group)
	if err == nil {
		return ""
	}
	state := "damaged and out of service"
	if served {
		state = "damaged in part"
	}
	text := fmt.Sprintf("%s/%d is %s: %v", held.Topic.Name, held.Number, state, inLine(err))
	if why := n.whyNotMended(held, err, served); why != "" {
		return text + "; " + why
	}
	return text + "; it is fetched anew from the other replicas by itself"
}
