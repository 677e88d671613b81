package sim

import (
	"fmt"
	"strconv"
	"time"

	"edged/internal/memnet"
	"edged/transport/wire"
)

// profile is a kind of run: how many machines it begins with, and what goes wrong in it.
type profile struct {
	name    string
	nodes   []int
	steps   int
	pause   time.Duration // between two steps, on average
	actions []action
	// retention lets logs be cut behind the back of those who are away.
	retention bool
	before    func(w *world) // prepares the world
	formed    func(w *world) // when there is a cluster, and no topic yet
	after     func(w *world) // after the last step, before the faults end
}

// action is one thing that goes wrong, or right again.
type action struct {
	weight int
	do     func(w *world)
}

var profiles = []profile{
	{name: "calm", nodes: []int{1, 3, 3, 5}, steps: 12, pause: 500 * time.Millisecond, actions: []action{
		{4, transfer}, {2, createTopic}, {2, deleteTopic}, {1, stopOne}, {3, bootAll}, {2, nothing},
	}},
	{name: "crashes", nodes: []int{1, 3, 3, 3, 5}, steps: 20, pause: 400 * time.Millisecond, actions: []action{
		{4, cutPower}, {3, killOne}, {1, cutPowerOfAll}, {2, flicker}, {8, bootOne}, {2, bootAll}, {1, stopOne}, {2, transfer}, {1, createTopic},
	}, formed: cutPowerOfNew},
	{name: "splits", nodes: []int{3, 3, 5}, steps: 20, pause: 500 * time.Millisecond, actions: []action{
		{3, splitInTwo}, {3, isolateOne}, {3, cutOneWay}, {4, healNetwork}, {3, resetLinks}, {2, slowLinks}, {2, transfer}, {1, cutPower}, {3, bootOne}, {1, hideCommit}, {1, deafenLeader},
	}},
	{name: "disks", nodes: []int{1, 3, 3, 5}, steps: 18, pause: 600 * time.Millisecond, actions: []action{
		{3, slowDisk}, {2, stickDisk}, {2, failDisk}, {1, fillDisk}, {4, healDisks}, {4, restartFailed}, {2, cutPower}, {4, bootOne}, {1, transfer}, {1, loneLog},
	}},
	{name: "lagging", nodes: []int{3, 3, 5}, steps: 14, pause: 1500 * time.Millisecond, actions: []action{
		{3, cutPower}, {4, bootOne}, {2, isolateOne}, {3, healNetwork}, {5, transfer}, {1, slowDisk}, {1, healDisks},
	}, retention: true},
	{name: "membership", nodes: []int{1, 1, 3}, steps: 22, pause: 700 * time.Millisecond, actions: []action{
		{5, grow}, {2, moveOne}, {1, wipeOne}, {2, drainOne}, {2, stopOne}, {2, cutPower}, {6, bootOne}, {2, transfer}, {2, createTopic}, {1, deleteTopic}, {1, isolateOne}, {3, healNetwork},
	}},
	{name: "identity", nodes: []int{3, 3, 5}, steps: 14, pause: 800 * time.Millisecond, actions: []action{
		{2, cloneOne}, {2, restoreOne}, {1, wipeOne}, {2, cutPower}, {5, bootOne}, {1, moveOne}, {1, transfer},
	}},
	{name: "pauses", nodes: []int{3, 3, 5}, steps: 20, pause: 500 * time.Millisecond, actions: []action{
		{6, pauseOne}, {6, resumeOne}, {1, cutPower}, {3, bootOne}, {2, transfer}, {1, isolateOne}, {2, healNetwork}, {1, slowDisk}, {1, healDisks},
	}},
	{name: "rot", nodes: []int{3, 3, 5}, steps: 10, pause: time.Second, actions: []action{
		{4, flipBit}, {1, cutPower}, {4, bootOne}, {1, transfer},
	}},
	{name: "clocks", nodes: []int{1, 3}, steps: 16, pause: time.Second, actions: []action{
		{4, setClock}, {2, skewOne}, {2, cutPower}, {4, bootOne}, {2, transfer}, {1, killOne},
	}, before: wrongClock},
}

// grownTo is the most machines that a run gets.
const grownTo = 5

