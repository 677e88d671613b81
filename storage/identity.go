package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"edged/record"
)

// Identity is who this node is, as long as its disk lives.
type Identity struct {
	Instance    record.InstanceID
	Node        record.NodeID
	Cluster     record.ClusterID // zero: not part of one yet
	BootCounter uint64           // starts of this node, this one included; never goes back
	Created     int64            // milliseconds since 1970, by a clock that may have been wrong
	State       string           // the node's own word for where it stands, at most 64 bytes
	Proposal    []byte           // opaque, of the formation of a cluster, at most 64 KiB
}

const (
	maxIdentityState    = 64
	maxIdentityProposal = 64 << 10
	maxIdentityFile     = maxIdentityProposal + 1<<10
	identityVersion     = 1
)

var (
	identityMagic = []byte("edged identity\n")
	identityNames = [2]string{"identity", "identity.copy"}
)

// ErrIdentityLost is returned by OpenIdentity if there is data but nothing says whose.
var ErrIdentityLost = errors.New("storage: the node's identity is lost")

// IdentityFile keeps an Identity in two files with equal content. Each is written new,
// synced and renamed, one after the other, so that at any moment one of them is whole.
type IdentityFile struct {
	fs  vfs.FS
	dir string

	mu     sync.Mutex
	id     Identity
	serial uint64
	found  error // what was wrong with a copy at open
}

// OpenIdentity reads the identity in dir, makes one if the directory is new, and counts this
// start: the raised BootCounter is durable when it returns. It must come before Open, and
// before anything is sent to anyone.
//
// Errors: ErrLocked if a running node has the directory (then nothing was counted),
// ErrIdentityLost if there is data but both copies are gone or damaged, ErrNotOurs if what is there is
// somebody else's (nothing is written then), ErrNewerFormat, ErrReadOnly.
func OpenIdentity(dir string, fs vfs.FS) (*IdentityFile, error) {
	f := &IdentityFile{fs: fs, dir: dir}
	store := fs.PathJoin(dir, storeDirName)
	hasData, err := holdsData(fs, store)
	if err != nil {
		return nil, openError(dir, err)
	}
	if !hasData {
		if err := checkOurs(fs, dir); err != nil {
			return nil, err
		}
	}
	if err := makeDir(fs, store); err != nil {
		return nil, openError(dir, err)
	}
	lock, err := pebble.LockDirectory(store, fs)
	if err != nil {
		return nil, openError(dir, lockError(err))
	}
	defer lock.Close()
	some, err := f.read()
	if err != nil {
		return nil, err
	}
	if !some {
		if hasData || f.found != nil {
			return nil, fmt.Errorf("%w: %s has data but no readable identity file (%w); a node that forgot who it is must not act as itself: move the directory away and start anew, other nodes, if there are any, hold the data", ErrIdentityLost, dir, join(f.found, errMissing))
		}
		f.id = Identity{Instance: record.NewInstanceID(), Node: record.NewNodeID(), Created: time.Now().UnixMilli()}
	}
	if err := f.Update(func(id *Identity) { id.BootCounter++ }); err != nil {
		return nil, err
	}
	return f, nil
}

// ourNames are what a node leaves in its data directory, the small files of package node included.
var ourNames = []string{
	identityNames[0], identityNames[1], storeDirName, reserveName, "addresses.json", "members", "events.jsonl", "clock.json", "wear.json",
}

// checkOurs refuses a directory without an identity that holds what is not ours: a wrong path, most likely.
// Hidden files and what a fresh file system has are nobody's data.
func checkOurs(fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return openError(dir, err)
	}
	if slices.Contains(names, identityNames[0]) || slices.Contains(names, identityNames[1]) {
		return nil
	}
	slices.Sort(names)
	for _, name := range names {
		ours := slices.Contains(ourNames, strings.TrimSuffix(name, ".new"))
		if !ours && name != "lost+found" && !strings.HasPrefix(name, ".") {
			return fmt.Errorf("%w: %s holds %q and no node's identity; nothing was written there: --data-dir takes a new or empty directory, or that of a node", ErrNotOurs, dir, name)
		}
	}
	return nil
}

// holdsData tells whether the engine has ever written in dir.
func holdsData(fsys vfs.FS, dir string) (bool, error) {
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	names = slices.DeleteFunc(names, func(n string) bool { return n == "LOCK" })
	return len(names) > 0, err
}

// read takes the newer one of the two copies.
func (f *IdentityFile) read() (some bool, err error) {
	for _, name := range identityNames {
		id, serial, err := readIdentity(f.fs, f.fs.PathJoin(f.dir, name))
		switch {
		case err == nil:
			if !some || serial > f.serial {
				f.id, f.serial, some = id, serial, true
			}
		case errors.Is(err, ErrNewerFormat):
			return false, fmt.Errorf("%w; install the newer version again", err)
		case errors.Is(err, fs.ErrNotExist):
		case errors.Is(err, errTorn), errors.Is(err, errChecksum):
			f.found = join(f.found, err)
		default:
			return false, openError(f.dir, err)
		}
	}
	return some, nil
}

