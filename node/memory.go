package node

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"

	"edged/partition"
	"edged/transport/kafka"
	"edged/transport/peer"
	"edged/transport/wire"
)

// What a node takes of the machine when nobody says how much, and the least it can work with.
const (
	leastMemory  = 48 << 20
	boardShare   = 4 // of the board's memory: the rest is for the page cache and for others
	cgroupShare  = 3 // quarters of a limit that was set for this service: the kernel counts page cache too
	unknownBoard = 256 << 20
)

// Budget is the memory that the process may take, in bytes, and where that is known from.
type Budget struct {
	Bytes  int64
	Source string
}

// Budget is what --memory-limit says, else $GOMEMLIMIT, else a part of what the control group of the
// process or the board has.
func (c Config) Budget() Budget {
	if n, err := parseBytes(c.MemoryLimit); err == nil && n > 0 {
		return Budget{n, "memory-limit (" + c.Source("memory-limit") + ")"}
	}
	if n, err := parseBytes(os.Getenv("GOMEMLIMIT")); err == nil && n > 0 {
		return Budget{max(n, leastMemory), "$GOMEMLIMIT"}
	}
	return machineBudget("/")
}

// machineBudget looks at the files of /proc and /sys below root.
func machineBudget(root string) Budget {
	board := memTotal(root)
	if limit := cgroupLimit(root); limit > 0 && (board == 0 || limit < board) {
		return Budget{max(limit/4*cgroupShare, leastMemory), fmt.Sprintf("%d quarters of the control group's %d MiB", cgroupShare, limit>>20)}
	}
	if board > 0 {
		return Budget{max(board/boardShare, leastMemory), fmt.Sprintf("a quarter of the machine's %d MiB", board>>20)}
	}
	return Budget{unknownBoard, "the machine does not tell what it has"}
}

// memTotal is the machine's memory, 0 if it is not known.
func memTotal(root string) int64 { return procValue(root, "meminfo", "MemTotal:") << 10 }

// procValue is the first number behind a word of a file in /proc, 0 if there is none.
func procValue(root, file, word string) int64 {
	text, err := os.ReadFile(filepath.Join(root, "proc", file))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == word {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}

// cgroupLimit is the smallest limit of the control groups that the process is in, 0 if there is none.
func cgroupLimit(root string) int64 {
	text, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return 0
	}
	least := int64(0)
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		top, files := "", []string(nil)
		switch {
		case parts[0] == "0":
			top, files = "sys/fs/cgroup", []string{"memory.max", "memory.high"}
		case parts[1] == "memory":
			top, files = "sys/fs/cgroup/memory", []string{"memory.limit_in_bytes"}
		}
		for at := filepath.Clean("/" + parts[2]); ; at = filepath.Dir(at) { // a group's parents bind it too
			for _, file := range files {
				b, err := os.ReadFile(filepath.Join(root, top, at, file))
				n, bad := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
				if err == nil && bad == nil && n > 0 && n < math.MaxInt64/2 && (least == 0 || n < least) {
					least = n
				}
			}
			if at == "/" {
				break
			}
		}
	}
	return least
}

// programPages is what the process holds beside what Go's runtime counts: mostly pages of the program
// itself, 18 to 24 MiB under load, of which the kernel can drop some.
const programPages = 16 << 20

// runtimeLimit is what Go's runtime may take.
func (b Budget) runtimeLimit() int64 { return b.Bytes - max(b.Bytes/10, programPages) }

// Apply tells Go's runtime. It counts for the whole process.
func (b Budget) Apply() { debug.SetMemoryLimit(b.runtimeLimit()) }

// part is the nth part of the budget, within what makes sense. The most is what was found to be
// enough: memory above that is better left to the page cache.
func (b Budget) part(nth, least, most int64) int64 { return min(max(b.Bytes/nth, least), most) }

// commandsInFlight is what the state machines' commands may take beside batches.
const commandsInFlight = 1 << 20

