//go:build linux && (amd64 || arm64)

package card

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Sweep takes out what killed tests have left mounted: cards whose process is gone, and the file systems on
// them. Cards of processes that live stay. A mkfs on this machine would else wait for them.
func Sweep() error {
	mounts, err := mounts()
	if err != nil {
		return err
	}
	var dead []string
	for _, m := range mounts {
		if m.kind == "fuse.card" && orphaned(m.at) {
			dead = append(dead, m.at)
		}
	}
	if len(dead) == 0 {
		return nil
	}
	var errs []error
	for _, m := range mounts {
		if loop, ok := strings.CutPrefix(m.from, "/dev/loop"); ok && slices.Contains(dead, filepath.Dir(backing(loop))) {
			errs = append(errs, run("umount", "-l", m.at))
		}
	}
	for _, at := range dead {
		errs = append(errs, run("umount", "-l", at))
	}
	return errors.Join(errs...)
}

// orphaned tells that nobody serves a FUSE file system any more. One that does not answer at all is
// somebody's that stands still.
func orphaned(at string) bool {
	answer := make(chan error, 1)
	go func() {
		_, err := os.Stat(filepath.Join(at, "image"))
		answer <- err
	}()
	select {
	case err := <-answer:
		return errors.Is(err, syscall.ENOTCONN) || errors.Is(err, syscall.ECONNABORTED)
	case <-time.After(5 * time.Second):
		return false
	}
}

// backing is the file that a loop device is on, "" if it is free.
func backing(loop string) string {
	b, err := os.ReadFile("/sys/block/loop" + loop + "/loop/backing_file")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// mount is one line of the mount table.
type mount struct{ at, kind, from string }

func mounts() ([]mount, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var out []mount
	for line := range strings.Lines(string(b)) {
		// 43 27 0:39 / /where options - kind from options
		head, tail, ok := strings.Cut(line, " - ")
		h, t := strings.Fields(head), strings.Fields(tail)
		if ok && len(h) > 4 && len(t) > 1 {
			out = append(out, mount{strings.ReplaceAll(h[4], `\040`, " "), t[0], t[1]})
		}
	}
	return out, nil
}
