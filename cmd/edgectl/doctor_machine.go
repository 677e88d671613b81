package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// here is the machine that edgectl runs on.
const here = "this machine"

// machine reads what the system says of itself; root stands for /.
type machine struct{ root string }

// text is a small file of /proc or /sys without white space around it, empty if there is none.
func (m machine) text(path string) string {
	b, err := os.ReadFile(filepath.Join(m.root, path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// kib is the number behind a word of /proc/meminfo.
func (m machine) kib(word string) int64 {
	for line := range strings.Lines(m.text("proc/meminfo")) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == word {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}

func (m machine) look(f *findings) {
	m.lookAtKernel(f)
	m.lookAtMemory(f)
	m.lookAtClock(f)
	m.lookAtPower(f)
}

func (m machine) lookAtKernel(f *findings) {
	release := m.text("proc/sys/kernel/osrelease")
	arch := m.text("proc/sys/kernel/arch") // since Linux 6.1
	text := fmt.Sprintf("Linux %s %s, program for %s", release, arch, runtime.GOARCH)
	if runtime.GOARCH == "arm" && (arch == "aarch64" || strings.HasSuffix(release, "-v8+") || strings.Contains(release, "v8-16k")) {
		f.add("kernel", here, verdictWarning, text, "the processor takes 64-bit programs: where the system does too, install the arm64 package; 32-bit ones end in 2038")
		return
	}
	f.add("kernel", here, verdictOK, text, "")
}

func (m machine) lookAtMemory(f *findings) {
	total, free := m.kib("MemTotal:")<<10, m.kib("MemAvailable:")<<10
	if total == 0 {
		f.add("memory", here, verdictWarning, "/proc/meminfo does not tell how much there is", "set memory-limit")
		return
	}
	text := fmt.Sprintf("%s, %s available", bytesText(total), bytesText(free))
	if strings.Contains(m.text("proc/swaps"), "zram") {
		text += ", compressed swap"
	}
	if strings.Contains(m.text("proc/cmdline"), "cgroup_disable=memory") {
		text += ", no memory control groups (MemoryMax does nothing; edged keeps to its budget by itself)"
	}
	verdict := verdictOK
	if free < total/20 {
		verdict = verdictWarning
	}
	f.add("memory", here, verdict, text, "stop what takes the memory, or lower memory-limit")
}

func (m machine) lookAtClock(f *findings) {
	now := time.Now()
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	switch {
	case now.Year() < 2025:
		f.add("clock", here, verdictFailure, "it says "+now.Format(time.DateTime), "set it: timedatectl set-ntp true, or date -s")
	case err != nil:
		f.add("clock", here, verdictWarning, "the kernel does not tell whether it is synchronised: "+err.Error(), "run this as another user")
	case state == unix.TIME_ERROR || t.Status&unix.STA_UNSYNC != 0:
		f.add("clock", here, verdictWarning, "it is not synchronised: "+now.Format(time.DateTime), "timedatectl set-ntp true; "+orTrust)
	default:
		f.add("clock", here, verdictOK, "it is synchronised: "+now.Format(time.DateTime), "")
	}
}

// orTrust is what a node may be told whose clock nobody sets.
const orTrust = `where a battery or a person keeps the time, set clock-trust = "always"`

// lookAtPower finds what a Pi tells of its supply and its heat.
func (m machine) lookAtPower(f *findings) {
	sensors, _ := filepath.Glob(filepath.Join(m.root, "sys/class/hwmon/hwmon*"))
	for _, s := range sensors {
		rel, _ := filepath.Rel(m.root, s)
		if m.text(rel+"/name") == "rpi_volt" && m.text(rel+"/in0_lcrit_alarm") == "1" {
			f.add("power", here, verdictFailure, "the supply is below 4.63 V: the board slows down and may corrupt its card", "use a stronger supply and a shorter cable")
		}
	}
	if milli, err := strconv.ParseInt(m.text("sys/class/thermal/thermal_zone0/temp"), 10, 64); err == nil {
		verdict := verdictOK
		if milli >= 80_000 {
			verdict = verdictWarning
		}
		f.add("heat", here, verdict, fmt.Sprintf("%d °C", milli/1000), "the board slows down from 80 °C: give it air")
	}
}

// mount is where a directory lives.
type mount struct {
	point, fstype string
	options       []string // of the mount and of the file system
	device        string   // major:minor
}

// mountOf finds the mount of a directory.
func (m machine) mountOf(dir string) (best mount) {
	for line := range strings.Lines(m.text("proc/self/mountinfo")) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(r) < 3 {
			continue
		}
		point := strings.NewReplacer(`\040`, " ", `\011`, "\t").Replace(l[4])
		if within(point, dir) && len(point) >= len(best.point) {
			best = mount{point, r[0], strings.Split(l[5]+","+r[2], ","), l[2]}
		}
	}
	return best
}

func within(point, dir string) bool {
	return dir == point || strings.HasPrefix(dir, strings.TrimSuffix(point, "/")+"/")
}

// judgeMount says what is wrong with keeping data there.
func judgeMount(mt mount) (verdict, text, do string) {
	text = mt.fstype + " at " + mt.point
	has := func(o string) bool { return slices.Contains(mt.options, o) }
	commit := 0
	for _, o := range mt.options {
		if v, ok := strings.CutPrefix(o, "commit="); ok {
			commit, _ = strconv.Atoi(v)
		}
	}
	switch {
	case slices.Contains([]string{"tmpfs", "ramfs", "overlay"}, mt.fstype):
		return verdictFailure, text + ": it may be gone at the next boot", "put data-dir on a disk; under an overlay root mount one of its own"
	case has("ro"):
		return verdictFailure, text + " is read-only", "look at the kernel's log for errors of the card, then remount or replace it"
	case slices.Contains([]string{"vfat", "exfat", "msdos", "ntfs", "ntfs3", "nfs", "nfs4", "cifs", "9p", "fuseblk"}, mt.fstype):
		return verdictFailure, text + " keeps no promise about power cuts", "use ext4"
	case has("data=writeback"), has("nobarrier"), has("barrier=0"):
		return verdictFailure, text + " is mounted so that a power cut may spoil what was synced", "remove data=writeback, nobarrier and barrier=0 from /etc/fstab"
	case commit > 30:
		return verdictWarning, fmt.Sprintf("%s has commit=%d", text, commit), "use the default of 5 s: others' files are lost for so long"
	case mt.fstype == "f2fs":
		return verdictWarning, text, "ext4 is easier to repair after power cuts"
	}
	return verdictOK, text, ""
}

// lookAtDisk judges the disk that a data directory is on.
func lookAtDisk(f *findings, m machine, dir string, asked bool) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		_, err = os.Stat(dir)
	}
	if err != nil {
		if asked {
			f.add("disk", here, verdictFailure, err.Error(), "name the data directory with --data-dir, and run this as root or as the user of edged")
		}
		return
	}
	mt := m.mountOf(dir)
	verdict, text, do := judgeMount(mt)
	f.add("mount", here, verdict, text, do)
	if text := m.card(mt.device); text != "" {
		verdict, do := m.judgeCard(mt.device)
		f.add("card", here, verdict, text, do)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err == nil {
		free, total := int64(st.Bavail)*int64(st.Bsize), int64(st.Blocks)*int64(st.Bsize)
		verdict := verdictOK
		switch {
		case free < 24<<20 || st.Files > 0 && st.Ffree == 0:
			verdict = verdictFailure
		case free < total/10 || st.Files > 0 && st.Ffree < st.Files/20:
			verdict = verdictWarning
		}
		f.add("space", here, verdict, fmt.Sprintf("%s of %s free in %s", bytesText(free), bytesText(total), dir), "free space, lower the retention of topics, or set retention-percent")
	}
	lookAtSync(f, dir)
}

// block is the directory of a device in sysfs: of the whole disk, also where a partition is meant.
func (m machine) block(device string) string {
	path, err := filepath.EvalSymlinks(filepath.Join(m.root, "sys/dev/block", device))
	if err != nil || device == "" {
		return ""
	}
	if _, err := os.Stat(filepath.Join(path, "partition")); err == nil {
		path = filepath.Dir(path)
	}
	rel, err := filepath.Rel(m.root, path)
	if err != nil {
		return ""
	}
	return rel
}

// card says in words what a device is, empty if nobody tells.
func (m machine) card(device string) string {
	dir := m.block(device)
	if dir == "" {
		return ""
	}
	name := filepath.Base(dir)
	parts := []string{name}
	for _, file := range []string{"device/type", "device/name", "device/model"} {
		if t := m.text(filepath.Join(dir, file)); t != "" {
			parts = append(parts, t)
		}
	}
	if life := m.text(filepath.Join(dir, "device/life_time")); life != "" {
		parts = append(parts, "life used (in tenths): "+life)
	}
	return strings.Join(parts, " ")
}

// judgeCard goes by what eMMC tells of its wear; SD cards tell nothing.
func (m machine) judgeCard(device string) (verdict, do string) {
	dir := m.block(device)
	for _, v := range strings.Fields(m.text(filepath.Join(dir, "device/life_time"))) {
		if n, err := strconv.ParseInt(strings.TrimPrefix(v, "0x"), 16, 64); err == nil && n >= 9 {
			return verdictFailure, "it is worn: move the node to another card"
		}
	}
	return verdictOK, ""
}

// The test of the disk's speed: so many small synced writes, for at most so long.
const (
	syncTests    = 50
	syncPatience = 5 * time.Second
)

// lookAtSync measures how long a small synced write takes.
func lookAtSync(f *findings, dir string) {
	took, err := timeSyncs(dir)
	if err != nil {
		f.add("fsync", here, verdictWarning, "not measured: "+err.Error(), "run this as root or as the user of edged")
		return
	}
	slices.Sort(took)
	half, worst := took[len(took)/2], took[len(took)-1]
	text := fmt.Sprintf("a synced write of 4 KiB takes %v, the slowest of %d took %v", half.Round(10*time.Microsecond), len(took), worst.Round(10*time.Microsecond))
	switch {
	case worst >= time.Second || half >= 100*time.Millisecond:
		f.add("fsync", here, verdictFailure, text, "the card is too slow: use a card of class A1 or better, or an SSD")
	case worst >= 100*time.Millisecond || half >= 10*time.Millisecond:
		f.add("fsync", here, verdictWarning, text, "usable; a better card or an SSD makes acknowledgements faster")
	default:
		f.add("fsync", here, verdictOK, text, "")
	}
}

func timeSyncs(dir string) ([]time.Duration, error) {
	file, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	block := make([]byte, 4<<10)
	var took []time.Duration
	for began := time.Now(); len(took) < syncTests && (len(took) == 0 || time.Since(began) < syncPatience); {
		at := time.Now()
		if _, err := file.Write(block); err != nil {
			return nil, err
		}
		if err := syscall.Fdatasync(int(file.Fd())); err != nil {
			return nil, err
		}
		took = append(took, time.Since(at))
	}
	return took, nil
}
