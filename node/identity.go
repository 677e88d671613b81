package node

import (
	"fmt"

	"edged/gossip"

	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// checkClone ends a node that the others take for a clone: two processes under one identity would
// both vote. The later one stops, with the reason.
func (n *Node) checkClone(err error) {
	n.fail(fmt.Errorf("%w; if this card was copied from another node, move %s away and start anew: the node then gets an identity of its own", err, n.cfg.DataDir))
	n.cancel()
}

// membersFile keeps the gossip addresses that were seen last, for a start without any join address.
const membersFile = "members"

// savedMembers reads the addresses; trouble with the file is no trouble, it is a memory aid.
func (n *Node) savedMembers() []string {
	if n.opts.FS != nil {
		return nil
	}
	b, err := os.ReadFile(filepath.Join(n.cfg.DataDir, membersFile))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			n.log.Warn("saved member addresses", "err", err)
		}
		return nil
	}
	lines := strings.Fields(string(b))
	return lines[:min(len(lines), gossip.MaxSaved)]
}

func (n *Node) saveMembers(addrs []string) {
	if n.opts.FS != nil {
		return
	}
	path := filepath.Join(n.cfg.DataDir, membersFile)
	err := os.WriteFile(path+".new", []byte(strings.Join(addrs, "\n")+"\n"), 0o644)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		n.log.Warn("member addresses could not be saved", "err", err)
	}
}
