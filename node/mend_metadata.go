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
	"edged/transport/peer"
)

// A damaged copy of the metadata keeps its replica's id, which has only one attempt. So it begins anew only after the
// leader has taken it out of the Raft configuration and said so: no majority counts on it then, and when
// it is taken in again, as a learner, the leader knows nothing of what it had.

// readmitEvery is how often a node asks to be left out, and readmitFor how long the leader heeds that.
const (
	readmitEvery = 500 * time.Millisecond
	readmitFor   = 10 * time.Second
)

// readmission answers a node whose copy of the metadata is damaged.
type readmission struct {
	Out bool // the configuration does not contain it: it may begin anew
}

// lostCopies are the nodes whose copies of the metadata are damaged, as the metadata's leader
// has been told: at most one for each node of the cluster.
type lostCopies struct {
	mu    sync.Mutex
	asked map[record.NodeID]time.Time
}

func (l *lostCopies) add(id record.NodeID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked == nil {
		l.asked = map[record.NodeID]time.Time{}
	}
	l.asked[id] = time.Now()
}

func (l *lostCopies) remove(id record.NodeID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.asked, id)
}

// leaveOut takes their replicas out of what the metadata group is to be.
func (l *lostCopies) leaveOut(a *partition.Assignment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := func(r record.ReplicaID) bool {
		at, ok := l.asked[r.Node()]
		if ok && time.Since(at) > readmitFor {
			delete(l.asked, r.Node())
			ok = false
		}
		return ok
	}
	a.Voters, a.Learners = slices.DeleteFunc(a.Voters, lost), slices.DeleteFunc(a.Learners, lost)
}

// readmit is asked by a node whose copy of the metadata is damaged.
func (n *Node) readmit(from peer.Identity) (readmission, error) {
	h := n.host.Load()
	if h == nil || n.machine.Picture().Node(from.Node) == nil {
		return readmission{}, record.ErrNotReady
	}
	v := h.Partition(record.MetadataGroup).View()
	if v.Role != partition.RoleLeader || !v.Serving {
		return readmission{}, &record.NotLeaderError{Leader: v.Leader, Epoch: v.Epoch}
	}
	replica := metadata.MetadataReplica(from.Node)
	if slices.Contains(v.Voters, replica) || slices.Contains(v.Learners, replica) {
		n.lost.add(from.Node)
		n.wake()
		return readmission{}, nil
	}
	n.lost.remove(from.Node)
	n.wake() // it is taken in again as a learner
	return readmission{Out: true}, nil
}

// mendMetadata brings back a copy of the metadata that is damaged; more is true while that is under way.
func (r *reconciler) mendMetadata() (damaged, more bool) {
	n := r.n
	v := n.host.Load().Partition(record.MetadataGroup).View()
	if v.Role != partition.RoleDamaged {
		return false, false
	}
	if n.whyMetadataNotMended(v) != "" {
		return true, false
	}
	if time.Since(r.readmitAsked) < readmitEvery {
		return true, true
	}
	r.readmitAsked = time.Now()
	ctx, cancel := context.WithTimeout(n.ctx, askTimeout)
	defer cancel()
	self := n.ident.Get().Node
	for id := range n.up() { // one of them leads the metadata
		var answer readmission
		if id == self || n.call(ctx, id, opReadmit, struct{}{}, &answer) != nil || !answer.Out {
			continue
		}
		n.note(eventDisk, "the damaged copy of the metadata here is given up, to be fetched anew from the others")
		n.host.Load().Refill(&partition.RefillReplica{
			Group: record.MetadataGroup, Replica: metadata.MetadataReplica(self), Machine: partition.MetadataLog,
			Done: func(err error) {
				if err != nil {
					n.log.Error("the copy of the metadata could not begin anew", "err", err)
				}
				n.wake()
			},
		})
		break
	}
	return true, true
}

// whyMetadataNotMended says why a damaged copy of the metadata is not given up, "" if it is.
func (n *Node) whyMetadataNotMended(v *partition.View) string {
	switch {
	case errors.Is(v.Err, partition.ErrDiverged):
		return "it may be the only copy of what was decided; stop this node and move its data directory away once the others are well"
	case len(n.up()) == 1:
		return "no other node is connected; it is fetched anew by itself from the others. If there is no other node, restore a backup or start with an empty data directory"
	}
	return ""
}

// damagedMetadataText says of a damaged copy of the metadata what is wrong and what becomes of it, "" if it is well.
func (n *Node) damagedMetadataText(v *partition.View) string {
	if v.Role != partition.RoleDamaged {
		return ""
	}
	text := fmt.Sprintf("the copy of the metadata here is damaged and out of service: %v", inLine(v.Err))
	if why := n.whyMetadataNotMended(v); why != "" {
		return text + "; " + why
	}
	return text + "; it is fetched anew from the other nodes by itself when they have a leader"
}
