package storage

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"edged/record"
)

// TestBadUpdatesAreRefused: an update that breaks a law is refused by name, changes nothing, and
// the store goes on.
func TestBadUpdatesAreRefused(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), Options{})
	defer mustClose(t, s)
	replica := record.MakeReplicaID(1, 1)
	mustCommit(t, s, create(1), Update{Group: 1, HardState: &HardState{Term: 5, Vote: 7}, Entries: batches(1, 5, 0, 20, 100)},
		Update{Group: 1, Base: &Base{Index: 4, Term: 5, NextOffset: 8, LogStart: 9}, Checkpoint: &Checkpoint{Applied: 10, NextOffset: 20}})
	before, err := storeDigests(s)
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(e *Entry)) []Entry {
		es := batches(21, 5, 40, 2, 10)
		change(&es[1])
		return es
	}
	many := make([]record.ReplicaID, maxConfMembers+1)
	for says, u := range map[string]Update{
		"class 8":                   {Group: 1, Class: NumClasses},
		"no such group":             {Group: 2, Entries: batches(1, 1, 0, 1, 1)},
		"for replica 1/2":           {Group: 1, Replica: replica + 1, Entries: batches(21, 5, 40, 1, 1)},
		"remove is for replica":     {Group: 1, Replica: replica + 1, Remove: true},
		"term 4 goes back":          {Group: 1, HardState: &HardState{Term: 4, Vote: 7}},
		"second vote in term 5":     {Group: 1, HardState: &HardState{Term: 5, Vote: 8}},
		"index does not follow":     {Group: 1, Entries: batches(22, 5, 40, 1, 1)},
		"gap":                       {Group: 1, Entries: append(batches(21, 5, 40, 1, 1), batches(23, 5, 42, 1, 1)...)},
		"before what is applied":    {Group: 1, Entries: batches(10, 6, 18, 1, 1)},
		"its term goes back":        {Group: 1, Entries: with(func(e *Entry) { e.Term = 4 })},
		"kind is not known":         {Group: 1, Entries: with(func(e *Entry) { e.Kind = kindEnd })},
		"not the next offset":       {Group: 1, Entries: with(func(e *Entry) { e.BaseOffset++ })},
		"spans no offsets":          {Group: 1, Entries: with(func(e *Entry) { e.Count = 0 })},
		"but is no batch":           {Group: 1, Entries: with(func(e *Entry) { e.Kind = KindControl })},
		"too large":                 {Group: 1, Entries: with(func(e *Entry) { e.Data = make([]byte, MaxEntryBytes+1) })},
		"base 3":                    {Group: 1, Base: &Base{Index: 3, Term: 5, NextOffset: 6, LogStart: 9}},
		"base 21":                   {Group: 1, Base: &Base{Index: 21, Term: 5, NextOffset: 42, LogStart: 42}},
		"has term 6":                {Group: 1, Base: &Base{Index: 8, Term: 6, NextOffset: 16, LogStart: 16}},
		"next offset 17":            {Group: 1, Base: &Base{Index: 8, Term: 5, NextOffset: 17, LogStart: 17}},
		"log start 15 is not":       {Group: 1, Base: &Base{Index: 8, Term: 5, NextOffset: 16, LogStart: 15}},
		"log start 41 is not":       {Group: 1, Base: &Base{Index: 8, Term: 5, NextOffset: 16, LogStart: 41}},
		"log start 8":               {Group: 1, Base: &Base{Index: 4, Term: 5, NextOffset: 8, LogStart: 8}},
		"checkpoint is of entry 3":  {Group: 1, Checkpoint: &Checkpoint{Applied: 3}},
		"checkpoint is of entry 21": {Group: 1, Checkpoint: &Checkpoint{Applied: 21}},
		"checkpoint is of entry 10": {Group: 1, Base: &Base{Index: 12, Term: 5, NextOffset: 24, LogStart: 24}},
		"first configuration":       {Group: 1, Checkpoint: &Checkpoint{Applied: 10, Confs: []ConfAt{{Index: 5}}}},
		"out of order":              {Group: 1, Checkpoint: &Checkpoint{Applied: 10, Confs: []ConfAt{{Index: 3}, {Index: 3}}}},
		"more than 1024 members":    {Group: 1, Checkpoint: &Checkpoint{Applied: 10, Confs: []ConfAt{{Conf: ConfState{Voters: many}}}}},
		"at most 33554432":          {Group: 1, Checkpoint: &Checkpoint{Applied: 10, State: make([]byte, MaxCheckpointBytes+1)}},
		"needs the checkpoint":      {Group: 1, Reset: &Base{Index: 9}},
		"of that entry":             {Group: 1, Reset: &Base{Index: 9}, Checkpoint: &Checkpoint{Applied: 8}},
		"reset and a base":          {Group: 1, Reset: &Base{}, Base: &Base{}, Checkpoint: &Checkpoint{}},
		"reset to base":             {Group: 1, Reset: &Base{NextOffset: 4, LogStart: 3}, Checkpoint: &Checkpoint{}},
	} {
		if says == "gap" {
			says = "index does not follow"
		}
		err := s.Commit([]Update{{Group: 3, Reset: &Base{}, Checkpoint: &Checkpoint{}}, u}, true)
		var ue *UpdateError
		if !errors.Is(err, ErrBadUpdate) || !errors.As(err, &ue) || ue.Group != u.Group || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
		if err := s.Commit([]Update{{Group: 3, Remove: true}}, true); err != nil {
			t.Fatal(err)
		}
		if after, err := storeDigests(s); err != nil || !after.equal(before) {
			t.Fatalf("%s: the store has changed, %v", says, err)
		}
	}
	mustCommit(t, s, Update{Group: 1, Entries: batches(21, 5, 40, 1, 1)})
}

