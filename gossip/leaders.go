package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"

	"edged/record"
)

// Leader says who leads a group.
type Leader struct {
	Group  record.GroupID
	Leader record.NodeID // record.NoNode: nobody
	Epoch  record.Epoch
}

// newer tells that l replaces old: a later epoch, or the leader of an epoch that had none yet.
func (l Leader) newer(old Leader) bool {
	return l.Epoch > old.Epoch || l.Epoch == old.Epoch && old.Leader == record.NoNode && l.Leader != record.NoNode
}

const (
	leadersFormat = 1
	leadersHead   = 1 + 16 // format and cluster
	leaderSize    = 8 + 4 + 4
	maxDelta      = 60   // leaders in one packet
	maxPacket     = 1100 // bytes of ours in one packet: a larger one would never fit and stay queued for ever
)

// leaders is the table of who leads what, as far as anybody said, and what of it is still to be
// passed on.
type leaders struct {
	limit int    // groups
	token func() // leaves word that something has changed; does not block

	mu struct {
		sync.RWMutex
		cluster record.ClusterID          // whose groups these are; zero: none, and the table is empty
		table   map[record.GroupID]Leader // at most limit
		fresh   []record.GroupID          // to be passed on, and never was yet
		again   []record.GroupID          // to be passed on once more; none is in both
		left    map[record.GroupID]int    // how often still; the keys are those of fresh and again
		dropped uint64                    // for want of room
		garbled uint64                    // messages that could not be read
	}
}

func newLeaders(cluster record.ClusterID, limit int, token func()) *leaders {
	ls := &leaders{limit: limit, token: token}
	ls.mu.cluster = cluster
	ls.clearLocked()
	return ls
}

func (ls *leaders) clearLocked() {
	ls.mu.table, ls.mu.left = make(map[record.GroupID]Leader), make(map[record.GroupID]int)
	ls.mu.fresh, ls.mu.again = nil, nil
}

// setCluster begins with an empty table if the cluster is another one than before.
func (ls *leaders) setCluster(c record.ClusterID) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if c != ls.mu.cluster {
		ls.mu.cluster = c
		ls.clearLocked()
	}
}

// publish takes what this node knows itself.
func (ls *leaders) publish(in []Leader, times int) {
	ls.mu.RLock()
	c := ls.mu.cluster
	ls.mu.RUnlock()
	ls.learn(c, in, times)
}

// learn takes what is newer than what we know, if it is of our cluster. If times is above 0, it is
// passed on that often.
func (ls *leaders) learn(cluster record.ClusterID, in []Leader, times int) {
	ls.mu.Lock()
	if cluster != ls.mu.cluster || cluster.IsZero() {
		ls.mu.Unlock()
		return
	}
	changed := false
	for _, l := range in {
		old, known := ls.mu.table[l.Group]
		switch {
		case known && !l.newer(old):
			continue
		case !known && len(ls.mu.table) >= ls.limit:
			ls.mu.dropped++
			continue
		}
		changed = true
		ls.mu.table[l.Group] = l
		if times > 0 {
			if ls.mu.left[l.Group] == 0 {
				ls.mu.fresh = append(ls.mu.fresh, l.Group)
			}
			ls.mu.left[l.Group] = times
		}
	}
	ls.mu.Unlock()
	if changed {
		ls.token()
	}
}

func (ls *leaders) get(g record.GroupID) (Leader, bool) {
	ls.mu.RLock()
	defer ls.mu.RUnlock()
	l, ok := ls.mu.table[g]
	return l, ok
}

// retain forgets the groups that keep does not want.
func (ls *leaders) retain(keep func(record.GroupID) bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for g := range ls.mu.table {
		if !keep(g) {
			delete(ls.mu.table, g) // delta skips it
		}
	}
}

// delta gives a packet of at most limit bytes with what is to be passed on, nil if there is
// nothing or no room. What nobody has heard yet goes first.
func (ls *leaders) delta(limit int) []byte {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	room := min(maxDelta, (min(limit, maxPacket)-leadersHead)/leaderSize)
	if room <= 0 {
		return nil
	}
	var send []record.GroupID
	send, ls.mu.fresh = cut(send, ls.mu.fresh, room)
	send, ls.mu.again = cut(send, ls.mu.again, room-len(send))
	var out []Leader
	for _, g := range send {
		l, known := ls.mu.table[g]
		if known {
			out = append(out, l)
		}
		if ls.mu.left[g]--; known && ls.mu.left[g] > 0 {
			ls.mu.again = append(ls.mu.again, g)
		} else {
			delete(ls.mu.left, g)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return encodeLeaders(ls.mu.cluster, out)
}

// cut moves up to n from the front of one list to the end of another.
func cut(to, from []record.GroupID, n int) (longer, rest []record.GroupID) {
	n = min(n, len(from))
	return append(to, from[:n]...), from[n:]
}

// full gives the whole table.
func (ls *leaders) full() []byte {
	ls.mu.RLock()
	defer ls.mu.RUnlock()
	out := make([]Leader, 0, len(ls.mu.table))
	for _, l := range ls.mu.table {
		out = append(out, l)
	}
	return encodeLeaders(ls.mu.cluster, out)
}

// hear learns from what another node sent: at most most leaders, to be passed on times times.
func (ls *leaders) hear(b []byte, most, times int) {
	cluster, in, err := parseLeaders(b, most)
	if err != nil {
		ls.mu.Lock()
		ls.mu.garbled++
		ls.mu.Unlock()
		return
	}
	ls.learn(cluster, in, times)
}

func encodeLeaders(cluster record.ClusterID, in []Leader) []byte {
	b := append(make([]byte, 0, leadersHead+leaderSize*len(in)), leadersFormat)
	b = append(b, cluster[:]...)
	for _, l := range in {
		b = binary.BigEndian.AppendUint64(b, uint64(l.Group))
		b = binary.BigEndian.AppendUint32(b, uint32(l.Leader))
		b = binary.BigEndian.AppendUint32(b, uint32(l.Epoch))
	}
	return b
}

func parseLeaders(b []byte, most int) (cluster record.ClusterID, out []Leader, err error) {
	switch {
	case len(b) < leadersHead || b[0] != leadersFormat:
		return cluster, nil, errors.New("no list of leaders, or of another format")
	case (len(b)-leadersHead)%leaderSize != 0:
		return cluster, nil, errors.New("a list of leaders is cut off")
	case (len(b)-leadersHead)/leaderSize > most:
		return cluster, nil, fmt.Errorf("a list of more than %d leaders", most)
	}
	copy(cluster[:], b[1:])
	out = make([]Leader, 0, (len(b)-leadersHead)/leaderSize)
	for b = b[leadersHead:]; len(b) > 0; b = b[leaderSize:] {
		l := Leader{
			Group:  record.GroupID(binary.BigEndian.Uint64(b)),
			Leader: record.NodeID(binary.BigEndian.Uint32(b[8:])),
			Epoch:  record.Epoch(binary.BigEndian.Uint32(b[12:])),
		}
		if l.Epoch < 0 || l.Leader <= 0 && l.Leader != record.NoNode {
			return cluster, nil, fmt.Errorf("group %d with leader %d and epoch %d", l.Group, l.Leader, l.Epoch)
		}
		out = append(out, l)
	}
	return cluster, out, nil
}

// retransmits is how often news is passed on in a cluster of n, as memberlist does it for its own.
func retransmits(n int) int {
	return retransmitMult * int(math.Ceil(math.Log10(float64(n+1))))
}
