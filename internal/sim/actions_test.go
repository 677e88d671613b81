package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"edged/internal/memnet"
	"edged/partition"
	"edged/record"
	"edged/storage"
	"edged/transport/wire"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// anyMachine gives a machine of those that ok takes, nil if there is none.
func (w *world) anyMachine(ok func(m *machine) bool) *machine {
	var ms []*machine
	for _, m := range w.machines {
		if !m.clone && !m.copied() && ok(m) {
			ms = append(ms, m)
		}
	}
	if len(ms) == 0 {
		return nil
	}
	return ms[w.rng.IntN(len(ms))]
}

// copied tells whether a clone of the machine runs. The machine has to stay as it is then: that the later one
// is refused rests on the earlier one being there.
func (m *machine) copied() bool {
	for _, c := range m.w.machines {
		if c.of == m && c.life != nil && !ended(c.life) {
			return true
		}
	}
	return false
}

func running(m *machine) bool { return m.life != nil }
func off(m *machine) bool     { return m.life == nil }

// cloned tells whether a clone runs and has not been refused yet.
func (w *world) cloned() bool {
	return slices.ContainsFunc(w.machines, func(m *machine) bool { return m.clone && m.life != nil && !ended(m.life) })
}

// boot starts a machine that is off.
func (w *world) boot(m *machine) {
	m.powerOn()
	if err := m.start(); err != nil {
		w.fail(lawRuns, "%s does not start: %v", m.name, err)
	}
}

func nothing(*world) {}

func bootOne(w *world) {
	if m := w.anyMachine(off); m != nil && !w.cloned() {
		w.boot(m)
	}
}

func bootAll(w *world) {
	for _, m := range w.machines {
		if m.life == nil && !m.clone && !w.over() {
			w.boot(m)
		}
	}
}

// kept is a share of unsynced bytes: none, all, or anything between.
func (w *world) kept() int { return []int{0, 0, 100, w.rng.IntN(101)}[w.rng.IntN(4)] }

func cutPower(w *world) {
	if m := w.anyMachine(running); m != nil && !w.cloned() {
		m.powerCut(w.kept())
	}
}

func killOne(w *world) {
	if m := w.anyMachine(running); m != nil {
		m.kill()
	}
}

func cutPowerOfAll(w *world) {
	kept := w.kept()
	for _, m := range w.machines {
		if m.life != nil {
			m.powerCut(kept)
		}
	}
	time.Sleep(time.Duration(w.rng.IntN(1000)) * time.Millisecond)
	bootAll(w)
}

// flicker is a power supply that comes and goes: a machine starts and goes off again within a moment.
func flicker(w *world) {
	m := w.anyMachine(off)
	if m == nil || w.cloned() {
		return
	}
	w.boot(m)
	time.Sleep(w.moment(300 * time.Millisecond))
	if m.life != nil && !w.over() {
		m.powerCut(w.kept())
	}
}

// cutPowerOfNew takes the power from a cluster that was just formed, in some runs: who is of it must not be forgotten.
func cutPowerOfNew(w *world) {
	if w.chance(3) {
		w.observe()
		cutPowerOfAll(w)
		w.awaitMembers(len(w.machines))
		w.observe()
	}
}

func stopOne(w *world) {
	m := w.anyMachine(func(m *machine) bool { return m.life != nil && m.life.n.Failure() == nil })
	if m == nil {
		return
	}
	if err := m.shutDown(); err != nil && !w.over() {
		w.fail(lawRuns, "%s stopped with: %v", m.name, err)
	}
}

