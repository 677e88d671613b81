package partition

import (
	"errors"
	"testing"
	"time"

	"edged/record"
)

// TestCore_randomFaults is the Core's own proof: crashes that lose what was not synced, lost,
// repeated and reordered frames, splits, pauses, transfers, log starts, and producers that retry.
func TestCore_randomFaults(t *testing.T) {
	eachSeed(t, 12, func(t *testing.T, seed uint64) { randomRun(t, seed) })
}

func TestCore_sameSeedGivesTheSameRun(t *testing.T) {
	if a, b := randomRun(t, 7), randomRun(t, 7); a != b {
		t.Fatalf("two runs of one seed: %x and %x", a, b)
	}
}

// simClient produces to one group. One with a producer id keeps several records in flight and
// retries until they are acknowledged; one without sends each record once.
type simClient struct {
	group  record.GroupID
	acks   Acks
	pid    int64
	seq    int32
	window int
	flight []*simRecord
}

func (c *simClient) turn(s *sim) {
	c.flight = dropAcked(c.flight)
	retry := false
	for _, r := range c.flight {
		if !r.done {
			return // wait for every answer, then send again in order
		}
		retry = true
	}
	if c.pid < 0 {
		c.flight, retry = nil, false
	}
	for !retry && len(c.flight) < c.window {
		r := s.newRecord(c.group, c.acks)
		if c.pid >= 0 {
			r.pid, r.seq = c.pid, c.seq
			c.seq++
		}
		c.flight = append(c.flight, r)
	}
	to := s.leader(c.group)
	if s.rng.IntN(8) == 0 || to < 0 {
		to = s.rng.IntN(len(s.nodes))
	}
	if n := s.nodes[to]; !n.up || n.paused || s.group(to, c.group) == nil {
		return
	}
	for _, r := range c.flight {
		s.produce(to, r)
	}
}

func dropAcked(flight []*simRecord) []*simRecord {
	for len(flight) > 0 && (flight[0].acked || flight[0].done && errors.Is(flight[0].err, record.ErrDuplicateSequence)) {
		flight = flight[1:]
	}
	return flight
}

// lose makes the clients give up on what a dead node was asked: its answer will not come.
func lose(clients []*simClient, s *sim) {
	for _, c := range clients {
		for _, r := range c.flight {
			r.done = r.done || s.now-r.sentAt > time.Second
		}
	}
}

func randomSim(t testing.TB, seed uint64, with ...func(*sim)) *sim {
	s := newSim(t, seed, 3+2*int(seed%2), with...)
	s.drop, s.dup = float64(seed%4)*0.02, float64(seed%3)*0.03
	s.maxDisk = []Time{time.Millisecond, 20 * time.Millisecond, 300 * time.Millisecond, 3 * time.Second}[seed%4]
	s.maxDelay = []Time{time.Millisecond, 30 * time.Millisecond}[seed/2%2]
	s.late, s.fifo = []Time{0, 3 * time.Second}[seed/3%2], seed%5 < 3
	return s
}

func randomClients(groups []record.GroupID) []*simClient {
	var cs []*simClient
	for i, acks := range []Acks{AcksAll, AcksAll, AcksAll, AcksAll, AcksAll, AcksOne, AcksNone} {
		c := &simClient{group: groups[i%len(groups)], acks: acks, pid: -1, window: 1}
		if i < 4 {
			c.pid = int64(100 + i)
			c.window = 1 + i
		}
		cs = append(cs, c)
	}
	return cs
}

func randomRun(t testing.TB, seed uint64) uint64 {
	s := randomSim(t, seed)
	groups := groupIDs(2)
	for _, g := range groups {
		s.create(g, len(s.nodes))
	}
	clients := randomClients(groups)
	for range 400 {
		s.disturb(groups)
		lose(clients, s)
		for _, c := range clients {
			c.turn(s)
		}
		s.run(Time(s.rng.Int64N(int64(40 * time.Millisecond))))
	}
	s.finish(groups)
	return s.digest()
}

// finish ends the faults and holds the laws against what is left: everybody agrees, nothing
// acknowledged is missing, and the groups take records again.
func (s *sim) finish(groups []record.GroupID) {
	s.t.Helper()
	s.heal()
	s.await("all replicas equal after the faults", 20*time.Second, s.settled(groups...))
	s.check(groups...)
	for _, g := range groups {
		s.put(g, 1)
	}
}

// disturb lets one thing go wrong, sometimes.
func (s *sim) disturb(groups []record.GroupID) {
	i, j := s.rng.IntN(len(s.nodes)), s.rng.IntN(len(s.nodes))
	g := groups[s.rng.IntN(len(groups))]
	n := s.nodes[i]
	switch s.rng.IntN(44) {
	case 0:
		if n.up {
			s.crash(i, s.rng.IntN(2) == 0)
		}
	case 1, 2, 3:
		if !n.up {
			s.log("node %d starts", i+1)
			s.boot(i)
		}
	case 4:
		s.cut[[2]int{i, j}] = true
		s.log("cut %d -> %d", i+1, j+1)
	case 5, 6:
		clear(s.cut)
	case 7:
		s.transfer(g)
	case 8:
		s.truncate(g)
	case 9:
		if n.up && !n.paused {
			s.pause(i)
		}
	case 10, 11, 12:
		if n.paused {
			s.resume(i)
		}
	case 13:
		s.sever(i, j)
	}
}