const mib, kib = 1 << 20, 1 << 10

// memoryBounds is who may hold how much of the budget. Every cache, queue and buffer that is filled from
// outside or by the size of the data is here; README.md has the table.
type memoryBounds struct {
	memTable, cache int64 // of storage: up to three memtables are alive
	core            partition.Limits
	peers           peer.Limits
	fetch           int64 // what one fetch reads, beyond its first batch
	conns           int   // of each protocol
	// shared is what the connections of one protocol hold in one direction, ofConn what one of them does.
	shared, ofConn int64
	kafkaRequest   int64 // the largest, also what one Kafka connection holds
	decoding       int64 // Kafka requests of counts not yet proved
}

func (b Budget) bounds() memoryBounds {
	m := memoryBounds{
		memTable:     b.part(32, 1*mib, 4*mib),
		cache:        b.part(32, 1*mib, 4*mib),
		core:         partition.DefaultLimits(),
		fetch:        b.part(256, 128*kib, 1*mib),
		conns:        int(b.part(512*kib, 64, 1024)),
		shared:       b.part(20, 3*mib, 32*mib),
		ofConn:       b.part(32, 2*mib, 4*mib),
		kafkaRequest: b.part(20, 3*mib, 16*mib),
		decoding:     b.part(8, 4*mib, 32*mib),
	}
	m.core.Produce = 2*m.shared + commandsInFlight // the protocols hold back before the Core has to refuse
	m.core.SaveQueue = b.part(16, 4*mib, 32*mib)
	m.core.EntryCache = b.part(16, 2*mib, 8*mib)
	m.core.Uncommitted = b.part(32, 2*mib, 4*mib)
	m.core.Inbox = b.part(32, 2*mib, 8*mib)
	m.core.Inflight = b.part(128, 256*kib, 1*mib)
	m.core.Frame = b.part(128, 256*kib, 1*mib)
	m.core.HeldProduces = int(b.part(32*kib, 1024, 4096))
	m.peers.DataQueue = b.part(64, 1*mib, 4*mib)
	m.peers.ControlQueue = b.part(128, 256*kib, 1*mib)
	return m
}

func (m *memoryBounds) wire(c wire.Config) wire.Config {
	c.MaxConns, c.ConnBytes, c.TotalBytes = m.conns, m.ofConn, m.shared
	return c
}

func (m *memoryBounds) kafka(c kafka.Config) kafka.Config {
	c.MaxConns, c.MaxRequest, c.ConnBytes, c.TotalBytes = m.conns, int32(m.kafkaRequest), m.kafkaRequest, m.shared
	c.FetchBytes, c.DecodeBytes = int32(m.fetch), m.decoding
	return c
}

// sum is what all of them hold when all are full at once. Requests are counted once though the Core
// counts them again, and two peers, as in a cluster of three.
func (m *memoryBounds) sum() int64 {
	storage := 3*m.memTable + m.cache
	core := m.core.SaveQueue + m.core.EntryCache + 2*m.core.Inbox
	peers := 2 * (m.peers.DataQueue + m.peers.ControlQueue)
	return storage + core + peers + 4*m.shared
}

func (b Budget) log(l *slog.Logger) {
	m := b.bounds()
	l.Info("memory", "budget_mib", b.Bytes>>20, "from", b.Source, "bounds_mib", m.sum()>>20)
}

// parseBytes reads a size such as 64MiB, 64M, 1.5GB or 1000; empty is 0.
func parseBytes(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	number := strings.TrimRight(text, "KMGTiB")
	unit := map[string]float64{
		"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
		"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	}[strings.TrimSpace(text[len(number):])]
	n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || unit == 0 || !(n >= 0 && n*unit < 1<<60) {
		return 0, fmt.Errorf("is %q; it is a size such as 64MiB, 1.5GB or 100000000", text)
	}
	return int64(n * unit), nil
}
