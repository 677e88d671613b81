package partition

import (
	"slices"
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

// radio is the way of a Pi Zero W's frames while its radio saves power, as percentiles; two of a hundred are lost
// and sent again.
func (s *sim) radio(_, _ int) Time {
	between := func(a, b Time) Time { return a + Time(s.rng.Int64N(int64(b-a))) }
	d := Time(0)
	if s.rng.Float64() < 0.02 {
		d = between(600*ms, 1500*ms)
	}
	switch x := s.rng.Float64(); {
	case x < 0.5:
		return d + between(5*ms, 60*ms)
	case x < 0.9:
		return d + between(60*ms, 250*ms)
	case x < 0.99:
		return d + between(250*ms, 700*ms)
	}
	return d + between(700*ms, 1400*ms)
}

// leaderLosses counts how often a replica of a node that lives had no leader any more.
func (s *sim) leaderLosses() (n int) {
	for _, l := range s.story {
		if strings.Contains(l, "leader -1") {
			n++
		}
	}
	return n
}

// Radios that save power hold frames back for longer than a LAN's leader may be silent. Nodes learn that, and
// leaders stay; who does not learn loses them all the time.
func TestPauses_leadersStayWhereRadiosSavePower(t *testing.T) {
	losses := func(seed uint64, learn bool) int {
		s := newSim(t, seed, 3, func(s *sim) {
			s.fifo = true
			if !learn {
				s.timing.DeadMost = s.timing.DeadBusy
			}
		})
		groups := s.ready(3)
		s.delay = s.radio
		before := 0
		for i := range 120 {
			if i == 60 { // the first half is for learning
				before = s.leaderLosses()
			}
			for _, g := range groups {
				if l := s.leader(g); l >= 0 {
					s.produce(l, s.newRecord(g, AcksAll))
				}
			}
			s.run(time.Second)
		}
		return s.leaderLosses() - before
	}
	for seed := range uint64(5) {
		with, without := losses(seed, true), losses(seed, false)
		t.Logf("seed %d: replicas lost their leader %d times in a minute, %d times without learning", seed, with, without)
		if with > 3 || without < 20 {
			t.Errorf("seed %d: replicas lost their leader %d times in a minute, %d times without learning", seed, with, without)
		}
	}
}

// Nobody waits for ever: a node that dies on such a network is replaced as soon as the longest patience is over, also
// where only one of the others has learned to be patient.
func TestPauses_deathIsNoticedWhereRadiosSavePower(t *testing.T) {
	for _, slow := range []func(from, to int) bool{
		func(int, int) bool { return true },
		func(from, to int) bool { return from+to == 1 }, // the link between the first two
		func(from, _ int) bool { return from == 0 },     // one direction
	} {
		var took []Time
		var s *sim
		for seed := range uint64(20) {
			s = newSim(t, seed, 3, func(s *sim) { s.fifo = true })
			groups := s.ready(3)
			s.delay = func(from, to int) Time {
				if !slow(from, to) {
					return ms
				}
				return s.radio(from, to)
			}
			for range 40 {
				for _, g := range groups {
					if l := s.leader(g); l >= 0 {
						s.produce(l, s.newRecord(g, AcksAll))
					}
				}
				s.run(time.Second)
			}
			s.await("all led", 20*time.Second, s.led(groups...))
			patient := 0
			for _, n := range s.nodes {
				for _, p := range n.core.peers {
					patient += int(min(p.pause, 1))
				}
			}
			if patient == 0 {
				t.Fatalf("seed %d: nobody learned", seed)
			}
			s.crash(s.leader(1), false)
			at := s.now
			s.await("all led again", 15*time.Second, s.led(groups...))
			took = append(took, s.now-at)
		}
		slices.Sort(took)
		t.Logf("led again after %v to %v, half of the times within %v", took[0], took[len(took)-1], took[len(took)/2])
		if took[len(took)/2] > s.timing.DeadMost+3*time.Second || took[len(took)-1] > s.timing.DeadMost+10*time.Second {
			t.Errorf("led again after %v", took)
		}
	}
}

// A node that stands still again and again, as a process that is stopped does, is no link that pauses: the others
// give it up as quickly each time, and it does not learn that of them either.
func TestPauses_whoStandsStillIsNoSlowLink(t *testing.T) {
	s := newSim(t, 1, 3)
	groups := s.ready(3)
	for range 6 {
		l := s.leader(1)
		s.put(1, 1)
		at := s.now
		s.pause(l)
		s.await("another leader", 2*time.Second, func() bool { return s.leader(1) != l && s.leader(1) >= 0 })
		if took := s.now - at; took > 1500*ms {
			t.Errorf("another leader after %v", took)
		}
		s.run(600 * ms)
		s.resume(l)
		s.await("all led", 5*time.Second, s.led(groups...))
		s.run(2 * time.Second)
	}
	for _, n := range s.nodes {
		for _, p := range n.core.peers {
			if p.pause != 0 {
				t.Errorf("node %d believes that the link from node %d pauses for %v", n.id, p.node, p.pause)
			}
		}
	}
}

// What makes a link one that pauses, and what does not.
func TestPauses_areLearned(t *testing.T) {
	const least, most = 450 * ms, 3 * time.Second
	type beat struct{ left, arrived Time }
	var on []beat // beats in time, and what is held up among them
	held := func(at, until Time) []beat {
		var bs []beat
		for left := at; left < until; left += 100 * ms {
			bs = append(bs, beat{left, until})
		}
		return bs
	}
	for _, c := range []struct {
		name  string
		beats [][]beat
		awake Time
		at    Time
		want  Time
	}{
		{"none", [][]beat{on}, 0, 0, 0},
		{"two are chance", [][]beat{held(1*time.Second, 2*time.Second), held(5*time.Second, 6*time.Second)}, 0, 0, 0},
		{"three are not", [][]beat{held(1*time.Second, 2*time.Second), held(5*time.Second, 6400*ms), held(8*time.Second, 9*time.Second)}, 0, 0, 1400 * ms},
		{"they are forgotten", [][]beat{held(1*time.Second, 2*time.Second), held(5*time.Second, 6400*ms), held(8*time.Second, 9*time.Second)}, 0, 6 * time.Minute, 0},
		{"short ones are daily life", [][]beat{held(1*time.Second, 1400*ms), held(5*time.Second, 5400*ms), held(8*time.Second, 8400*ms)}, 0, 0, 0},
		{"a cable that was out is none", [][]beat{held(1*time.Second, 6*time.Second), held(10*time.Second, 15*time.Second), held(20*time.Second, 25*time.Second)}, 0, 0, 0},
		{"this node stood still", [][]beat{held(1*time.Second, 2*time.Second), held(5*time.Second, 6*time.Second), held(8*time.Second, 9*time.Second)}, 9 * time.Second, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, zero := range []Time{0, 1 << 32 * ms, 1<<31*ms - 5*time.Second} { // of the sender's clock, which runs over
				var p pauses
				i := 0
				for at := Time(0); at < 30*time.Second; at += 100 * ms {
					if i < len(c.beats) && len(c.beats[i]) > 0 && c.beats[i][0].left == at {
						for _, b := range c.beats[i] {
							p.arrived(b.arrived, c.awake, least, most, stamp32(zero+b.left))
						}
						at = c.beats[i][0].arrived
						i++
					}
					p.arrived(at+2*ms, c.awake, least, most, stamp32(zero+at))
				}
				if got := p.longest(max(c.at, 30*time.Second)); got < c.want-5*ms || got > c.want {
					t.Errorf("the longest pause is %v, want %v", got, c.want)
				}
			}
		})
	}
}

// A clock that goes faster than the other's, as quartz does, is no delay.
func TestPauses_clocksDrift(t *testing.T) {
	var p pauses
	for at := Time(0); at < 24*time.Hour; at += 500 * ms {
		p.arrived(at, 0, 450*ms, 3*time.Second, stamp32(at-at/10000))
		if got := p.longest(at); got != 0 {
			t.Fatalf("after %v: pauses of %v", at, got)
		}
	}
}
