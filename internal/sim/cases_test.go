package sim

import (
	"context"
	"fmt"
	"testing"
	"time"

	"edged/transport/wire"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// runCase runs a script of its own over a few seeds and fails by the first law that is broken.
func runCase(t *testing.T, seeds int, p profile) {
	p.name = "case"
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			if broken := runSeed(t, p, uint64(seed)).broken.Load(); broken != nil {
				t.Errorf("%s: %s", broken.law, broken.text)
			}
		})
	}
}

// A copied data directory is started at the same moment as a node that has never met the true one: with
// that node's vote it could lead with an old log.
func TestClone_metFirstByANodeThatHasJustStartedEnds(t *testing.T) {
	runCase(t, 4, profile{nodes: []int{3}, steps: 4, pause: time.Second, actions: []action{
		{1, func(w *world) { cloneMet(w, true) }},
	}})
}

// Five nodes, two of them stopped, and one loses power while the other two go on: what these three acknowledged has
// to be known when the two come back and two that had it are stopped.
func TestPowerCut_ofOneOfThreeThatGoOnLosesNothing(t *testing.T) {
	runCase(t, 4, profile{nodes: []int{5}, steps: 1, pause: 3 * time.Second, actions: []action{{1, func(w *world) {
		m := w.machines
		m[0].life.pause()
		m[1].life.pause()
		time.Sleep(4 * time.Second)
		m[2].powerCut(0)
		w.boot(m[2])
		m[0].life.resume()
		m[1].life.resume()
		m[3].life.pause()
		m[4].life.pause()
		time.Sleep(4 * time.Second)
		resumeAll(w)
	}}}})
}

// A member is removed under load while another one is cut off, and most of the others lose power on the way.
func TestRemoveNode_whileOneIsCutOffAndOthersLosePowerLosesNothing(t *testing.T) {
	runCase(t, 4, profile{nodes: []int{5}, steps: 1, pause: 2 * time.Second, actions: []action{{1, func(w *world) {
		m := w.machines
		for _, o := range m[1:] {
			w.net.Cut(m[0].addr(), o.addr())
		}
		id, end := m[3].life.id, w.since()+15*time.Second
		remove := func(l *life, cancel bool) bool {
			res, _ := ask(l, 3*time.Second, func(ctx context.Context, b wire.Broker) wire.RemoveNodeResponse {
				r, err := b.RemoveNode(ctx, wire.RemoveNodeRequest{Node: id, Force: true, Cancel: cancel, TimeoutMs: 2000})
				w.story.tell("script", "remove of %s, asked of %s: %+v, %v", m[3].name, l.m.name, r, err)
				return r
			})
			return res.Removed
		}
		w.clients.Go(func() {
			for w.sleep(500*time.Millisecond) && w.since() < end && !remove(m[4].life, false) {
			}
		})
		for range 3 {
			time.Sleep(time.Duration(w.rng.IntN(2000)) * time.Millisecond)
			for _, o := range m[:3] {
				o.powerCut(w.kept())
			}
			time.Sleep(time.Second)
			bootAll(w)
		}
		healNetwork(w)
		if w.await(end+5*time.Second-w.since(), func() bool { return m[3].life.n.Failure() != nil }) {
			m[3].powerCut(100)
			m[3].renew("REMOVED, joins as a new node")
			return
		}
		remove(m[4].life, true)
	}}}})
}

// Tables are damaged on two of five nodes: where the metadata is, or a partition, the replica is taken out of service, or
// the node refuses. Nobody deletes what a damaged copy does not know of, and when the bits are right again all is there.
func TestRot_twoOfFiveNodesDeleteNothing(t *testing.T) {
	var again []func(*vfs.MemFS) error
	runCase(t, 4, profile{nodes: []int{5}, steps: 1, pause: 4 * time.Second, actions: []action{{1, func(w *world) {
		again = nil
		for _, m := range w.machines[3:] {
			m.powerCut(100)
			where, flip, err := w.rot(m.mem, ".sst")
			w.story.tell(m.name, "BIT FLIPPED in %s: %v", where, err)
			again = append(again, flip)
			m.powerOn()
			_ = m.start() // or it refuses
		}
		time.Sleep(5 * time.Second)
	}}}, after: func(w *world) {
		for i, m := range w.machines[3:] {
			if m.life != nil {
				m.powerCut(100)
			}
			if err := again[i](m.mem); err != nil {
				w.fail(lawRuns, "the script: %v", err)
			}
			w.boot(m)
		}
	}})
}
