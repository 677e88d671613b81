package node

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	wearFileName = "wear.json"
	wearEvery    = 10 * time.Minute
	wearSave     = 6 * time.Hour
	wearSamples  = 145 // a day of them and one
	sectorBytes  = 512 // of /sys/.../stat, whatever the disk's own sectors are
)

// wear counts what is written to the card. The figures of the device include what others write: they wear
// the same card. Where the system does not tell, what the store itself wrote stands for it.
type wear struct {
	stat string // the device's file of figures, empty if there is none
	path string // where the sum of all lives is kept, empty for nowhere
	own  func() (written, payload int64)
	tbw  int64 // bytes that the card is made for, 0 if nobody said

	mu      sync.Mutex
	before  int64 // written in earlier lives of this node
	first   int64 // of the device, when this life began
	samples []wearSample
	saved   time.Time
}

type wearSample struct {
	at      time.Duration // of this life, by the monotonic clock
	written int64         // in this life
}

// wearFigures are what a person is told.
type wearFigures struct {
	Written       int64   // bytes, by this node's lives on this data directory
	PerDay        int64   // -1: not known yet
	Amplification float64 // bytes that the store wrote for each byte of records, 0 if there were none
	Days          int64   // until the card has taken what it is made for; -1: not known
}

// openWear finds the device of a directory. root stands for /.
func openWear(root, dir, path string, tbw int64, own func() (written, payload int64)) *wear {
	w := &wear{stat: deviceStat(root, dir), path: path, own: own, tbw: tbw, saved: time.Now()}
	var kept struct{ Written int64 }
	if path != "" {
		if b, err := readBounded(path, 4<<10); err == nil && json.Unmarshal(b, &kept) == nil {
			w.before = max(kept.Written, 0)
		}
	}
	w.first = w.device()
	w.samples = []wearSample{{}}
	return w
}

// deviceStat is the file of figures of the device that a directory is on, empty if it is on none.
func deviceStat(root, dir string) string {
	var st syscall.Stat_t
	if dir == "" || syscall.Stat(dir, &st) != nil {
		return ""
	}
	dev := uint64(st.Dev)
	major, minor := dev>>8&0xfff, dev&0xff|dev>>12&0xfff00
	path := filepath.Join(root, "sys/dev/block", fmt.Sprintf("%d:%d", major, minor), "stat")
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// device is what the device says it has written since the boot; 0 if it does not.
func (w *wear) device() int64 {
	if w.stat == "" {
		return 0
	}
	b, err := os.ReadFile(w.stat)
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	if len(f) < 7 {
		return 0
	}
	n, _ := strconv.ParseInt(f[6], 10, 64)
	return n * sectorBytes
}

// writtenNow is what was written in this life.
func (w *wear) writtenNow() int64 {
	if w.stat != "" {
		return max(w.device()-w.first, 0)
	}
	written, _ := w.own()
	return written
}

// sample is called now and then, with the age of this life.
func (w *wear) sample(age time.Duration) {
	written := w.writtenNow()
	w.mu.Lock()
	defer w.mu.Unlock()
	if last := w.samples[len(w.samples)-1]; age-last.at < wearEvery {
		return
	}
	if len(w.samples) == wearSamples {
		w.samples = append(w.samples[:0], w.samples[1:]...)
	}
	w.samples = append(w.samples, wearSample{age, written})
}

// made says how much the card is made to take.
func (w *wear) made(tbw int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tbw = tbw
}

// figures as of now; the rate is that of the last day, or of this life if it is shorter.
func (w *wear) figures(age time.Duration) wearFigures {
	written := w.writtenNow()
	own, payload := w.own()
	w.mu.Lock()
	defer w.mu.Unlock()
	f := wearFigures{Written: w.before + written, PerDay: -1, Days: -1}
	if payload > 0 {
		f.Amplification = float64(own) / float64(payload)
	}
	from := w.samples[0]
	if span := age - from.at; span >= time.Minute {
		f.PerDay = int64(float64(written-from.written) / span.Hours() * 24)
	}
	if w.tbw > 0 && f.PerDay > 0 {
		f.Days = max(w.tbw-f.Written, 0) / f.PerDay
	}
	return f
}

// save keeps the sum over restarts; rarely, and only if something was written that is worth it.
func (w *wear) save(atOnce bool) error {
	if w.path == "" {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	written := w.writtenNow()
	if !atOnce && (time.Since(w.saved) < wearSave || written < 1<<20) {
		return nil
	}
	w.saved = time.Now()
	b, err := json.Marshal(struct{ Written int64 }{w.before + written})
	if err != nil {
		return err
	}
	return replaceFile(w.path, append(b, '\n'))
}