// TestANewReplicaStartsWithoutAVote: the group is another one for Raft, its terms may be lower.
func TestANewReplicaStartsWithoutAVote(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), Options{})
	defer mustClose(t, s)
	mustCommit(t, s, create(1), Update{Group: 1, HardState: &HardState{Term: 5, Vote: 7}})
	u := create(1)
	u.HardState = &HardState{Term: 3}
	if err := s.Commit([]Update{u}, true); !errors.Is(err, ErrBadUpdate) {
		t.Fatal(err)
	}
	mustCommit(t, s, create(1)) // the hard state stays as it was
	if st, _ := s.State(1); st.HardState != (HardState{Term: 5, Vote: 7}) {
		t.Fatal(st.HardState)
	}
	u.Replica++
	mustCommit(t, s, u)
	if st, _ := s.State(1); st.HardState != *u.HardState || st.Replica != u.Replica {
		t.Fatal(st)
	}
}

// TestUpdatesOfOneCommitBuildOnEachOther, also if one replaces what the one before it wrote.
func TestUpdatesOfOneCommitBuildOnEachOther(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, fs, Options{})
	mustCommit(t, s,
		create(1),
		Update{Group: 1, Entries: batches(1, 1, 0, 10, 50)},
		Update{Group: 1, Entries: batches(11, 1, 20, 10, 50)},
		Update{Group: 1, Entries: batches(15, 2, 28, 3, 50)},
		Update{Group: 1, Base: &Base{Index: 16, Term: 2, NextOffset: 32, LogStart: 32}, Checkpoint: &Checkpoint{Applied: 16}},
		create(2),
		Update{Group: 2, Entries: batches(1, 1, 0, 10, 50)},
		Update{Group: 2, Remove: true},
		create(2),
		Update{Group: 2, Entries: batches(1, 3, 0, 2, 50)})
	for range 2 {
		es, err := s.Entries(1, 17, 18, 1<<20)
		if err != nil || len(es) != 1 || es[0].Term != 2 || s.Size(1) != 50 {
			t.Fatal(es, err, s.Size(1))
		}
		es, err = s.Entries(2, 1, 3, 1<<20)
		if err != nil || len(es) != 2 || es[0].Term != 3 {
			t.Fatal(es, err)
		}
		mustClose(t, s)
		s = mustOpen(t, fs, Options{})
	}
	mustClose(t, s)
}

// TestCutToTheBase: a suffix that begins right after a base in the middle of a bucket.
func TestCutToTheBase(t *testing.T) {
	for _, between := range []bool{false, true} {
		fs := vfs.NewMem()
		s := mustOpen(t, fs, Options{MemTableSize: minMemTableSize})
		mustCommit(t, s, create(1), Update{Group: 1, Entries: batches(1, 1, 0, 20, 500)},
			Update{Group: 1, Base: &Base{Index: 10, Term: 1, NextOffset: 20, LogStart: 20}, Checkpoint: &Checkpoint{Applied: 10}})
		if between { // in another bucket than what is cut
			mustCommit(t, s, create(2), Update{Group: 2, Entries: batches(1, 1, 0, 100, 1000)})
		}
		mustCommit(t, s, Update{Group: 1, Entries: batches(11, 2, 20, 3, 500)})
		for range 2 {
			if n := s.Size(1); n != 1500 {
				t.Fatalf("size %d", n)
			}
			if st, _ := s.State(1); st.Err != nil || fmt.Sprint(st.TermRuns) != "[{11 2 20}]" {
				t.Fatalf("%+v", st)
			}
			mustClose(t, s)
			if r, err := Verify(fs, "data"); err != nil || len(r.Problems) > 0 {
				t.Fatal(err, r.Problems)
			}
			s = mustOpen(t, fs, Options{MemTableSize: minMemTableSize})
		}
		mustClose(t, s)
	}
}

