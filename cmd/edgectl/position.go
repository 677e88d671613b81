package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"edged/record"
)

// position is where consume begins.
type position struct {
	kind   positionKind
	offset record.Offset // fromOffset: from 0
	time   time.Time     // fromTime: from 1970
}

type positionKind uint8

const (
	fromStart positionKind = iota
	fromEnd
	fromOffset
	fromTime
)

// parsePosition reads start, end, an offset, a time (RFC 3339) or an age (-1h, -30m).
func parsePosition(text string, now time.Time) (position, error) {
	switch text {
	case "start":
		return position{kind: fromStart}, nil
	case "end":
		return position{kind: fromEnd}, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
		return position{kind: fromOffset, offset: record.Offset(n)}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if age, ok := strings.CutPrefix(text, "-"); ok {
		var d time.Duration
		if d, err = time.ParseDuration(age); err == nil && d >= 0 {
			t = now.Add(-d)
		}
	}
	if err != nil || t.UnixMilli() < 0 {
		return position{}, fmt.Errorf("--from %q is not start, end, an offset, a time like 2026-01-31T12:00:00Z or an age like -1h", text)
	}
	return position{kind: fromTime, time: t}, nil
}