func transfer(w *world) {
	ps := w.hist.parts()
	m := w.anyMachine(running)
	if m == nil || len(ps) == 0 {
		return
	}
	p, l := ps[w.rng.IntN(len(ps))], m.life
	w.wg.Go(func() {
		type answer struct {
			r   wire.TransferLeaderResponse
			err error
		}
		a, ok := ask(l, 5*time.Second, func(ctx context.Context, b wire.Broker) answer {
			r, err := b.TransferLeader(ctx, wire.TransferLeaderRequest{Topic: p.topic.name, Partition: p.number, To: record.NoNode})
			return answer{r, err}
		})
		w.story.tell("script", "transfer of %s: now %s epoch %d, %v, answered %v", p, w.name(a.r.Leader), a.r.Epoch, a.err, ok)
	})
}

func createTopic(w *world) {
	if w.made >= 3 {
		return
	}
	w.made++
	t, n := &topic{name: fmt.Sprintf("made%d", w.made), transient: true}, w.made
	w.clients.Go(func() {
		if w.tryCreate(t, 1+n%2, 8000+n, 10*time.Second) {
			for i, p := range t.partitions {
				pr := &producer{router: newRouter(w, 500+10*n+i), name: t.name, part: p, acks: wire.AcksAll, pid: -1, inFlight: 3, pace: 30 * time.Millisecond, pad: 50}
				w.clients.Go(pr.runIdempotent)
			}
		}
	})
}

func deleteTopic(w *world) {
	m := w.anyMachine(running)
	if m == nil {
		return
	}
	for _, p := range w.hist.parts() {
		t := p.topic
		if !t.transient || t.deleted.Load() {
			continue
		}
		t.deleted.Store(true)
		l := m.life
		w.wg.Go(func() {
			err, ok := ask(l, 5*time.Second, func(ctx context.Context, b wire.Broker) error {
				return b.DeleteTopic(ctx, wire.DeleteTopicRequest{Name: t.name})
			})
			w.story.tell("script", "delete of %s: %v, answered %v", t.name, err, ok)
		})
		return
	}
}

// Network.

func splitInTwo(w *world) {
	side := map[*machine]bool{}
	for _, m := range w.machines {
		side[m] = w.chance(2)
	}
	w.story.tell("script", "SPLIT")
	for _, a := range w.machines {
		for _, b := range w.machines {
			if side[a] && !side[b] {
				w.story.tell("script", "  %s | %s", a.name, b.name)
				w.net.Cut(a.addr(), b.addr())
			}
		}
	}
}

func isolateOne(w *world) {
	m := w.anyMachine(running)
	if m == nil {
		return
	}
	w.story.tell("script", "ISOLATED: %s", m.name)
	for _, o := range w.machines {
		if o != m {
			w.net.Cut(m.addr(), o.addr())
		}
	}
}

func cutOneWay(w *world) {
	a, b := w.machines[w.rng.IntN(len(w.machines))], w.machines[w.rng.IntN(len(w.machines))]
	if a != b {
		w.story.tell("script", "ONE WAY CUT: %s -> %s", a.name, b.name)
		w.net.CutOneWay(a.addr(), b.addr())
	}
}

func healNetwork(w *world) {
	w.story.tell("script", "network healed")
	w.net.HealAll()
	w.net.SetLinks(w.link)
}

func resetLinks(w *world) {
	a, b := w.machines[w.rng.IntN(len(w.machines))], w.machines[w.rng.IntN(len(w.machines))]
	if a != b {
		w.story.tell("script", "connections of %s and %s reset", a.name, b.name)
		w.net.Reset(a.addr(), b.addr())
	}
}

func slowLinks(w *world) {
	a, b := w.machines[w.rng.IntN(len(w.machines))], w.machines[w.rng.IntN(len(w.machines))]
	if a == b {
		return
	}
	l := memnet.Link{Delay: time.Duration(w.rng.IntN(200)) * time.Millisecond, Jitter: 50 * time.Millisecond, Loss: 0.2}
	if w.chance(2) {
		l.Rate = 20 << 10
	}
	w.story.tell("script", "slow link: %s -> %s: %+v", a.name, b.name, l)
	w.net.SetLink(a.addr(), b.addr(), l)
}

// Processes.

func pauseOne(w *world) {
	if m := w.anyMachine(running); m != nil {
		m.life.pause()
	}
}

