package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"edged/metadata"
	"edged/partition"
	"edged/record"
	"edged/storage"
	"edged/transport/peer"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// checkClone ends a node that the others take for a clone: two processes under one identity would
// both vote. The later one stops, with the reason.
func (n *Node) checkClone(err error) {
	n.fail(twinError(err, n.ident.Get().Node, n.cfg.DataDir))
	n.cancel()
}

// twinError says what to do about it. A card that lost what it had confirmed looks like a copy of itself, and nobody
// can tell the two apart for sure; for both the same holds: what this disk voted for may be forgotten.
func twinError(err error, self record.NodeID, dir string) error {
	switch {
	case isTwin(err):
		return beyondRestart(fmt.Errorf("%w. If this card was copied, or a backup was put back, while the true node %d lives elsewhere: move %s away and start anew; this one then gets an identity of its own. "+
			"If there is no other node %d, its card lost what it had confirmed, as some do when the power is cut; it may have forgotten votes and records, so it must not go on as itself: "+
			"`edgectl node remove %d` on another node, move %s away, start with join and without bootstrap-expect, and replace the card: the others hold the data", err, self, dir, self, self, dir))
	case errors.Is(err, metadata.ErrNodeIDTaken):
		return beyondRestart(fmt.Errorf("%w; move %s away, the next start draws a new id", err, dir))
	}
	return err // a refusal that may pass
}

// isTwin tells that others know a later life under this node's identity.
func isTwin(err error) bool {
	return errors.Is(err, peer.ErrClone) || errors.Is(err, peer.ErrOldLife) || errors.Is(err, metadata.ErrNodeStale)
}

// setStartsRight is for a cluster of one whose card lost the count of its starts and kept the log, in which that
// count stands as well. Nobody else has heard of the lost life or counted on its votes, so the node may go on; in
// a life of its own, because gossip knows this one by its number.
func (n *Node) setStartsRight(known uint64) {
	n.note(eventDisk, fmt.Sprintf("%v: it knows of fewer starts of this node (%d) than the log (%d); replace it", partition.ErrLostWrites, n.ident.Get().BootCounter, known))
	if err := n.ident.Update(func(id *storage.Identity) { id.BootCounter = known }); err != nil {
		n.fail(err)
	} else {
		n.fail(fmt.Errorf("%w: the count of this node's starts is set right, start it again", partition.ErrLostWrites))
	}
	n.cancel()
}

// How long a node looks for another one under its identity before it takes part, and how long it waits for
// the answer of one.
const (
	lookForTwin = 500 * time.Millisecond
	askTwin     = 500 * time.Millisecond
)

// findTwin looks for another process that lives under this node's identity. Who knows this node refuses the
// later one of two, but a node that has just started knows neither: with its vote a copied card could lead with
// an old log. So a node asks around before it votes or stands. What gossip cannot reach within
// lookForTwin is not waited for: then the copy is cut off from the true node's side, which no node can tell from a
// restart.
func (n *Node) findTwin() error {
	ctx, cancel := context.WithTimeout(n.ctx, lookForTwin)
	defer cancel()
	select {
	case <-n.gossip.Looked():
	case <-ctx.Done():
	}
	for _, m := range n.gossip.Twins() {
		ctx, cancel := context.WithTimeout(n.ctx, askTwin)
		_, _, err := n.askInfo(ctx, nativeAddr(m))
		cancel()
		if errors.Is(err, peer.ErrClone) {
			return err
		}
	}
	return nil
}

// membersFile keeps the gossip addresses that were seen last, for a start without any join address. It is
// a memory aid: trouble with it is no trouble of the node. It is synced all the same: the node that comes
// back from a power cut with another address is found by nobody, it has to know whom to look for.
const (
	membersFile    = "members"
	maxMembersFile = 64 << 10
)

func (n *Node) savedMembers() ([]string, error) {
	f, err := n.fs().Open(n.fs().PathJoin(n.cfg.DataDir, membersFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxMembersFile))
	return strings.Fields(string(b)), errors.Join(err, f.Close())
}

func (n *Node) saveMembers(addrs []string) error {
	path := n.fs().PathJoin(n.cfg.DataDir, membersFile)
	f, err := n.fs().Create(path+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(strings.Join(addrs, "\n") + "\n"))
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := n.fs().Rename(path+".new", path); err != nil {
		return err
	}
	dir, err := n.fs().OpenDir(n.cfg.DataDir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
