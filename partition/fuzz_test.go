package partition

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"edged/record"
	"edged/storage"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// someMessage is a message with every field that a frame carries.
func someMessage() *pb.Message {
	return &pb.Message{
		Type: pb.MsgApp.Enum(), From: new(uint64(1<<32 | 7)), To: new(uint64(2<<32 | 7)), Term: new(uint64(5)), LogTerm: new(uint64(4)),
		Index: new(uint64(300)), Commit: new(uint64(299)), Vote: new(uint64(9)), Reject: new(true), RejectHint: new(uint64(12)), Context: []byte("ctx"),
		Entries: []*pb.Entry{
			{Type: pb.EntryNormal.Enum(), Term: new(uint64(5)), Index: new(uint64(301)), Data: []byte("small")},
			{Type: pb.EntryConfChangeV2.Enum(), Term: new(uint64(5)), Index: new(uint64(302))},
			{Type: pb.EntryNormal.Enum(), Term: new(uint64(5)), Index: new(uint64(303)), Data: bytes.Repeat([]byte("large"), inlineData)},
		},
		Snapshot: &pb.Snapshot{Data: []byte("base"), Metadata: &pb.SnapshotMetadata{Index: new(uint64(10)), Term: new(uint64(1)),
			ConfState: &pb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}, VotersOutgoing: []uint64{1, 5}, LearnersNext: []uint64{5}, AutoLeave: new(true)}}},
	}
}

func someFrame(ms ...*pb.Message) []byte {
	var f frame
	f.begin(envelope{from: 1, to: 2, fromBoot: 3, toBoot: 4, cluster: record.ClusterID{5}})
	for _, m := range ms {
		f.raft(7, m)
	}
	return slices.Concat(f.finish()...)
}

func TestFrame_carriesMessagesWhole(t *testing.T) {
	want := []*pb.Message{someMessage(), {Type: pb.MsgHeartbeat.Enum(), From: new(uint64(1)), To: new(uint64(2)), Term: new(uint64(3))}}
	b := someFrame(want...)
	e, items, err := decodeEnvelope(b)
	if err != nil || e.from != 1 || e.to != 2 || e.fromBoot != 3 || e.toBoot != 4 || e.cluster != (record.ClusterID{5}) {
		t.Fatalf("envelope %+v, %v", e, err)
	}
	r := frameReader{b: items}
	for _, w := range want {
		if r.u8() != itemRaft {
			t.Fatal("no raft item")
		}
		g, m := r.raft()
		if g != 7 || r.err != nil || !proto.Equal(m, w) {
			t.Errorf("got %v, %v\nwant %v", m, r.err, w)
		}
	}
	if len(r.b) != 0 {
		t.Errorf("%d bytes left", len(r.b))
	}
}

// FuzzFrame holds against any bytes from a peer: no panic, no more memory than the frame is long,
// and what decodes encodes to what decodes the same.
func FuzzFrame(f *testing.F) {
	f.Add(someFrame(someMessage()))
	f.Add(append(someFrame(), itemBeat, 0, 100, 1, 0, 0, 0, 9, 0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8))
	f.Add(append(someFrame(), wakeItem([]record.GroupID{1, 2})...))
	f.Add(append(someFrame(), itemClaims, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, items, err := decodeEnvelope(b)
		if err != nil {
			return
		}
		for r := (frameReader{b: items}); len(r.b) > 0 && r.err == nil; {
			if r.u8() != itemRaft {
				return
			}
			g, m := r.raft()
			if r.err != nil {
				return
			}
			if len(m.GetEntries())*3 > len(b) {
				t.Fatalf("%d entries of %d bytes", len(m.GetEntries()), len(b))
			}
			again := frame{}
			again.begin(envelope{})
			again.raft(g, m)
			r2 := frameReader{b: slices.Concat(again.finish()...)[frameHeadSize+1:]}
			if g2, m2 := r2.raft(); g2 != g || r2.err != nil || !proto.Equal(m, m2) {
				t.Fatalf("%v became %v, %v", m, m2, r2.err)
			}
		}
	})
}