func stopped(m *machine) bool { return m.life != nil && m.life.still.Load() != nil }

func resumeOne(w *world) {
	if m := w.anyMachine(stopped); m != nil {
		m.life.resume()
	}
}

func resumeAll(w *world) {
	for _, l := range w.lives() {
		l.resume()
	}
}

// Disks.

func slowDisk(w *world) {
	if m := w.anyMachine(running); m != nil {
		d := []time.Duration{50 * time.Millisecond, 500 * time.Millisecond, 3 * time.Second}[w.rng.IntN(3)]
		w.story.tell(m.name, "SLOW DISK: up to %v", d)
		m.disk.setSlow(d)
	}
}

func stickDisk(w *world) {
	if m := w.anyMachine(running); m != nil {
		w.story.tell(m.name, "DISK STUCK")
		m.disk.stick()
	}
}

func failDisk(w *world) {
	if m := w.anyMachine(running); m != nil {
		w.story.tell(m.name, "DISK FAILS ONCE")
		m.disk.fail(1)
	}
}

func fillDisk(w *world) {
	if m := w.anyMachine(running); m != nil {
		w.story.tell(m.name, "DISK FULL")
		m.disk.setFull(true)
	}
}

func healDisks(w *world) {
	w.story.tell("script", "disks healed")
	for _, m := range w.machines {
		if m.life != nil {
			m.disk.heal()
			m.disk.setSlow(w.diskPace)
		}
	}
}

// restartFailed does what a supervisor does when a node's health is red. What was not synced when
// the disk failed may be gone.
func restartFailed(w *world) {
	for _, m := range w.machines {
		if m.life != nil && m.life.n.Failure() != nil && !m.clone {
			w.story.tell(m.name, "its storage failed: %v", m.life.n.Failure())
			m.powerCut(w.kept())
			w.boot(m)
		}
	}
}

// Machines.

func grow(w *world) {
	if len(w.machines) >= grownTo {
		return
	}
	m := w.addMachine(0, w.addresses())
	w.story.tell("script", "GROWS by %s", m.name)
	w.boot(m)
}

// addresses are the gossip addresses that all machines have now.
func (w *world) addresses() []string {
	var as []string
	for _, m := range w.machines {
		if !m.clone {
			as = append(as, fmt.Sprintf("%s:%d", m.addr(), gossipPort))
		}
	}
	return as
}

// spreadWithin is how soon all have heard of a new address and remember it over a restart.
const spreadWithin = 10 * time.Second

// moveOne gives a machine another address, while all others keep theirs and are there: who knows nobody's
// address cannot be found again.
func moveOne(w *world) {
	if w.anyMachine(off) != nil || w.cloned() || len(w.machines) < 3 || w.since()-w.moved < spreadWithin {
		return
	}
	w.moved = w.since()
	m := w.anyMachine(running)
	m.powerCut(w.kept())
	m.move()
	w.boot(m)
}

// wipeOne takes a machine's disk away, once in a run, and only where the others hold everything.
func wipeOne(w *world) {
	if w.wiped || w.cloned() || !w.redundant() {
		return
	}
	m := w.anyMachine(running)
	if m == nil {
		return
	}
	w.wiped = true
	m.powerCut(0)
	m.renew("DISK WIPED")
}

