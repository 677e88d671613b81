package main

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// timerSlack is how late the kernel may end a sleep of this process. It is for the runtime's threads: the one
	// that watches over the others sleeps 20 us at a time for as long as anything runs, which was a quarter of what
	// a node spends on a record that comes alone, and one that looks for work to steal does so for 3 us. No time of
	// ours is as short as this.
	timerSlack = 500 * time.Microsecond
	// slackSet marks, in its environment, the process that was begun anew with it.
	slackSet = "_EDGED_TIMER_SLACK"
)

// calmRuntime makes the runtime look around less often. A thread has the timer slack of the one that made it, and
// the runtime makes its own before any line of ours: so the process begins anew, once, as itself. A slack that
// somebody has chosen stays.
//
// A processor that is held by a goroutine in a system call is then taken away later. So there is one more of them
// than there are cores: the sync of the log holds one for most of the time.
func calmRuntime() {
	beginAnew()
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	}
}

// beginAnew does not return if the process has to begin anew and can.
func beginAnew() {
	runtime.LockOSThread() // the slack is the thread's, and goes on with the one that calls exec
	defer runtime.UnlockOSThread()
	marked := os.Getenv(slackSet) != ""
	_ = os.Unsetenv(slackSet)
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || marked || time.Duration(slack) >= timerSlack {
		return
	}
	path, err := os.Executable()
	if err != nil || unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0) != nil {
		return
	}
	_ = syscall.Exec(path, os.Args, append(os.Environ(), slackSet+"=1")) // if it fails this process goes on
}
