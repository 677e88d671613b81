package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"edged/record"
	"edged/transport/wire"
)

// tree is a machine of files below a directory that stands for /.
func tree(t *testing.T, files map[string]string) machine {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return machine{root}
}

func verdictOf(f *findings, check string) (verdict, text string) {
	for _, x := range f.all {
		if x.Check == check {
			return x.Verdict, x.Text
		}
	}
	return "", ""
}

func TestDoctor_mounts(t *testing.T) {
	info := `22 1 179:2 / / rw,noatime shared:1 - ext4 /dev/root rw
23 22 0:21 / /run rw,nosuid - tmpfs tmpfs rw,mode=755
24 22 179:3 / /var/lib/edged rw,noatime - ext4 /dev/mmcblk0p3 rw,%s
25 22 179:4 / /mnt/a\040b ro,noatime - ext4 /dev/mmcblk0p4 ro
26 22 179:1 / /boot rw - vfat /dev/mmcblk0p1 rw
27 22 0:30 / /overlay rw - overlay overlay rw,lowerdir=/lower
`
	for _, tt := range []struct{ dir, options, want, text string }{
		{"/home/pi", "", verdictOK, "ext4 at /"},
		{"/var/lib/edged", "errors=remount-ro", verdictOK, "ext4 at /var/lib/edged"},
		{"/var/lib/edgedother", "data=writeback", verdictOK, "ext4 at /"},
		{"/var/lib/edged/data", "data=writeback", verdictFailure, "power cut"},
		{"/var/lib/edged", "nobarrier", verdictFailure, "power cut"},
		{"/var/lib/edged", "commit=600", verdictWarning, "commit=600"},
		{"/run/edged", "", verdictFailure, "tmpfs at /run"},
		{"/mnt/a b/c", "", verdictFailure, "read-only"},
		{"/boot/x", "", verdictFailure, "vfat"},
		{"/overlay", "", verdictFailure, "next boot"},
	} {
		m := tree(t, map[string]string{"proc/self/mountinfo": strings.Replace(info, "%s", tt.options, 1)})
		verdict, text, do := judgeMount(m.mountOf(tt.dir))
		if verdict != tt.want || !strings.Contains(text, tt.text) || verdict != verdictOK && do == "" {
			t.Errorf("%s with %q: %s, %q, %q", tt.dir, tt.options, verdict, text, do)
		}
	}
}

func TestDoctor_cards(t *testing.T) {
	m := tree(t, map[string]string{
		"sys/devices/mmc0/block/mmcblk0/mmcblk0p2/partition": "2\n",
		"sys/devices/mmc0/block/mmcblk0/device/type":         "MMC\n",
		"sys/devices/mmc0/block/mmcblk0/device/name":         "BJTD4R\n",
		"sys/devices/mmc0/block/mmcblk0/device/life_time":    "0x02 0x0a\n",
		"sys/dev/block/none":                                 "",
	})
	if err := os.Symlink("../../devices/mmc0/block/mmcblk0/mmcblk0p2", filepath.Join(m.root, "sys/dev/block/179:2")); err != nil {
		t.Fatal(err)
	}
	if got := m.card("179:2"); got != "mmcblk0 MMC BJTD4R life used (in tenths): 0x02 0x0a" {
		t.Errorf("%q", got)
	}
	if verdict, _ := m.judgeCard("179:2"); verdict != verdictFailure {
		t.Errorf("a worn eMMC: %s", verdict)
	}
	if got := m.card("8:1"); got != "" {
		t.Errorf("a device that is not there: %q", got)
	}
}

func TestDoctor_memoryPowerAndHeat(t *testing.T) {
	m := tree(t, map[string]string{
		"proc/meminfo": "MemTotal: 440320 kB\nMemAvailable: 9000 kB\n", "proc/swaps": "Filename\n/dev/zram0 partition\n",
		"proc/cmdline":                           "console=tty1 cgroup_disable=memory",
		"sys/class/hwmon/hwmon1/name":            "rpi_volt\n",
		"sys/class/hwmon/hwmon1/in0_lcrit_alarm": "1\n",
		"sys/class/thermal/thermal_zone0/temp":   "82500\n",
	})
	f := &findings{}
	m.look(f)
	for check, want := range map[string]struct{ verdict, text string }{
		"memory": {verdictWarning, "compressed swap, no memory control groups"}, "power": {verdictFailure, "4.63 V"}, "heat": {verdictWarning, "82 °C"},
	} {
		if verdict, text := verdictOf(f, check); verdict != want.verdict || !strings.Contains(text, want.text) {
			t.Errorf("%s: %s, %q", check, verdict, text)
		}
	}
}