// flipBit starts a machine with one bit of its disk flipped, once in a run, and only where the others hold
// everything. It may find nothing, fetch damaged replicas anew, or refuse to start and say why; what it tells
// clients is judged as ever. Then its disk is taken away.
func flipBit(w *world) {
	if w.wiped || w.cloned() || !w.redundant() {
		return
	}
	m := w.anyMachine(running)
	if m == nil || len(w.machines) < 3 {
		return
	}
	w.wiped = true
	m.powerCut(w.kept())
	where, _, err := w.rot(m.mem, "")
	if err != nil {
		w.fail(lawRuns, "the script cannot flip a bit: %v", err)
		return
	}
	w.story.tell(m.name, "BIT FLIPPED in %s", where)
	m.powerOn()
	switch err := m.start(); {
	case err == nil:
		time.Sleep(time.Duration(1+w.rng.IntN(4000)) * time.Millisecond)
		w.awaitMended(m)
		m.powerCut(w.kept())
	case !errors.Is(err, storage.ErrDamaged) && !errors.Is(err, storage.ErrLostTail) && !errors.Is(err, storage.ErrIdentityLost) && !errors.Is(err, storage.ErrNewerFormat) && !errors.Is(err, storage.ErrNotOurs):
		w.fail(lawNamed, "%s, with a bit flipped in %s: %v", m.name, where, err)
		return
	}
	m.powerOn()
	m.renew("DISK REPLACED")
}

// awaitMended waits until a machine has no damaged replica. All others are there and hold everything.
func (w *world) awaitMended(m *machine) {
	l := m.life
	if l == nil || l.n.Failure() != nil {
		return
	}
	damaged := func() (out []string) {
		h := l.n.Host()
		if h == nil {
			return nil
		}
		if v := h.Partition(record.MetadataGroup).View(); v.Role == partition.RoleDamaged {
			out = append(out, fmt.Sprintf("metadata: %v", v.Err))
		}
		for _, p := range w.hist.parts() {
			g, _ := w.replicas(p)
			pp := h.Lookup(g)
			if pp == nil {
				continue
			}
			if v := pp.View(); v.Role == partition.RoleDamaged {
				out = append(out, fmt.Sprintf("%s: %v", p, v.Err))
			} else if err := l.n.Store().Damage(g); err != nil {
				out = append(out, fmt.Sprintf("%s, in part: %v", p, err))
			}
		}
		return out
	}
	if found := damaged(); len(found) > 0 {
		w.story.tell(m.name, "DAMAGED: %v", found)
	}
	if !w.await(mendedWithin, func() bool { return len(damaged()) == 0 }) && !w.over() {
		w.fail(lawMended, "%s after %v: %v", m.name, mendedWithin, damaged())
	}
}

// mendedWithin is how long damaged replicas may be out of service while all others are there.
const mendedWithin = 30 * time.Second

// namesHosts tells of a file with addresses. With a flipped bit one may be a name, which is looked up by the
// system's resolver: that is no part of the bubble and ends the process.
func namesHosts(file string) bool { return file == "members" || file == "addresses.json" }

// rot flips one bit of a file that a node keeps and whose name ends so, and says of which. Again puts it right.
func (w *world) rot(fs *vfs.MemFS, suffix string) (where string, again func(*vfs.MemFS) error, err error) {
	var names []string
	for _, dir := range []string{dataDir, dataDir + "/store", dataDir + "/store/wal"} {
		ls, err := fs.List(dir)
		if err != nil {
			return "", nil, err
		}
		slices.Sort(ls)
		for _, name := range ls {
			if st, err := fs.Stat(dir + "/" + name); err == nil && !st.IsDir() && st.Size() > 0 && name != "LOCK" && !namesHosts(name) && strings.HasSuffix(name, suffix) {
				names = append(names, dir+"/"+name)
			}
		}
	}
	if len(names) == 0 {
		return "no file", func(*vfs.MemFS) error { return nil }, nil
	}
	name := names[w.rng.IntN(len(names))]
	st, err := fs.Stat(name)
	if err != nil {
		return "", nil, err
	}
	at, bit := w.rng.Int64N(st.Size()), byte(1)<<w.rng.IntN(8)
	flip := func(fs *vfs.MemFS) error { return flipIn(fs, name, at, bit) }
	return fmt.Sprintf("%s, byte %d of %d", name, at, st.Size()), flip, flip(fs)
}

func flipIn(fs *vfs.MemFS, name string, at int64, bit byte) error {
	f, err := fs.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	b, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	b[at] ^= bit
	out, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = out.Write(b)
	return errors.Join(err, out.Sync(), out.Close())
}

