package storage

import (
	"github.com/cockroachdb/pebble/v2/vfs"

	"edged/record"
)

// Store is one node's storage.
type Store struct{}

func Open(dir string, fs vfs.FS, o Options) (*Store, error)      { return nil, ErrClosed }
func (s *Store) Commit(us []Update, sync bool) error             { return ErrClosed }
func (s *Store) Groups() []GroupState                            { return nil }
func (s *Store) State(g record.GroupID) (GroupState, bool)       { return GroupState{}, false }
func (s *Store) Reclaim() (int64, error)                         { return 0, ErrClosed }
func (s *Store) Metrics() Metrics                                { return Metrics{} }
func (s *Store) Close() error                                    { return nil }
func (s *Store) Size(g record.GroupID) int64                     { return 0 }
func (s *Store) Entries(g record.GroupID, lo, hi uint64, maxBytes int64) ([]Entry, error) {
	return nil, ErrClosed
}
func (s *Store) Headers(g record.GroupID, lo, hi uint64, fn func(e Entry, size int64) error) error {
	return ErrClosed
}
func (s *Store) ReadFrom(g record.GroupID, from, limit record.Offset, maxBytes int64, buf []byte) (out []byte, next record.Offset, err error) {
	return buf, from, ErrClosed
}
func (s *Store) OffsetForTime(g record.GroupID, ms int64, limit record.Offset) (record.Offset, int64, bool, error) {
	return 0, 0, false, ErrClosed
}
func (s *Store) EpochEnd(g record.GroupID, e record.Epoch, limit record.Offset) (record.Epoch, record.Offset) {
	return record.NoEpoch, 0
}
func (s *Store) RetentionPoint(g record.GroupID, beforeMs, keepBytes int64, limit record.Offset) (keep record.Offset, ok bool) {
	return 0, false
}

// Identity is who this node is.
type Identity struct {
	Instance    record.InstanceID
	Node        record.NodeID
	Cluster     record.ClusterID
	BootCounter uint64
	Created     int64
	State       string
	Proposal    []byte
}

// IdentityFile keeps an Identity on disk.
type IdentityFile struct{}

func OpenIdentity(dir string, fs vfs.FS) (*IdentityFile, error) { return nil, ErrClosed }
func (f *IdentityFile) Get() Identity                           { return Identity{} }
func (f *IdentityFile) Update(change func(*Identity)) error     { return ErrClosed }

// Report of Verify.
type Report struct{}

func Verify(fs vfs.FS, dir string) (Report, error) { return Report{}, ErrClosed }
