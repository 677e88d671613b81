//go:build !edged_faults

package storage

// Faults that tests plant on purpose, to prove that the simulator finds them. Without the build tag
// they are constants: the compiler drops every check and no release can have one.
const (
	faultUnsyncedRename = false // the identity file is renamed and its directory not synced
	faultLateDirectory  = false // a bucket's directory entry is written with the commit after its first entry
)

// late holds what faultLateDirectory keeps back.
type late struct{}

func (*late) keep([]byte, []byte)                    {}
func (*late) give(func(key, val []byte) error) error { return nil }