// redundant tells whether all machines run and each partition and the metadata have three voters,
// which all hold what is committed.
func (w *world) redundant() bool {
	if w.anyMachine(off) != nil {
		return false
	}
	for _, l := range w.lives() {
		h := l.n.Host()
		if h == nil || len(h.Partition(record.MetadataGroup).View().Voters) < 3 {
			return false
		}
	}
	for _, p := range w.hist.parts() {
		_, rs := w.replicas(p)
		if len(rs) < 3 {
			return false
		}
		for _, r := range rs {
			if len(r.v.Voters) < 3 {
				return false
			}
		}
	}
	return true
}

// drainOne takes a node out of the cluster by command, once in a run, and lets its machine join as a new one. All
// that it holds moves to others first, while clients go on. Half of the time it is told to stay after a moment.
func drainOne(w *world) {
	if w.wiped || w.cloned() || len(w.machines) < 4 || !w.redundant() {
		return
	}
	m, via := w.anyMachine(running), w.anyMachine(running)
	if m == nil || via == nil || via == m {
		return
	}
	healNetwork(w)
	id, l, stay := m.life.id, via.life, w.chance(2)
	w.story.tell("script", "REMOVE %s, asked of %s", m.name, via.name)
	remove := func(limit time.Duration, cancel bool) (res wire.RemoveNodeResponse, err error) {
		type answer struct {
			r   wire.RemoveNodeResponse
			err error
		}
		a, _ := ask(l, limit, func(ctx context.Context, b wire.Broker) answer {
			r, err := b.RemoveNode(ctx, wire.RemoveNodeRequest{Node: id, Force: true, Cancel: cancel, TimeoutMs: int32(limit.Milliseconds())})
			return answer{r, err}
		})
		w.story.tell("script", "remove %s: %+v, %v", m.name, a.r, a.err)
		return a.r, a.err
	}
	limit := 20 * time.Second
	if stay {
		limit = time.Second
	}
	if res, _ := remove(limit, false); !res.Removed {
		w.await(liveWithin, func() bool { _, err := remove(3*time.Second, true); return err == nil })
		return
	}
	w.wiped = true
	m.powerCut(100)
	m.renew("REMOVED, joins as a new node")
}

// renew gives a machine that is off an empty disk: it joins as a new node.
func (m *machine) renew(why string) {
	w := m.w
	m.mem, m.backup, m.last = vfs.NewCrashableMem(), nil, storage.Identity{}
	if m.join = w.addresses(); m.expect == 1 {
		m.expect = 0 // or it would be a cluster of one again, as it was told
	}
	w.story.tell(m.name, "%s", why)
	w.boot(m)
}

// connected tells whether all machines run and every node says that it is connected with all others.
func (w *world) connected() bool {
	return len(w.lives()) == len(w.machines) && w.meet()
}

// meet tells whether all nodes that run see each other.
func (w *world) meet() bool {
	ls := w.lives()
	for _, l := range ls {
		s, ok := ask(l, patience, func(ctx context.Context, b wire.Broker) wire.Status {
			s, _ := b.Status(ctx)
			return s
		})
		if !ok || int(s.NodesAlive) < len(ls) {
			return false
		}
	}
	return true
}

// registered tells whether the cluster knows of this life of the node.
func (l *life) registered() bool {
	self := l.n.Picture().Node(l.id)
	return self != nil && self.BootCounter == l.n.Identity().BootCounter
}

// cloneOne copies a running node's disk to another machine and starts both. One of them has to end. In some
// runs a third one starts together with the clone, and may meet it before the true node.
func cloneOne(w *world) { cloneMet(w, w.chance(2)) }

