package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"edged/record"
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

// A clone that has counted as many starts as the true node goes off without a word while that one restarts at another
// address: it is found there all the same, long before gossip has given the clone up.
func TestClone_thatWentOffDoesNotHideTheTrueNode(t *testing.T) {
	runCase(t, 8, profile{nodes: []int{3}, steps: 1, pause: time.Second, actions: []action{{1, func(w *world) {
		cloneMet(w, false)
		c := w.machines[len(w.machines)-1]
		time.Sleep(300 * time.Millisecond) // it has been heard, and has not said farewell
		c.powerCut(0)
		c.of.powerCut(100)
		c.of.move()
		w.boot(c.of)
		if !w.await(8*time.Second, w.meet) {
			w.fail(lawLive, "%s is not found at its new address", c.of.name)
		}
	}}}})
}

// A leader stands still, others go on without it, and it comes back cut off: what it tells a producer or a reader of
// its old log must not be the last word, however long it believes that it leads.
func TestPause_ofALeaderThatComesBackCutOffMisleadsNobody(t *testing.T) {
	runCase(t, 3, profile{nodes: []int{3}, steps: 3, pause: 100 * time.Millisecond, actions: []action{{1, func(w *world) {
		l := w.anyMachine(running).life
		l.pause()
		time.Sleep(1500 * time.Millisecond)
		for _, o := range w.machines {
			if o.life != l {
				w.net.Cut(l.m.addr(), o.addr())
			}
		}
		l.resume()
		cut := time.Now()
		var wg sync.WaitGroup
		for _, p := range w.hist.parts() {
			wg.Go(func() { mislead(w, l, p, cut) })
		}
		wg.Wait()
		healNetwork(w)
		time.Sleep(time.Second)
	}}}})
}

// mislead asks a node that is cut off what only a true leader may answer for good, for longer than it takes to step down.
func mislead(w *world, l *life, p *part, cut time.Time) {
	for time.Since(cut) < 3*time.Second && !w.over() {
		batch := record.NewBuilder(record.None, 1<<10)
		batch.Append(1, nil, []byte("x"), nil)
		batch.SetProducer(1<<40, 0, 7) // which another leader may know
		res := <-l.produce(wire.ProduceRequest{
			Topic: p.topic.name, Partition: p.number, Acks: wire.AcksAll, Epoch: record.NoEpoch, TimeoutMs: 2000, Batch: batch.Build(),
		}, patience)
		if errors.Is(res.Err, record.ErrUnknownProducer) || errors.Is(res.Err, record.ErrOutOfOrder) {
			w.fail(lawNoDuplicate, "%s, cut off for %v, of a producer of %s: %v", l.m.name, time.Since(cut), p, res.Err)
		}
		got, _ := ask(l, patience, func(ctx context.Context, b wire.Broker) wire.FetchResponse {
			return b.Fetch(ctx, wire.FetchRequest{Topic: p.topic.name, Partition: p.number, Epoch: record.NoEpoch, Offset: 1 << 30, MaxBytes: 1 << 10})
		})
		if errors.Is(got.Err, record.ErrOffsetOutOfRange) {
			w.fail(lawHighRises, "%s, cut off for %v, of an offset of %s: %v", l.m.name, time.Since(cut), p, got.Err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// A clone that has been started, and refused, more often than the true node goes off without a word: in gossip it is
// the newer life for a minute or more. The true node is found all the same when it restarts.
func TestClone_withMoreStartsDoesNotHideTheTrueNode(t *testing.T) {
	runCase(t, 6, profile{nodes: []int{3}, steps: 1, pause: time.Second, actions: []action{{1, func(w *world) {
		w.await(liveWithin, w.connected)
		cloneMet(w, false)
		c := w.machines[len(w.machines)-1]
		for range 3 {
			if !c.clone || !w.await(endsWithin, func() bool { return ended(c.life) }) {
				w.fail(lawClone, "no clone, or it runs on")
				return
			}
			c.powerCut(100)
			w.boot(c)
		}
		time.Sleep(300 * time.Millisecond) // it has been heard, and has not said farewell
		c.powerCut(0)
		c.of.powerCut(100)
		w.boot(c.of)
		if !w.await(8*time.Second, w.meet) {
			w.fail(lawLive, "%s is not found when it is back", c.of.name)
		}
	}}}})
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
			m.rotten = true
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
			m.rotten = false
			w.boot(m)
		}
	}})
}

// Power goes again while a node recovers from the last time it went, over and over.
func TestPowerCut_whileRecoveringOverAndOverLosesNothing(t *testing.T) {
	runCase(t, 4, profile{nodes: []int{1, 3}, steps: 1, pause: 2 * time.Second, actions: []action{{1, func(w *world) {
		for range 20 {
			for _, m := range w.machines {
				if m.life != nil {
					m.powerCut(w.kept())
				}
			}
			bootAll(w)
			time.Sleep(time.Duration(w.rng.IntN(40)) * time.Millisecond)
		}
	}}}})
}

