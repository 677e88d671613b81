package sim

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A run that takes so much real time is broken: seconds are usual, on a busy machine.
const (
	usualHangsAfter = 5 * time.Minute
	hangsAfterEnv   = "EDGED_SIM_HANGS_AFTER"
)

// dumpWithin is how long the end of a run that hangs may take to be told.
func dumpWithin() time.Duration { return min(10*time.Second, 4*hangsAfter()) }

func hangsAfter() time.Duration {
	if d, err := time.ParseDuration(os.Getenv(hangsAfterEnv)); err == nil {
		return d
	}
	return usualHangsAfter
}

// watch ends the process if the run does not end: with its seed, its story and its goroutines, first those that let
// virtual time stand still. It is called outside the bubble and trusts nothing in there: the story's lock may be
// held, and a goroutine that lets nobody stop the world is told of by SIGQUIT.
func watch(profile string, seed uint64, now *atomic.Pointer[world]) *time.Timer {
	return time.AfterFunc(hangsAfter(), func() {
		debug.SetTraceback("all")
		time.AfterFunc(dumpWithin(), func() { _ = syscall.Kill(os.Getpid(), syscall.SIGQUIT) })
		fmt.Fprintf(os.Stderr, "--- seed %d of profile %s broke the law %q: it has not ended after %v\n", seed, profile, lawEnds, hangsAfter())
		told := make(chan string, 1)
		if w := now.Load(); w != nil {
			go func() { told <- w.told() }()
		}
		select {
		case text := <-told:
			fmt.Fprintf(os.Stderr, "--- seed %d: what happened last, in virtual time\n%s", seed, text)
		case <-time.After(dumpWithin() / 4):
			fmt.Fprintln(os.Stderr, "--- nobody can tell the story: its lock is held")
		}
		stacks := make([]byte, 16<<20)
		first, rest := inTheWay(string(stacks[:runtime.Stack(stacks, true)]))
		fmt.Fprintf(os.Stderr, "--- goroutines of the run that let time stand still\n%s\n--- all others\n%s\n", first, rest)
		os.Exit(2)
	})
}

// inTheWay parts the goroutines of the bubble that do not wait for one another from all others.
func inTheWay(stacks string) (first, rest string) {
	for _, g := range strings.SplitAfter(stacks, "\n\n") {
		if head, _, _ := strings.Cut(g, "\n"); strings.Contains(head, "synctest bubble") && !strings.Contains(head, "(durable)") {
			first += g
		} else {
			rest += g
		}
	}
	return first, rest
}

// hangEnv makes runs hang in one of these ways.
const hangEnv = "EDGED_SIM_HANG"

var hanging = profile{name: "hanging", nodes: []int{1}, steps: 1, before: func(w *world) {
	var mu sync.Mutex
	w.story.tell("script", "HANGS")
	switch os.Getenv(hangEnv) {
	case "lock": // time stands still while somebody waits for a mutex
		mu.Lock()
		go func() {
			time.Sleep(time.Hour)
			mu.Unlock()
		}()
		mu.Lock()
	case "loop":
		for !w.over() {
		}
	case "story": // nobody can tell it
		w.story.mu.Lock()
		mu.Lock()
		mu.Lock()
	case "process": // which then does not end itself either
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
}}

// A run that does not end says which it was and what its goroutines do, whatever it hangs in, and holds nobody up.
func TestSim_aRunThatHangsIsToldOf(t *testing.T) {
	for _, tt := range []struct {
		how   string
		wants []string
	}{
		{"lock", []string{"HANGS", "sync.Mutex.Lock, synctest bubble", "hang_test.go"}},
		{"loop", []string{"HANGS", "goroutine ", "hang_test.go"}},
		{"story", []string{"nobody can tell the story", "sync.Mutex.Lock, synctest bubble"}},
		{"process", []string{"does not end itself", "goroutine "}},
	} {
		t.Run(tt.how, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run", "^TestSim$", "-test.timeout", "0")
			cmd.Env = append(os.Environ(), hangEnv+"="+tt.how, hangsAfterEnv+"=500ms", "EDGED_SIM_FROM=7", "EDGED_SIM_SEEDS=2", "EDGED_SIM_WORKERS=2", "EDGED_SIM_FOR=")
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("it was taken for a good run:\n%s", out)
			}
			for _, want := range append(tt.wants, lawEnds, "of profile hanging") {
				if !strings.Contains(string(out), want) {
					t.Errorf("%q is missing in:\n%.2000s", want, out)
				}
			}
		})
	}
}
