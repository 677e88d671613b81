package node

import (
	"testing"
	"time"

	"edged/record"
)

// What came less than the retention ago is never before the mark, and what came well before that is.
func TestArrivals_markFollowsAtTheDistanceOfTheRetention(t *testing.T) {
	for _, retention := range []time.Duration{3 * time.Second, time.Minute, 7 * 24 * time.Hour} {
		a := newArrivals(nil)
		step := max(janitorEvery, retention/100)
		perStep := record.Offset(10)
		ms := retention.Milliseconds()
		for i := range 1000 {
			now := time.Duration(i) * step
			end := record.Offset(i) * perStep // so offset o came at o/perStep*step
			a.note(1, now, end, ms)
			if n := len(a.of[1].points); n > arrivalPoints {
				t.Fatalf("retention %v: %d points are kept", retention, n)
			}
			mark := a.before(1, now, ms)
			if mark == 0 {
				continue // all that came in this process is too young
			}
			cameAt := time.Duration((mark-1)/perStep) * step
			if age := now - cameAt; age < retention {
				t.Fatalf("retention %v: after %v the mark is at %d, which came %v ago", retention, now, mark, age)
			}
			if late := now - cameAt - retention; late > retention/8+2*step {
				t.Fatalf("retention %v: after %v the mark is at %d, late by %v", retention, now, mark, late)
			}
		}
		if a.before(1, 1000*step, ms) == 0 {
			t.Fatalf("retention %v: nothing ever is old", retention)
		}
		if a.before(2, 1000*step, ms) != 0 {
			t.Fatal("a partition that was never looked at has a mark")
		}
	}
}

// A retention that is raised finds fewer points than it would like, and keeps more for it.
func TestArrivals_raisedRetentionKeepsWhatIsYounger(t *testing.T) {
	a := newArrivals(nil)
	for i := range 1000 {
		a.note(1, time.Duration(i)*time.Second, record.Offset(i), 3000)
	}
	now := 1000 * time.Second
	if mark := a.before(1, now, 3000); mark == 0 || mark > 998 {
		t.Fatalf("with 3 s the mark is at %d, of an offset per second", mark)
	}
	if mark := a.before(1, now, 900_000); mark > 100 {
		t.Fatalf("with 900 s the mark is at %d, which came %v ago", mark, now-time.Duration(mark)*time.Second)
	}
	a.retain(func(record.GroupID) bool { return false })
	if a.before(1, now, 3000) != 0 {
		t.Fatal("a partition that was forgotten has a mark")
	}
}
