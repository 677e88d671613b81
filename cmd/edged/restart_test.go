package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"edged/node"
)

// A node whose disk failed and takes writes again is made anew, with pauses that grow while that does not last. Any
// other end is the end.
func TestRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := errors.New("another fault")
		var at []time.Duration
		began := time.Now()
		err := restarted(t.Context(), func(context.Context) error {
			at = append(at, time.Since(began))
			switch len(at) {
			case 3:
				time.Sleep(steadyFor + 1)
			case 5:
				return other
			}
			return &node.ReopenError{Cause: errors.New("full")}
		})
		want := []time.Duration{0, time.Second, 3 * time.Second, 4*time.Second + steadyFor + 1, 6*time.Second + steadyFor + 1}
		if err != other || len(at) != len(want) {
			t.Fatalf("ended with %v after %v", err, at)
		}
		for i := range want {
			if at[i] != want[i] {
				t.Errorf("life %d began after %v, not %v", i+1, at[i], want[i])
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		lives := 0
		err = restarted(ctx, func(context.Context) error {
			lives++
			cancel()
			return &node.ReopenError{Cause: other}
		})
		if lives != 1 || !errors.Is(err, other) {
			t.Errorf("a node that was told to stop had %d lives: %v", lives, err)
		}
	})
}
