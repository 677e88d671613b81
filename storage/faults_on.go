//go:build edged_faults

package storage

import (
	"fmt"
	"slices"
)

var faultUnsyncedRename, faultLateDirectory bool

// PlantFault switches one fault on or off. It exists only under the build tag edged_faults.
func PlantFault(name string, on bool) error {
	f := map[string]*bool{"unsynced-rename": &faultUnsyncedRename, "late-directory": &faultLateDirectory}[name]
	if f == nil {
		return fmt.Errorf("no fault named %q", name)
	}
	*f = on
	return nil
}

type late struct{ keys, vals [][]byte }

func (l *late) keep(key, val []byte) {
	l.keys, l.vals = append(l.keys, slices.Clone(key)), append(l.vals, slices.Clone(val))
}

func (l *late) give(set func(key, val []byte) error) error {
	keys, vals := l.keys, l.vals
	l.keys, l.vals = nil, nil
	for i := range keys {
		if err := set(keys[i], vals[i]); err != nil {
			return err
		}
	}
	return nil
}
