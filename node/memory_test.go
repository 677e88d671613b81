package node

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

// tree writes files below a new directory that stands for /.
func tree(t *testing.T, files map[string]string) string {
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
	return root
}

func TestMachineBudget_theControlGroupElseTheBoard(t *testing.T) {
	meminfo := "MemTotal:         440320 kB\nMemFree:  1 kB\n" // a Pi Zero: 430 MiB
	for name, tt := range map[string]struct {
		files map[string]string
		want  int64
		from  string
	}{
		"Pi OS has no memory control group": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/system.slice/edged.service\n"}, 430 << 20 / 4, "machine"},
		"version 2": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/system.slice/edged.service\n",
			"sys/fs/cgroup/system.slice/edged.service/memory.max": "100663296\n", "sys/fs/cgroup/system.slice/edged.service/memory.high": "max\n"}, 72 << 20, "control group"},
		"a parent binds as well": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/system.slice/edged.service\n",
			"sys/fs/cgroup/system.slice/memory.high": "134217728\n", "sys/fs/cgroup/system.slice/edged.service/memory.max": "268435456\n"}, 96 << 20, "control group"},
		"version 1": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/edged\n0::/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n", "sys/fs/cgroup/memory/edged/memory.limit_in_bytes": "134217728\n"}, 96 << 20, "control group"},
		"a limit above the board is none": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "8589934592\n"}, 430 << 20 / 4, "machine"},
		"a tiny limit":                    {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "33554432\n"}, leastMemory, "control group"},
		"nothing is known":                {map[string]string{}, unknownBoard, "does not tell"},
	} {
		t.Run(name, func(t *testing.T) {
			b := machineBudget(tree(t, tt.files))
			if b.Bytes != tt.want || !strings.Contains(b.Source, tt.from) {
				t.Errorf("%d MiB (%s), want %d MiB", b.Bytes>>20, b.Source, tt.want>>20)
			}
		})
	}
}

// Whatever the budget, all bounds together fit into what the runtime may take, with room for what the
// program holds without any load (8 MiB).
func TestBudget_allBoundsTogetherFit(t *testing.T) {
	last := memoryBounds{}
	for _, n := range []int64{48, 64, 96, 128, 256, 512, 1024, 8192} {
		b := Budget{Bytes: n << 20}
		m := b.bounds()
		if n >= 64 && m.sum()+8<<20 > b.runtimeLimit() || m.sum() > b.runtimeLimit() {
			t.Errorf("a budget of %d MiB: the bounds are %d MiB together, the runtime has %d MiB", n, m.sum()>>20, b.runtimeLimit()>>20)
		}
		if m.memTable < last.memTable || m.shared < last.shared || m.core.EntryCache < last.core.EntryCache || m.conns < last.conns {
			t.Errorf("a budget of %d MiB gives less than a smaller one", n)
		}
		last = m
	}
	m := Budget{Bytes: 1 << 40}.bounds()
	if got := m.sum(); got > 256<<20 {
		t.Errorf("however large the machine, the bounds end; they are %d MiB", got>>20)
	}
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"": 0, "0": 0, "64MiB": 64 << 20, "64M": 64 << 20, "1.5GB": 1500000000, "100 TB": 100e12, "48 MiB": 48 << 20, "1024": 1024, "3K": 3072, "7B": 7,
	} {
		if got, err := parseBytes(text); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"much", "-1", "64XiB", "MiB", "1e30", "64 MiBs", "NaN", "9999999TB"} {
		if got, err := parseBytes(text); err == nil {
			t.Errorf("%q is taken for %d", text, got)
		}
	}
}

// The variable says the same before and after the runtime was told.
func TestConfigBudget_ofTheVariable(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	for text, want := range map[string]int64{"96MiB": 96 << 20, "1KiB": leastMemory} {
		t.Setenv("GOMEMLIMIT", text)
		for range 2 {
			b := DefaultConfig().Budget()
			if b.Bytes != want || b.Source != "$GOMEMLIMIT" {
				t.Errorf("%s: %+v", text, b)
			}
			b.Apply()
		}
	}
	t.Setenv("GOMEMLIMIT", "off")
	if b := DefaultConfig().Budget(); b.Source == "$GOMEMLIMIT" {
		t.Errorf("off: %+v", b)
	}
}

func TestConfigBudget_theSettingWins(t *testing.T) {
	c, err := Load(Inputs{Flags: map[string][]string{"memory-limit": {"64MiB"}}})
	if err != nil {
		t.Fatal(err)
	}
	if b := c.Budget(); b.Bytes != 64<<20 || !strings.Contains(b.Source, "--memory-limit") {
		t.Errorf("%+v", b)
	}
	if _, err := Load(Inputs{Flags: map[string][]string{"memory-limit": {"10MiB"}}}); err == nil || !strings.Contains(err.Error(), "at least 48 MiB") {
		t.Errorf("10 MiB: %v", err)
	}
}