// FuzzCore gives a whole node any frame in the name of a peer it knows: at worst a replica goes out
// of service, and only there.
func FuzzCore(f *testing.F) {
	frames := func(s *sim, keep func(simFrame)) {
		s.tap = func(fr simFrame) bool { keep(fr); return false }
		s.put(1, 2)
		s.transfer(1)
		s.run(100e6)
		s.tap = nil
	}
	s := newSim(f, 1, 3)
	s.ready(2)
	n := 0
	frames(s, func(fr simFrame) {
		if n++; fr.to == 0 && n < 400 {
			f.Add(fr.payload[frameHeadSize:])
		}
	})
	f.Fuzz(func(t *testing.T, items []byte) {
		s := newSim(t, 1, 3)
		s.ready(2)
		s.put(1, 1)
		s.laws.damaged = true
		a, b := s.nodes[0], s.nodes[1]
		e := envelope{from: b.id, fromBoot: b.boot, to: a.id, toBoot: a.boot}
		a.core.Step(s.now, PeerFrame{b.id, b.boot, append(e.append(nil), items...)})
		a.core.Flush(s.now)
		for _, sv := range a.core.TakeSaves() {
			if err := a.store.Commit(updatesOf([]Save{sv}), true); err != nil && s.group(0, sv.Update.Group).damaged == nil {
				t.Fatal(err)
			}
		}
		if a.core.failed != nil {
			t.Fatal("one frame ended the node")
		}
	})
}

func FuzzBaseRecord(f *testing.F) {
	f.Add(baseRecord{next: 5, logStart: 6, stateIndex: 9, state: []byte("state")}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeBaseRecord(b)
		if err != nil {
			return
		}
		if r.next < 0 || r.logStart < r.next {
			t.Fatalf("%+v was taken", r)
		}
		if !bytes.Equal(r.encode(), b) {
			t.Fatalf("%x encodes to %x", b, r.encode())
		}
	})
}

func FuzzCheckpointState(f *testing.F) {
	f.Add(checkpointState{kind: MetadataLog, relaxed: true, index: 3, commit: 4, state: []byte("state")}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeCheckpointState(b)
		if err != nil {
			return
		}
		if !bytes.Equal(s.encode(), b) || kindOfCheckpoint(b) != s.kind {
			t.Fatalf("%x encodes to %x", b, s.encode())
		}
	})
}

func FuzzLogStart(f *testing.F) {
	f.Add(logStart{keep: 3, base: 4, offset: 5}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := decodeLogStart(b)
		if err != nil {
			return
		}
		if l.base < 0 || l.offset < l.base || !bytes.Equal(l.encode(), b) {
			t.Fatalf("%+v from %x", l, b)
		}
	})
}

func FuzzProducers(f *testing.F) {
	t := newProducers(10)
	for i := range int64(4) {
		t.apply(stamp{id: i, epoch: int16(i), app: appended{first: 0, last: int32(i), base: record.Offset(i)}})
	}
	f.Add(t.snapshot())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		p := newProducers(10)
		if p.restore(b) != nil {
			return
		}
		again := newProducers(10)
		if err := again.restore(p.snapshot()); err != nil || !bytes.Equal(again.snapshot(), p.snapshot()) {
			t.Fatalf("a restored table does not restore: %v", err)
		}
	})
}

