// go-fuse does not build for 32 bits.

//go:build linux && (amd64 || arm64)

package card

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// sector is what a card writes whole or not at all.
const sector = 512

// Options of a card.
type Options struct {
	Size int64 // bytes
	// Flush is how long a flush takes.
	Flush time.Duration
	// Lies makes flushes do nothing: what was written gets to the flash some time later or not at all.
	Lies bool
	// Seed of what survives a cut.
	Seed uint64
}

// Card is one card. Its goroutines are those of the FUSE server; Close ends them.
type Card struct {
	o      Options
	server *fuse.Server
	dir    string // where the FUSE file system is
	at     string // where the ext4 is mounted, "" while it is not

	mu    sync.Mutex
	flash []byte           // what survives
	cache map[int64][]byte // sectors that were written and not flushed, by number
	dead  bool             // without power
	stall time.Duration    // of the next flush
	rand  *rand.Rand
}

// Available says why there can be no card on this machine, or nil.
func Available() error {
	if os.Getuid() != 0 {
		return errors.New("only root can mount a card")
	}
	for _, need := range []string{"/dev/fuse", "/dev/loop-control"} {
		if _, err := os.Stat(need); err != nil {
			return err
		}
	}
	for _, tool := range []string{"mkfs.ext4", "mount", "umount", "losetup"} {
		if _, err := exec.LookPath(tool); err != nil {
			return err
		}
	}
	if out, err := exec.Command("losetup", "--find").CombinedOutput(); err != nil {
		return fmt.Errorf("no loop device is free: %s", out)
	}
	return nil
}

// New makes a card with an empty ext4 on it, which is not mounted. dir has to exist and to be empty.
func New(dir string, o Options) (*Card, error) {
	c := &Card{o: o, dir: dir, flash: make([]byte, o.Size), cache: map[int64][]byte{}, rand: rand.New(rand.NewPCG(o.Seed, 1))}
	root := &rootNode{card: c}
	server, err := fs.Mount(dir, root, &fs.Options{
		MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "card", Name: "card", MaxWrite: 128 << 10},
	})
	if err != nil {
		return nil, err
	}
	c.server = server
	if err := keepFromChildren("/dev/fuse"); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if err := run("mkfs.ext4", "-q", "-F", "-E", "nodiscard", "-b", "4096", c.image()); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.mu.Lock()
	c.flushLocked()
	c.mu.Unlock()
	return c, nil
}

func (c *Card) image() string { return filepath.Join(c.dir, "image") }

// Mount mounts the file system at a directory.
func (c *Card) Mount(at string) error {
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	if err := run("mount", "-t", "ext4", "-o", "loop,noatime,errors=remount-ro", c.image(), at); err != nil {
		return err
	}
	c.at = at
	return nil
}

// Unmount takes the file system out, which writes what it has not written if there is power.
func (c *Card) Unmount() error {
	if c.at == "" {
		return nil
	}
	at := c.at
	c.at = ""
	var err error
	for range 50 { // who used it has just been killed
		if err = run("umount", at); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.Join(err, run("umount", "-l", at))
}

// Cut takes the power away, at once. Of what was not flushed all, nothing, or any sectors survive.
func (c *Card) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = true
	survive := []float64{0, 0.5, 0.95}[c.rand.IntN(3)]
	if c.o.Lies {
		survive = 0
	}
	for n, b := range c.cache {
		if c.rand.Float64() < survive {
			copy(c.flash[n*sector:], b)
		}
	}
	clear(c.cache)
}

// Lie makes a card lie from now on, or be honest again.
func (c *Card) Lie(lies bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.o.Lies = lies
}

// Stall makes the next flush take so much longer, as cards do that tidy up.
func (c *Card) Stall(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stall = d
}

// Power gives the power back. The file system must not be mounted.
func (c *Card) Power() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = false
}

// Close unmounts everything.
func (c *Card) Close() error {
	err := c.Unmount()
	for range 50 { // the loop device lets go a moment after the unmount
		if uerr := c.server.Unmount(); uerr == nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.Join(err, run("umount", "-l", c.dir))
}

func (c *Card) flushLocked() {
	for n, b := range c.cache {
		copy(c.flash[n*sector:], b)
	}
	clear(c.cache)
}

// keepFromChildren keeps a device that this process has open from the programs it starts. A node
// or a mount that outlives a killed test would else hold the FUSE connection, which then never ends:
// whatever touches that file system waits for ever.
func keepFromChildren(device string) error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range open {
		fd, err := strconv.Atoi(e.Name())
		if to, lerr := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && lerr == nil && to == device {
			syscall.CloseOnExec(fd)
		}
	}
	return nil
}

// patience is how long a tool may take.
const patience = time.Minute

func run(name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// rootNode is the directory with the one file.
type rootNode struct {
	fs.Inode
	card *Card
}

func (r *rootNode) OnAdd(ctx context.Context) {
	r.AddChild("image", r.NewPersistentInode(ctx, &imageNode{card: r.card}, fs.StableAttr{Mode: fuse.S_IFREG}), false)
}

// imageNode is the file that the loop device is on.
type imageNode struct {
	fs.Inode
	card *Card
}

func (i *imageNode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size = fuse.S_IFREG|0o600, uint64(i.card.o.Size)
	return 0
}

func (i *imageNode) Setattr(ctx context.Context, f fs.FileHandle, _ *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	return i.Getattr(ctx, f, out)
}

func (i *imageNode) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

func (i *imageNode) Read(_ context.Context, _ fs.FileHandle, to []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	c := i.card
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return nil, syscall.EIO
	}
	n := copy(to, c.flash[min(off, c.o.Size):])
	for at := off - off%sector; at < off+int64(n); at += sector {
		if b := c.cache[at/sector]; b != nil {
			if from := at - off; from >= 0 {
				copy(to[from:n], b)
			} else {
				copy(to[:n], b[-from:])
			}
		}
	}
	return fuse.ReadResultData(to[:n]), 0
}

func (i *imageNode) Write(_ context.Context, _ fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	c := i.card
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return 0, syscall.EIO
	}
	if off+int64(len(data)) > c.o.Size {
		return 0, syscall.ENOSPC
	}
	for done := int64(0); done < int64(len(data)); {
		n := (off + done) / sector
		b := c.cache[n]
		if b == nil {
			b = append([]byte(nil), c.flash[n*sector:(n+1)*sector]...)
			c.cache[n] = b
		}
		done += int64(copy(b[(off+done)%sector:], data[done:]))
	}
	return uint32(len(data)), 0
}

func (i *imageNode) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	c := i.card
	c.mu.Lock()
	wait := c.o.Flush + c.stall
	c.stall = 0
	c.mu.Unlock()
	time.Sleep(wait)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return syscall.EIO
	}
	if !c.o.Lies {
		c.flushLocked()
	}
	return 0
}

func (i *imageNode) Flush(context.Context, fs.FileHandle) syscall.Errno { return 0 }
