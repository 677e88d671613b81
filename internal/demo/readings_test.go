package main

import (
	"encoding/json"
	"testing"
	"testing/fstest"
	"time"
)

func TestSample_numbersWhatTheKernelTells(t *testing.T) {
	files := fstest.MapFS{
		"proc/stat":                            {Data: []byte("cpu  10 1 20 300 4\ncpu0 5 1 10 150 4\nintr 5\nctxt 9\n")},
		"proc/loadavg":                         {Data: []byte("0.25 0.1 0.1 1/100 4242\n")},
		"proc/meminfo":                         {Data: []byte("MemTotal: 100 kB\nMemFree: 50 kB\nDirty: 1 kB\n")},
		"proc/net/dev":                         {Data: []byte("Inter-|  Receive\n face |bytes\n    lo: 100 1 0 0 0 0 0 0 200 1 0\n")},
		"proc/diskstats":                       {Data: []byte("   7 0 loop0 1 2 3 4 5 6 7 8\n 179 0 mmcblk0 1 2 8 4 5 6 16 8 0 0\n")},
		"sys/class/thermal/thermal_zone0/temp": {Data: []byte("48312\n")},
	}
	want := map[string]float64{
		"cpu.user": 10, "cpu.system": 20, "cpu.idle": 300, "cpu0.user": 5, "cpu0.system": 10, "cpu0.idle": 150,
		"load.1m": 0.25, "memory.MemFree": 51200, "memory.Dirty": 1024, "net.lo.received": 100, "net.lo.sent": 200,
		"disk.mmcblk0.read": 4096, "disk.mmcblk0.written": 8192, "heat.thermal_zone0": 48.312,
	}
	m := &machine{root: files}
	for round := range int64(2) {
		all := m.sample(time.UnixMicro(1000 + round))
		if len(all) != len(want) {
			t.Errorf("%d readings, want %d", len(all), len(want))
		}
		for i, r := range all {
			if v, ok := want[r.Source]; !ok || v != r.Value {
				t.Errorf("%s = %v, want %v", r.Source, r.Value, v)
			}
			if r.Seq != round*int64(len(want))+int64(i) || r.At != 1000+round {
				t.Errorf("round %d, reading %d has number %d and time %d", round, i, r.Seq, r.At)
			}
			var back reading
			if err := json.Unmarshal(r.line(), &back); err != nil || back != r {
				t.Errorf("%s is read back as %+v, %v", r.line(), back, err)
			}
		}
	}
}

func TestSample_aMachineWithNothingGivesNothing(t *testing.T) {
	if all := (&machine{root: fstest.MapFS{}}).sample(time.Now()); len(all) != 0 {
		t.Errorf("got %v", all)
	}
}
