//go:build !linux

package node

import (
	"context"
	"sync"
)

func networkChanges(context.Context, *sync.WaitGroup) <-chan struct{} { return nil }
