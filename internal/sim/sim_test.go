package sim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"edged/internal/leak"
)

func TestMain(m *testing.M) {
	// A run is short and leaves nothing behind, so that collecting rarely is cheap.
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(1 << 30)
	leak.Main(m)
}

// defaultRounds is how many seeds of each profile a plain test runs, and progressEvery how often a long one
// says how far it is.
const (
	defaultRounds = 1
	progressEvery = 10 * time.Second
)

// runSeed makes one run of a profile.
func runSeed(t *testing.T, p profile, seed uint64) *world {
	cryptotest.SetGlobalRandom(t, seed)
	var now atomic.Pointer[world]
	defer watch(p.name, seed, &now).Stop()
	var w *world
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(t, seed)
		now.Store(w)
		w.run(p)
	})
	if !w.over() {
		w.checkLinear()
	}
	if os.Getenv("EDGED_SIM_STORY") != "" {
		t.Logf("the story of seed %d:\n%s", seed, w.told())
	}
	t.Logf("%d records acknowledged, %d read, linear: %d partitions, %d undecided", w.hist.acked, w.hist.read, w.decided, w.undecided)
	return w
}

func number(t *testing.T, name string, otherwise int) int {
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		t.Fatalf("%s=%q: want a number", name, s)
	}
	return n
}

func profileNamed(t *testing.T, name string) profile {
	k := slices.IndexFunc(profiles, func(p profile) bool { return p.name == name })
	if k < 0 {
		t.Fatalf("there is no profile %q", name)
	}
	return profiles[k]
}

// TestSim runs seeds from EDGED_SIM_FROM on, of all profiles in turn or of EDGED_SIM_PROFILE: EDGED_SIM_SEEDS of
// them, or as many as fit into EDGED_SIM_FOR, in EDGED_SIM_WORKERS processes. It ends at the first that breaks a law.
func TestSim(t *testing.T) {
	c := campaign{
		from: number(t, "EDGED_SIM_FROM", 0), seeds: number(t, "EDGED_SIM_SEEDS", defaultRounds*len(profiles)), step: 1,
		only: os.Getenv("EDGED_SIM_PROFILE"), began: time.Now(),
	}
	if s := os.Getenv("EDGED_SIM_FOR"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatalf("EDGED_SIM_FOR=%q: %v", s, err)
		}
		c.until, c.seeds = c.began.Add(d), math.MaxInt32
	}
	if os.Getenv(hangEnv) != "" {
		profiles = append(profiles[:0:0], hanging)
	}
	workers := number(t, "EDGED_SIM_WORKERS", 1)
	if worker := os.Getenv(workerEnv); worker != "" {
		c.worker = true
		n, _ := strconv.Atoi(worker)
		c.from, c.step, c.seeds = c.from+n, workers, (c.seeds-n+workers-1)/workers
	}
	if workers > 1 && !c.worker {
		c.share(t, workers)
	} else {
		c.run(t)
	}
	how := "every law was kept"
	if t.Failed() {
		how = "A LAW WAS BROKEN"
	}
	t.Logf("%s: %s", how, c.done.told(c.began))
	if !c.worker {
		fmt.Fprintf(os.Stderr, "sim: %s: %s\n", how, c.done.told(c.began))
	}
}

// campaign is a number of runs, one after the other.
type campaign struct {
	from, seeds, step int
	only              string    // profile
	until             time.Time // zero without a limit
	began             time.Time
	worker            bool // its output is read by the process that shares the seeds out
	done              tally
}

// tally counts what was done.
type tally struct{ Seeds, Acked, Read, Undecided int }

func (d tally) told(since time.Time) string {
	took := time.Since(since)
	return fmt.Sprintf("%d seeds in %v, %.1f a second; %d records acknowledged, %d read; %d partitions undecided by porcupine", d.Seeds, took.Round(time.Second), float64(d.Seeds)/took.Seconds(), d.Acked, d.Read, d.Undecided)
}

func (c *campaign) run(t *testing.T) {
	told := time.Now()
	for i := 0; i < c.seeds && (c.until.IsZero() || time.Now().Before(c.until)) && !t.Failed(); i++ {
		seed := uint64(c.from + i*c.step)
		p := profiles[int(seed)%len(profiles)]
		if c.only != "" {
			p = profileNamed(t, c.only)
		}
		if c.worker {
			fmt.Printf("%s%d of profile %s\n", beginMark, seed, p.name)
		}
		t.Run(fmt.Sprintf("%s/%d", p.name, seed), func(t *testing.T) {
			w := runSeed(t, p, seed)
			d := &c.done
			d.Seeds, d.Acked, d.Read, d.Undecided = d.Seeds+1, d.Acked+w.hist.acked, d.Read+w.hist.read, d.Undecided+w.undecided
			if broken := w.broken.Load(); broken != nil {
				again := fmt.Sprintf("again: EDGED_SIM_PROFILE=%s EDGED_SIM_FROM=%d EDGED_SIM_SEEDS=1 go test ./internal/sim -run 'TestSim$'", p.name, seed)
				fmt.Fprintln(os.Stderr, "    "+again)
				t.Errorf("seed %d, profile %s, broke the law %q: %s\n%s", seed, p.name, broken.law, broken.text, again)
			}
		})
		if c.worker {
			line, _ := json.Marshal(c.done)
			fmt.Printf("%s%s\n", tallyMark, line)
		} else if time.Since(told) > progressEvery {
			told = time.Now()
			fmt.Fprintln(os.Stderr, "sim: "+c.done.told(c.began))
		}
	}
}