func cloneMet(w *world, byFresh bool) {
	m := w.anyMachine(func(m *machine) bool { return m.life != nil && m.life.registered() })
	if m == nil || !w.connected() || w.clones > 0 {
		return
	}
	w.clones++
	c := w.addMachine(m.expect, w.addresses())
	c.clone, c.of = true, m
	c.mem = m.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(w.rng.Uint64(), 5))})
	w.story.tell(c.name, "CLONE of %s", m.name)
	fresh := w.anyMachine(func(o *machine) bool { return o.life != nil && o != m })
	if fresh == nil || !byFresh {
		w.boot(c)
		return
	}
	fresh.powerCut(w.kept())
	w.boot(fresh)
	w.boot(c)
}

// restoreOne starts a machine with a disk it had in an earlier life, which has to be refused, and then
// with its own again. A backup that was made in the life that ends with the restore tells nobody that it is
// one: no start was counted in between, or none that anybody heard of.
func restoreOne(w *world) {
	m := w.anyMachine(func(m *machine) bool {
		return m.life != nil && m.backup != nil && m.backup.life < m.life.number && m.life.registered()
	})
	if w.cloned() {
		return
	}
	if m == nil || w.anyMachine(off) != nil {
		for _, m := range w.machines {
			if m.life != nil && !m.clone && m.backup == nil {
				image := m.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(w.rng.Uint64(), 6))})
				m.backup = &backup{image, m.life.number}
			}
		}
		return
	}
	m.powerCut(100)
	own, last := m.mem, m.last
	m.mem, m.backup, m.last, m.old = m.backup.mem, nil, storage.Identity{}, true
	w.story.tell(m.name, "BACKUP RESTORED")
	w.boot(m)
	l := m.life
	select {
	case <-l.ended:
		w.story.tell(m.name, "ended: %v", l.err)
	case <-time.After(endsWithin):
		w.fail(lawClone, "%s runs on with a restored backup", m.name)
		return
	}
	m.powerCut(100)
	m.mem, m.last, m.old = own, last, false
	w.boot(m)
}

// endsWithin is how long a node may go on under an identity that another one has.
const endsWithin = 30 * time.Second

// endClones sees to it that no two nodes with one identity are left.
func (w *world) endClones() {
	for _, c := range w.machines {
		if !c.clone || c.life == nil {
			continue
		}
		w.await(endsWithin, func() bool { return ended(c.life) || c.of.life == nil || ended(c.of.life) })
		if !ended(c.life) && c.of.life != nil && !ended(c.of.life) {
			w.fail(lawClone, "%s and its clone %s both run on", c.of.name, c.name)
			return
		}
		c.powerCut(0)
	}
	for _, m := range w.machines {
		if m.life != nil && ended(m.life) {
			m.powerCut(100)
		}
	}
}

func ended(l *life) bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// Clocks.

// wrongClock begins a run with a clock that was never set, or was.
func wrongClock(w *world) {
	now := time.Now()
	day := []time.Time{time.Unix(0, 0), now, time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 5, 15, 0, 0, 0, 0, time.UTC)}[w.rng.IntN(4)]
	w.clock.ahead.Store(int64(day.Sub(now)))
	w.story.tell("script", "the clock shows %v", w.clock.now())
}

// setClock lets people, or the network, set the clock.
func setClock(w *world) {
	d := []time.Duration{time.Hour, -time.Hour, 14 * 24 * time.Hour, -10 * time.Minute, 0}[w.rng.IntN(5)]
	if d == 0 {
		d = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC).Sub(w.clock.now())
	}
	w.clock.ahead.Add(int64(d))
	w.story.tell("script", "THE CLOCK is set by %v and shows %v", d, w.clock.now())
}

// skewOne sets the clock of one machine alone.
func skewOne(w *world) {
	m := w.machines[w.rng.IntN(len(w.machines))]
	d := []time.Duration{0, 19 * 24 * time.Hour, -time.Hour}[w.rng.IntN(3)]
	m.ahead.Store(int64(d))
	w.story.tell(m.name, "its CLOCK is %v ahead of the others", d)
}
