//go:build !linux

package node

import "errors"

func kernelSynced() (bool, error) { return false, errors.New("not on this system") }