// FuzzEntry turns any entry that Raft may hand over into a stored one and back.
func FuzzEntry(f *testing.F) {
	b := record.NewBuilder(record.None, 1<<10)
	b.Append(1, nil, []byte("v"), nil)
	f.Add([]byte(b.Build()), uint8(0), false)
	f.Add(logStart{keep: 3}.encode(), uint8(0), false)
	f.Add([]byte("command"), uint8(0), true)
	f.Add([]byte{}, uint8(2), false)
	f.Fuzz(func(t *testing.T, data []byte, kind uint8, machine bool) {
		e := &pb.Entry{Type: pb.EntryType(kind % 3).Enum(), Index: new(uint64(4)), Term: new(uint64(2))}
		if len(data) > 0 {
			e.Data = data
		}
		s, err := toStored(e, machine)
		if err != nil {
			return
		}
		if s.Kind == storage.KindBatch && s.Count <= 0 {
			t.Fatal("a batch without offsets")
		}
		if back := toRaft(&s); !proto.Equal(back, e) {
			t.Fatalf("%v came back as %v", e, back)
		}
		_, _ = confChange(e) // no panic
	})
}

// dumbProducers is what the producer table should be, kept in the simplest way.
type dumbProducers struct {
	max   int
	order []int64 // by last batch, oldest first
	all   map[int64][]stamp
}

func (d *dumbProducers) apply(s stamp) {
	if _, ok := d.all[s.id]; !ok && len(d.order) >= d.max {
		delete(d.all, d.order[0])
		d.order = d.order[1:]
	}
	if l := d.all[s.id]; len(l) > 0 && l[0].epoch != s.epoch {
		d.all[s.id] = nil
	}
	d.all[s.id] = append(d.all[s.id], s)
	if n := len(d.all[s.id]); n > batchWindow {
		d.all[s.id] = d.all[s.id][n-batchWindow:]
	}
	d.order = append(slices.DeleteFunc(d.order, func(id int64) bool { return id == s.id }), s.id)
}

func TestProducers_areWhatADumbModelSays(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	table, dumb := newProducers(5), &dumbProducers{max: 5, all: map[int64][]stamp{}}
	next, offset := map[int64]stamp{}, record.Offset(0)
	for range 20000 {
		id := rng.Int64N(8)
		s := next[id]
		s.id = id
		switch rng.IntN(40) {
		case 0: // a new epoch
			s.epoch++
			s.app.last = -1
		case 1: // one that is near the end of the sequence numbers
			s.epoch++
			s.app.last = 1<<31 - 3
		}
		if _, known := next[id]; !known {
			s.app.last = -1
		}
		s.app.first = addSequence(s.app.last, 1)
		s.app.last = addSequence(s.app.first, rng.Int32N(4))
		s.app.base = offset
		offset += record.Offset(1 + rng.IntN(4))
		next[id] = s
		table.apply(s)
		dumb.apply(s)
		if rng.IntN(10) == 0 {
			fresh := newProducers(5)
			if err := fresh.restore(table.snapshot()); err != nil {
				t.Fatal(err)
			}
			table = fresh
		}
		if len(table.table) != len(dumb.all) {
			t.Fatalf("%d producers, should be %d", len(table.table), len(dumb.all))
		}
		for id, want := range dumb.all {
			p := table.table[id]
			if p == nil || int(p.n) != len(want) || p.epoch != want[0].epoch {
				t.Fatalf("producer %d: %+v, should be %v", id, p, want)
			}
			for i, w := range want {
				if p.batches[i] != w.app {
					t.Fatalf("producer %d: batch %d is %+v, should be %+v", id, i, p.batches[i], w.app)
				}
				if base, fresh, err := p.check(w, false); fresh || err != nil || base != w.app.base {
					t.Fatalf("a retry of %+v: %d %v %v", w, base, fresh, err)
				}
			}
			follows := stamp{id: id, epoch: p.epoch, app: appended{first: addSequence(p.lastSequence(), 1), last: addSequence(p.lastSequence(), 2)}}
			if _, fresh, err := p.check(follows, false); !fresh || err != nil {
				t.Fatalf("the next batch of %d: %v %v", id, fresh, err)
			}
		}
	}
}

