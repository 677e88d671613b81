package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestEventLog_outlivesARestartAndIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), eventsFileName)
	now := time.Now
	l := openEventLog(path, now)
	for i := range 3 * maxEvents {
		l.add(eventDisk, fmt.Sprint(i, strings.Repeat("\x01", 2*maxEventText))) // each byte is six in JSON
	}
	if err := l.save(true); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Size() > maxEventsFile || st.Size() < maxEventsFile/2 {
		t.Errorf("%v, %v", st, err)
	}
	again := openEventLog(path, now)
	events, _ := again.after(0)
	if len(events) == 0 || events[len(events)-1].Seq != 3*maxEvents {
		t.Fatalf("%d events after a restart", len(events))
	}
	again.add(eventStart, "started")
	events, _ = again.after(3 * maxEvents)
	if len(events) != 1 || events[0].Seq != 3*maxEvents+1 || events[0].Text != "started" {
		t.Errorf("%+v", events)
	}
}

func TestEventLog_damageKeepsNobodyFromStarting(t *testing.T) {
	path := filepath.Join(t.TempDir(), eventsFileName)
	if err := os.WriteFile(path, []byte("{\"seq\":4,\"kind\":\"disk\"}\n\x00\x00garbage\n{\"seq\":5,\"kind\":\"clock\"}\n{\"seq\":"), 0o600); err != nil {
		t.Fatal(err)
	}
	events, _ := openEventLog(path, time.Now).after(0)
	if len(events) != 2 || events[1].Kind != eventClock {
		t.Errorf("%+v", events)
	}
}

// An idle node writes nothing, and a busy one once a minute.
func TestEventLog_writesRarely(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(dir, eventsFileName)
		l := openEventLog(path, time.Now)
		time.Sleep(eventsEvery)
		writes := 0
		for i := range 600 {
			if i < 300 {
				l.add(eventDisk, "x")
			}
			if err := l.save(false); err != nil {
				t.Fatal(err)
			}
			if os.Remove(path) == nil {
				writes++
			}
			time.Sleep(time.Second)
		}
		if writes != 6 { // five minutes with events, one more for the last of them
			t.Errorf("%d writes in ten minutes", writes)
		}
	})
}

func TestEventLog_followersHearOfNewOnes(t *testing.T) {
	l := openEventLog("", time.Now)
	_, more := l.after(0)
	l.add(eventClock, "stepped")
	select {
	case <-more:
	default:
		t.Error("nobody was told")
	}
}
