package peer

import (
	"context"
	"math/rand/v2"
	"time"
)

// pacer spaces attempts that fail, and successes that do not last, further and further apart.
type pacer struct {
	least, most time.Duration
	pause       time.Duration // before the next attempt; 0 after a success that lasted
}

func newPacer(l Limits) pacer { return pacer{least: l.RedialMin, most: l.RedialMax} }

func (p *pacer) slower() { p.pause = min(max(2*p.pause, p.least), p.most) }

func (p *pacer) slowest() { p.pause = p.most }

// measure takes how long a success lasted.
func (p *pacer) measure(lasted time.Duration) {
	if lasted < p.most {
		p.slower()
		return
	}
	p.pause = 0
}

// ready tells that the next attempt may be made at once.
func (p *pacer) ready() bool { return p.pause == 0 }

// rest waits until the next attempt is due, or for a token in wake, which also means that there
// is new hope. It is false at the end of ctx. The pause is stretched by up to a quarter at
// random, so that nodes which started together do not dial together.
func (p *pacer) rest(ctx context.Context, wake <-chan struct{}) bool {
	if p.pause == 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(p.pause + rand.N(p.pause/4+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-wake:
		p.pause = 0
		return true
	case <-ctx.Done():
		return false
	}
}
