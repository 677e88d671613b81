package node

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// card is a device in a tree that stands for /, with a directory on it.
func card(t *testing.T) (root, dir string, written func(sectors int64)) {
	dir = t.TempDir()
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	dev := uint64(st.Dev)
	root = tree(t, map[string]string{fmt.Sprintf("sys/dev/block/%d:%d/stat", dev>>8&0xfff, dev&0xff|dev>>12&0xfff00): ""})
	written = func(sectors int64) {
		text := fmt.Sprintf("    1   2   3   4   5   6 %8d   8   0   9  10\n", sectors)
		if err := os.WriteFile(deviceStat(root, dir), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	written(1 << 20)
	return root, dir, written
}

func TestWear_theDevicesFiguresAndTheDaysLeft(t *testing.T) {
	root, dir, written := card(t)
	path := filepath.Join(dir, wearFileName)
	payload := int64(0)
	own := func() (int64, int64) { return 3 * payload, payload }
	w := openWear(root, dir, path, 100e9, own)
	if f := w.figures(time.Second); f.PerDay != -1 || f.Days != -1 || f.Written != 0 || f.Amplification != 0 {
		t.Errorf("at the start: %+v", f)
	}
	payload = 1000
	gb := int64(1e9) / sectorBytes
	for hour := range 30 {
		written(1<<20 + int64(hour)*gb)
		for m := range 6 {
			w.sample(time.Duration(hour)*time.Hour + time.Duration(m)*10*time.Minute)
		}
	}
	f := w.figures(29*time.Hour + 50*time.Minute)
	if f.Written/1e9 < 28 || f.Written/1e9 > 29 || f.PerDay/1e9 < 23 || f.PerDay/1e9 > 25 || f.Amplification != 3 {
		t.Errorf("a gigabyte an hour: %+v", f)
	}
	if want := (100e9 - f.Written) / f.PerDay; f.Days != want {
		t.Errorf("%d days, want %d", f.Days, want)
	}
	if err := w.save(true); err != nil {
		t.Fatal(err)
	}
	if again := openWear(root, dir, path, 0, own).figures(0); again.Written != f.Written || again.Days != -1 {
		t.Errorf("after a restart: %+v", again)
	}
}

func TestWear_withoutADeviceTheStoreCounts(t *testing.T) {
	w := openWear(t.TempDir(), t.TempDir(), "", 0, func() (int64, int64) { return 500, 100 })
	if f := w.figures(time.Hour); f.Written != 500 || f.PerDay != 12000 || f.Amplification != 5 {
		t.Errorf("%+v", f)
	}
	if err := w.save(true); err != nil {
		t.Error(err)
	}
}
