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
	"edged/transport/peer"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// checkClone ends a node that the others take for a clone: two processes under one identity would
// both vote. The later one stops, with the reason.
func (n *Node) checkClone(err error) {
	n.fail(twinError(err, n.cfg.DataDir))
	n.cancel()
}

func twinError(err error, dir string) error {
	text := fmt.Errorf("%w; if this card was copied from another node, move %s away and start anew: the node then gets an identity of its own", err, dir)
	for _, e := range []error{peer.ErrClone, metadata.ErrNodeStale, metadata.ErrNodeIDTaken} {
		if errors.Is(err, e) {
			return beyondRestart(text)
		}
	}
	return text // a refusal that may pass
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
