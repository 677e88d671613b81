package node

import (
	"fmt"
	"time"

	"edged/storage"
)

// reopenEvery is how often a node whose store has stopped writing tries whether the disk takes writes again.
const reopenEvery = 5 * time.Second

// ReopenError is what Run ends with when the store had stopped writing, because the disk failed or said late that it
// is full, and the disk takes writes again: the node is to be made anew. What was acknowledged is on the
// disk, and the store trusts no more of what came after than it finds there and writes once more.
type ReopenError struct{ Cause error }

func (e *ReopenError) Error() string {
	return "the disk takes writes again; the node starts anew after: " + e.Cause.Error()
}

func (e *ReopenError) Unwrap() error { return e.Cause }

// runReopen ends a node whose store has stopped writing as soon as it could go on with the disk.
func (n *Node) runReopen() {
	select {
	case <-n.froze:
	case <-n.ctx.Done():
		return
	}
	for {
		select {
		case <-time.After(reopenEvery):
		case <-n.ctx.Done():
			return
		}
		err := n.tryDisk()
		if err == nil {
			n.reopen.Store(true)
			n.noteWell(eventDisk, "the disk takes writes again: the node starts anew")
			n.cancel()
			return
		}
		n.log.Debug("the disk does not take writes yet", "err", err)
	}
}

// tryDisk writes to the disk and has it synced, if there is room for all that a node needs.
func (n *Node) tryDisk() error {
	if free, _, err := n.store.FreeSpace(); err != nil {
		return err
	} else if free < keepFree {
		return fmt.Errorf("%d MiB are free, %d are needed", free>>20, keepFree>>20)
	}
	return storage.Probe(n.cfg.DataDir, n.fs())
}