func (w *world) setUp(p profile) {
	w.swarm()
	if p.before != nil {
		p.before(w)
	}
	w.form(p.nodes[w.rng.IntN(len(p.nodes))])
	if p.formed != nil && !w.over() {
		p.formed(w)
	}
	if w.over() {
		return
	}
	forever := map[string]string{"retention.ms": "-1"}
	w.createTopic(&topic{name: "a"}, 1+w.rng.IntN(3), 0, forever)
	if w.chance(2) {
		w.createTopic(&topic{name: "relaxed", relaxed: true}, 1, 0, map[string]string{"durability": "relaxed", "retention.ms": "-1"})
	}
	if p.retention {
		w.small = true
	}
	if p.retention || w.chance(2) {
		keep := int64(64<<10 + w.rng.IntN(64<<10))
		w.createTopic(&topic{name: "short", retention: true, keepBytes: keep}, 1, 0, map[string]string{"retention.bytes": strconv.FormatInt(keep, 10), "retention.ms": "-1"})
	}
	if p.before != nil {
		w.createTopic(&topic{name: "week", retention: true, keepTime: 7 * 24 * time.Hour}, 1, 0, nil)
		w.createTopic(&topic{name: "brief", retention: true, keepTime: 3 * time.Second}, 1, 0, map[string]string{"retention.ms": "3000"})
	}
}

// swarm makes each run another one: what does not change during it.
func (w *world) swarm() {
	link := memnet.Link{Delay: time.Duration(50+w.rng.IntN(500)) * time.Microsecond, Jitter: time.Millisecond}
	if w.chance(4) {
		link.Jitter = 30 * time.Millisecond // Wi-Fi
	}
	if w.chance(2) {
		link.Loss, link.Twice = 0.05, 0.05
	}
	w.net.SetLinks(link)
	w.link = link
	w.small, w.quiet = w.chance(2), w.chance(3)
	w.diskPace = []time.Duration{0, time.Millisecond, 20 * time.Millisecond}[w.rng.IntN(3)]
}

// chance is one in n.
func (w *world) chance(n int) bool { return w.rng.IntN(n) == 0 }

// run is one whole run.
func (w *world) run(p profile) {
	w.setUp(p)
	w.startClients()
	total := 0
	for _, a := range p.actions {
		total += a.weight
	}
	for i := 0; i < p.steps && !w.over(); i++ {
		time.Sleep(time.Duration(w.rng.Int64N(int64(2 * p.pause))))
		k := w.rng.IntN(total)
		for _, a := range p.actions {
			if k -= a.weight; k < 0 {
				a.do(w)
				break
			}
		}
		w.observe()
	}
	if p.after != nil && !w.over() {
		p.after(w)
	}
	w.settle()
}

// settle ends the faults, checks that everything works again and that every law was kept.
func (w *world) settle() {
	if !w.over() {
		w.story.tell("script", "THE FAULTS END")
		healNetwork(w)
		healDisks(w)
		w.endClones()
		resumeAll(w)
		w.supervise()
		w.alive()
	}
	close(w.stop)
	w.clients.Wait()
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

// supervise starts every machine, and again those that end or fail soon: with each start the boot counter rises
// past what others may have heard of a clone.
func (w *world) supervise() {
	for range 4 {
		restartFailed(w)
		bootAll(w)
		time.Sleep(2 * time.Second)
		if w.over() || w.anyMachine(func(m *machine) bool { return m.life.n.Failure() != nil || ended(m.life) }) == nil {
			return
		}
	}
}

// lingering is how long memberlist's probes may outlive it.
const lingering = 30 * time.Second

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
	w.awaitMembers(n)
}

// awaitMembers waits until every running node has a picture with at least n nodes.
func (w *world) awaitMembers(n int) {
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

// startClients starts producers of every kind for each partition, and readers.
func (w *world) startClients() {
	for i, p := range w.hist.parts() {
		w.produceTo(i, p)
	}
	for i := range 1 + w.rng.IntN(2) {
		w.clients.Go(newConsumer(w, i).run)
	}
	if w.chance(2) {
		r := w.newRealClient()
		w.clients.Go(r.produce)
		w.clients.Go(r.consume)
	}
}

func (w *world) produceTo(i int, p *part) {
	pace := time.Duration(40+w.rng.IntN(200)) * time.Millisecond
	if w.quiet {
		pace *= 4
	}
	pad := 50
	if p.topic.retention {
		pad = 8 << 10
	}
	for k, acks := range []int16{wire.AcksAll, wire.AcksAll, wire.AcksLeader, wire.AcksNone} {
		n := i*10 + k
		pr := &producer{router: newRouter(w, n), name: fmt.Sprintf("p%d", n), part: p, acks: acks, pid: -1, inFlight: 1 + w.rng.IntN(5), pace: pace, pad: pad}
		switch {
		case k == 0, k == 2 && w.chance(2):
			w.clients.Go(pr.runIdempotent)
		case k == 1 || w.chance(2):
			w.clients.Go(pr.runOnce)
		}
	}
}