// A base record taken at any entry, and the log after it, give what the whole log gives.
func TestBaseRecord_atAnyEntryAndTheRestEqualTheWhole(t *testing.T) {
	for seed := range uint64(6) {
		s := newSim(t, seed, 1)
		s.ready(1)
		rng := rand.New(rand.NewPCG(seed, 9))
		clients := []*simClient{{group: 1, acks: AcksAll, pid: 100, window: 2}, {group: 1, acks: AcksAll, pid: 101, window: 1}, {group: 1, acks: AcksAll, pid: -1, window: 1}}
		for range 40 {
			for _, c := range clients {
				if rng.IntN(2) == 0 {
					c.turn(s)
				}
			}
			if rng.IntN(10) == 0 {
				s.truncate(1)
			}
			s.run(10e6)
		}
		s.run(100e6)
		whole := s.group(0, 1)
		entries := s.nodes[0].store.groups[1].entries
		for at := whole.log.base.Index; at <= whole.log.last; at++ {
			checkBaseAt(t, whole, entries, at)
		}
	}
}

// checkBaseAt installs on an empty replica the base record of the whole log, cut to begin after entry
// at, and lets the rest be applied.
func checkBaseAt(t *testing.T, whole *group, entries []storage.Entry, at uint64) {
	t.Helper()
	partial := newSim(t, 1, 1)
	partial.tap = func(simFrame) bool { return true } // what it answers goes nowhere
	rs := partial.replicas(1, 0)
	partial.assign(&Assignment{Group: 1, Learners: rs, MaxBatch: 1 << 20})
	g, c := partial.group(0, 1), partial.nodes[0].core

	b := whole.log.base
	for _, e := range entries {
		if e.Index <= at {
			if b.Index, b.Term = e.Index, e.Term; e.Kind == storage.KindBatch {
				b.NextOffset = e.End()
			}
		}
	}
	b.LogStart = max(b.LogStart, b.NextOffset)
	r := baseRecord{next: b.NextOffset, logStart: b.LogStart, stateIndex: max(whole.applied, whole.stateIndex), state: whole.stateBytes()}
	conf := confToRaft(whole.log.confAt(b.Index))
	conf.Learners = append(conf.Learners, uint64(g.replica))
	leader := uint64(record.MakeReplicaID(9, 1))
	conf.Voters = []uint64{leader}
	c.Step(partial.now, PeerUp{9, 1})
	deliver := func(m *pb.Message) {
		m.From, m.To, m.Term = new(leader), new(uint64(g.replica)), new(whole.term)
		var f frame
		f.begin(envelope{from: 9, fromBoot: 1, to: 1, toBoot: partial.nodes[0].boot})
		f.raft(1, m)
		partial.step(0, PeerFrame{9, 1, slices.Concat(f.finish()...)})
		partial.flush(0)
		partial.run(20e6)
	}
	deliver(&pb.Message{Type: pb.MsgSnap.Enum(), Snapshot: &pb.Snapshot{Data: r.encode(), Metadata: &pb.SnapshotMetadata{Index: new(b.Index), Term: new(b.Term), ConfState: conf}}})
	rest := &pb.Message{Type: pb.MsgApp.Enum(), Index: new(b.Index), LogTerm: new(b.Term), Commit: new(whole.committed)}
	for i := range entries {
		if entries[i].Index > b.Index {
			if isConf(entries[i].Kind) {
				return // a configuration that the made-up leader is not in
			}
			rest.Entries = append(rest.Entries, toRaft(&entries[i]))
		}
	}
	deliver(rest)
	if g.damaged != nil {
		t.Fatalf("base at entry %d: %v", at, g.damaged)
	}
	if g.applied != whole.applied || g.next != whole.next || g.high != whole.high || !bytes.Equal(g.stateBytes(), whole.stateBytes()) {
		t.Fatalf("base at entry %d: applied %d next %d high %d, the whole %d %d %d", at, g.applied, g.next, g.high, whole.applied, whole.next, whole.high)
	}
}
