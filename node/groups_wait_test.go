package node

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"edged/groups"
	"edged/record"
)

// A log is read within a moment, and kafkajs takes "is loading" for a crash.
func TestGroups_questionsWaitForTheLogToBeRead(t *testing.T) {
	const log = record.GroupID(7)
	for name, tc := range map[string]struct {
		read time.Duration // after the question; 0 is never
		want error
		took time.Duration
	}{
		"read in time": {read: electionPatience / 2, took: electionPatience / 2},
		"not read":     {want: record.ErrCoordinatorLoading, took: electionPatience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s := newGroupLogs(&Node{ctx: ctx})
				l := &ledLog{settled: make(chan struct{})}
				s.led[log] = l
				go func() { // stands for runGroups
					for {
						select {
						case <-s.bell:
							for _, fn := range s.take() {
								fn()
							}
						case <-ctx.Done():
							return
						}
					}
				}()
				if tc.read > 0 {
					time.AfterFunc(tc.read, func() {
						s.post(func() {
							l.c = &groups.Coordinator{}
							close(l.settled)
						})
					})
				}
				began := time.Now()
				got, err := askLog(ctx, s, log, func(_ *groups.Coordinator, done func(string, error)) { done("answer", nil) })
				if !errors.Is(err, tc.want) || tc.want == nil && got != "answer" {
					t.Errorf("the answer is %q, %v", got, err)
				}
				if took := time.Since(began); took != tc.took {
					t.Errorf("it took %v, not %v", took, tc.took)
				}
			})
		})
	}
}
