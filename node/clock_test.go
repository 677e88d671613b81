package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakeClock is a wall clock that people and the network set, and the age of the process, which nobody sets.
type fakeClock struct {
	t      *testing.T
	now    time.Time
	age    time.Duration
	synced bool
	*clock
}

func newFakeClock(t *testing.T, now time.Time, synced bool, path string) *fakeClock {
	f := &fakeClock{t: t, now: now, synced: synced}
	f.clock = newClock(func() time.Time { return f.now }, func() (bool, string) { return f.synced, "the test says so" }, false,
		time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC), path)
	return f
}

// after lets time pass, steps the clock and looks; want are parts of the news.
func (f *fakeClock) after(pass, step time.Duration, want ...string) {
	f.t.Helper()
	f.age += pass
	f.now = f.now.Add(pass + step)
	news := f.look(f.age)
	if len(news) != len(want) {
		f.t.Fatalf("after %v: %q, want %d", f.age, news, len(want))
	}
	for i := range want {
		if !strings.Contains(news[i], want[i]) {
			f.t.Errorf("after %v: %q, want %q", f.age, news[i], want[i])
		}
	}
}

func (f *fakeClock) may(want bool) {
	f.t.Helper()
	if got := f.mayDelete(); got != want {
		f.t.Errorf("after %v, the clock at %v: may delete %v", f.age, f.now, got)
	}
}

var aDay = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// A board without a battery boots in 1970, hears the time after a minute, and loses the network.
func TestClock_bootIn1970(t *testing.T) {
	f := newFakeClock(t, time.Unix(100, 0), false, "")
	f.may(false) // before the first look
	f.after(time.Second, 0, "not trusted: it says 1970-01-01, and it has been 2026-06-01")
	f.synced = true // whoever says so
	f.after(5*time.Second, 0)
	f.may(false)
	f.stamp(f.now)
	f.after(time.Minute, aDay.Sub(f.now), "stepped forwards by", "trusted: the test says so; before that 1 batch of")
	f.may(false) // everything of the lives before looks old for a moment, perhaps because this time is wrong
	f.after(stepGrace-time.Second, 0)
	f.may(false)
	f.after(time.Second, 0)
	f.may(true)
	f.synced = false
	f.after(time.Hour, 0, "not trusted")
	f.may(false)
}

// Ten years forwards and back again: nothing goes meanwhile, nor an hour after.
func TestClock_jumpsForwardsAndBack(t *testing.T) {
	f := newFakeClock(t, aDay, true, "")
	f.after(time.Second, 0, "trusted")
	f.may(true)
	decade := 10 * 365 * 24 * time.Hour
	f.after(5*time.Second, decade, "stepped forwards by 87600h0m0s")
	f.may(false)
	f.after(time.Minute, -decade, "stepped back by 87600h0m0s, it says 2026-12-01")
	f.may(false)
	f.after(59*time.Minute, 0)
	f.may(false)
	f.after(time.Minute, 0)
	f.may(true)
	f.after(5*time.Second, -time.Minute+time.Millisecond, "stepped back by 59.999s") // small: told, and no reason to wait
	f.may(true)
	for range 100 { // slewed by half a millisecond a second
		f.after(5*time.Second, 2500*time.Microsecond)
	}
	f.may(true)
	if _, text := f.status(); text != "trusted: the test says so" {
		t.Error(text)
	}
}

// The last time that was believed is the floor of the next life.
func TestClock_theLastLifeIsTheFloor(t *testing.T) {
	path := filepath.Join(t.TempDir(), clockFileName)
	f := newFakeClock(t, aDay, true, path)
	if err := f.save(true); err != nil || fileThere(path) {
		t.Errorf("a clock that is not believed yet was kept: %v", err)
	}
	f.after(time.Second, 0, "trusted")
	f.after(clockSave, 0)
	if err := f.save(false); err != nil {
		t.Fatal(err)
	}
	f = newFakeClock(t, aDay.Add(-24*time.Hour), true, path)
	f.after(time.Second, 0, "not trusted: it says 2026-11-30, and it has been 2026-12-01")
	f.after(time.Minute, 25*time.Hour, "stepped", "trusted")
	if err := os.WriteFile(path, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	f = newFakeClock(t, aDay, true, path)
	f.after(time.Second, 0, "trusted")
}

func TestClock_somebodyVouches(t *testing.T) {
	f := newFakeClock(t, aDay, false, "")
	f.always = true
	f.after(time.Second, 0, "trusted: clock-trust says so")
	f.may(true)
	f.after(time.Second, -365*24*time.Hour, "stepped back", "not trusted: it says 2025-12-01") // not for what cannot be
	f.may(false)
}