func readIdentity(fsys vfs.FS, path string) (id Identity, serial uint64, err error) {
	file, err := fsys.Open(path)
	if err != nil {
		return id, 0, err
	}
	b, err := io.ReadAll(io.LimitReader(file, maxIdentityFile+1))
	if err := join(err, file.Close()); err != nil {
		return id, 0, err
	}
	id, serial, err = decodeIdentity(b)
	if err != nil {
		return id, 0, fmt.Errorf("%s: %w", path, err)
	}
	return id, serial, nil
}

// Get is the identity as of the last Update.
func (f *IdentityFile) Get() Identity {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := f.id
	id.Proposal = slices.Clone(id.Proposal)
	return id
}

// Damage says what was wrong with one of the copies at open; nil if nothing was. Both are whole again.
func (f *IdentityFile) Damage() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.found
}

// Update changes the identity; it is durable when Update returns nil. After an error it is
// the old one for this process, and either one for the next. Neither who the node is nor
// the boot counter's direction can be changed.
func (f *IdentityFile) Update(change func(*Identity)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := f.id
	id.Proposal = slices.Clone(id.Proposal)
	change(&id)
	switch {
	case id.Instance != f.id.Instance || id.Node != f.id.Node || id.BootCounter < f.id.BootCounter:
		return errors.New("storage: an identity's instance, node and boot counter are not for changing")
	case len(id.State) > maxIdentityState:
		return fmt.Errorf("storage: the identity's state has %d bytes; at most %d are kept", len(id.State), maxIdentityState)
	case len(id.Proposal) > maxIdentityProposal:
		return fmt.Errorf("storage: the identity's proposal has %d bytes; at most %d are kept", len(id.Proposal), maxIdentityProposal)
	}
	b := encodeIdentity(id, f.serial+1)
	f.serial++ // also after an error: what half stands there must not look equal to what comes
	for _, name := range identityNames {
		if err := replaceFile(f.fs, f.dir, name, b); err != nil {
			return placeError("cannot write "+name+" in", f.dir, err)
		}
	}
	f.id = id
	return nil
}

// replaceFile puts b in place of a file, so that after a crash there is the old one or the new one.
func replaceFile(fs vfs.FS, dir, name string, b []byte) error {
	tmp, path := fs.PathJoin(dir, name+".new"), fs.PathJoin(dir, name)
	f, err := fs.Create(tmp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(slices.Clone(b)) // a vfs may change what it is given
	if err == nil {
		err = f.Sync()
	}
	if err := join(err, f.Close()); err != nil {
		return err
	}
	if err := fs.Rename(tmp, path); err != nil || faultUnsyncedRename {
		return err
	}
	return syncDir(fs, dir)
}

// encodeIdentity: magic, version, serial, fields, checksum over all of it.
func encodeIdentity(id Identity, serial uint64) []byte {
	b := append(slices.Clone(identityMagic), identityVersion)
	b = binary.BigEndian.AppendUint64(b, serial)
	b = append(b, id.Instance[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(id.Node))
	b = append(b, id.Cluster[:]...)
	b = binary.BigEndian.AppendUint64(b, id.BootCounter)
	b = binary.BigEndian.AppendUint64(b, uint64(id.Created))
	b = binary.AppendUvarint(b, uint64(len(id.State)))
	b = append(b, id.State...)
	b = binary.AppendUvarint(b, uint64(len(id.Proposal)))
	b = append(b, id.Proposal...)
	return seal(nil, b)
}

func decodeIdentity(b []byte) (id Identity, serial uint64, err error) {
	if len(b) > maxIdentityFile {
		return id, 0, errTorn
	}
	body, err := unseal(nil, b)
	if err != nil {
		return id, 0, err
	}
	if len(body) < len(identityMagic)+1+8+16+4+16+8+8 || string(body[:len(identityMagic)]) != string(identityMagic) {
		return id, 0, errTorn
	}
	d := decoder{b: body[len(identityMagic):]}
	if v := d.byte(); v > identityVersion {
		return id, 0, fmt.Errorf("%w: identity format %d, this version reads up to %d", ErrNewerFormat, v, identityVersion)
	}
	serial = d.uint64()
	copy(id.Instance[:], d.b)
	d.b = d.b[16:]
	id.Node = record.NodeID(binary.BigEndian.Uint32(d.b))
	d.b = d.b[4:]
	copy(id.Cluster[:], d.b)
	d.b = d.b[16:]
	id.BootCounter = d.uint64()
	id.Created = int64(d.uint64())
	id.State = string(d.bytes(maxIdentityState))
	id.Proposal = slices.Clone(d.bytes(maxIdentityProposal))
	if len(id.Proposal) == 0 {
		id.Proposal = nil
	}
	if id.Node <= 0 {
		d.fail()
	}
	return id, serial, d.end()
}
