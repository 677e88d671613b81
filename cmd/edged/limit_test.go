package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestLimiter_aRepeatedFailureIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(newLimiter(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
		for range 4 * 60 * 3 { // three minutes, four a second
			log.With("from", "10.0.0.9").Warn("peer refused")
			time.Sleep(time.Second / 4)
		}
		lines := strings.Count(out.String(), "\n")
		if lines != 3*burst || strings.Count(out.String(), "left_out=235") != 2 {
			t.Errorf("%d lines:\n%s", lines, &out)
		}
		out.Reset()
		for range 100 {
			log.Debug("detail")
			log.Info("once in a while")
		}
		if n := strings.Count(out.String(), "detail"); n != 100 {
			t.Errorf("%d of 100 lines of somebody who asked for all", n)
		}
		if n := strings.Count(out.String(), "once"); n != burst {
			t.Errorf("%d lines of another message", n)
		}
	})
}

func TestLimiter_isBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := newLimiter(slog.NewTextHandler(&out, nil)).(*limiter)
		for i := range 10 * maxCounted {
			slog.New(l).Info(fmt.Sprint("message ", i))
			if i == 5*maxCounted {
				time.Sleep(2 * burstTime)
			}
		}
		if n := len(l.seen.of); n > maxCounted {
			t.Errorf("%d messages are counted", n)
		}
		if n := strings.Count(out.String(), "\n"); n != 10*maxCounted {
			t.Errorf("%d lines: different messages are no repetition", n)
		}
	})
}