// TestNilCommitSyncs: what was committed without sync is durable after Commit(nil, true).
func TestNilCommitSyncs(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := mustOpen(t, fs, Options{})
	if err := s.Commit([]Update{create(1), {Group: 1, Entries: batches(1, 1, 0, 3, 10)}}, false); err != nil {
		t.Fatal(err)
	}
	lost := mustOpen(t, fs.CrashClone(vfs.CrashCloneCfg{}), Options{})
	if _, ok := lost.State(1); ok {
		t.Error("kept without a sync: the test cannot show what it wants to")
	}
	mustClose(t, lost)
	if err := s.Commit(nil, true); err != nil {
		t.Fatal(err)
	}
	kept := mustOpen(t, fs.CrashClone(vfs.CrashCloneCfg{}), Options{})
	if st, ok := kept.State(1); !ok || st.LastIndex != 3 {
		t.Error("lost after a sync")
	}
	mustClose(t, kept)
	mustClose(t, s)
}

// TestEntriesUpToMaxBytes but never none.
func TestEntriesUpToMaxBytes(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), Options{})
	defer mustClose(t, s)
	mustCommit(t, s, create(1), Update{Group: 1, Entries: batches(1, 1, 0, 10, 100)})
	for maxBytes, want := range map[int64]int{0: 1, 1: 1, 100: 1, 199: 1, 200: 2, 350: 3, 1 << 40: 10} {
		if es, err := s.Entries(1, 1, 11, maxBytes); err != nil || len(es) != want {
			t.Errorf("%d bytes: %d entries, %v", maxBytes, len(es), err)
		}
	}
	if es, err := s.Entries(1, 5, 5, 1); err != nil || len(es) != 0 {
		t.Error(es, err)
	}
	for _, g := range []record.GroupID{1, 99} {
		_, err := s.Entries(g, 5, 4, 1)
		if !errors.Is(err, map[record.GroupID]error{1: ErrUnavailable, 99: ErrUnknownGroup}[g]) {
			t.Error(err)
		}
	}
}

// TestLargeEntriesAndCheckpoints: those above the memtable go round it, and are kept.
func TestLargeEntriesAndCheckpoints(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := mustOpen(t, fs, Options{MemTableSize: 256 << 10})
	next, index := record.Offset(0), uint64(1)
	mustCommit(t, s, create(1), create(2))
	for _, size := range []int{60 << 10, 100 << 10, 130 << 10, 250 << 10, 300 << 10, 2 << 20, 10, 200 << 10} {
		mustCommit(t, s, Update{Group: 1, Entries: batches(index, 1, next, 2, size)},
			Update{Group: 2, Entries: batches(index, 1, next, 2, 100), Checkpoint: &Checkpoint{State: make([]byte, size)}})
		index, next = index+2, next+4
	}
	for _, disk := range []*vfs.MemFS{fs.CrashClone(vfs.CrashCloneCfg{}), fs} {
		if disk == fs {
			mustClose(t, s)
		}
		r, err := Verify(disk, "data")
		if err != nil || len(r.Problems) > 0 || r.Entries != 2*int64(index-1) {
			t.Fatal(err, r)
		}
	}
}

// TestReadOnlyChangesNothing: a dump of a stopped node leaves every byte as it was.
func TestReadOnlyChangesNothing(t *testing.T) {
	w := newWorld(t, 3)
	for range 100 {
		w.randomCommit(true)
	}
	fs := w.fs.CrashClone(vfs.CrashCloneCfg{})
	want := w.m.digests()
	mustClose(t, w.s)
	hooks := newHookFS(fs)
	hooks.set(func(op fsOp) error {
		if op.name != "LOCK" && op.kind != opOpen && op.kind != opRead {
			t.Errorf("%+v", op)
		}
		return nil
	})
	s := mustOpen(t, hooks, Options{ReadOnly: true})
	if got, err := storeDigests(s); err != nil || !got.equal(want) {
		t.Error("other answers", err)
	}
	if err := s.Commit([]Update{create(9)}, true); !errors.Is(err, ErrReadOnly) {
		t.Error(err)
	}
	if _, err := s.Reclaim(); !errors.Is(err, ErrReadOnly) {
		t.Error(err)
	}
	mustClose(t, s)
	if _, err := Open("nowhere", vfs.NewMem(), Options{ReadOnly: true}); err == nil {
		t.Error("opened what is not there")
	}
}
