package sim

import (
	"fmt"
	"time"

	"edged/internal/memnet"
	"edged/transport/wire"
)

// profile is a kind of run: how many machines it begins with, and what goes wrong in it.
type profile struct {
	name  string
	nodes []int
	steps int
	// disturb lets one thing go wrong, or right again.
	disturb func(w *world)
}

var profiles = []profile{
	{name: "crashes", nodes: []int{3}, steps: 20, disturb: crashSomebody},
}

func crashSomebody(w *world) {
	m := w.machines[w.rng.IntN(len(w.machines))]
	switch {
	case m.life == nil:
		w.boot(m)
	case w.rng.IntN(3) == 0:
		m.powerCut(w.rng.IntN(101))
	case w.rng.IntN(3) == 0:
		m.kill()
	}
}

// boot starts a machine that is off.
func (w *world) boot(m *machine) {
	m.powerOn()
	if err := m.start(); err != nil {
		w.fail(lawRuns, "%s does not start: %v", m.name, err)
	}
}

// form starts n machines that make a cluster together and waits until it works.
func (w *world) form(n int) {
	var join []string
	for i := range n {
		join = append(join, fmt.Sprintf("10.0.0.%d:%d", i+1, gossipPort))
	}
	for range n {
		m := w.addMachine(n, join)
		if err := m.start(); err != nil {
			w.fail(lawRuns, "%s does not start: %v", m.name, err)
			return
		}
	}
	if !w.await(formWithin, func() bool {
		for _, l := range w.lives() {
			if p := l.n.Picture(); p.ClusterID().IsZero() || len(p.NodesSorted()) < n {
				return false
			}
		}
		return true
	}) {
		w.fail(lawLive, "%d nodes made no cluster within %v", n, formWithin)
	}
}

// run is one whole run.
func (w *world) run(p profile) {
	w.net.SetLinks(memnet.Link{Delay: 200 * time.Microsecond, Jitter: time.Millisecond})
	w.form(p.nodes[w.rng.IntN(len(p.nodes))])
	formed := w.since()
	w.createTopic(&topic{name: "a"}, 2, 0, nil)
	w.clients()
	for i := 0; i < p.steps && !w.over(); i++ {
		time.Sleep(time.Duration(w.rng.Int64N(int64(time.Second))))
		p.disturb(w)
	}
	w.settle()
	w.t.Logf("formed after %v, %d acknowledged, %d read, %v in all", formed, w.hist.acked, w.hist.read, w.since())
}

// settle ends the faults, checks that everything works again and that every law was kept.
func (w *world) settle() {
	if !w.over() {
		w.story.tell("script", "the faults end")
		w.net.HealAll()
		for _, m := range w.machines {
			if m.life == nil {
				w.boot(m)
			} else {
				m.disk.heal()
			}
		}
		w.alive()
	}
	close(w.stop)
	for _, check := range []func(){w.checkReplicas, w.checkMetadata, w.checkDisks} {
		if !w.over() {
			check()
		}
	}
	for _, m := range w.machines {
		if m.life != nil {
			m.powerCut(0)
		}
	}
	w.wg.Wait()
	time.Sleep(lingering)
}

// lingering is how long memberlist's probes may outlive it.
const lingering = 30 * time.Second

func (w *world) clients() {
	for i, p := range w.hist.parts() {
		pr := &producer{router: newRouter(w, i), name: fmt.Sprintf("p%d", i), part: p, acks: wire.AcksAll, pid: -1, inFlight: 5, pace: 20 * time.Millisecond, pad: 200}
		w.wg.Go(pr.runIdempotent)
		po := &producer{router: newRouter(w, 100+i), name: fmt.Sprintf("q%d", i), part: p, acks: wire.AcksAll, pid: -1, pace: 30 * time.Millisecond, pad: 200}
		w.wg.Go(po.runOnce)
	}
	w.wg.Go(newConsumer(w, 0).run)
}