const (
	workerEnv = "EDGED_SIM_WORKER" // which of the processes this one is
	tallyMark = "tally "           // before a worker's count
	beginMark = "seed "            // before the seed that a worker begins
)

// worker is a process that runs a share of the seeds.
type worker struct {
	cmd   *exec.Cmd
	done  tally
	seed  string    // that it runs now
	since time.Time // and when it was last heard of
	over  bool
}

// news is a line of a worker's, or its end.
type news struct {
	worker int
	line   string
	ended  bool
	err    error
}

// share runs the seeds in several processes: one uses about one core, as what is random is so for a whole process.
func (c *campaign) share(t *testing.T, workers int) {
	heard := make(chan news)
	running := make([]worker, workers)
	for n := range running {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestSim$", "-test.timeout", "0")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", workerEnv, n), "GOMAXPROCS=1")
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		running[n] = worker{cmd: cmd, since: time.Now()}
		go func() {
			for lines := bufio.NewReader(out); ; {
				line, err := lines.ReadString('\n')
				if err != nil {
					break
				}
				heard <- news{worker: n, line: strings.TrimSpace(line)}
			}
			heard <- news{worker: n, ended: true, err: cmd.Wait()}
		}()
	}
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for left := workers; left > 0; {
		select {
		case n := <-heard:
			w := &running[n.worker]
			w.since = time.Now()
			switch {
			case n.ended:
				left, w.over = left-1, true
				if n.err != nil && !t.Failed() {
					t.Errorf("a worker ended: %v", n.err)
					for _, o := range running {
						_ = o.cmd.Process.Kill()
					}
				}
			case strings.HasPrefix(n.line, beginMark):
				w.seed = strings.TrimPrefix(n.line, beginMark)
			case strings.HasPrefix(n.line, tallyMark):
				_ = json.Unmarshal([]byte(strings.TrimPrefix(n.line, tallyMark)), &w.done)
			}
		case <-tick.C:
			c.progress(running)
		}
	}
	c.sum(running)
}

func (c *campaign) sum(running []worker) {
	c.done = tally{}
	for _, w := range running {
		c.done.Seeds, c.done.Acked, c.done.Read, c.done.Undecided = c.done.Seeds+w.done.Seeds, c.done.Acked+w.done.Acked, c.done.Read+w.done.Read, c.done.Undecided+w.done.Undecided
	}
}

// progress says how far the workers are, and ends one that says nothing and has not ended itself.
func (c *campaign) progress(running []worker) {
	c.sum(running)
	fmt.Fprintln(os.Stderr, "sim: "+c.done.told(c.began))
	for _, w := range running {
		switch silent := time.Since(w.since); {
		case w.over:
		case silent > hangsAfter()+2*dumpWithin():
			fmt.Fprintf(os.Stderr, "sim: seed %s, broke the law %q: nothing for %v, and the process does not end itself\n", w.seed, lawEnds, silent.Round(time.Second))
			_ = w.cmd.Process.Signal(syscall.SIGCONT)
			_ = w.cmd.Process.Signal(syscall.SIGQUIT) // its goroutines
			time.AfterFunc(dumpWithin(), func() { _ = w.cmd.Process.Kill() })
		case silent > progressEvery:
			fmt.Fprintf(os.Stderr, "sim: seed %s has run for %v\n", w.seed, silent.Round(time.Second))
		}
	}
}

// TestSim_sameSeedAgain measures how far a seed reproduces a run; README.md says what to expect.
// EDGED_SIM_TWICE is how many seeds are run twice.
func TestSim_sameSeedAgain(t *testing.T) {
	n, same := number(t, "EDGED_SIM_TWICE", 0), 0
	for seed := range n {
		p := profiles[seed%len(profiles)]
		var hashes [2]uint64
		for k := range hashes {
			t.Run(fmt.Sprintf("%s/%d", p.name, seed), func(t *testing.T) { hashes[k] = runSeed(t, p, uint64(seed)).hist.hash })
		}
		if hashes[0] == hashes[1] {
			same++
		}
	}
	t.Logf("of %d seeds, %d gave the same acknowledgements at the same times twice", n, same)
}