func TestDoctor_syncsAndLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	f := &findings{}
	lookAtDisk(f, machine{"/"}, dir, true)
	if verdict, text := verdictOf(f, "fsync"); verdict == "" || !strings.Contains(text, "a synced write of 4 KiB takes") {
		t.Errorf("%s, %q", verdict, text)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	f = &findings{}
	lookAtDisk(f, machine{"/"}, filepath.Join(dir, "none"), true)
	if verdict, _ := verdictOf(f, "disk"); verdict != verdictFailure {
		t.Errorf("a directory that is not there: %+v", f.all)
	}
}

// Partitions that nobody can read, or that have too few copies, are no good state.
func TestDoctor_partitions(t *testing.T) {
	for _, tt := range []struct {
		st            wire.Status
		verdict, text string
	}{
		{wire.Status{Partitions: 6, Leaderless: 2, UnderReplicated: 3}, verdictFailure, "2 of 6 partitions have no leader"},
		{wire.Status{Partitions: 6, UnderReplicated: 3}, verdictWarning, "3 of 6 partitions have fewer replicas in sync"},
		{wire.Status{Partitions: 1}, verdictOK, "1 partition, each with a leader"},
	} {
		f := &findings{}
		judgePartitions(f, tt.st)
		if len(f.all) != 1 || f.all[0].Verdict != tt.verdict || !strings.Contains(f.all[0].Text, tt.text) || (tt.verdict == verdictOK) != (f.all[0].Do == "") {
			t.Errorf("%+v: %+v", tt.st, f.all)
		}
	}
	f := &findings{}
	if judgePartitions(f, wire.Status{}); len(f.all) != 0 {
		t.Errorf("of none: %+v", f.all)
	}
}

// A node that is down is said to be down, once, with the commands that help; ports and addresses are spoken of where a
// way is shut and another one is open.
func TestDoctor_aNodeThatIsDown(t *testing.T) {
	all := []wire.Node{{ID: 1, Name: "pi1", Alive: true}, {ID: 2, Name: "pi2", Alive: true}, {ID: 3, Name: "pi3", AwayMs: 90_000}}
	way := func(to record.NodeID, protocol, problem string) wire.Reach {
		return wire.Reach{Node: to, Protocol: protocol, Addr: "h:1", Up: problem == "", Problem: problem}
	}
	for name, tt := range map[string]struct {
		third     error
		native    string // what the others hear from the third
		gossip    string
		wants     []string
		wantsNone []string
	}{
		"killed":       {errors.New("no connection"), "dial tcp h:1: connect: connection refused", "no answer", []string{"node 3 pi3: it is down since 20", "(1m)", "systemctl start edged", "edgectl node remove 3"}, []string{"open the port", "advertise", "cannot reach"}},
		"switched off": {errors.New("no connection"), "i/o timeout", "no answer", []string{"it is down since", "start its machine, or see to its network", "edgectl node remove 3"}, []string{"open the port", "advertise", "systemctl"}},
		"a shut port":  {nil, "i/o timeout", "", []string{"cannot reach 3 pi3 by native", "open the port"}, []string{"is down"}},
		"gossip alone": {errors.New("no connection"), "i/o timeout", "", []string{"it does not answer", "open the port"}, []string{"is down"}},
		"all is well":  {nil, "", "", []string{"reaches every other node that is up by every protocol, 4 ways"}, []string{"is down", "cannot reach"}},
	} {
		seen := make([]nodeView, len(all))
		for i, n := range all {
			seen[i].node = n
			for _, o := range all {
				if o.ID != n.ID {
					native, gossip := "", ""
					if o.ID == 3 {
						native, gossip = tt.native, tt.gossip
					}
					seen[i].reach = append(seen[i].reach, way(o.ID, "native", native), way(o.ID, "gossip", gossip))
				}
			}
		}
		if seen[2].err = tt.third; tt.third != nil {
			seen[2].reach = nil
		}
		f := &findings{}
		for i := range seen {
			seen[i].judge(f, all, downNodes(seen))
		}
		text := ""
		for _, x := range f.all {
			text += x.Check + " " + x.Where + ": " + x.Text + " → " + x.Do + "\n"
		}
		for _, want := range tt.wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is missing:\n%s", name, want, text)
			}
		}
		for _, not := range tt.wantsNone {
			if strings.Contains(text, not) {
				t.Errorf("%s: %q is said:\n%s", name, not, text)
			}
		}
		if strings.Count(text, "is down") > 1 {
			t.Errorf("%s: said more than once:\n%s", name, text)
		}
	}
}