// A single node whose disk is full is started again and again. With room again everything is there and records
// come in.
func TestDiskFull_restartsKeepWhatOneNodeHolds(t *testing.T) {
	runCase(t, 4, profile{nodes: []int{1}, steps: 1, pause: 3 * time.Second, actions: []action{{1, func(w *world) {
		m := w.machines[0]
		for range 4 {
			m.disk.setFull(true)
			time.Sleep(time.Second)
			m.powerCut(w.kept())
			m.powerOn()
			m.born = func(d *disk) { d.setFull(true) }
			if err := m.start(); err != nil {
				w.story.tell(m.name, "with a full disk: %v", err)
			} else {
				time.Sleep(time.Second)
				m.powerCut(w.kept())
			}
			m.born = nil
			w.boot(m)
			time.Sleep(time.Second)
		}
	}}}})
}

// Topics are deleted between others, so that their numbers have gaps, and all nodes start again.
func TestTopics_gapsInTheirNumbersKeepNobodyFromStarting(t *testing.T) {
	runCase(t, 2, profile{nodes: []int{1, 3}, steps: 1, pause: time.Second, actions: []action{{1, func(w *world) {
		for i := range 5 {
			w.createTopic(&topic{name: fmt.Sprintf("gap%d", i), transient: true}, 1, 0, nil)
		}
		for _, i := range []int{1, 3} {
			name := fmt.Sprintf("gap%d", i)
			w.hist.topics[name].deleted.Store(true)
			if !w.await(liveWithin, func() bool {
				err, ok := ask(w.lives()[0], patience, func(ctx context.Context, b wire.Broker) error {
					return b.DeleteTopic(ctx, wire.DeleteTopicRequest{Name: name})
				})
				return ok && (err == nil || errors.Is(err, record.ErrUnknownTopic))
			}) {
				w.fail(lawLive, "%s cannot be deleted", name)
				return
			}
		}
		for range 2 {
			cutPowerOfAll(w)
			time.Sleep(2 * time.Second)
		}
	}}}})
}

// People set the clock an hour forwards and back under load: nobody is elected for it.
func TestClock_stepsUnderLoadElectNobody(t *testing.T) {
	runCase(t, 2, profile{nodes: []int{3}, steps: 1, pause: time.Second, actions: []action{{1, func(w *world) {
		led := func() (all []record.NodeID) {
			for _, p := range w.hist.parts() {
				_, rs := w.replicas(p)
				for _, r := range rs {
					all = append(all, r.v.Leader, record.NodeID(r.v.Epoch))
				}
			}
			return all
		}
		w.await(liveWithin, w.redundant)
		time.Sleep(3 * time.Second)
		before := led()
		for _, step := range []time.Duration{time.Hour, -2 * time.Hour, 19 * 24 * time.Hour, -19 * 24 * time.Hour} {
			w.clock.ahead.Add(int64(step))
			for _, m := range w.machines[1:] {
				m.ahead.Add(int64(step) / 2)
			}
			time.Sleep(3 * time.Second)
		}
		if after := led(); !slices.Equal(before, after) {
			w.fail(lawRuns, "leaders and epochs were %v and are %v", before, after)
		}
	}}}})
}

// What is committed by the other disks while this one stands still is no damage: a fetch reads no further than this
// node's own disk, and waits for the rest.
func TestFetch_readsNoFurtherThanThisNodesOwnDisk(t *testing.T) {
	ahead := 0
	runCase(t, 4, profile{nodes: []int{3}, steps: 3, pause: 2 * time.Second, actions: []action{{1, func(w *world) {
		p := w.hist.parts()[0]
		_, rs := w.replicas(p)
		k := slices.IndexFunc(rs, func(r replica) bool { return r.v.Serving })
		if k < 0 {
			return
		}
		l, at := rs[k].l, rs[k].p
		l.m.disk.stick()
		for range 60 { // it gives leadership away after 3 s
			time.Sleep(20 * time.Millisecond)
			readable, high := at.Readable(), at.HighWatermark()
			if high-1 <= readable {
				continue
			}
			ahead++
			res, ok := ask(l, patience, func(ctx context.Context, b wire.Broker) wire.FetchResponse {
				return b.Fetch(ctx, wire.FetchRequest{Topic: p.topic.name, Partition: p.number, Epoch: record.NoEpoch, Offset: high - 1, MaxBytes: 1 << 20, MaxWaitMs: 5})
			})
			if ok && errors.Is(res.Err, record.ErrDamaged) {
				w.fail(lawHealthy, "%s, with its disk at %d and a high watermark of %d: %v", l.m.name, readable, high, res.Err)
				break
			}
		}
		healDisks(w)
	}}}})
	if ahead == 0 {
		t.Error("no high watermark was ever ahead of its leader's disk")
	}
}
