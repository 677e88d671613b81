package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// calm is a program that tells what calmRuntime made of it: the slacks of its threads, how many processors it has
// beside the cores, and whether a mark of its beginning anew is left.
func calm() {
	cores := runtime.GOMAXPROCS(0)
	calmRuntime()
	slacks := map[string]bool{}
	threads, err := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		if b, e := os.ReadFile("/proc/" + t.Name() + "/timerslack_ns"); e == nil { // of others only root may read it
			slacks[strings.TrimSpace(string(b))] = true
		}
	}
	_, marked := os.LookupEnv("_EDGED_TIMER_SLACK")
	fmt.Println(slacks, runtime.GOMAXPROCS(0)-cores, marked, err)
}
