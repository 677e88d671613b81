package partition

import (
	"testing"
	"time"
)

// Nodes whose groups all sleep beat at the same moments, as often as they have to and hardly more: each moment wakes
// every node once.
func TestBeats_ofSleepingNodesComeTogether(t *testing.T) {
	s := newSim(t, 31, 3)
	s.ready(4)
	for i := range s.nodes {
		s.crash(i, true)
		s.run(2*time.Second + Time(i)*170*time.Millisecond)
		s.boot(i)
		s.await("led", 3*time.Second, s.led(1))
	}
	s.await("all asleep", 10*time.Second, func() bool { return s.awake() == 0 })
	s.run(2 * time.Second)
	moments, frames, last := 0, 0, Time(0)
	s.tap = func(simFrame) bool {
		if frames++; s.now-last > 50*time.Millisecond {
			moments++
		}
		last = s.now
		return false
	}
	const periods = 40
	s.run(periods * s.timing.BeatIdle)
	if moments < periods-1 || moments > periods+1 {
		t.Errorf("beats at %d moments in %d periods", moments, periods)
	}
	if pairs := 6; frames > (periods+1)*pairs {
		t.Errorf("%d beats of %d pairs in %d periods", frames, pairs, periods)
	}
}
