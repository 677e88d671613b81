package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"time"
)

// reading is one measured value of this machine, and one record of the topic. Seq counts
// over all readings of a run, so that each record is unique and its place is known.
type reading struct {
	Seq    int64   `json:"seq"`
	At     int64   `json:"at"` // µs since 1970
	Source string  `json:"source"`
	Value  float64 `json:"value"`
}

func (r reading) line() []byte {
	b, _ := json.Marshal(r) // fails for nothing but numbers that are not finite
	return b
}

// machine reads what the kernel tells about CPU, memory, disks, network and heat. Its
// root is that of the file system, so that a test can give another machine.
type machine struct {
	root fs.FS
	seq  int64
}

// sample takes all readings there are right now, numbered on from the last ones. A file
// that this machine does not have gives none.
func (m *machine) sample(now time.Time) []reading {
	var all []reading
	add := func(source string, value float64) {
		all = append(all, reading{Seq: m.seq, At: now.UnixMicro(), Source: source, Value: value})
		m.seq++
	}
	m.lines("proc/stat", func(f []string) {
		if strings.HasPrefix(f[0], "cpu") && len(f) > 4 {
			add(f[0]+".user", number(f[1]))
			add(f[0]+".system", number(f[3]))
			add(f[0]+".idle", number(f[4]))
		}
	})
	m.lines("proc/loadavg", func(f []string) { add("load.1m", number(f[0])) })
	m.lines("proc/meminfo", func(f []string) {
		switch f[0] {
		case "MemFree:", "MemAvailable:", "Cached:", "Dirty:":
			add("memory."+strings.TrimSuffix(f[0], ":"), number(f[1])*1024)
		}
	})
	m.lines("proc/diskstats", func(f []string) {
		if len(f) > 9 && !strings.HasPrefix(f[2], "loop") && !strings.HasPrefix(f[2], "ram") {
			add("disk."+f[2]+".read", number(f[5])*512)
			add("disk."+f[2]+".written", number(f[9])*512)
		}
	})
	m.lines("proc/net/dev", func(f []string) {
		if name, ok := strings.CutSuffix(f[0], ":"); ok && len(f) > 9 {
			add("net."+name+".received", number(f[1]))
			add("net."+name+".sent", number(f[9]))
		}
	})
	zones, _ := fs.Glob(m.root, "sys/class/thermal/thermal_zone*/temp")
	for _, z := range zones {
		m.lines(z, func(f []string) { add("heat."+path.Base(path.Dir(z)), number(f[0])/1000) })
	}
	return all
}

// lines calls fn with the fields of each line that has some.
func (m *machine) lines(name string, fn func(fields []string)) {
	f, err := m.root.Open(name)
	if err != nil {
		return
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if fields := strings.Fields(s.Text()); len(fields) > 1 || len(fields) == 1 && strings.HasPrefix(name, "sys/") {
			fn(fields)
		}
	}
}

func number(s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}

// thisMachine fails where there is no /proc to read.
func thisMachine() (*machine, error) {
	m := &machine{root: os.DirFS("/")}
	if len(m.sample(time.Now())) == 0 {
		return nil, fmt.Errorf("/proc tells nothing about this machine; the demo needs Linux")
	}
	m.seq = 0
	return m, nil
}
